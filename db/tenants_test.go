package db_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func inZone(zone string) db.TenantChange { return db.TenantChange{Timezone: &zone} }

// TestTimeZoneChangeRecountsEveryMeterExactly changes the time zone twice while events are ingested, and compares the
// rollups with a recount.
func TestTimeZoneChangeRecountsEveryMeterExactly(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call", "model")
	dbtest.Meter(t, store, tenant, "all", "call")
	dbtest.Meter(t, store, tenant, "unused", "nothing")
	random := rand.New(rand.NewPCG(1, 2))
	some := func() (events []metering.Event) {
		for range 60 {
			at := november.Add(-time.Duration(random.Int64N(int64(60 * 24 * time.Hour))))
			events = append(events, dbtest.Event(t, "call", fmt.Sprint("c", random.IntN(3)), at, "1.25", "", fmt.Sprintf(`{"model":%d}`, random.IntN(3))))
		}
		return events
	}
	ingest(t, store, tenant, some()...)
	for _, zone := range []string{"Asia/Kathmandu", "America/St_Johns"} {
		var group sync.WaitGroup
		during := some()
		group.Go(func() { ingest(t, store, tenant, during...) })
		updated, backfilling, err := store.Tenants.Update(t.Context(), tenant, metering.Operator, inZone(zone))
		require.NoError(t, err)
		require.Equal(t, zone, updated.Timezone)
		require.Len(t, backfilling, 2, "a meter without past events needs no backfill")
		group.Wait()
		ingest(t, store, tenant, some()...)
		requireRollupsEqualARecount(t, conn, tenant) // in the previous zone, which is still read
		for _, version := range backfilling {
			require.NoError(t, backfill(t.Context(), store, tenant, version))
		}
		requireRollupsEqualARecount(t, conn, tenant)
		meters, err := dbtest.Items(store.Meters.List(t.Context(), tenant, 0, 10, false))
		require.NoError(t, err)
		for _, m := range meters {
			require.Equal(t, zone, m.Version.Timezone)
			require.Equal(t, metering.Complete, m.Version.Status)
		}
	}
}

func TestTimeZoneOfTenantWithBillingPeriodCannotChange(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	mine, theirs := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	customer := dbtest.Customer(t, store, mine, "acme")
	closePeriods(t, dbtest.Conn(t), mine, customer.ID, billing.CalendarPeriod(november, time.UTC))
	_, _, err := store.Tenants.Update(t.Context(), mine, metering.Operator, inZone("Asia/Kathmandu"))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	after, err := store.Tenants.Get(t.Context(), mine)
	require.NoError(t, err)
	require.Equal(t, "UTC", after.Timezone)
	name := "Other"
	renamed, backfilling, err := store.Tenants.Update(t.Context(), mine, metering.Operator, db.TenantChange{Name: &name, Timezone: &after.Timezone})
	require.NoError(t, err)
	require.Empty(t, backfilling)
	require.Equal(t, name, renamed.Name)
	_, _, err = store.Tenants.Update(t.Context(), theirs, metering.Operator, inZone("Asia/Kathmandu"))
	require.NoError(t, err)
}

// TestTimesAreReadInUTC checks that times are read in UTC, in any time zone of the machine. Responses show them
// unchanged.
func TestTimesAreReadInUTC(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	customer := dbtest.Customer(t, store, dbtest.Tenant(t, store).ID, "acme")
	require.Same(t, time.UTC, customer.CreatedAt.Location())
}
