package db_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// naive is a meter's definition as the model reads it: with encoding/json and big.Rat, and
// without any code of the service.
type naive struct {
	aggregation   metering.Aggregation
	valueProperty string
	filters       []naiveFilter
	groupBy       []string
}

type naiveFilter struct {
	property string
	operator metering.FilterOperator
	values   []string // JSON literals
}

// selection tells definitions apart that select other events or values.
func (d naive) selection() string { return fmt.Sprint(d.valueProperty, d.filters) }

func (d naive) change() db.MeterChange {
	filters := make([]metering.Filter, len(d.filters))
	for i, f := range d.filters {
		filters[i] = metering.Filter{Property: f.property, Operator: f.operator}
		for _, literal := range f.values {
			filters[i].Values = append(filters[i].Values, metering.ParseFilterValue(json.RawMessage(literal)))
		}
	}
	return db.MeterChange{Aggregation: &d.aggregation, ValueProperty: &d.valueProperty, Filters: &filters, GroupBy: &d.groupBy}
}

func decoded(literal string) (value any) {
	decoder := json.NewDecoder(strings.NewReader(literal))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		panic(err)
	}
	return value
}

// property is nil for one that is missing, as for null.
func property(properties, path string) any {
	if properties == "" {
		return nil
	}
	all := decoded(properties).(map[string]any)
	if value, whole := all[path]; whole {
		return value
	}
	var value any = all
	for _, name := range strings.Split(path, ".") {
		object, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = object[name]
	}
	return value
}

// text is the same for values that are equal.
func text(value any) string {
	switch v := value.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return "number " + r.RatString()
	case string:
		return "text " + v
	case map[string]any, []any:
		compact, _ := json.Marshal(v)
		return "text " + string(compact)
	}
	return fmt.Sprint(value)
}

func (f naiveFilter) matches(properties string) bool {
	value := property(properties, f.property)
	equal := slices.ContainsFunc(f.values, func(literal string) bool { return text(decoded(literal)) == text(value) })
	switch f.operator {
	case metering.FilterExists:
		return value != nil
	case metering.FilterNotExists:
		return value == nil
	case metering.FilterEq, metering.FilterIn:
		return value != nil && equal
	case metering.FilterNe, metering.FilterNotIn:
		return value == nil || !equal
	}
	number, is := value.(json.Number)
	if !is {
		return false
	}
	a, _ := new(big.Rat).SetString(number.String())
	b, _ := new(big.Rat).SetString(f.values[0])
	return map[metering.FilterOperator]bool{
		metering.FilterGt: a.Cmp(b) > 0, metering.FilterGte: a.Cmp(b) >= 0, metering.FilterLt: a.Cmp(b) < 0, metering.FilterLte: a.Cmp(b) <= 0,
	}[f.operator]
}

