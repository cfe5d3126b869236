package db_test

import (
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

func TestATenantsSecretsAndRequestIDsAreItsOwn(t *testing.T) {
	t.Parallel()
	store, ctx, now := dbtest.Open(t), t.Context(), clock.Now()
	ours, theirs, none := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	made := make(map[metering.TenantID]metering.HMACSecret)
	for _, tenant := range []metering.TenantID{ours, theirs} {
		secret, err := store.HMACSecrets.Create(ctx, tenant, metering.Operator,
			metering.HMACSecret{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte(tenant.String()), LastFour: "abcd"}, now)
		require.NoError(t, err)
		made[tenant] = secret
		claimed, err := store.RequestIDs.Claim(ctx, tenant, "same", now.Add(time.Minute), now)
		require.NoError(t, err)
		require.True(t, claimed)
	}
	claimed, err := store.RequestIDs.Claim(ctx, ours, "same", now.Add(time.Minute), now)
	require.NoError(t, err)
	require.False(t, claimed)

	listed, err := dbtest.Items(store.HMACSecrets.List(ctx, ours, 0, 10))
	require.NoError(t, err)
	require.Equal(t, []metering.HMACSecret{made[ours]}, listed)
	err = store.HMACSecrets.Revoke(ctx, ours, metering.Operator, made[theirs].ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	signers, err := store.HMACSecrets.Signers(ctx, []metering.TenantID{ours, theirs, none})
	require.NoError(t, err)
	require.Len(t, signers, 2)
	for tenant, s := range signers {
		require.Equal(t, tenant, s.Tenant.ID)
		require.Equal(t, []metering.HMACSecret{made[tenant]}, s.Secrets)
	}

	require.NoError(t, store.HMACSecrets.Revoke(ctx, ours, metering.Operator, made[ours].ID))
	signers, err = store.HMACSecrets.Signers(ctx, []metering.TenantID{ours, theirs})
	require.NoError(t, err)
	require.NotNil(t, signers[ours].Secrets[0].RevokedAt, "so that its use can be audited")
	require.Contains(t, signers, theirs)

	log, err := dbtest.Items(store.AuditLog.List(ctx, ours, access.AuditFilter{}, 0, 100))
	require.NoError(t, err)
	var actions []string
	for _, e := range log {
		actions = append(actions, e.Action)
	}
	require.Equal(t, []string{"hmac_secret.revoke", "hmac_secret.create", "tenant.create"}, actions)
}

func TestASweepForgetsWhatHasExpiredAndNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	ctx, now := t.Context(), clock.Now()
	for i, expires := range []time.Duration{-3 * time.Hour, -2 * time.Hour, -time.Hour, time.Hour} {
		_, err := store.RequestIDs.Claim(ctx, 1, string(rune('a'+i)), now.Add(expires), now)
		require.NoError(t, err)
	}
	for _, want := range []int64{2, 1, 0} {
		removed, err := store.RequestIDs.Sweep(ctx, now, 2)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	claimed, err := store.RequestIDs.Claim(ctx, 1, "d", now.Add(time.Hour), now)
	require.NoError(t, err)
	require.False(t, claimed)
}

// TestSecretsMadeAtOnceAreTwoAtMost creates secrets in concurrent requests. It locks the table until all requests wait,
// so that each request begins before any secret is stored.
func TestSecretsMadeAtOnceAreTwoAtMost(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	watcher, err := pgx.Connect(t.Context(), url) // within a transaction, pg_stat_activity would not change
	require.NoError(t, err)
	defer watcher.Close(t.Context())
	_, err = conn.Exec(t.Context(), `begin; lock table hmac_secrets in share mode`) // it can be read, not written
	require.NoError(t, err)
	const makers = 4
	var made atomic.Int64
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			secret := metering.HMACSecret{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte("sealed"), LastFour: "abcd"}
			if _, err := store.HMACSecrets.Create(t.Context(), tenant, metering.Operator, secret, clock.Now()); err == nil {
				made.Add(1)
			}
		})
	}
	awaitLockWaiters(t, watcher, makers)
	_, err = conn.Exec(t.Context(), `rollback`)
	require.NoError(t, err)
	all.Wait()
	require.Equal(t, int64(metering.MaxHMACSecrets), made.Load())
}
