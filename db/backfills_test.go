package db_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestABackfillCountsEveryEventOfThePastOnce(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	month := billing.CalendarPeriod(november, time.UTC)

	// past creates a tenant with an event in each hour of three days, and then a meter.
	past := func(t *testing.T) (metering.TenantID, metering.Meter) {
		tenant := dbtest.Tenant(t, store).ID
		var events []metering.Event
		for hour := range 72 {
			events = append(events, dbtest.Event(t, "call", "acme", month.Start.Add(time.Duration(hour)*time.Hour), "1", "", ""))
		}
		ingest(t, store, tenant, events...)
		m := dbtest.Meter(t, store, tenant, "calls", "call")
		require.Equal(t, metering.Backfilling, m.Version.Status)
		return tenant, m
	}

	t.Run("DaysExcludesCountedDay", func(t *testing.T) {
		tenant, m := past(t)
		all, err := store.Backfills.Days(t.Context(), tenant, m.Version.ID)
		require.NoError(t, err)
		require.Contains(t, all, month.Start)
		n, err := store.Backfills.CountDay(t.Context(), tenant, m.Version.ID, month.Start)
		require.NoError(t, err)
		require.EqualValues(t, 24, n)
		left, err := store.Backfills.Days(t.Context(), tenant, m.Version.ID)
		require.NoError(t, err)
		require.Len(t, left, len(all)-1)
		require.NotContains(t, left, month.Start)
	})

	t.Run("RepeatedCountOfDayAddsNothing", func(t *testing.T) {
		tenant, m := past(t)
		for _, want := range []int64{24, 0} {
			n, err := store.Backfills.CountDay(t.Context(), tenant, m.Version.ID, month.Start)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
	})

	t.Run("DaysAreUTCDaysInAnyTimeZone", func(t *testing.T) {
		tenant, m := past(t)
		days, err := store.Backfills.Days(t.Context(), tenant, m.Version.ID)
		require.NoError(t, err)
		for _, day := range days {
			_, err := store.Backfills.CountDay(t.Context(), tenant, m.Version.ID, day.In(metering.Location("America/New_York")))
			require.NoError(t, err)
		}
		left, err := store.Backfills.Days(t.Context(), tenant, m.Version.ID)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, store.Backfills.Complete(t.Context(), tenant, m.Version.ID))
		require.Equal(t, "72", total(t, store, tenant, "acme", month)[0].Usage.String())
		requireRollupsEqualARecount(t, conn, tenant)
	})

	t.Run("MeterIsBackfillingUntilAllDaysAreCounted", func(t *testing.T) {
		tenant, m := past(t)
		require.Error(t, store.Backfills.Complete(t.Context(), tenant, m.Version.ID))
		require.True(t, total(t, store, tenant, "acme", month)[0].Backfilling)
		require.NoError(t, backfill(t.Context(), store, tenant, m.Version.ID))
		require.False(t, total(t, store, tenant, "acme", month)[0].Backfilling)
		require.NoError(t, store.Backfills.Complete(t.Context(), tenant, m.Version.ID), "the second call changes nothing")
	})

	t.Run("ReadsUsePreviousVersionUntilBackfillIsComplete", func(t *testing.T) {
		tenant, m := past(t)
		require.NoError(t, backfill(t.Context(), store, tenant, m.Version.ID))
		groupBy := []string{"model"}
		updated, backfilling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, m.Slug, metersBy(groupBy))
		require.NoError(t, err)
		require.NotNil(t, backfilling)
		require.Equal(t, m.Version.ID, updated.Version.ID)
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "", `{"model":"a"}`))
		require.Equal(t, "73", total(t, store, tenant, "acme", month)[0].Usage.String(), "the previous version still counts")
		require.NoError(t, backfill(t.Context(), store, tenant, backfilling.ID))
		after := total(t, store, tenant, "acme", month)[0]
		require.Equal(t, backfilling.ID, after.Meter.Version.ID)
		require.Equal(t, "73", after.Usage.String())
		requireRollupsEqualARecount(t, conn, tenant)
	})

	t.Run("IncompleteReplacedVersionIsNeverRead", func(t *testing.T) {
		tenant, m := past(t)
		_, second, err := store.Meters.Update(t.Context(), tenant, metering.Operator, m.Slug, metersBy([]string{"model"}))
		require.NoError(t, err)
		require.NotNil(t, second)
		require.NoError(t, backfill(t.Context(), store, tenant, m.Version.ID), "the backfill of the replaced version returns no error")
		read := total(t, store, tenant, "acme", month)[0]
		require.Equal(t, second.ID, read.Meter.Version.ID)
		require.True(t, read.Backfilling)
		require.NoError(t, backfill(t.Context(), store, tenant, second.ID))
		requireRollupsEqualARecount(t, conn, tenant)
	})
}

// TestIngestContinuesDuringBackfillOfBusyDay backfills a busy day hour by hour. While the backfill waits for one hour,
// the counted hours stay counted, and ingest continues in the other hours.
func TestIngestContinuesDuringBackfillOfBusyDay(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	ingestOne := func(hour int, value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), dbtest.Deadline)
		defer cancel()
		at := k.daysAgo(40).Truncate(24 * time.Hour).Add(time.Duration(hour)*time.Hour + time.Minute)
		_, err := writer.Ingest(ctx, k.tenant, []metering.Event{dbtest.Event(t, "call", "acme", at, value, "", `{"model":"a"}`)})
		require.NoError(t, err)
	}
	ingestOne(3, "0.5")
	day, acme := k.daysAgo(40).Truncate(24*time.Hour), k.customer("acme")
	k.exec(`
		insert into events (tenant_id, customer_id, ts, id, event_type, value, properties, ingested_at, epoch)
		select $1, $2, $3::timestamptz + i * interval '0.8 seconds', gen_random_uuid(), 'call', i % 7, '{"model":"b"}', $3, 1
		from generate_series(0, 107999) i`, k.tenant, acme, day)
	m := dbtest.Meter(t, store, k.tenant, "calls", "call", "model")
	require.Equal(t, metering.Backfilling, m.Version.Status)

	ingestOne(20, "1") // ingest counts this event, in the hour that the transaction below locks
	locker, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer locker.Close(context.Background())
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into backfill_hours (tenant_id, meter_version_id, hour) values ($1, $2, $3)`, k.tenant, m.Version.ID, day.Add(20*time.Hour))
	require.NoError(t, err)
	ended := make(chan error)
	go func() {
		_, err := store.Backfills.CountDay(t.Context(), k.tenant, m.Version.ID, day)
		ended <- err
	}()
	dbtest.Eventually(t, func() error {
		if n := k.count(`select count(*) from backfill_hours`); n < 20 {
			return fmt.Errorf("%d hours are counted", n)
		}
		return nil
	})
	ingestOne(5, "2")
	require.NoError(t, tx.Rollback(t.Context()))
	if err := <-ended; err != nil {
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err), "it gave up waiting, and is tried again")
	}
	twice := make(chan error)
	for range 2 {
		go func() { twice <- backfill(t.Context(), store, k.tenant, m.Version.ID) }()
	}
	for range 2 {
		if err := <-twice; metering.CodeOf(err) != metering.CodeOverloaded {
			require.NoError(t, err)
		}
	}
	require.NoError(t, backfill(t.Context(), store, k.tenant, m.Version.ID))
	requireRollupsEqualARecount(t, k.conn, k.tenant)
	require.Equal(t, 108_001, k.count(`select sum(events)::int from backfill_days`))
}
