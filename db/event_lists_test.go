package db_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestEventsAreListedNewestFirstWithoutLossOrRepeat(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	var sent []metering.Event
	for i := range 60 { // several at the same instant, weeks apart, of two customers
		key := ""
		if i == 7 {
			key = "seven"
		}
		sent = append(sent, dbtest.Event(t, []string{"call", "token"}[i%3%2], []string{"acme", "contoso"}[i%2], november.AddDate(0, 0, 9*(i%4)-18), fmt.Sprint(i), key, `{"model":"a"}`))
	}
	ingest(t, store, tenant, sent...)
	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	everything := metering.Range{Start: november.AddDate(0, -1, 0), End: november.AddDate(0, 1, 0)}
	for name, of := range map[string]struct {
		filter db.EventFilter
		has    func(metering.Event) bool
	}{
		"all":         {db.EventFilter{Range: everything}, func(metering.Event) bool { return true }},
		"a customer":  {db.EventFilter{Range: everything, Customer: acme.ID}, func(e metering.Event) bool { return e.ExternalID == "acme" }},
		"a type":      {db.EventFilter{Range: everything, EventType: "token"}, func(e metering.Event) bool { return e.EventType == "token" }},
		"a key":       {db.EventFilter{Range: everything, IdempotencyKey: "seven"}, func(e metering.Event) bool { return e.IdempotencyKey == "seven" }},
		"another key": {db.EventFilter{Range: everything, IdempotencyKey: "sev"}, func(metering.Event) bool { return false }},
		"both":        {db.EventFilter{Range: everything, Customer: acme.ID, EventType: "token"}, func(e metering.Event) bool { return e.ExternalID == "acme" && e.EventType == "token" }},
		"a range": {db.EventFilter{Range: metering.Range{Start: november.AddDate(0, 0, -9), End: november.AddDate(0, 0, 9)}}, func(e metering.Event) bool {
			return !e.At.Before(november.AddDate(0, 0, -9)) && e.At.Before(november.AddDate(0, 0, 9))
		}},
	} {
		var want []string
		for _, e := range sent {
			if of.has(e) {
				want = append(want, e.Value.String())
			}
		}
		for _, limit := range []int{1, 7, 60} {
			var seen []string
			var before *db.EventCursor
			for more := true; more; {
				var page []db.ListedEvent
				page, more, err = store.Events.List(t.Context(), tenant, of.filter, before, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				for _, e := range page {
					require.False(t, before != nil && e.At.After(before.At), "out of order")
					seen, before = append(seen, e.Value.String()), &db.EventCursor{At: e.At, ID: e.ID}
				}
			}
			slices.Sort(seen)
			slices.Sort(want)
			require.Equal(t, want, seen, "%s, with pages of %d", name, limit)
		}
	}
}

func TestAListOfEventsReadsTheChunksOfItsWindowAlone(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	for week := range 6 {
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november.AddDate(0, 0, -7*week), "1", "", ""))
	}
	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	day := metering.Range{Start: november.Add(-12 * time.Hour), End: november.Add(12 * time.Hour)}
	chunk := regexp.MustCompile(`on (_hyper_\w+_chunk)`)
	for _, customer := range []metering.CustomerID{0, acme.ID} {
		lines, err := db.PlanOfEvents(t.Context(), store, tenant, db.EventFilter{Range: day, Customer: customer})
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		var chunks []string
		for _, found := range chunk.FindAllStringSubmatch(plan, -1) {
			chunks = append(chunks, found[1])
		}
		slices.Sort(chunks)
		require.LessOrEqual(t, len(slices.Compact(chunks)), 2, plan)
		require.NotEmpty(t, chunks, plan)
	}
}

// TestAnEventSaysWhichMetersHaveCountedIt, by the same rules as their totals.
func TestAnEventSaysWhichMetersHaveCountedIt(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	list := func() (counted []string) {
		t.Helper()
		events, _, err := store.Events.List(t.Context(), tenant, db.EventFilter{Range: billing.CalendarPeriod(november, time.UTC)}, nil, 10)
		require.NoError(t, err)
		for _, e := range events {
			text := e.Value.String()
			for _, c := range e.CountedBy {
				require.Nil(t, c.Period, "no period is stored")
				require.False(t, c.Late)
				text += " " + c.MeterSlug
			}
			counted = append(counted, text)
		}
		return counted
	}
	dbtest.Meter(t, store, tenant, "calls", "call")
	dbtest.Meter(t, store, tenant, "all-calls", "call")
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "", ""), dbtest.Event(t, "token", "acme", november.Add(time.Second), "2", "", ""))
	require.Equal(t, []string{"2", "1 all-calls calls"}, list())

	require.NoError(t, store.Meters.Archive(t.Context(), tenant, metering.Operator, "calls", november))
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november.Add(2*time.Second), "3", "", ""))
	require.Equal(t, []string{"3 all-calls", "2", "1 all-calls calls"}, list(), "an archived meter counts nothing that comes since")

	_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{Slug: "tokens", EventType: "token", Version: metering.MeterVersion{Aggregation: metering.Sum}})
	require.NoError(t, err)
	require.Equal(t, []string{"3 all-calls", "2", "1 all-calls calls"}, list(), "its past is not counted")
}

// TestAnEventSaysInWhichPeriodItIs, and whether it came too late for it.
func TestAnEventSaysInWhichPeriodItIs(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	acme := dbtest.Customer(t, store, tenant, "acme")
	dbtest.Meter(t, store, tenant, "calls", "call")
	month := billing.CalendarPeriod(november, time.UTC)
	period := func() string {
		t.Helper()
		events, _, err := store.Events.List(t.Context(), tenant, db.EventFilter{Range: month}, nil, 1)
		require.NoError(t, err)
		require.Len(t, events[0].CountedBy, 1)
		counted := events[0].CountedBy[0]
		require.True(t, month.Start.Equal(counted.Period.Start))
		require.True(t, month.End.Equal(counted.Period.End))
		return fmt.Sprintf("%s late: %t", counted.Period.ID, counted.Late)
	}
	conn := dbtest.Conn(t)
	var id metering.PeriodID
	require.NoError(t, conn.QueryRow(t.Context(), `
		insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4) returning id`,
		tenant, acme.ID, month.Start, month.End).Scan(&id))
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "", ""))
	require.Equal(t, id.String()+" late: false", period())

	_, err := conn.Exec(t.Context(), `
		update billing_periods p
		set closed_at = p.ends_at, closed_epoch = (select epoch from tenants where id = p.tenant_id)
		where tenant_id = $1`, tenant)
	require.NoError(t, err)
	require.Equal(t, id.String()+" late: true", period(), "the event is of the epoch in which it closed")
}
