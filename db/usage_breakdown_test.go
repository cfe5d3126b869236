package db_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// brokenDown is a model of a tenant's usage.
type brokenDown struct {
	tenant      metering.Tenant
	meter       metering.Meter
	events      []metering.Event                // without repeats
	periods     map[string][]metering.Range     // of the billing schedule that the meter feeds first
	moved       map[string]time.Time            // when the meter moves to another billing schedule
	movedTo     map[string][]metering.Range     // periods of that schedule
	assignments map[string][]billing.Assignment // in order of effective_from
	plans       map[metering.PlanID]string
}

// recount sums the events by the rows of a query, and in total.
func (u brokenDown) recount(t require.TestingT, q usage.BreakdownQuery) (rows map[string]metering.Decimal, total metering.Decimal) {
	rows = make(map[string]metering.Decimal)
	for _, e := range u.events {
		if !q.Range.Contains(e.At) {
			continue
		}
		if !matches(t, e, q.Groups) {
			continue
		}
		value := metering.Whole(1)
		if u.meter.Version.Aggregation == metering.Sum {
			value = e.Value
		}
		group, err := metering.MeterVersion{GroupBy: q.Properties}.GroupOf(e.Properties)
		require.NoError(t, err)
		customer, plan, key := "", "", ""
		if q.ByCustomer {
			customer = e.ExternalID
		}
		if q.ByPlan {
			plan = u.planOf(e)
		}
		if len(q.Properties) > 0 {
			key = strings.ReplaceAll(string(group.Key), " ", "")
		}
		name := rowName(customer, plan, key, u.windowOf(e.At, q))
		rows[name], total = rows[name].Add(value), total.Add(value)
	}
	return rows, total
}

// matches reports whether an event has one of the values of each filter.
func matches(t require.TestingT, e metering.Event, filters map[string][]json.RawMessage) bool {
	for property, values := range filters {
		group, err := metering.MeterVersion{GroupBy: []string{property}}.GroupOf(e.Properties)
		require.NoError(t, err)
		var key map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(group.Key, &key))
		if !slices.ContainsFunc(values, func(value json.RawMessage) bool { return string(value) == string(key[property]) }) {
			return false
		}
	}
	return true
}

func rowName(customer, plan, key string, start time.Time) string {
	return fmt.Sprint(customer, " ", plan, " ", key, " ", start.UTC().Format(time.RFC3339Nano))
}

// windowOf returns the start of the part of an instant's window that lies in the range.
func (u brokenDown) windowOf(at time.Time, q usage.BreakdownQuery) time.Time {
	start := q.Range.Start
	if q.Granularity != "" {
		start = windowStart(at.In(cmp.Or(q.Zone, u.tenant.Location())), q.Granularity)
	}
	if start.Before(q.Range.Start) {
		return q.Range.Start
	}
	return start
}

// windowStart returns the start of a local time's window by the calendar of the standard library.
func windowStart(local time.Time, g metering.Granularity) time.Time {
	day := func(back int) time.Time {
		return time.Date(local.Year(), local.Month(), local.Day()-back, 0, 0, 0, 0, local.Location())
	}
	switch g {
	case metering.Day:
		return day(0)
	case metering.Week:
		return day((int(local.Weekday()) + 6) % 7)
	case metering.Month:
		return day(local.Day() - 1)
	}
	return hourAt(local)
}

// hourAt returns the start of a local time's hour. A change of the clocks within an hour begins a new hour.
func hourAt(local time.Time) time.Time {
	start := local.Add(-time.Duration(local.Minute())*time.Minute - time.Duration(local.Second())*time.Second - time.Duration(local.Nanosecond()))
	_, before := start.Zone()
	_, offset := local.Zone()
	if before != offset {
		start, _ = local.ZoneBounds()
	}
	return start
}

// cutsHours reports whether a window of another time zone starts within an hour of the tenant's time zone. Offsets of
// time zones are multiples of a quarter of an hour.
func (u brokenDown) cutsHours(r metering.Range, g metering.Granularity, zone *time.Location) bool {
	const quarter = 15 * time.Minute
	for at := r.Start.Truncate(quarter).Add(quarter); at.Before(r.End); at = at.Add(quarter) {
		if windowStart(at.In(zone), g).Equal(at) && !hourAt(at.In(u.tenant.Location())).Equal(at) {
			return true
		}
	}
	return false
}

// requireCutHoursRefused requires that a read was refused because its windows do not start at full hours of the tenant.
func requireCutHoursRefused(t require.TestingT, err error) {
	refused := requireInvalid(t, err, "query.timezone")
	require.Contains(t, refused.Message, "whole hours")
}

