package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/reference"
	"github.com/odometer-metering/odometer/metering"
)

var previewSearch = usage.Search{Now: clock.Now, Budget: dbtest.Deadline}

// previewed returns the preview of a change of the meter to d in a range. It also previews the latest events, and
// requires the same preview of the range that begins at the oldest of them.
func (m *measuring) previewed(d reference.Definition, r metering.Range) usage.MeterPreview {
	m.Helper()
	query := usage.PreviewQuery{Range: r, Search: previewSearch}
	setDefinition(m, m.store, m.tenant, "tokens", changeTo(d), &query)
	p, err := m.store.Events.Preview(m.Context(), m.tenant, query)
	require.NoError(m, err)

	query.Latest = true
	latest, err := m.store.Events.Preview(m.Context(), m.tenant, query)
	require.NoError(m, err)
	require.Less(m, latest.Events, 100)
	query.Range, query.Latest = latest.Range, false
	all, err := m.store.Events.Preview(m.Context(), m.tenant, query)
	if latest.Events > 0 {
		require.NoError(m, err)
		require.Equal(m, fmt.Sprint(latest), fmt.Sprint(all))
	}
	return p
}

// totals returns the usage of a meter in a range, of each customer with events and of the whole tenant. It uses the
// same read as the API.
func (m *measuring) totals(slug string, r metering.Range) map[metering.CustomerID]string {
	m.Helper()
	totals := make(map[metering.CustomerID]string)
	read := func(customer metering.CustomerID) {
		usage, err := m.store.Usage.MeterTotals(m.Context(), m.tenant, customer, r)
		require.NoError(m, err)
		for _, u := range usage {
			if u.Meter.Slug == slug {
				require.False(m, u.Backfilling)
				totals[customer] = u.Usage.String()
			}
		}
	}
	read(metering.WholeTenant)
	for _, e := range m.events {
		if _, known := totals[e.customer]; !known && r.Contains(e.at) {
			read(e.customer)
		}
	}
	return totals
}

// previewedUsage returns the usage of each customer of a preview and of the whole tenant, by the previewed definition
// and by the current one.
func previewedUsage(p usage.MeterPreview) (next, current map[metering.CustomerID]string) {
	next = map[metering.CustomerID]string{metering.WholeTenant: p.Usage.String()}
	current = map[metering.CustomerID]string{metering.WholeTenant: p.Current.String()}
	for _, c := range p.Customers {
		next[c.Customer], current[c.Customer] = c.Usage.String(), c.Current.String()
	}
	return next, current
}

// create previews a new meter, creates it, and compares its usage in a range with the preview.
func (m *measuring) create(d reference.Definition, r metering.Range) {
	m.Helper()
	change := changeTo(d)
	definition := metering.MeterVersion{
		EventType: "chat", Aggregation: *change.Aggregation, ValueProperty: *change.ValueProperty, Filters: *change.Filters, GroupBy: *change.GroupBy,
	}
	p, err := m.store.Events.Preview(m.Context(), m.tenant, usage.PreviewQuery{Definition: definition, Range: r, Search: previewSearch})
	require.NoError(m, err)
	created, err := m.store.Meters.Create(m.Context(), m.tenant, metering.Operator, metering.Meter{Slug: "created", EventType: "chat", Version: definition})
	require.NoError(m, err)
	if created.Version.Status == metering.Backfilling {
		require.NoError(m, backfill(m.Context(), m.store, m.tenant, created.Version.ID))
	}
	next, _ := previewedUsage(p)
	require.Equal(m, m.totals("created", r), next, "previewed %+v", d)
}

// checkSums compares the parts of a preview with its totals.
func (m *measuring) checkSums(p usage.MeterPreview) {
	m.Helper()
	uncounted, events, counted, verdicts := 0, 0, 0, 0
	for _, n := range p.Uncounted {
		uncounted += n
	}
	for _, c := range p.Customers {
		events, counted = events+c.Events, counted+c.Counted
	}
	for i, e := range p.Sample {
		require.True(m, p.Range.Contains(e.At))
		require.True(m, i == 0 || !e.At.After(p.Sample[i-1].At))
		if e.Verdict == metering.Counted {
			verdicts++
			require.Empty(m, e.Property)
		}
	}
	require.Equal(m, []int{p.Events, p.Counted, p.Events, p.Counted, len(p.Sample)}, []int{p.Counted + uncounted, verdicts, events, counted, p.Events})
}

