package db_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/dev/reference"
	"github.com/odometer-metering/odometer/metering"
)

// changeTo returns the change that gives a meter a definition of the reference.
func changeTo(d reference.Definition) catalog.MeterChange {
	filters := make([]metering.Filter, len(d.Filters))
	for i, f := range d.Filters {
		filters[i] = metering.Filter{Property: f.Property, Operator: metering.FilterOperator(f.Operator)}
		for _, literal := range f.Values {
			filters[i].Values = append(filters[i].Values, metering.ParseFilterValue(literal))
		}
	}
	return catalog.MeterChange{Aggregation: new(metering.Aggregation(d.Aggregation)), ValueProperty: &d.ValueProperty, Filters: &filters, GroupBy: &d.GroupBy}
}

// sentEvent is an event as sent. If its customer is erased, it also has the value that the meter counted before the erasure.
type sentEvent struct {
	customer          metering.CustomerID
	at                time.Time
	value, properties string
	erased            bool
	kept              *big.Rat // nil: the meter did not count the event
}

func (e sentEvent) counted(d reference.Definition) *big.Rat {
	if e.erased && (d.ValueProperty != "" || len(d.Filters) > 0) {
		return e.kept
	}
	return d.Value(e.value, reference.Decode(e.properties))
}

// measuring is a tenant with one meter, and a model of the meter's usage.
type measuring struct {
	*testing.T
	store      *db.DB
	conn       *pgx.Conn
	writer     *usage.Writer
	tenant     metering.TenantID
	day        time.Time
	definition reference.Definition
	events     []sentEvent
	erased     bool // whether any customer is erased
}

func newMeasuring(t *testing.T, zone string) *measuring {
	store := dbtest.Open(t)
	m := &measuring{T: t, store: store, conn: dbtest.Conn(t), tenant: dbtest.Tenant(t, store, zone).ID, writer: store.NewWriter(dbtest.WriterOptions)}
	t.Cleanup(m.writer.Close)
	m.day = clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	m.definition = reference.Definition{Aggregation: "sum"}
	dbtest.Meter(t, store, m.tenant, "tokens", "chat")
	return m
}

func (m *measuring) meter() metering.Meter {
	meter, err := m.store.Meters.Get(m.Context(), m.tenant, "tokens")
	require.NoError(m, err)
	return meter
}

func (m *measuring) redefine(d reference.Definition) {
	m.Helper()
	r := metering.Range{Start: m.day.Add(11 * time.Minute), End: m.day.Add(40*time.Hour + 23*time.Minute)}
	next, current := previewedUsage(m.previewed(d, r))
	require.Equal(m, m.totals("tokens", r), current, "by %+v, previewed %+v", m.definition, d)
	_, backfilling, err := m.store.Meters.Update(m.Context(), m.tenant, metering.Operator, "tokens", changeTo(d))
	require.NoError(m, err)
	if backfilling != nil {
		require.NoError(m, backfill(m.Context(), m.store, m.tenant, backfilling.ID))
	}
	require.Equal(m, m.totals("tokens", r), next, "previewed %+v", d)
	m.definition = d
}

func (m *measuring) send(customer string, at time.Time, value, properties string) usage.Outcome {
	m.Helper()
	outcomes, err := m.writer.Ingest(m.Context(), m.tenant, []metering.Event{dbtest.Event(m, "chat", customer, at, value, "", properties)})
	require.NoError(m, err)
	c, err := m.store.Customers.Get(m.Context(), m.tenant, customer)
	require.NoError(m, err)
	m.events = append(m.events, sentEvent{customer: c.ID, at: at, value: value, properties: properties})
	return outcomes[0]
}

// erase erases a customer if it exists. A later event with the same external id creates another customer.
func (m *measuring) erase(customer string) {
	m.Helper()
	c, err := m.store.Customers.Get(m.Context(), m.tenant, customer)
	if metering.CodeOf(err) == metering.CodeNotFound {
		return
	}
	require.NoError(m, err)
	_, err = m.store.Erasures.Begin(m.Context(), m.tenant, "key_1", customer, "asked for", clock.Now())
	require.NoError(m, err)
	eraseAll(m.T, m.store, m.tenant, c.ID)
	for i := range m.events {
		if e := &m.events[i]; e.customer == c.ID && !e.erased {
			e.erased, e.kept = true, m.definition.Value(e.value, reference.Decode(e.properties))
		}
	}
	m.erased = true
}