var numberText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$`)

// value is nil for an event that is not counted.
func (d naive) value(value, properties string) *big.Rat {
	for _, f := range d.filters {
		if !f.matches(properties) {
			return nil
		}
	}
	if d.valueProperty != "" {
		switch v := property(properties, d.valueProperty).(type) {
		case json.Number:
			value = v.String()
		case string:
			value = v
		default:
			return nil
		}
	}
	if !numberText.MatchString(value) {
		return nil
	}
	exact, _ := new(big.Rat).SetString(value)
	rounded := toTwelveDecimals(exact)
	if new(big.Rat).Abs(rounded).Cmp(new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil))) >= 0 {
		return nil
	}
	return rounded
}

// toTwelveDecimals rounds half to even.
func toTwelveDecimals(exact *big.Rat) *big.Rat {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(12), nil)
	scaled := new(big.Rat).Mul(exact, new(big.Rat).SetInt(scale))
	twice := new(big.Int).Mul(scaled.Num(), big.NewInt(2))
	whole, rest := new(big.Int).DivMod(new(big.Int).Add(twice, scaled.Denom()), new(big.Int).Mul(scaled.Denom(), big.NewInt(2)), new(big.Int))
	if rest.Sign() == 0 && whole.Bit(0) == 1 {
		whole.Sub(whole, big.NewInt(1))
	}
	return new(big.Rat).SetFrac(whole, scale)
}

func (d naive) group(properties string) string {
	var key []string
	for _, name := range d.groupBy {
		key = append(key, text(property(properties, name)))
	}
	return strings.Join(key, "\x00")
}

// naiveEvent is an event as it was sent, and the values that the definitions in use counted when
// its customer was erased.
type naiveEvent struct {
	customer          metering.CustomerID
	at                time.Time
	value, properties string
	erased            bool
	kept              map[string]*big.Rat // by selection
}

func (e naiveEvent) counted(d naive) *big.Rat {
	if e.erased && (d.valueProperty != "" || len(d.filters) > 0) {
		return e.kept[d.selection()]
	}
	return d.value(e.value, e.properties)
}

// measuring is a tenant with one meter and a model of it.
type measuring struct {
	*testing.T
	store      *db.DB
	conn       *pgx.Conn
	writer     *db.Writer
	tenant     metering.TenantID
	day        time.Time
	definition naive
	events     []naiveEvent
	erased     bool // some customer is
}

func newMeasuring(t *testing.T, zone string) *measuring {
	store := dbtest.Open(t)
	m := &measuring{T: t, store: store, conn: dbtest.Conn(t), tenant: dbtest.Tenant(t, store, zone).ID, writer: db.NewWriter(store, dbtest.WriterOptions)}
	t.Cleanup(m.writer.Close)
	m.day = clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	m.definition = naive{aggregation: metering.Sum}
	dbtest.Meter(t, store, m.tenant, "tokens", "chat")
	return m
}

func (m *measuring) meter() metering.Meter {
	meter, err := m.store.Meters.Get(m.Context(), m.tenant, "tokens")
	require.NoError(m, err)
	return meter
}

func (m *measuring) redefine(d naive) {
	m.Helper()
	r := metering.Range{Start: m.day.Add(11 * time.Minute), End: m.day.Add(40*time.Hour + 23*time.Minute)}
	next, current := previewedUsage(m.previewed(d, r))
	require.Equal(m, m.totals(r), current, "by %+v, previewed %+v", m.definition, d)
	_, backfilling, err := m.store.Meters.Update(m.Context(), m.tenant, metering.Operator, "tokens", d.change())
	require.NoError(m, err)
	if backfilling != nil {
		require.NoError(m, backfill(m.Context(), m.store, m.tenant, backfilling.ID))
	}
	require.Equal(m, m.totals(r), next, "previewed %+v", d)
	m.definition = d
}

func (m *measuring) send(customer string, at time.Time, value, properties string) db.Outcome {
	m.Helper()
	outcomes, err := m.writer.Ingest(m.Context(), m.tenant, []metering.Event{dbtest.Event(m, "chat", customer, at, value, "", properties)})
	require.NoError(m, err)
	c, err := m.store.Customers.Get(m.Context(), m.tenant, customer)
	require.NoError(m, err)
	m.events = append(m.events, naiveEvent{customer: c.ID, at: at, value: value, properties: properties})
	return outcomes[0]
}

// erase erases a customer. A later event under the same name creates another customer.
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
			e.erased, e.kept = true, map[string]*big.Rat{m.definition.selection(): m.definition.value(e.value, e.properties)}
		}
	}
	m.erased = true
}

// expected returns the model's sum, count and groups of a customer, or of all, in a range.
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
		group := m.definition.group(e.properties)
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
	if m.definition.aggregation == metering.Count {
		return fmt.Sprint(count)
	}
	return sum.RatString()
}

func rat(t testing.TB, d metering.Decimal) *big.Rat {
	r, ok := new(big.Rat).SetString(d.String())
	require.True(t, ok)
	return r
}

// check compares everything that reads usage with the model, in a range that may cut hours.
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

		page, err := m.store.Usage.Windows(m.Context(), m.tenant, db.WindowQuery{Customer: customer, Meter: meter, Range: r, Granularity: metering.Hour, Limit: 1000})
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

// checkLists compares the meters that each listed event shows.
func (m *measuring) checkLists() {
	m.Helper()
	page, err := m.store.Events.List(m.Context(), m.tenant, db.EventFilter{Range: metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 2)}}, nil, 1000,
		db.Search{Now: clock.Now, Budget: dbtest.Deadline})
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
	someFilters = []naiveFilter{
		{"g", metering.FilterEq, []string{`"a"`}}, {"g", metering.FilterNe, []string{`1`}}, {"g", metering.FilterIn, []string{`"b<"`, `1e0`, `true`}},
		{"u.g", metering.FilterNotIn, []string{`"a"`, `"{\"k\":1}"`}}, {"u.v", metering.FilterExists, nil}, {"v", metering.FilterNotExists, nil},
		{"v", metering.FilterGt, []string{`1`}}, {"v", metering.FilterGte, []string{`2.5`}}, {"u.v", metering.FilterLt, []string{`100.0`}}, {"v", metering.FilterLte, []string{`0.3`}},
		{"v", metering.FilterEq, []string{`"x"`}},
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

func drawDefinition(t *rapid.T) naive {
	return naive{
		aggregation:   rapid.SampledFrom([]metering.Aggregation{metering.Sum, metering.Sum, metering.Count}).Draw(t, "aggregation"),
		valueProperty: rapid.SampledFrom([]string{"", "v", "u.v"}).Draw(t, "value_property"),
		filters:       rapid.SliceOfN(rapid.SampledFrom(someFilters), 0, 2).Draw(t, "filters"),
		groupBy:       rapid.SampledFrom([][]string{{}, {"g"}, {"u.g", "g"}, {"v"}}).Draw(t, "group_by"),
	}
}

// Whatever is sent, redefined, closed and erased, everything that reads usage agrees with a model
// that shares no code with it.
func TestPropertyMetersCountWhatAModelCounts(t *testing.T) {
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
				if !closed && slices.ContainsFunc(m.events, func(e naiveEvent) bool { return !e.erased }) {
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
		m.check(metering.Range{Start: m.day.Add(17 * time.Minute), End: m.day.Add(30*time.Hour + 7*time.Minute)})
	})
}

// TestAnEventOfALanguageModelFeedsThreeMeters: one event, three numbers of it.
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

// TestAnEventWithoutAUsableValueIsStoredAndNamed, and its neighbours count.
func TestAnEventWithoutAUsableValueIsStoredAndNamed(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	m.redefine(naive{aggregation: metering.Sum, valueProperty: "v", filters: []naiveFilter{{"g", metering.FilterEq, []string{`"a"`}}}})
	require.Equal(t, []db.UnusableValue{{MeterSlug: "tokens", Property: "v", Rule: metering.ValueMissing}}, m.send("acme", m.day, "1", `{"g":"a"}`).Unusable)
	require.Equal(t, []db.UnusableValue{{MeterSlug: "tokens", Property: "v", Rule: metering.ValueInvalid}}, m.send("acme", m.day, "1", `{"g":"a","v":"x"}`).Unusable)
	require.Empty(t, m.send("acme", m.day, "1", `{"g":"b"}`).Unusable, "the filter excludes it")
	require.Empty(t, m.send("acme", m.day, "1", `{"g":"a","v":"2.5"}`).Unusable)
	m.check(metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 2)})
	sum, count, _ := m.expected(metering.WholeTenant, metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)})
	require.Equal(t, "5/2 of 1", fmt.Sprint(sum, " of ", count))
}

// TestAnAuditFindsAWrongTotalOfAMeterWithAPath, which only a recount by the same rules can.
func TestAnAuditFindsAWrongTotalOfAMeterWithAPath(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kathmandu"} {
		m := newMeasuring(t, zone)
		m.redefine(naive{aggregation: metering.Sum, valueProperty: "u.v"})
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

// TestNothingPersonalIsLeftOfEventsThatCountByPathAndFilter, and every number stays.
func TestNothingPersonalIsLeftOfEventsThatCountByPathAndFilter(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, _ bool) {
		m := &measuring{T: t, store: store, conn: conn, tenant: dbtest.Tenant(t, store, "Asia/Kathmandu").ID, writer: db.NewWriter(store, dbtest.WriterOptions)}
		defer m.writer.Close()
		m.day = clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
		dbtest.Meter(t, store, m.tenant, "tokens", "chat")
		selecting := naive{
			aggregation: metering.Sum, valueProperty: "usage.tokens", groupBy: []string{"user.mail"},
			filters: []naiveFilter{{"user.mail", metering.FilterExists, nil}, {"user.name", metering.FilterNe, []string{`"internal"`}}},
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
		m.redefine(naive{aggregation: metering.Count, valueProperty: selecting.valueProperty, filters: selecting.filters})
		m.check(spans[1])
		m.redefine(naive{aggregation: metering.Sum, valueProperty: "usage.tokens"})
		for _, e := range m.events {
			require.Equal(t, e.erased, e.counted(m.definition) == nil, "another definition excludes erased events")
		}
		m.check(spans[0])
		m.redefine(naive{aggregation: metering.Sum})
		m.check(spans[0])
	})
}
