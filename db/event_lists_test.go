package db_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

func TestEventsAreListedNewestFirstWithoutLossOrRepeat(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	var sent []metering.Event
	for i := range 60 { // 15 events at each of four instants, 9 days apart, of two customers
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
		filter usage.EventFilter
		has    func(metering.Event) bool
	}{
		"all":         {usage.EventFilter{Range: everything}, func(metering.Event) bool { return true }},
		"a customer":  {usage.EventFilter{Range: everything, Customer: acme.ID}, func(e metering.Event) bool { return e.ExternalID == "acme" }},
		"a type":      {usage.EventFilter{Range: everything, EventType: "token"}, func(e metering.Event) bool { return e.EventType == "token" }},
		"a key":       {usage.EventFilter{Range: everything, IdempotencyKey: "seven"}, func(e metering.Event) bool { return e.IdempotencyKey == "seven" }},
		"another key": {usage.EventFilter{Range: everything, IdempotencyKey: "sev"}, func(metering.Event) bool { return false }},
		"both":        {usage.EventFilter{Range: everything, Customer: acme.ID, EventType: "token"}, func(e metering.Event) bool { return e.ExternalID == "acme" && e.EventType == "token" }},
		"a range": {usage.EventFilter{Range: metering.Range{Start: november.AddDate(0, 0, -9), End: november.AddDate(0, 0, 9)}}, func(e metering.Event) bool {
			return !e.At.Before(november.AddDate(0, 0, -9)) && e.At.Before(november.AddDate(0, 0, 9))
		}},
	} {
		var want []string
		for _, e := range sent {
			if of.has(e) {
				want = append(want, e.Value.String())
			}
		}
		slices.Sort(want)
		for _, limit := range []int{1, 7, 60} {
			require.Equal(t, want, listed(t, store, tenant, of.filter, limit, unhurried), "%s, with pages of %d", name, limit)
		}
		require.Equal(t, want, listed(t, store, tenant, of.filter, 60, hurried(14)), "%s, some days at a time", name)
	}
}

var unhurried = usage.Search{Now: func() time.Time { return november }, Budget: dbtest.Deadline}

// windowTime is the time between two readings of the clock of hurried. The budget is also the time limit of each
// statement, by the real clock.
const windowTime = dbtest.Deadline

// hurried returns a search with a time budget that ends a page after the given number of windows.
func hurried(windows int) usage.Search {
	now := november
	clock := func() time.Time { now = now.Add(windowTime); return now }
	return usage.Search{Now: clock, Budget: time.Duration(windows) * windowTime}
}

// listed returns the values on all pages of a list, sorted.
func listed(t *testing.T, store *db.DB, tenant metering.TenantID, f usage.EventFilter, limit int, by usage.Search) (values []string) {
	t.Helper()
	searched, newest := f.End, f.End
	for before := (*usage.EventCursor)(nil); ; {
		page, err := store.Events.List(t.Context(), tenant, f, before, limit, by)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Events), limit)
		require.False(t, page.SearchedUntil.After(searched), "it goes back")
		searched = page.SearchedUntil
		for _, e := range page.Events {
			require.False(t, e.At.After(newest), "out of order")
			require.False(t, e.At.Before(searched), "an event outside the searched range")
			values, newest = append(values, e.Value.String()), e.At
		}
		if before = page.Next; before == nil {
			require.Equal(t, f.Start, searched)
			slices.Sort(values)
			return values
		}
	}
}

// TestWideEventSearchEndsWithinItsBudget checks that a search of a wide range returns the events found so far and the
// position to continue from.
func TestWideEventSearchEndsWithinItsBudget(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november.AddDate(-1, 0, 0), "1", "", ""))
	f := usage.EventFilter{Range: metering.Range{Start: november.AddDate(-2, 0, 0), End: november.Add(time.Hour)}, EventType: "call"}

	page, err := store.Events.List(t.Context(), tenant, f, nil, 10, hurried(1))
	require.NoError(t, err)
	require.Empty(t, page.Events)
	require.True(t, november.Add(windowTime-time.Minute).Equal(page.SearchedUntil), "all that is ahead of now, and a minute: %s", page.SearchedUntil)
	require.Equal(t, page.SearchedUntil, page.Next.At)

	page, err = store.Events.List(t.Context(), tenant, f, page.Next, 10, hurried(3))
	require.NoError(t, err)
	require.True(t, page.SearchedUntil.Equal(november.Add(windowTime-8*time.Minute)), "1, 2 and 4 minutes further back: %s", page.SearchedUntil)

	page, err = store.Events.List(t.Context(), tenant, f, page.Next, 10, unhurried)
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	require.Nil(t, page.Next)
	require.Equal(t, f.Start, page.SearchedUntil)
}

