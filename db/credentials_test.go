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

// TestConcurrentRequestsDoNotExceedMaximumOfAPIKeys creates a tenant's last allowed key in eight concurrent requests.
// Only one request succeeds.
func TestConcurrentRequestsDoNotExceedMaximumOfAPIKeys(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	tenant, now := dbtest.Tenant(t, store).ID, metering.Instant(clock.Now())
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		insert into credentials (tenant_id, kind, name, scope, hash, last_four, created_by, revoked_at, expires_at)
		select $1, 'api_key', 'key ' || n, 'ingest_only', sha256(n::text::bytea), 'abcd', 'operator',
		  case when n > $2 and n % 2 = 0 then $3::timestamptz end, case when n > $2 and n % 2 = 1 then $3::timestamptz end
		from generate_series(1, $2::int + 10) n`, tenant, metering.MaxAPIKeys-1, now)
	require.NoError(t, err)
	key := func(n int) metering.Credential {
		hash := sha256.Sum256(fmt.Appendf(nil, "last %d", n))
		return metering.Credential{Name: "last", Scope: metering.ScopeIngestOnly, LastFour: "efgh", Hash: hash[:]}
	}
	var made, refused atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			switch _, err := store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.APIKeyCredential, key(n), now); metering.CodeOf(err) {
			case "":
				made.Add(1)
			case metering.CodeConflict:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int64{1, 7}, []int64{made.Load(), refused.Load()})

	newest, err := dbtest.Items(store.Credentials.List(t.Context(), tenant, metering.APIKeyCredential, 0, 1))
	require.NoError(t, err)
	by := access.Rotating{Tenant: tenant, Actor: metering.Operator, Now: now}
	_, _, err = store.Rotations.Credential(t.Context(), by, newest[0].ID, key(100))
	require.NoError(t, err, "the new key replaces the old one immediately")
	newest, err = dbtest.Items(store.Credentials.List(t.Context(), tenant, metering.APIKeyCredential, 0, 1))
	require.NoError(t, err)
	by.Overlap = time.Hour
	_, _, err = store.Rotations.Credential(t.Context(), by, newest[0].ID, key(101))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "both keys would be live")
	require.NoError(t, store.Credentials.Revoke(t.Context(), tenant, metering.Operator, newest[0].ID))
	_, err = store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.APIKeyCredential, key(102), now.Add(time.Minute))
	require.NoError(t, err)
}

func TestTenantsDoNotShareSecretsOrRequestIDs(t *testing.T) {
	t.Parallel()
	store, ctx, now := dbtest.Open(t), t.Context(), clock.Now()
	ours, theirs, none := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	made := make(map[metering.TenantID]metering.Credential)
	for _, tenant := range []metering.TenantID{ours, theirs} {
		secret, err := store.Credentials.Create(ctx, tenant, metering.Operator, metering.HMACSecretCredential,
			metering.Credential{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte(tenant.String()), LastFour: "abcd"}, now)
		require.NoError(t, err)
		made[tenant] = secret
		claimed, err := store.RequestIDs.Claim(ctx, tenant, "same", now.Add(time.Minute), now)
		require.NoError(t, err)
		require.True(t, claimed)
	}
	claimed, err := store.RequestIDs.Claim(ctx, ours, "same", now.Add(time.Minute), now)
	require.NoError(t, err)
	require.False(t, claimed)

	listed, err := dbtest.Items(store.Credentials.List(ctx, ours, metering.HMACSecretCredential, 0, 10))
	require.NoError(t, err)
	require.Equal(t, []metering.Credential{made[ours]}, listed)
	err = store.Credentials.Revoke(ctx, ours, metering.Operator, made[theirs].ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	key := metering.CredentialID{Kind: metering.APIKeyCredential, Number: made[ours].ID.Number}
	_, err = store.Credentials.Get(ctx, ours, key)
	require.EqualError(t, err, "there is no such API key", "the number belongs to a secret")
	require.EqualError(t, store.Credentials.Revoke(ctx, ours, metering.Operator, key), "there is no such API key")
	signers, err := store.Credentials.Signers(ctx, []metering.TenantID{ours, theirs, none})
	require.NoError(t, err)
	require.Len(t, signers, 2)
	for tenant, s := range signers {
		require.Equal(t, tenant, s.Tenant.ID)
		require.Equal(t, []metering.Credential{made[tenant]}, s.Secrets)
	}

	require.NoError(t, store.Credentials.Revoke(ctx, ours, metering.Operator, made[ours].ID))
	signers, err = store.Credentials.Signers(ctx, []metering.TenantID{ours, theirs})
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

func TestSweepDeletesExpiredRequestIDsUpToItsLimit(t *testing.T) {
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

// TestConcurrentRequestsCreateAtMostTwoHMACSecrets creates secrets in concurrent requests. It locks the table until all
// requests wait, so that each request begins before any secret is stored.
func TestConcurrentRequestsCreateAtMostTwoHMACSecrets(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	watcher, err := pgx.Connect(t.Context(), url) // within a transaction, pg_stat_activity would not change
	require.NoError(t, err)
	defer watcher.Close(t.Context())
	_, err = conn.Exec(t.Context(), `begin; lock table credentials in share mode`) // it can be read, not written
	require.NoError(t, err)
	const makers = 4
	var made atomic.Int64
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			secret := metering.Credential{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte("sealed"), LastFour: "abcd"}
			if _, err := store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.HMACSecretCredential, secret, clock.Now()); err == nil {
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