// expected returns the model's sum, count and group totals in a range, of a customer or of the whole tenant.
func (m *measuring) expected(customer metering.CustomerID, r metering.Range) (sum *big.Rat, count int64, groups []string) {
	sum = new(big.Rat)
	by, numbers := make(map[string]*big.Rat), make(map[string]int64)
	for _, e := range m.events {
		if !r.Contains(e.at) || customer != metering.WholeTenant && e.customer != customer {
			continue
		}
		value := e.counted(m.definition)
		if value == nil {
			continue
		}
		sum, count = new(big.Rat).Add(sum, value), count+1
		group := m.definition.Group(reference.Decode(e.properties))
		if by[group] == nil {
			by[group] = new(big.Rat)
		}
		by[group], numbers[group] = new(big.Rat).Add(by[group], value), numbers[group]+1
	}
	for group, total := range by {
		groups = append(groups, m.figure(total, numbers[group]))
	}
	slices.Sort(groups)
	return sum, count, groups
}

func (m *measuring) figure(sum *big.Rat, count int64) string {
	if m.definition.Aggregation == "count" {
		return fmt.Sprint(count)
	}
	return sum.RatString()
}

func rat(t testing.TB, d metering.Decimal) *big.Rat {
	r, ok := new(big.Rat).SetString(d.String())
	require.True(t, ok)
	return r
}

// check compares the totals, windows and daily usage of a range with the model. The range may cover hours in part.
// check also checks the list of events, a preview, and the audit.
func (m *measuring) check(r metering.Range) {
	m.Helper()
	meter := m.meter()
	customers := []metering.CustomerID{metering.WholeTenant}
	for _, e := range m.events {
		if !slices.Contains(customers, e.customer) {
			customers = append(customers, e.customer)
		}
	}
	for _, customer := range customers {
		sum, count, groups := m.expected(customer, r)
		totals, err := m.store.Usage.MeterTotals(m.Context(), m.tenant, customer, r)
		require.NoError(m, err)
		require.Equal(m, sum.RatString(), rat(m, totals[0].Sum).RatString(), "sum of %v in %v by %+v", customer, r, m.definition)
		require.Equal(m, count, totals[0].Count, "count of %v in %v by %+v", customer, r, m.definition)

		page, err := m.store.Usage.Windows(m.Context(), m.tenant, usage.WindowQuery{Customer: customer, Meter: meter, Range: r, Granularity: metering.Hour, Limit: 1000})
		require.NoError(m, err)
		require.Equal(m, m.figure(sum, count), rat(m, page.Total).RatString(), "windows of %v in %v", customer, r)
		var windows metering.Decimal
		for _, w := range page.Windows {
			windows = windows.Add(w.Value).Add(w.LateValue)
		}
		require.Equal(m, page.Total.String(), windows.String())
		if !m.erased {
			var shown []string
			for _, g := range page.Groups {
				shown = append(shown, rat(m, g.Total).RatString())
			}
			slices.Sort(shown)
			require.Equal(m, groups, shown, "groups of %v in %v by %+v", customer, r, m.definition)
		}
	}
	sum, count, _ := m.expected(metering.WholeTenant, r)
	days, err := m.store.Usage.Daily(m.Context(), m.tenant, []metering.Range{r})
	require.NoError(m, err)
	var daily metering.Decimal
	for _, d := range days[0].Days {
		daily = daily.Add(d.Usage)
	}
	require.Equal(m, m.figure(sum, count), rat(m, daily).RatString())
	m.checkLists()
	m.checkSums(m.previewed(m.definition, r))
	for day := range 2 {
		found, err := m.store.Discrepancies.Audit(m.Context(), m.tenant, m.day.AddDate(0, 0, day), clock.Now())
		require.NoError(m, err)
		require.Zero(m, found, "the audit finds a difference")
	}
}