func requireInvalid(t require.TestingT, err error, location string) metering.Field {
	var refused *metering.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, metering.CodeInvalid, refused.Code)
	require.Equal(t, location, refused.Fields[0].Location)
	return refused.Fields[0]
}

// planOf returns the plan that was assigned at the start of the billing period in which the event's hour starts.
func (u brokenDown) planOf(e metering.Event) string {
	at := hourAt(e.At.In(u.tenant.Location()))
	start := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, u.tenant.Location())
	periods := u.periods[e.ExternalID]
	if moved, moves := u.moved[e.ExternalID]; moves && !at.Before(moved) {
		periods = u.movedTo[e.ExternalID]
	}
	for _, p := range periods {
		if p.Contains(at) {
			start = p.Start
		} else if !at.Before(p.End) && start.Before(p.End) {
			start = p.End
		}
	}
	return u.plans[billing.PlanAt(u.assignments[e.ExternalID], start)]
}

// requireBreakdown reads a query page by page, and compares each row and the total with a recount. If windows of
// another time zone cut hours, it requires that the read is refused.
func (u brokenDown) requireBreakdown(t require.TestingT, store *db.DB, q usage.BreakdownQuery) {
	if q.Zone != nil && q.Granularity != "" && u.cutsHours(q.Range, q.Granularity, q.Zone) {
		_, err := store.Usage.Breakdown(context.Background(), u.tenant.ID, q)
		requireCutHoursRefused(t, err)
		return
	}
	want, total := u.recount(t, q)
	got, sum := make(map[string]metering.Decimal), metering.Decimal{}
	var last *usage.BreakdownRow
	for {
		page, err := store.Usage.Breakdown(context.Background(), u.tenant.ID, q)
		require.NoError(t, err)
		require.Equal(t, total.String(), page.Total.String(), "the total of %+v", q)
		require.LessOrEqual(t, len(page.Items), q.Limit)
		for _, row := range page.Items {
			if q.ByValue && last != nil {
				require.LessOrEqual(t, row.Value.Cmp(last.Value), 0, "the rows are in descending order")
			}
			name := rowName(row.ExternalID, row.PlanSlug, strings.ReplaceAll(string(row.GroupKey), " ", ""), row.Start)
			require.NotContains(t, got, name, "%+v", q)
			got[name], sum, last = row.Value, sum.Add(row.Value), &row
		}
		if !page.More {
			break
		}
		require.NotEmpty(t, page.Items)
		q.After = &page.Items[len(page.Items)-1].BreakdownPlace
	}
	require.Equal(t, lines(want), lines(got), "%+v", q)
	require.Equal(t, total.String(), sum.String(), "%+v", q)
}

func lines(rows map[string]metering.Decimal) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		lines = append(lines, name+": "+rows[name].String())
	}
	return lines
}

// subsets returns all subsets of some names.
func subsets(names ...string) (all [][]string) {
	for mask := range 1 << len(names) {
		var some []string
		for i, name := range names {
			if mask&(1<<i) > 0 {
				some = append(some, name)
			}
		}
		all = append(all, some)
	}
	return all
}

// filters has the filters of queries from which tests draw.
var filters = []map[string][]json.RawMessage{
	nil,
	nil,
	{"model": {json.RawMessage(`"a"`), json.RawMessage(`1`)}},
	{"model": {json.RawMessage(`"b"`), json.RawMessage(`null`)}, "region": {json.RawMessage(`"eu"`), json.RawMessage(`null`)}},
	{"region": {json.RawMessage(`"nowhere"`)}},
}

