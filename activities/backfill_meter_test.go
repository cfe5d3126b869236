package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

func TestABackfillCountsADayOnceHoweverOftenItRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	writer := b.store.NewWriter(dbtest.WriterOptions)
	defer writer.Close()
	for _, value := range []string{"1.5", "2"} {
		_, err := writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", b.now, value, "", "")})
		require.NoError(t, err)
	}
	meter := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	in := activities.BackfillInput{TenantID: b.tenant, MeterVersionID: meter.Version.ID}
	plan := run[activities.PlanBackfillResult](t, b, b.do.PlanBackfill, in)
	require.NotEmpty(t, plan.Days)

	chunk := activities.CountDaysInput{BackfillInput: in, Days: plan.Days}
	require.EqualValues(t, 2, run[activities.CountDaysResult](t, b, b.do.CountDays, chunk).Events)
	require.Zero(t, run[activities.CountDaysResult](t, b, b.do.CountDays, chunk).Events)
	run[struct{}](t, b, b.do.CompleteMeterVersion, in)
	run[struct{}](t, b, b.do.CompleteMeterVersion, in)

	totals, err := b.store.Usage.MeterTotals(t.Context(), b.tenant, b.customer, billing.CalendarPeriod(b.now, time.UTC))
	require.NoError(t, err)
	require.Len(t, totals, 2)
	require.False(t, totals[1].Backfilling)
	require.Equal(t, "3.5", totals[1].Usage.String())
}

func TestBackfillResumesAtLastHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetHeartbeatDetails(map[string]any{"done": 2, "events": 40})
	days := []time.Time{b.now.AddDate(0, 0, -3), b.now.AddDate(0, 0, -2), b.now.AddDate(0, 0, -1)}
	writer := b.store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	_, err := writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", b.now, "1", "", "")})
	require.NoError(t, err)
	meter := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	counted := run[activities.CountDaysResult](t, b, b.do.CountDays, activities.CountDaysInput{
		BackfillInput: activities.BackfillInput{TenantID: b.tenant, MeterVersionID: meter.Version.ID}, Days: days,
	})
	require.EqualValues(t, 40, counted.Events)
	require.Equal(t, len(days), counted.Done)
	var marked int
	row := dbtest.Conn(t).QueryRow(t.Context(), `select count(*) from backfill_days where tenant_id = $1`, b.tenant)
	require.NoError(t, row.Scan(&marked))
	require.Equal(t, 1, marked)
}

// TestBackfillIsPausedAfterThreeUnfinishedAttempts begins three attempts that do not finish, as if their workers were
// killed. The fourth attempt counts nothing. After the backfill is resumed, the day is counted.
func TestBackfillIsPausedAfterThreeUnfinishedAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	writer := b.store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	_, err := writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "stored", "acme", b.now, "1", "", "")})
	require.NoError(t, err)
	version := dbtest.Meter(t, b.store, b.tenant, "storage", "stored").Version.ID
	for range 3 {
		state, err := b.store.Backfills.Begin(t.Context(), b.tenant, version)
		require.NoError(t, err)
		require.Equal(t, usage.BackfillRuns, state)
	}
	in := activities.CountDaysInput{BackfillInput: activities.BackfillInput{TenantID: b.tenant, MeterVersionID: version}, Days: []time.Time{b.now, b.now.AddDate(0, 0, 1)}}
	require.Equal(t, activities.CountDaysResult{Paused: true}, run[activities.CountDaysResult](t, b, b.do.CountDays, in))
	needs, err := b.store.Attention.List(t.Context(), b.tenant, db.AttentionFilter{Kind: "backfill_stuck"}, nil, b.now, 10)
	require.NoError(t, err)
	require.Len(t, needs.Items, 1)
	require.Contains(t, needs.Items[0].Cause, "paused")

	in.Resumed = true
	require.Equal(t, activities.CountDaysResult{Done: 2, Events: 1}, run[activities.CountDaysResult](t, b, b.do.CountDays, in))
	for range 4 { // attempts that finish do not pause the backfill
		in.Days = []time.Time{b.now}
		in.Resumed = false
		require.False(t, run[activities.CountDaysResult](t, b, b.do.CountDays, in).Paused)
	}
	require.NoError(t, b.store.Meters.Archive(t.Context(), b.tenant, metering.Operator, "storage", b.now))
	require.Equal(t, activities.CountDaysResult{Done: 1}, run[activities.CountDaysResult](t, b, b.do.CountDays, in), "it ends")
}