func TestAPreviewExplainsEachEvent(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	for i, properties := range []string{`{"v":"2.5","g":"a"}`, `{"v":7,"g":"b"}`, `{"g":"a"}`, `{"v":"many","g":"a"}`} {
		m.send("acme", m.day.Add(time.Duration(i)*time.Hour), "1", properties)
	}
	p := m.previewed(reference.Definition{
		Aggregation: "sum", ValueProperty: "v", GroupBy: []string{"g"}, Filters: []reference.Filter{reference.Where("g", "exists"), reference.Where("g", "ne", `"b"`)},
	}, metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)})
	var shown []string
	for _, e := range p.Sample {
		shown = append(shown, fmt.Sprint(e.ExternalID, " ", e.At.Hour(), " ", e.Verdict, " ", e.Value, " ", string(e.Group.Key), " ", e.Property))
	}
	require.Equal(t, []string{
		`acme 3 value_invalid 0  v`, `acme 2 value_missing 0  v`, `acme 1 filtered_out 0  g`, `acme 0 counted 2.5 {"g":"a"} `,
	}, shown)
	require.Equal(t, map[metering.Verdict]int{metering.FilteredOut: 1, metering.ValueMissing: 1, metering.ValueInvalid: 1}, p.Uncounted)
	require.Equal(t, "4 1 2.5 4", fmt.Sprint(p.Events, " ", p.Counted, " ", p.Usage, " ", p.Current))
}

func TestAPreviewShowsALongGroupKeyAsOther(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	m.send("acme", m.day, "1", `{"g":"`+strings.Repeat("x", metering.MaxGroupKeyBytes)+`"}`)
	p := m.previewed(reference.Definition{Aggregation: "count", GroupBy: []string{"g"}}, metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)})
	require.JSONEq(t, `{"$other":true}`, string(p.Sample[0].Group.Key))
}

func TestAPreviewReadsTheLatestEvents(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	for i := range 5 {
		m.send(fmt.Sprint("customer-", i), m.day.Add(time.Duration(i)*time.Hour), "1", `{}`)
	}
	query := usage.PreviewQuery{
		Definition: metering.MeterVersion{EventType: "chat", Aggregation: metering.Count}, Latest: true, Range: metering.Range{End: m.day.Add(4 * time.Hour)},
		Search: previewSearch, Bounds: usage.PreviewBounds{Sample: 2},
	}
	p, err := m.store.Events.Preview(t.Context(), m.tenant, query)
	require.NoError(t, err)
	require.Equal(t, metering.Range{Start: m.day.Add(2 * time.Hour), End: m.day.Add(4 * time.Hour)}, p.Range)
	require.Equal(t, []string{"customer-3", "customer-2"}, []string{p.Sample[0].ExternalID, p.Sample[1].ExternalID})
	require.Equal(t, 2, p.Events)

	query.Definition.EventType = "unknown"
	p, err = m.store.Events.Preview(t.Context(), m.tenant, query)
	require.NoError(t, err)
	require.Equal(t, []any{0, 0, true}, []any{p.Events, len(p.Customers), p.Range.Empty()})
}

func TestAPreviewListsTheLargestDifferences(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	for i, values := range []string{"1 1", "1 9", "1 -9", "8 8", "3 4"} {
		value, property, _ := strings.Cut(values, " ")
		m.send(fmt.Sprint("customer-", i), m.day.Add(time.Duration(i)*time.Hour), value, `{"v":`+property+`}`)
	}
	d := reference.Definition{Aggregation: "sum", ValueProperty: "v"}
	query := usage.PreviewQuery{Range: metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)}, Search: previewSearch, Bounds: usage.PreviewBounds{Listed: 4}}
	setDefinition(t, m.store, m.tenant, "tokens", changeTo(d), &query)
	names := func() (names []string) {
		p, err := m.store.Events.Preview(t.Context(), m.tenant, query)
		require.NoError(t, err)
		require.Equal(t, 1, p.Others)
		for _, c := range p.Customers {
			names = append(names, strings.TrimPrefix(c.ExternalID, "customer-"))
		}
		return names
	}
	require.Equal(t, []string{"2", "1", "4", "0"}, names(), "differences 10, 8, 1, 0")
	query.Current = nil
	require.Equal(t, []string{"1", "2", "3", "4"}, names(), "values 9, -9, 8, 4")
}