// TestPropertyBreakdownsEqualARecountOfTheEvents checks that the rows of every breakdown add up to the total and equal
// a recount of the events. It draws repeats, late events, changes of plan, folds and ranges that cover hours in part.
// One of the time zones that it draws changes its clocks by half an hour. Windows that cut hours are refused.
func TestPropertyBreakdownsEqualARecountOfTheEvents(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	histories.Check(t, func(rt *rapid.T) {
		u := drawBrokenDown(t, rt, store, conn)
		u.moveSome(t, rt, store, conn)
		ends := rapid.SliceOfN(rapid.Custom(drawInstant), 2, 2).Draw(rt, "range")
		slices.SortFunc(ends, time.Time.Compare)
		whole := metering.Range{Start: planStart.AddDate(0, 0, -10), End: planNow.AddDate(0, 1, 0)}
		for _, r := range []metering.Range{whole, {Start: ends[0], End: ends[1].Add(time.Microsecond)}} {
			for _, by := range subsets("customer", "plan", "model", "region") {
				for _, g := range append(metering.Hour.Values(), "") {
					q := usage.BreakdownQuery{
						Meter: u.meter, Range: r, Granularity: g, Timezone: u.tenant.Location(),
						ByCustomer: slices.Contains(by, "customer"), ByPlan: slices.Contains(by, "plan"),
						ByValue: rapid.Bool().Draw(rt, "by value"), Limit: rapid.SampledFrom([]int{11, 100, 1000}).Draw(rt, "limit"),
					}
					if zone := rapid.SampledFrom([]string{"", "", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"}).Draw(rt, "zone of the windows"); zone != "" {
						q.Zone = metering.Location(zone)
					}
					q.Groups = rapid.SampledFrom(filters).Draw(rt, "filters")
					q.Properties = slices.DeleteFunc(slices.Clone(by), func(name string) bool { return name == "customer" || name == "plan" })
					u.requireBreakdown(rt, store, q)
				}
			}
		}
	})
}

// TestPropertyWindowsOfATimeZoneEqualARecountOfTheEvents checks that windows of any time zone equal a recount, or are
// refused because they cut hours.
func TestPropertyWindowsOfATimeZoneEqualARecountOfTheEvents(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	histories.Check(t, func(rt *rapid.T) {
		u := drawBrokenDown(t, rt, store, conn)
		r := metering.Range{Start: drawInstant(rt), End: planNow.AddDate(0, 0, 2)}
		for _, zone := range []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe"} {
			for _, g := range metering.Hour.Values() {
				q := usage.WindowQuery{
					Customer: metering.WholeTenant, Meter: u.meter, Range: r, Zone: metering.Location(zone), Granularity: g,
					GroupBy: rapid.SampledFrom([][]string{nil, {}, {"model"}}).Draw(rt, "group by"), Limit: rapid.SampledFrom([]int{7, 1000}).Draw(rt, "limit"),
				}
				if u.cutsHours(r, g, q.Zone) {
					_, err := store.Usage.Windows(t.Context(), u.tenant.ID, q)
					requireCutHoursRefused(rt, err)
					continue
				}
				requireWindowsEqualARecount(t, store, conn, u.tenant.ID, q)
			}
		}
	})
}

func drawBrokenDown(t *testing.T, rt *rapid.T, store *db.DB, conn *pgx.Conn) brokenDown {
	u := brokenDown{periods: map[string][]metering.Range{}, moved: map[string]time.Time{}, movedTo: map[string][]metering.Range{}, assignments: map[string][]billing.Assignment{}, plans: map[metering.PlanID]string{}}
	u.tenant = dbtest.Tenant(t, store, rapid.SampledFrom([]string{"UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin"}).Draw(rt, "zone"))
	var err error
	u.meter, err = store.Meters.Create(t.Context(), u.tenant.ID, metering.Operator, metering.Meter{Slug: "calls", EventType: "call", Version: metering.MeterVersion{
		Aggregation: rapid.SampledFrom([]metering.Aggregation{metering.Sum, metering.Count}).Draw(rt, "aggregation"), GroupBy: []string{"model", "region"},
	}})
	require.NoError(rt, err)
	u.add(t, rt, store)
	if rapid.Bool().Draw(rt, "folded") {
		require.NoError(rt, store.Folds.Tenant(t.Context(), u.tenant.ID))
	}
	for _, slug := range []string{"basic", "pro"} {
		plan, err := store.Plans.Create(t.Context(), u.tenant.ID, metering.Operator, metering.Plan{Slug: slug, Name: slug})
		require.NoError(rt, err)
		u.plans[plan.ID] = slug
	}
	for _, name := range planNames[:3] {
		customer, err := store.Customers.Get(t.Context(), u.tenant.ID, name)
		if err != nil {
			continue // the customer has no event
		}
		if rapid.Bool().Draw(rt, "has closed periods") {
			borders := rapid.SliceOfNDistinct(rapid.Custom(drawInstant), 2, 3, time.Time.UnixMicro).Draw(rt, "borders of periods")
			slices.SortFunc(borders, time.Time.Compare)
			for i := range borders[1:] {
				u.periods[name] = append(u.periods[name], metering.Range{Start: borders[i], End: borders[i+1]})
			}
			closePeriods(t, conn, u.tenant.ID, customer.ID, u.periods[name]...)
		}
		u.assign(t, rt, store, customer)
	}
	u.add(t, rt, store)
	return u
}

