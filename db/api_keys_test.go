package db_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestNoMoreKeysAreLiveThanMayBe creates a tenant's last allowed key in eight concurrent requests. Only one request
// succeeds.
func TestNoMoreKeysAreLiveThanMayBe(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	tenant, now := dbtest.Tenant(t, store).ID, metering.Instant(clock.Now())
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		insert into api_keys (tenant_id, name, scope, hash, last_four, created_by, revoked_at, expires_at)
		select $1, 'key ' || n, 'ingest_only', sha256(n::text::bytea), 'abcd', 'operator',
		  case when n > $2 and n % 2 = 0 then $3::timestamptz end, case when n > $2 and n % 2 = 1 then $3::timestamptz end
		from generate_series(1, $2::int + 10) n`, tenant, metering.MaxAPIKeys-1, now)
	require.NoError(t, err)
	key := metering.APIKey{Name: "last", Scope: metering.ScopeIngestOnly, LastFour: "efgh"}
	hash := func(n int) []byte { h := sha256.Sum256(fmt.Appendf(nil, "last %d", n)); return h[:] }
	var made, refused atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			switch _, err := store.APIKeys.Create(t.Context(), tenant, metering.Operator, key, hash(n), now); metering.CodeOf(err) {
			case "":
				made.Add(1)
			case metering.CodeConflict:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int64{1, 7}, []int64{made.Load(), refused.Load()})

	newest, err := dbtest.Items(store.APIKeys.List(t.Context(), tenant, 0, 1))
	require.NoError(t, err)
	by := access.Rotating{Tenant: tenant, Actor: metering.Operator, Now: now}
	_, _, err = store.Rotations.APIKey(t.Context(), by, newest[0].ID, metering.APIKey{LastFour: "ijkl"}, hash(100))
	require.NoError(t, err, "one takes the place of another")
	newest, err = dbtest.Items(store.APIKeys.List(t.Context(), tenant, 0, 1))
	require.NoError(t, err)
	by.Overlap = time.Hour
	_, _, err = store.Rotations.APIKey(t.Context(), by, newest[0].ID, metering.APIKey{LastFour: "mnop"}, hash(101))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "both would be live")
	require.NoError(t, store.APIKeys.Revoke(t.Context(), tenant, metering.Operator, newest[0].ID))
	_, err = store.APIKeys.Create(t.Context(), tenant, metering.Operator, key, hash(102), now.Add(time.Minute))
	require.NoError(t, err)
}