// checkLists compares the number of listed events, and how often meters count them, with the model.
func (m *measuring) checkLists() {
	m.Helper()
	page, err := m.store.Events.List(m.Context(), m.tenant, usage.EventFilter{Range: metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 2)}}, nil, 1000,
		usage.Search{Now: clock.Now, Budget: dbtest.Deadline})
	require.NoError(m, err)
	listed, counted := 0, 0
	for _, e := range page.Events {
		listed, counted = listed+1, counted+len(e.CountedBy)
	}
	want := 0
	for _, e := range m.events {
		if e.counted(m.definition) != nil {
			want++
		}
	}
	require.Equal(m, []int{len(m.events), want}, []int{listed, counted})
}

var (
	someValues = []string{
		`1`, `2.50`, `-3`, `1e2`, `0.30000000000000004`, `0.0000000000025`, `5e-13`, `1e-99`, `1e18`, `999999999999999999.9999999999995`, `"4"`, `"1.5e1"`, `"x"`, `" 1"`, `true`, `null`, `{"z":1}`, `[1, 2]`,
	}
	someGroups  = []string{`"a"`, `"b<"`, `1`, `1.0`, `null`, `true`, `{"k": 1}`}
	someFilters = []reference.Filter{
		reference.Where("g", "eq", `"a"`), reference.Where("g", "ne", `1`), reference.Where("g", "in", `"b<"`, `1e0`, `true`),
		reference.Where("u.g", "not_in", `"a"`, `"{\"k\":1}"`), reference.Where("u.v", "exists"), reference.Where("v", "not_exists"),
		reference.Where("v", "gt", `1`), reference.Where("v", "gte", `2.5`), reference.Where("u.v", "lt", `100.0`), reference.Where("v", "lte", `0.3`),
		reference.Where("v", "eq", `"x"`),
	}
)

func drawProperties(t *rapid.T) string {
	var fields []string
	field := func(name string, values []string) string {
		value := rapid.SampledFrom(append([]string{""}, values...)).Draw(t, name)
		if value == "" {
			return ""
		}
		return fmt.Sprintf("%q: %s", name, value)
	}
	object := func(fields ...string) string {
		return "{" + strings.Join(slices.DeleteFunc(fields, func(f string) bool { return f == "" }), ", ") + "}"
	}
	nested := rapid.SampledFrom([]string{"", "object", "text"}).Draw(t, "nested")
	switch nested {
	case "object":
		fields = append(fields, `"u": `+object(field("v", someValues), field("g", someGroups)))
	case "text":
		fields = append(fields, `"u": "text"`)
	}
	if rapid.IntRange(0, 4).Draw(t, "literal") == 0 {
		fields = append(fields, field("u.v", someValues))
	}
	fields = append(fields, field("v", someValues), field("g", someGroups))
	return object(fields...)
}

func drawDefinition(t *rapid.T) reference.Definition {
	return reference.Definition{
		Aggregation:   rapid.SampledFrom([]string{"sum", "sum", "count"}).Draw(t, "aggregation"),
		ValueProperty: rapid.SampledFrom([]string{"", "v", "u.v"}).Draw(t, "value_property"),
		Filters:       rapid.SliceOfN(rapid.SampledFrom(someFilters), 0, 2).Draw(t, "filters"),
		GroupBy:       rapid.SampledFrom([][]string{{}, {"g"}, {"u.g", "g"}, {"v"}}).Draw(t, "group_by"),
	}
}