// moveSome moves the meter to another billing schedule for some customers. Their events stay late or in time as they
// were at ingest. Breakdowns do not distinguish between the two.
func (u *brokenDown) moveSome(t *testing.T, rt *rapid.T, store *db.DB, conn *pgx.Conn) {
	for _, name := range planNames[:3] {
		customer, err := store.Customers.Get(t.Context(), u.tenant.ID, name)
		if err == nil && rapid.Bool().Draw(rt, "moves to another stream") {
			u.move(t, rt, conn, customer)
		}
	}
}

// move moves the meter to another billing schedule of a customer, from a full hour on.
func (u *brokenDown) move(t *testing.T, rt *rapid.T, conn *pgx.Conn, customer metering.Customer) {
	moved := hourAt(rapid.Custom(drawInstant).Draw(rt, "moved").In(u.tenant.Location()))
	u.moved[customer.ExternalID] = moved
	days := rapid.IntRange(1, 20).Draw(rt, "days of a period")
	for start := moved; len(u.movedTo[customer.ExternalID]) < 3; start = start.AddDate(0, 0, days) {
		u.movedTo[customer.ExternalID] = append(u.movedTo[customer.ExternalID], metering.Range{Start: start, End: start.AddDate(0, 0, days)})
	}
	var batch pgx.Batch
	batch.Queue(`
		insert into billing_stream_meters (tenant_id, customer_id, meter_id, stream, effective_from, recorded_at)
		values ($1, $2, $3, 1, $4, $4)`, u.tenant.ID, customer.ID, u.meter.ID, moved)
	for _, p := range u.movedTo[customer.ExternalID] {
		batch.Queue(`insert into billing_periods (tenant_id, customer_id, stream, starts_at, ends_at) values ($1, $2, 1, $3, $4)`, u.tenant.ID, customer.ID, p.Start, p.End)
	}
	require.NoError(rt, conn.SendBatch(t.Context(), &batch).Close())
}

// add ingests random events.
func (u *brokenDown) add(t *testing.T, rt *rapid.T, store *db.DB) {
	events := rapid.SliceOfN(rapid.Map(rapid.Custom(drawEvent), func(e metering.Event) metering.Event {
		e.EventType = "call"
		return e
	}), 10, 40).Draw(rt, "events")
	for i, outcome := range ingest(t, store, u.tenant.ID, events...) {
		if !outcome.Duplicate && !outcome.Conflict {
			u.events = append(u.events, events[i])
		}
	}
}

// assign assigns random plans to a customer, from random instants on.
func (u *brokenDown) assign(t *testing.T, rt *rapid.T, store *db.DB, customer metering.Customer) {
	ids := append(slices.Sorted(maps.Keys(u.plans)), 0)
	for range rapid.IntRange(0, 3).Draw(rt, "assignments") {
		a := billing.Assignment{PlanID: rapid.SampledFrom(ids).Draw(rt, "plan"), EffectiveFrom: rapid.Custom(drawInstant).Draw(rt, "effective from")}
		require.NoError(rt, store.Plans.Assign(t.Context(), u.tenant.ID, metering.Operator, customer.ID, a))
		u.assignments[customer.ExternalID] = slices.DeleteFunc(u.assignments[customer.ExternalID], func(o billing.Assignment) bool { return o.EffectiveFrom.Equal(a.EffectiveFrom) })
		u.assignments[customer.ExternalID] = append(u.assignments[customer.ExternalID], a)
	}
}

// usedBy returns a tenant and a meter, with an event of each customer at each of the times.
func usedBy(t *testing.T, store *db.DB, customers int, times ...time.Time) (metering.TenantID, metering.Meter) {
	tenant := dbtest.Tenant(t, store)
	meter := dbtest.Meter(t, store, tenant.ID, "calls", "call", "model")
	var events []metering.Event
	for i := range customers {
		for _, at := range times {
			events = append(events, dbtest.Event(t, "call", fmt.Sprint("customer-", i), at, "1", "", `{"model":"large"}`))
		}
	}
	ingest(t, store, tenant.ID, events...)
	return tenant.ID, meter
}

// TestBreakdownLimitsSumsOfPartialHours checks that Bounds.Sums limits the sums of both partial hours of the range
// together.
func TestBreakdownLimitsSumsOfPartialHours(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant, meter := usedBy(t, store, 3, planStart.Add(30*time.Minute), planStart.Add(5*time.Hour))
	q := usage.BreakdownQuery{
		Meter: meter, Range: metering.Range{Start: planStart.Add(time.Minute), End: planStart.Add(5*time.Hour + time.Minute)}, Timezone: time.UTC,
		ByCustomer: true, Limit: 10,
	}
	q.Bounds.Sums = 6
	b, err := store.Usage.Breakdown(t.Context(), tenant, q)
	require.NoError(t, err)
	require.Equal(t, "6", b.Total.String())
	q.Bounds.Sums = 5
	_, err = store.Usage.Breakdown(t.Context(), tenant, q)
	requireInvalid(t, err, "query.start")
}

