package worker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// encryptionKey returns an encryption key as the environment variable contains it.
func encryptionKey(id byte) string {
	return fmt.Sprintf("key-%c:%s", id, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{id}, 32)))
}

func keyring(t *testing.T, text string) seal.Keyring {
	t.Helper()
	ring, err := seal.ParseKeyring(text)
	require.NoError(t, err)
	return ring
}

const secretsEach = 8

// sealEverything creates a tenant with secrets of every kind.
func sealEverything(t *testing.T, store *db.DB, ring seal.Keyring) metering.TenantID {
	t.Helper()
	tenant := dbtest.Tenant(t, store).ID
	sealFor := func(purpose seal.Purpose) []byte {
		sealed, err := ring.Seal(tenant, purpose, []byte(purpose))
		require.NoError(t, err)
		return sealed
	}
	for _, account := range []string{"acct_former", "acct_now"} { // a provider that was replaced keeps its key
		_, err := store.Providers.Save(t.Context(), tenant, metering.Operator, metering.Provider{
			Kind: metering.Stripe, Invoices: true, Account: account, SealedSecret: sealFor(seal.ProviderSecret), LastFour: "abcd",
			SealedWebhookSecret: sealFor(seal.ProviderWebhookSecret), ValidatedAt: time.Now(),
		})
		require.NoError(t, err)
	}
	_, err := store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.HMACSecretCredential,
		metering.Credential{Name: "service", Scope: metering.ScopeAdmin, Sealed: sealFor(seal.SigningSecret), LastFour: "abcd"}, time.Now())
	require.NoError(t, err)
	_, err = store.OIDC.Save(t.Context(), tenant, metering.Operator,
		metering.OIDC{Issuer: "https://issuer.example.com", ClientID: "odometer", SealedSecret: sealFor(seal.OIDCSecret)})
	require.NoError(t, err)
	hook, err := store.Webhooks.Create(t.Context(), tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/", EventTypes: []metering.MessageKind{metering.MessagePeriodClosed}, Sealed: sealFor(seal.EndpointSecret), LastFour: "abcd",
	}, time.Now())
	require.NoError(t, err)
	_, _, err = store.Rotations.WebhookSecret(t.Context(), access.Rotating{Tenant: tenant, Actor: metering.Operator, Now: time.Now(), Overlap: time.Hour},
		hook.ID, sealFor(seal.EndpointSecret), "abcd")
	require.NoError(t, err)
	return tenant
}

// TestDrillNextWorkerFinishesRewrappingSecretsAfterKill kills a worker while a lock blocks it in the middle of the
// rewrapping.
func TestDrillNextWorkerFinishesRewrappingSecretsAfterKill(t *testing.T) {
	t.Parallel()
	store, url := dbtest.Fresh(t)
	address := temporalAddress(t)
	namespace := proc.Namespace(t, address)
	old, fresh := keyring(t, encryptionKey('a')), keyring(t, encryptionKey('b'))
	var tenants []metering.TenantID
	for range 3 {
		tenants = append(tenants, sealEverything(t, store, old))
	}
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: address, Env: []string{
		"TEMPORAL_NAMESPACE=" + namespace, "ODOMETER_ENCRYPTION_KEYS=" + encryptionKey('b') + "," + encryptionKey('a'),
	}})
	holder := connect(t, url)
	_, err := holder.Exec(t.Context(), `begin`)
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `select from credentials where tenant_id = $1 for update`, tenants[1])
	require.NoError(t, err)

	worker := system.Worker(t)
	temporal := proc.Temporal(t, address, namespace)
	type outcome struct {
		done workflows.RotateSecretsResult
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		done, err := workflows.RunRotateSecrets(t.Context(), temporal, fresh.First())
		ended <- outcome{done, err}
	}()
	watcher := connect(t, url)
	dbtest.Eventually(t, func() error {
		var held bool
		err := watcher.QueryRow(t.Context(), `
			select exists (
			  select from pg_stat_activity
			  where datname = current_database() and wait_event_type = 'Lock' and query like 'update credentials%')`).Scan(&held)
		if err == nil && !held {
			err = fmt.Errorf("nothing waits for the lock")
		}
		return err
	})
	worker.Kill(t)
	_, err = holder.Exec(t.Context(), `rollback`)
	require.NoError(t, err)
	require.NotEqual(t, secretsEach, opened(t, watcher, tenants[1], fresh), "it was killed in the middle")
	worker.Start(t)
	result := <-ended
	require.NoError(t, result.err)
	require.Zero(t, result.done.Unopened)
	for _, tenant := range tenants {
		require.Equal(t, secretsEach, opened(t, watcher, tenant, fresh))
	}
}

// opened returns the number of the tenant's secrets that the keyring opens.
func opened(t *testing.T, conn *pgx.Conn, tenant metering.TenantID, ring seal.Keyring) (n int) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select 'billing_connections.secret', secret from billing_connections where tenant_id = $1
		union all select 'billing_connections.webhook_secret', webhook_secret from billing_connections where tenant_id = $1
		union all select 'credentials.secret', secret from credentials where tenant_id = $1
		union all select 'oidc_issuers.client_secret', client_secret from oidc_issuers where tenant_id = $1
		union all select 'webhook_endpoints.secret', unnest(array[secret, former_secret]) from webhook_endpoints where tenant_id = $1`, tenant)
	require.NoError(t, err)
	var purpose seal.Purpose
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&purpose, &sealed}, func() error {
		if plain, err := ring.Open(tenant, purpose, sealed); err == nil {
			require.Equal(t, string(purpose), string(plain))
			n++
		}
		return nil
	})
	require.NoError(t, err)
	return n
}

// connect connects to the database until the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