// TestPropertyMetersCountLikeReferenceModel checks that reads of usage agree with a model that shares no code with
// them. It sends events, redefines the meter, closes a period and erases a customer, in random order.
func TestPropertyMetersCountLikeReferenceModel(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(rt *rapid.T) {
		m := newMeasuring(t, rapid.SampledFrom([]string{"UTC", "Asia/Kathmandu"}).Draw(rt, "zone"))
		instant := func() time.Time {
			return m.day.Add(time.Duration(rapid.Int64Range(0, int64(48*time.Hour/time.Microsecond)-1).Draw(rt, "at")) * time.Microsecond)
		}
		closed := false
		acts := []func(){
			func() {
				for range 4 {
					m.send(rapid.SampledFrom([]string{"a", "b", "gone"}).Draw(rt, "customer"), instant(), rapid.SampledFrom([]string{"1", "2.5", "-1"}).Draw(rt, "value"), drawProperties(rt))
				}
			},
			func() { m.redefine(drawDefinition(rt)) },
			func() { require.NoError(t, m.store.Folds.Tenant(t.Context(), m.tenant)) },
			func() {
				if !closed && slices.ContainsFunc(m.events, func(e sentEvent) bool { return !e.erased }) {
					closed = true
					m.send("late", m.day, "1", "")
					c, err := m.store.Customers.Get(t.Context(), m.tenant, "late")
					require.NoError(t, err)
					closePeriods(t, m.conn, m.tenant, c.ID, metering.Range{Start: m.day.AddDate(0, 0, -5), End: m.day.AddDate(0, 0, 1)})
				}
				m.send("late", instant(), "2", drawProperties(rt))
			},
			func() { m.erase("gone") },
			func() {
				from, until := instant(), instant()
				if until.Before(from) {
					from, until = until, from
				}
				m.check(metering.Range{Start: from, End: until})
			},
		}
		for _, act := range rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3, 4, 5, 5}), 4, 12).Draw(rt, "acts") {
			acts[act]()
		}
		m.check(metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 2)})
		m.redefine(drawDefinition(rt))
		r := metering.Range{Start: m.day.Add(17 * time.Minute), End: m.day.Add(30*time.Hour + 7*time.Minute)}
		m.check(r)
		m.create(drawDefinition(rt), r)
	})
}

// TestAnEventOfALanguageModelFeedsThreeMeters checks that three meters sum three properties of the same events.
func TestAnEventOfALanguageModelFeedsThreeMeters(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	for slug, property := range map[string]string{"input": "prompt_tokens", "output": "completion_tokens", "cost": "cost"} {
		_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
			Slug: slug, EventType: "llm", Unit: "tokens", Version: metering.MeterVersion{Aggregation: metering.Sum, ValueProperty: property, GroupBy: []string{"model"}},
		})
		require.NoError(t, err)
	}
	for range 3 {
		outcome := ingest(t, store, tenant, dbtest.Event(t, "llm", "acme", november, "1", "", `{"model":"large","prompt_tokens":1250,"completion_tokens":310,"cost":0.10000000000000003}`))[0]
		require.Empty(t, outcome.Unusable)
	}
	usage := make(map[string]string)
	for _, m := range total(t, store, tenant, "acme", metering.WindowOf(november, metering.Hour, time.UTC)) {
		usage[m.Meter.Slug] = m.Usage.String()
	}
	require.Equal(t, map[string]string{"input": "3750", "output": "930", "cost": "0.3"}, usage)
}

// TestOutcomeOfEventWithoutUsableValueNamesMeter checks that an event without a usable value is stored, and that its
// outcome names the meter, the property and the rule. Other events are still counted.
func TestOutcomeOfEventWithoutUsableValueNamesMeter(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	m.redefine(reference.Definition{Aggregation: "sum", ValueProperty: "v", Filters: []reference.Filter{reference.Where("g", "eq", `"a"`)}})
	require.Equal(t, []usage.UnusableValue{{MeterSlug: "tokens", Property: "v", Rule: metering.ValueMissing}}, m.send("acme", m.day, "1", `{"g":"a"}`).Unusable)
	require.Equal(t, []usage.UnusableValue{{MeterSlug: "tokens", Property: "v", Rule: metering.ValueInvalid}}, m.send("acme", m.day, "1", `{"g":"a","v":"x"}`).Unusable)
	require.Empty(t, m.send("acme", m.day, "1", `{"g":"b"}`).Unusable, "the filter excludes it")
	require.Empty(t, m.send("acme", m.day, "1", `{"g":"a","v":"2.5"}`).Unusable)
	m.check(metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 2)})
	sum, count, _ := m.expected(metering.WholeTenant, metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)})
	require.Equal(t, "5/2 of 1", fmt.Sprint(sum, " of ", count))
}