// TestEventSearchNarrowsWindowThatTimesOut cancels a transaction when it reads a second event, as the time limit of the
// search does. The search must narrow its windows and still return events.
func TestEventSearchNarrowsWindowThatTimesOut(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	var sent []metering.Event
	for i, ago := range []string{"1s", "11s", "21s", "100s", "110s", "120s"} {
		before, err := time.ParseDuration("-" + ago)
		require.NoError(t, err)
		sent = append(sent, dbtest.Event(t, "call", "acme", november.Add(before), fmt.Sprint(i), "", ""))
	}
	ingest(t, store, tenant, sent...)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	// The budget differs from the statement timeout in the store's address.
	still := usage.Search{Now: func() time.Time { return november }, Budget: dbtest.Deadline / 2}
	_, err = conn.Exec(t.Context(), fmt.Sprintf(`
		alter table events rename to all_events;
		create function reads_one_event() returns boolean language plpgsql cost 100000 as $$
		begin
		  if current_setting('test.has_read', true) = 'yes' then
		    if current_setting('statement_timeout')::interval <> interval '%d ms' then
		      raise exception 'the statement does not have the time limit of the search';
		    end if;
		    raise query_canceled;
		  end if;
		  perform set_config('test.has_read', 'yes', true);
		  return true;
		end $$;
		create view events as select * from all_events where reads_one_event();
		grant select on events to public`, still.Budget.Milliseconds()))
	require.NoError(t, err)
	f := usage.EventFilter{Range: metering.Range{Start: november.Add(-5 * time.Minute), End: november}}
	first, err := store.Events.List(t.Context(), tenant, f, nil, 10, still)
	require.NoError(t, err)
	require.Len(t, first.Events, 3)
	require.NotNil(t, first.Next, "the rest of the range has too many events for one window")
	second, err := store.Events.List(t.Context(), tenant, f, first.Next, 10, still)
	require.NoError(t, err)
	require.True(t, second.SearchedUntil.Before(first.SearchedUntil), "it gets on")
}

// TestListedEventNamesMetersThatCountedIt checks that an event lists the meters with totals that include the event.
func TestListedEventNamesMetersThatCountedIt(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	list := func() (counted []string) {
		t.Helper()
		page, err := store.Events.List(t.Context(), tenant, usage.EventFilter{Range: billing.CalendarPeriod(november, time.UTC)}, nil, 10, unhurried)
		require.NoError(t, err)
		for _, e := range page.Events {
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
	require.Equal(t, []string{"3 all-calls", "2", "1 all-calls calls"}, list(), "an archived meter does not count later events")

	_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{Slug: "tokens", EventType: "token", Version: metering.MeterVersion{Aggregation: metering.Sum}})
	require.NoError(t, err)
	require.Equal(t, []string{"3 all-calls", "2", "1 all-calls calls"}, list(), "its past is not counted")
}

// TestListedEventHasItsBillingPeriod checks the billing period of an event, and whether the event was late
// for it.
func TestListedEventHasItsBillingPeriod(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	acme := dbtest.Customer(t, store, tenant, "acme")
	dbtest.Meter(t, store, tenant, "calls", "call")
	month := billing.CalendarPeriod(november, time.UTC)
	period := func() string {
		t.Helper()
		page, err := store.Events.List(t.Context(), tenant, usage.EventFilter{Range: month}, nil, 1, unhurried)
		require.NoError(t, err)
		require.Len(t, page.Events[0].CountedBy, 1)
		counted := page.Events[0].CountedBy[0]
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
