package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// TestBusyTenantLeavesConnectionsToOtherTenants locks a tenant and sends many concurrent requests that read and
// change its meter. It checks that another tenant's meters can be read meanwhile.
func TestBusyTenantLeavesConnectionsToOtherTenants(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	busy, calm := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	meter, err := store.Meters.Create(t.Context(), busy.ID, metering.Operator, metering.Meter{Slug: "calls", EventType: "call", Version: metering.MeterVersion{Aggregation: metering.Count}})
	require.NoError(t, err)
	lock, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer lock.Close(context.Background())
	_, err = lock.Exec(t.Context(), `select pg_advisory_lock($1)`, busy.ID)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 100 {
		waiting.Go(func() { _, _ = store.Meters.Get(pg.For(ctx, busy.ID), busy.ID, meter.Slug) })
		waiting.Go(func() {
			groups := []string{"model"}
			_, _, _ = store.Meters.Update(pg.For(ctx, busy.ID), busy.ID, metering.Operator, meter.Slug, catalog.MeterChange{GroupBy: &groups})
		})
	}
	dbtest.Eventually(t, func() error {
		var n int
		err := lock.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
		if err == nil && n != 4 {
			return fmt.Errorf("%d wait for a lock", n)
		}
		return err
	})
	for range 20 {
		within, done := context.WithTimeout(pg.For(t.Context(), calm.ID), dbtest.Deadline)
		_, err = dbtest.Items(store.Meters.List(within, calm.ID, 0, 10, false))
		done()
		require.NoError(t, err)
	}
	cancel()
	waiting.Wait()
	_, err = lock.Exec(t.Context(), `select pg_advisory_unlock($1)`, busy.ID)
	require.NoError(t, err)
	_, err = dbtest.Items(store.Meters.List(pg.For(t.Context(), busy.ID), busy.ID, 0, 10, false))
	require.NoError(t, err, "every turn has ended")
}

// TestPoolOpensSharedConnectionsBeforeFirstStatement checks that OpenWarm and OpenSmall open connections
// before the first statement.
func TestPoolOpensSharedConnectionsBeforeFirstStatement(t *testing.T) {
	t.Parallel()
	_, address := dbtest.Fresh(t)
	watching, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer watching.Close(context.Background())
	const most = 6
	named := func(name string) string {
		return dbtest.With(t, dbtest.With(t, address, "application_name", name), "pool_max_conns", fmt.Sprint(most))
	}
	awaitOpen := func(name string, want int) {
		dbtest.Eventually(t, func() error {
			var n int
			err := watching.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name = $1 and datname = current_database()`, name).Scan(&n)
			if err == nil && n != want {
				return fmt.Errorf("%d connections of %s are open", n, name)
			}
			return err
		})
	}
	warm, err := db.OpenWarm(t.Context(), named("warm"), dbtest.AuditSecret, nil)
	require.NoError(t, err)
	defer warm.Close()
	small, err := db.OpenSmall(t.Context(), named("small"), dbtest.AuditSecret, 2)
	require.NoError(t, err)
	defer small.Close()
	awaitOpen("warm", most/2)
	awaitOpen("small", 2)
}
