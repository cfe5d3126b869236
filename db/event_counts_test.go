package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// TestEventCountsOfProcessesAddUp counts events in two processes, and in a third process that starts after the first
// two have ended.
func TestEventCountsOfProcessesAddUp(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	store.FlushOnRequest(dbtest.Deadline)
	ours, theirs := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	hour := november
	day := metering.Range{Start: hour, End: hour.Add(24 * time.Hour)}
	process := func() *usage.EventCounter { return store.NewEventCounter(func(err error) { t.Error(err) }) }

	one, other := process(), process()
	one.Count(ours, hour, usage.EventAccepted, 3)
	one.Count(ours, hour, usage.EventAccepted, 4)
	one.Count(ours, hour, "invalid_value", 1)
	one.Count(theirs, hour, usage.EventAccepted, 100)
	one.Count(ours, day.End, usage.EventAccepted, 1000)
	other.Count(ours, hour, usage.EventAccepted, 10)
	other.Count(ours, hour.Add(time.Hour), usage.EventDuplicate, 2)
	other.Count(ours, hour, "invalid_customer_id", 0)
	one.Close()
	other.Close()
	again := process()
	again.Count(ours, hour, usage.EventAccepted, 20)
	require.NoError(t, again.Flush(t.Context()))
	again.Close() // writes nothing twice

	counts, err := store.EventCounts.Within(t.Context(), ours, day)
	require.NoError(t, err)
	require.Equal(t, []usage.EventCount{
		{Hour: hour, Outcome: usage.EventAccepted, Events: 37},
		{Hour: hour, Outcome: "invalid_value", Events: 1},
		{Hour: hour.Add(time.Hour), Outcome: usage.EventDuplicate, Events: 2},
	}, inUTC(counts))
}

func TestEventCountsAreKeptAfterFailedWrite(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	failures := 0
	store.FlushOnRequest(dbtest.Deadline)
	counter := store.NewEventCounter(func(error) { failures++ })
	counter.Count(tenant, november, usage.EventAccepted, 5)
	_, err = conn.Exec(t.Context(), `alter table event_counts rename to elsewhere`)
	require.NoError(t, err)
	require.Error(t, counter.Flush(t.Context()))
	_, err = conn.Exec(t.Context(), `alter table elsewhere rename to event_counts`)
	require.NoError(t, err)
	counter.Count(tenant, november, usage.EventAccepted, 1)
	counter.Close()
	require.Zero(t, failures)
	counts, err := store.EventCounts.Within(t.Context(), tenant, metering.Range{Start: november, End: november.Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, []usage.EventCount{{Hour: november, Outcome: usage.EventAccepted, Events: 6}}, inUTC(counts))
}

func TestOldEventCountsAreDeleted(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	store.FlushOnRequest(dbtest.Deadline)
	counter := store.NewEventCounter(func(err error) { t.Error(err) })
	for hours := range 5 {
		counter.Count(tenant, november.Add(time.Duration(hours)*time.Hour), usage.EventAccepted, 1)
	}
	counter.Close()
	before := november.Add(3 * time.Hour)
	for _, removed := range []int64{2, 1, 0} {
		n, err := store.EventCounts.Sweep(t.Context(), before, 2)
		require.NoError(t, err)
		require.Equal(t, removed, n)
	}
	counts, err := store.EventCounts.Within(t.Context(), tenant, metering.Range{Start: november, End: november.Add(24 * time.Hour)})
	require.NoError(t, err)
	require.Len(t, counts, 2)
	require.Equal(t, before, counts[0].Hour.UTC())
}

func inUTC(counts []usage.EventCount) []usage.EventCount {
	for i := range counts {
		counts[i].Hour = counts[i].Hour.UTC()
	}
	return counts
}