func TestPreviewRefusesTooLargeRange(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	for i := range 3 {
		m.send(fmt.Sprint("customer-", i), m.day.Add(time.Duration(i)*time.Hour), "1", `{}`)
	}
	preview := func(ctx context.Context, change func(*usage.PreviewQuery)) error {
		query := usage.PreviewQuery{
			Definition: metering.MeterVersion{EventType: "chat", Aggregation: metering.Sum}, Range: metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)}, Search: previewSearch,
		}
		change(&query)
		_, err := m.store.Events.Preview(ctx, m.tenant, query)
		return err
	}
	for message, change := range map[string]func(*usage.PreviewQuery){
		"":                         func(q *usage.PreviewQuery) { q.Bounds = usage.PreviewBounds{Events: 3, Customers: 3} },
		"more than 2 events":       func(q *usage.PreviewQuery) { q.Bounds.Events = 2 },
		"more than 2 customers":    func(q *usage.PreviewQuery) { q.Bounds.Customers = 2 },
		"the range takes too long": func(q *usage.PreviewQuery) { q.Search.Budget = -1 },
	} {
		err := preview(t.Context(), change)
		if message == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
		require.ErrorContains(t, err, "body.start must be closer to end, because")
		require.ErrorContains(t, err, message)
	}
	stop := errors.New("another caller takes the turn")
	ctx := pg.WithYield(t.Context(), func(context.Context) error { return stop })
	require.NoError(t, preview(ctx, func(*usage.PreviewQuery) {}), "a short read needs one turn")
	at := clock.Now()
	slow := func() time.Time { at = at.Add(time.Second); return at }
	require.ErrorIs(t, preview(ctx, func(q *usage.PreviewQuery) { q.Search.Now = slow }), stop)
}

// TestPreviewComparesWithDefinitionUsedByReads checks that a preview compares with the definition that reads use,
// while another definition is backfilled and while the meter is archived.
func TestPreviewComparesWithDefinitionUsedByReads(t *testing.T) {
	t.Parallel()
	m := newMeasuring(t, "UTC")
	day := metering.Range{Start: m.day, End: m.day.AddDate(0, 0, 1)}
	m.send("acme", m.day, "5", `{"v":2}`)
	byProperty := reference.Definition{Aggregation: "sum", ValueProperty: "v"}
	_, backfilling, err := m.store.Meters.Update(t.Context(), m.tenant, metering.Operator, "tokens", changeTo(byProperty))
	require.NoError(t, err)
	require.NotNil(t, backfilling)
	change := func(c catalog.MeterChange) string {
		query := usage.PreviewQuery{Range: day, Search: previewSearch}
		setDefinition(t, m.store, m.tenant, "tokens", c, &query)
		p, err := m.store.Events.Preview(t.Context(), m.tenant, query)
		require.NoError(t, err)
		return fmt.Sprint(p.Usage, " ", p.Current)
	}
	require.Equal(t, "2 5", change(catalog.MeterChange{}), "omitted fields are those of the definition that is being backfilled")
	before := usage.PreviewQuery{Range: day, Search: previewSearch}
	setDefinition(t, m.store, m.tenant, "tokens", catalog.MeterChange{}, &before)
	require.NoError(t, backfill(t.Context(), m.store, m.tenant, backfilling.ID))
	for _, before.Latest = range []bool{false, true} {
		_, err = m.store.Events.Preview(t.Context(), m.tenant, before)
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err), "the definition to compare with is replaced")
	}
	require.Equal(t, "2 2", change(catalog.MeterChange{}))

	require.NoError(t, m.store.Meters.Archive(t.Context(), m.tenant, metering.Operator, "tokens", clock.Now()))
	m.send("acme", m.day, "5", `{"v":3}`)
	require.Equal(t, "5 2", change(catalog.MeterChange{}), "an archived meter counts no later event")
	_, err = m.store.Meters.Unarchive(t.Context(), m.tenant, metering.Operator, "tokens")
	require.NoError(t, err)
	require.Equal(t, "5 2", change(catalog.MeterChange{}))

	_, err = m.store.Meters.Create(t.Context(), m.tenant, metering.Operator, metering.Meter{
		Slug: "new", EventType: "chat", Version: metering.MeterVersion{Aggregation: metering.Sum},
	})
	require.NoError(t, err)
	var query usage.PreviewQuery
	setDefinition(t, m.store, m.tenant, "new", catalog.MeterChange{}, &query)
	require.Nil(t, query.Current, "no read uses the definition of a first backfill")
}

// setDefinition completes a query for the preview of a change of a meter.
func setDefinition(t testing.TB, store *db.DB, tenant metering.TenantID, slug string, change catalog.MeterChange, query *usage.PreviewQuery) {
	t.Helper()
	var err error
	query.Definition, query.Current, err = store.Meters.Changed(t.Context(), tenant, slug, change)
	require.NoError(t, err)
}
