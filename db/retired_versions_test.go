package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// TestPropertyDroppingRetiredVersionsChangesNoUsage changes a meter's definition between events, including late ones.
// It compares all usage before and after the rollups of retired versions are dropped, and with a recount.
func TestPropertyDroppingRetiredVersionsChangesNoUsage(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t) // DropRetired drops versions of all tenants
	conn := dbtest.ConnTo(t, address)
	month := billing.CalendarPeriod(november, time.UTC)
	histories.Check(t, func(rt *rapid.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		customer := dbtest.Customer(t, store, tenant, "acme").ID
		closed := false
		for n := range rapid.IntRange(3, 12).Draw(rt, "steps") {
			switch step := rapid.SampledFrom([]string{"event", "event", "change", "abandon", "close"}).Draw(rt, "step"); step {
			case "event":
				at := month.Start.Add(time.Duration(rapid.IntRange(0, 500).Draw(rt, "hour")) * time.Hour)
				ingest(t, store, tenant, dbtest.Event(t, "call", "acme", at, rapid.SampledFrom([]string{"1", "2.5", "-3"}).Draw(rt, "value"), "", `{"model":"m"}`))
			case "change", "abandon":
				change := catalog.MeterChange{GroupBy: &[]string{"model"}}
				if n%2 == 0 {
					change = catalog.MeterChange{GroupBy: &[]string{}}
				}
				_, next, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", change)
				require.NoError(rt, err)
				if next != nil && step == "change" {
					require.NoError(rt, backfill(t.Context(), store, tenant, next.ID))
				}
			case "close":
				if !closed {
					closePeriods(t, conn, tenant, customer, month)
				}
				closed = true
			}
		}
		next, err := store.Meters.Next(t.Context(), tenant)
		require.NoError(rt, err)
		for _, g := range next {
			require.NoError(rt, backfill(t.Context(), store, tenant, g.ID))
		}
		before := usageOf(t, store, tenant, month)
		_, err = conn.Exec(t.Context(), `update meter_versions set retired_at = retired_at - interval '2 hours' where tenant_id = $1`, tenant)
		require.NoError(rt, err)
		now, err := store.ReadClock(t.Context()) // retired_at is the database's time
		require.NoError(rt, err)
		_, err = store.Maintenance.DropRetired(t.Context(), now, 100)
		require.NoError(rt, err)
		require.Equal(rt, before, usageOf(t, store, tenant, month))
		requireRollupsEqualARecount(t, conn, tenant)
		var left int
		require.NoError(rt, conn.QueryRow(t.Context(), `
			select (select count(*) from usage_hours u where u.tenant_id = $1 and u.meter_version_id = any(g.ids))
			  + (select count(*) from usage_months u where u.tenant_id = $1 and u.meter_version_id = any(g.ids))
			  + (select count(*) from usage_groups u where u.tenant_id = $1 and u.meter_version_id = any(g.ids))
			  + (select count(*) from backfill_hours u where u.tenant_id = $1 and u.meter_version_id = any(g.ids))
			from (select coalesce(array_agg(id), '{}') as ids from meter_versions where tenant_id = $1 and status = 'retired') g`, tenant).Scan(&left))
		require.Zero(rt, left, "rows of retired versions")
	})
}

// usageOf returns the tenant's windows of the meter, by hour and by month.
func usageOf(t testing.TB, store *db.DB, tenant metering.TenantID, r metering.Range) (windows []string) {
	t.Helper()
	for _, granularity := range []metering.Granularity{metering.Hour, metering.Month} {
		meter, err := store.Meters.Get(t.Context(), tenant, "calls")
		require.NoError(t, err)
		page, err := store.Usage.Windows(t.Context(), tenant, usage.WindowQuery{Meter: meter, Range: r, Granularity: granularity, Limit: 1000})
		require.NoError(t, err)
		windows = append(windows, shown(page.Windows)...)
	}
	return windows
}

func TestMeterHasAtMostTenPreviousVersionsUntilTheyAreDropped(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn := dbtest.ConnTo(t, address)
	tenant := dbtest.Tenant(t, store).ID
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "", ""))
	dbtest.Meter(t, store, tenant, "calls", "call")
	ways := [][]string{{"a"}, {"b"}}
	change := func(n int) error {
		_, _, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", catalog.MeterChange{GroupBy: &ways[n%2]})
		return err
	}
	for n := range 10 {
		require.NoError(t, change(n))
	}
	err := change(10)
	require.Equal(t, metering.CodeRateLimited, metering.CodeOf(err))
	require.ErrorContains(t, err, "calls has 10 previous versions")
	zone := "Europe/Zurich"
	_, _, err = store.Tenants.Update(t.Context(), tenant, metering.Operator, db.TenantChange{Timezone: &zone})
	require.Equal(t, metering.CodeRateLimited, metering.CodeOf(err))
	require.NoError(t, store.Meters.Archive(t.Context(), tenant, metering.Operator, "calls", november))
	_, err = store.Meters.Unarchive(t.Context(), tenant, metering.Operator, "calls")
	require.Equal(t, metering.CodeRateLimited, metering.CodeOf(err))

	now, err := store.ReadClock(t.Context()) // retired_at is the database's time
	require.NoError(t, err)
	_, err = store.Maintenance.DropRetired(t.Context(), now, 100)
	require.NoError(t, err)
	require.Error(t, change(10), "they were retired just now")
	_, err = conn.Exec(t.Context(), `update meter_versions set retired_at = retired_at - interval '2 hours'`)
	require.NoError(t, err)
	dropped, err := store.Maintenance.DropRetired(t.Context(), now, 100)
	require.NoError(t, err)
	require.Equal(t, 11, dropped)
	_, err = store.Meters.Unarchive(t.Context(), tenant, metering.Operator, "calls")
	require.NoError(t, err)
	require.NoError(t, change(10))
}