// TestAuditFindsWrongTotalOfMeterWithValuePath checks that the audit finds a wrong total of a meter with a value path.
// Only a recount by the meter's own definition can find it.
func TestAuditFindsWrongTotalOfMeterWithValuePath(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kathmandu"} {
		m := newMeasuring(t, zone)
		m.redefine(reference.Definition{Aggregation: "sum", ValueProperty: "u.v"})
		for _, hour := range []int{0, 5, 23} {
			m.send("acme", m.day.Add(time.Duration(hour)*time.Hour+20*time.Minute), "1", `{"u":{"v":2}}`)
			m.send("acme", m.day.Add(time.Duration(hour)*time.Hour+20*time.Minute), "1", `{"u":{}}`)
		}
		require.NoError(t, m.store.Folds.Tenant(t.Context(), m.tenant))
		audit := func() int {
			found, err := m.store.Discrepancies.Audit(t.Context(), m.tenant, m.day, clock.Now())
			require.NoError(t, err)
			return found
		}
		require.Zero(t, audit())
		_, err := m.conn.Exec(t.Context(), `update usage_hourly set sum = sum + 1 where tenant_id = $1 and customer_id > 0 and hour between $2 and $3`,
			m.tenant, m.day.Add(4*time.Hour), m.day.Add(6*time.Hour))
		require.NoError(t, err)
		require.Equal(t, 1, audit(), zone)
	}
}

// TestNothingPersonalIsLeftOfEventsThatCountByPathAndFilter checks that an erasure removes all personal data of events
// that are counted by path and filter. Totals by this path and these filters stay unchanged.
func TestNothingPersonalIsLeftOfEventsThatCountByPathAndFilter(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, _ bool) {
		m := &measuring{T: t, store: store, conn: conn, tenant: dbtest.Tenant(t, store, "Asia/Kathmandu").ID, writer: store.NewWriter(dbtest.WriterOptions)}
		defer m.writer.Close()
		m.day = clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
		dbtest.Meter(t, store, m.tenant, "tokens", "chat")
		selecting := reference.Definition{
			Aggregation: "sum", ValueProperty: "usage.tokens", GroupBy: []string{"user.mail"},
			Filters: []reference.Filter{reference.Where("user.mail", "exists"), reference.Where("user.name", "ne", `"internal"`)},
		}
		m.redefine(selecting)
		for i := range 6 {
			at := m.day.Add(time.Duration(i) * 97 * time.Minute)
			m.send("ada@example.com", at, "1", fmt.Sprintf(`{"user":{"mail":"ada@example.com","name":"0441234567"},"usage":{"tokens":"%d.5"}}`, i))
			m.send("ada@example.com", at, "1", `{"user":{"mail":"ada@example.com","name":"internal"},"usage":{"tokens":100}}`)
			m.send("ada@example.com", at, "1", `{"user":{"mail":"ada@example.com"},"usage":{"tokens":"ada-laptop"}}`)
			m.send("bob", at, "1", `{"user":{"mail":"bob"},"usage":{"tokens":1}}`)
		}
		spans := []metering.Range{{Start: m.day, End: m.day.AddDate(0, 0, 1)}, {Start: m.day.Add(5 * time.Minute), End: m.day.Add(5*time.Hour + 33*time.Minute)}}
		for _, span := range spans {
			m.check(span)
		}
		m.erase("ada@example.com")
		requireGone(t, conn)
		for _, span := range spans {
			m.check(span)
		}
		m.redefine(reference.Definition{Aggregation: "count", ValueProperty: selecting.ValueProperty, Filters: selecting.Filters})
		m.check(spans[1])
		m.redefine(reference.Definition{Aggregation: "sum", ValueProperty: "usage.tokens"})
		m.check(spans[0])
		sum, _, _ := m.expected(metering.WholeTenant, spans[0])
		require.Equal(t, "24", sum.RatString(), "18 of erased events, 6 of bob")
		m.redefine(reference.Definition{Aggregation: "sum"})
		m.check(spans[0])
	})
}