func TestBreakdownByCustomerYieldsAndLimitsItsBatches(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant, meter := usedBy(t, store, 17, planStart)
	q := usage.BreakdownQuery{
		Meter: meter, Range: metering.Range{Start: planStart, End: planStart.Add(time.Hour)}, Timezone: time.UTC, ByCustomer: true, Limit: 100,
	}
	turns := 0
	b, err := store.Usage.Breakdown(pg.WithYield(t.Context(), func(context.Context) error { turns++; return nil }), tenant, q)
	require.NoError(t, err)
	require.Len(t, b.Items, 17)
	require.Positive(t, turns, "it yields before the second batch of customers")
	stop := errors.New("stop")
	_, err = store.Usage.Breakdown(pg.WithYield(t.Context(), func(context.Context) error { return stop }), tenant, q)
	require.ErrorIs(t, err, stop)
	q.Bounds.Batches = -1
	_, err = store.Usage.Breakdown(t.Context(), tenant, q)
	requireInvalid(t, err, "query.end")
}

// TestUsageReadThatTimesOutIsRefusedForItsRange checks that a read is refused because of its range if its statement
// exceeds the time limit of the database.
func TestUsageReadThatTimesOutIsRefusedForItsRange(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	tenant, meter := usedBy(t, store, 1, planStart)
	hurried, err := dbtest.Connect(t.Context(), dbtest.With(t, address, "statement_timeout", "500"))
	require.NoError(t, err)
	t.Cleanup(hurried.Close)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `begin; lock table usage_monthly, usage_hourly in access exclusive mode`)
	require.NoError(t, err)
	r := metering.Range{Start: planStart, End: planStart.Add(time.Hour)}
	_, err = hurried.Usage.Breakdown(t.Context(), tenant, usage.BreakdownQuery{Meter: meter, Range: r, Timezone: time.UTC, Limit: 10})
	requireInvalid(t, err, "query.end")
	_, err = hurried.Usage.Windows(t.Context(), tenant, usage.WindowQuery{Customer: metering.WholeTenant, Meter: meter, Range: r, Granularity: metering.Hour, Limit: 10})
	requireInvalid(t, err, "query.end")
}

// TestABreakdownShowsUsageOfUnknownProperties checks that usage with unknown property values has a row of its own, from
// rollups and from hours that the range covers in part.
func TestABreakdownShowsUsageOfUnknownProperties(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	meter := dbtest.Meter(t, store, tenant.ID, "calls", "call", "model")
	long := `{"model":"` + strings.Repeat("x", 2000) + `"}`
	ingest(t, store, tenant.ID,
		dbtest.Event(t, "call", "acme", planStart.Add(30*time.Minute), "1", "", long),
		dbtest.Event(t, "call", "acme", planStart.Add(2*time.Hour), "2", "", long),
		dbtest.Event(t, "call", "acme", planStart.Add(3*time.Hour), "4", "", `{"model":"large"}`))
	b, err := store.Usage.Breakdown(t.Context(), tenant.ID, usage.BreakdownQuery{
		Meter: meter, Range: metering.Range{Start: planStart.Add(time.Minute), End: planStart.Add(24 * time.Hour)}, Timezone: time.UTC,
		Properties: []string{"model"}, ByValue: true, Limit: 10,
	})
	require.NoError(t, err)
	var rows []string
	for _, row := range b.Items {
		rows = append(rows, row.Value.String()+" "+strings.ReplaceAll(string(row.GroupKey), " ", ""))
	}
	require.Equal(t, []string{`4 {"model":"large"}`, `3 {"$other":true}`}, rows)
	require.Nil(t, b.Other, "the query has no filter")
	b, err = store.Usage.Breakdown(t.Context(), tenant.ID, usage.BreakdownQuery{
		Meter: meter, Range: metering.Range{Start: planStart.Add(time.Minute), End: planStart.Add(24 * time.Hour)}, Timezone: time.UTC,
		Groups: map[string][]json.RawMessage{"model": {json.RawMessage(`"large"`)}}, ByCustomer: true, Limit: 10,
	})
	require.NoError(t, err)
	require.Equal(t, "4", b.Total.String())
	require.Equal(t, "3", b.Other.String(), "usage in $other may have the value")
}
