package db_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestAuditEntriesContainOnlyChangedFields checks that entries hold the changed fields, no secrets, and
// personal values only as digests.
func TestAuditEntriesContainOnlyChangedFields(t *testing.T) {
	t.Parallel()
	store, ctx := dbtest.Open(t), t.Context()
	tenant := dbtest.Tenant(t, store).ID
	newest := func(action string) metering.AuditEntry {
		entries, err := dbtest.Items(store.AuditLog.List(ctx, tenant, access.AuditFilter{Action: action}, 0, 1))
		require.NoError(t, err)
		require.Len(t, entries, 1)
		return entries[0]
	}

	_, _, err := store.Tenants.Update(ctx, tenant, "key_1", db.TenantChange{Strict: new(true), Currency: new("EUR")})
	require.NoError(t, err)
	e := newest("tenant.update")
	require.JSONEq(t, `{"strict":false,"currency":"USD"}`, string(e.Before))
	require.JSONEq(t, `{"strict":true,"currency":"EUR"}`, string(e.After))

	upsert := func(change catalog.CustomerChange) metering.AuditEntry {
		_, _, err := store.Customers.Upsert(ctx, tenant, "key_1", "CANARY external", change, clock.Now())
		require.NoError(t, err)
		return newest("customer.upsert")
	}
	made := upsert(catalog.CustomerChange{Name: new("CANARY Ada"), Metadata: json.RawMessage(`{"note":"CANARY"}`)})
	require.Nil(t, made.Before)
	renamed := upsert(catalog.CustomerChange{Name: new("CANARY Grace")})
	require.Regexp(t, `^\{"name":\{"digest":"[0-9a-f]{32}"\}\}$`, string(renamed.Before))
	require.Regexp(t, `^\{"name":\{"digest":"[0-9a-f]{32}"\}\}$`, string(renamed.After))
	require.NotEqual(t, string(renamed.Before), string(renamed.After))
	back := upsert(catalog.CustomerChange{Name: new("CANARY Ada")})
	require.Equal(t, string(renamed.Before), string(back.After), "the same name has the same digest")
	same := upsert(catalog.CustomerChange{Name: new("CANARY Ada")})
	require.Nil(t, same.After, "nothing has changed")
	linked := upsert(catalog.CustomerChange{Link: true, BillingProviderID: new("cus_CANARY")})
	require.JSONEq(t, `{"billing_provider_id":null}`, string(linked.Before))
	require.JSONEq(t, `{"billing_provider_id":null}`, string(newest("customer.link").Before))

	_, err = store.Credentials.Create(ctx, tenant, "key_1", metering.HMACSecretCredential,
		metering.Credential{Name: "s", Scope: metering.ScopeAdmin, Sealed: []byte("CANARY"), LastFour: "abcd"}, clock.Now())
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"s","scope":"admin","signatures":"v1_and_v2","last_four":"abcd","expires_at":null,"secret":{"set":true}}`,
		string(newest("hmac_secret.create").After))

	all, err := dbtest.Items(store.AuditLog.List(ctx, tenant, access.AuditFilter{}, 0, 100))
	require.NoError(t, err)
	for _, e := range all {
		require.NotContains(t, string(e.Before)+string(e.After), "CANARY", e.Action)
	}
	verified(t, store, tenant)
}
