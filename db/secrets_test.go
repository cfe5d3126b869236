package db_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func keyringOf(t *testing.T, ids ...byte) seal.Keyring {
	t.Helper()
	text := ""
	for _, id := range ids {
		text += fmt.Sprintf(",key-%c:%s", id, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{id}, 32)))
	}
	ring, err := seal.ParseKeyring(text[1:])
	require.NoError(t, err)
	return ring
}

func TestEverySecretIsSealedUnderTheFirstKey(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	old, both, fresh := keyringOf(t, 'a'), keyringOf(t, 'b', 'a'), keyringOf(t, 'b')
	const tenants = 3
	var ids []metering.TenantID
	save := func(tenant metering.TenantID, ring seal.Keyring, secret string) {
		sealed, err := ring.Seal(tenant, seal.ProviderSecret, []byte(secret))
		require.NoError(t, err)
		_, err = store.Providers.Save(t.Context(), tenant, metering.Operator, metering.Provider{
			Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: sealed, LastFour: "abcd", ValidatedAt: clock.Now(),
		})
		require.NoError(t, err)
		sealed, err = ring.Seal(tenant, seal.SigningSecret, []byte(secret))
		require.NoError(t, err)
		_, err = store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.HMACSecretCredential,
			metering.Credential{Name: "service", Scope: metering.ScopeAdmin, Sealed: sealed, LastFour: "abcd"}, clock.Now())
		require.NoError(t, err)
	}
	for i := range tenants {
		id := dbtest.Tenant(t, store).ID
		save(id, old, fmt.Sprint("secret ", i))
		ids = append(ids, id)
	}
	lost := dbtest.Tenant(t, store).ID
	save(lost, keyringOf(t, 'c'), "sealed with a key that is gone")

	done, err := store.Secrets.Rewrap(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, access.Rewrapping{Sealed: 2 * tenants, Unopened: 2}, done)
	done, err = store.Secrets.Rewrap(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, access.Rewrapping{Unopened: 2}, done, "once is enough")
	for i, id := range ids {
		provider, err := store.Providers.Active(t.Context(), id)
		require.NoError(t, err)
		plain, err := fresh.Open(id, seal.ProviderSecret, provider.SealedSecret)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("secret ", i), string(plain))
		secrets, err := dbtest.Items(store.Credentials.List(t.Context(), id, metering.HMACSecretCredential, 0, 1))
		require.NoError(t, err)
		_, err = fresh.Open(id, seal.SigningSecret, secrets[0].Sealed)
		require.NoError(t, err)
	}
}

// TestEveryByteaColumnIsClassified fails if a bytea column is added and not listed here. A new column with
// secrets must also be added to the columns that Rewrap seals again.
func TestEveryByteaColumnIsClassified(t *testing.T) {
	t.Parallel()
	rows, err := dbtest.Conn(t).Query(t.Context(), `
		select c.relname || '.' || a.attname
		from pg_attribute a
		join pg_class c on c.oid = a.attrelid
		where c.relnamespace = 'public'::regnamespace
		  and c.relkind in ('r', 'p')
		  and not c.relispartition
		  and a.atttypid = 'bytea'::regtype`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	sealed := []string{string(seal.ProviderSecret), string(seal.ProviderWebhookSecret), string(seal.SigningSecret), string(seal.OIDCSecret),
		string(seal.EndpointSecret), "webhook_endpoints.former_secret"}
	hashes := []string{"credentials.hash", "idempotency_keys.request_hash",
		"people.password_hash", "invitations.token_hash", "oidc_sign_ins.state_hash",
		"price_terms.hash", "meter_prices.terms", "billing_period_totals.terms", "billing_period_totals.digest", "billing_report_lines.terms",
		"audit_log.mac", "audit_heads.mac", "audit_heads.seal", "events.erased", "erased_event_keys.digest",
		"quota_reservations.digest", "quota_reservations.settled_with"}
	require.ElementsMatch(t, slices.Concat(sealed, hashes, []string{"billing_reports.body"}), columns)
}
