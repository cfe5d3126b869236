package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// TestATenantThatHoldsConnectionsLeavesOthersSome locks a tenant, has many
// change its meter at once, and asks for another's.
func TestATenantThatHoldsConnectionsLeavesOthersSome(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	busy, calm := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	meter, err := store.Meters.Create(t.Context(), busy.ID, metering.Operator, metering.Meter{Slug: "calls", EventType: "call", Version: metering.MeterVersion{Aggregation: metering.Count}})
	require.NoError(t, err)
	lock, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer lock.Close(context.Background())
	_, err = lock.Exec(t.Context(), `select pg_advisory_lock($1)`, busy.ID)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 100 {
		waiting.Go(func() { _, _ = store.Meters.Get(db.For(ctx, busy.ID), busy.ID, meter.Slug) })
		waiting.Go(func() {
			groups := []string{"model"}
			_, _, _ = store.Meters.Update(db.For(ctx, busy.ID), busy.ID, metering.Operator, meter.Slug, db.MeterChange{GroupBy: &groups})
		})
	}
	dbtest.Eventually(t, 20*time.Second, func() error {
		var n int
		err := lock.QueryRow(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted`).Scan(&n)
		if err == nil && n != 4 {
			return fmt.Errorf("%d wait for the lock", n)
		}
		return err
	})
	for range 20 {
		within, done := context.WithTimeout(db.For(t.Context(), calm.ID), time.Second)
		_, err = store.Meters.List(within, calm.ID, 0, 10, false)
		done()
		require.NoError(t, err)
	}
	cancel()
	waiting.Wait()
	_, err = lock.Exec(t.Context(), `select pg_advisory_unlock($1)`, busy.ID)
	require.NoError(t, err)
	_, err = store.Meters.List(db.For(t.Context(), busy.ID), busy.ID, 0, 10, false)
	require.NoError(t, err, "every turn has ended")
}
