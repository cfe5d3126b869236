package db_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

// reportExpiring reports expiring credentials as two concurrent workers do, one credential each, and then reports the
// remaining ones.
func (h *hooked) reportExpiring() {
	h.Helper()
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			if _, err := h.store.Credentials.ReportExpiring(h.Context(), h.now, 1); err != nil {
				h.Error(err)
			}
		})
	}
	workers.Wait()
	n, err := h.store.Credentials.ReportExpiring(h.Context(), h.now, 100)
	require.NoError(h, err)
	require.LessOrEqual(h, n, 100)
}

// key creates an API key with the creation time h.now.
func (h *hooked) key(expiresAt *time.Time) metering.Credential {
	h.Helper()
	h.keys++
	created, err := h.store.Credentials.Create(h.Context(), h.tenant, metering.Operator, metering.APIKeyCredential, metering.Credential{
		Name: "ingest", Scope: metering.ScopeIngestOnly, LastFour: "abcd", ExpiresAt: expiresAt, Hash: fmt.Appendf(nil, "hash %d of %s", h.keys, h.tenant),
	}, h.now)
	require.NoError(h, err)
	h.exec(`update credentials set created_at = $3 where tenant_id = $1 and id = $2`, h.tenant, created.ID.Number, h.now)
	return created
}

func (h *hooked) exec(sql string, args ...any) {
	h.Helper()
	conn, err := pgx.Connect(h.Context(), h.address)
	require.NoError(h, err)
	defer conn.Close(h.Context())
	_, err = conn.Exec(h.Context(), sql, args...)
	require.NoError(h, err)
}

func TestAnExpiringCredentialIsReportedOnce(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageCredentialExpiring)
	expiresAt := november.AddDate(0, 1, 0)
	h.key(nil)
	late := h.key(new(expiresAt.Add(time.Second)))
	key := h.key(&expiresAt)
	secret, err := h.store.Credentials.Create(t.Context(), h.tenant, metering.Operator, metering.HMACSecretCredential, metering.Credential{
		Name: "orders", Scope: metering.ScopeIngestOnly, Sealed: []byte("sealed"), LastFour: "abcd", ExpiresAt: &expiresAt,
	}, h.now)
	require.NoError(t, err)
	h.exec(`update credentials set created_at = $3 where tenant_id = $1 and id = $2`, h.tenant, secret.ID.Number, h.now)

	h.now = expiresAt.Add(-metering.ExpiryNotice - time.Second)
	h.reportExpiring()
	require.Empty(t, h.deliveries(), "both have more than 7 days")
	h.now = h.now.Add(time.Second)
	h.reportExpiring()
	var sent []string
	for _, d := range h.deliveries() {
		sent = append(sent, string(d.Data))
	}
	require.Len(t, sent, 2)
	message := func(id, kind string) string {
		return fmt.Sprintf(`{"kind": %q, "tenant_id": %q, "expires_at": "2026-12-03T10:20:00Z", "credential_id": %q}`, kind, h.tenant, id)
	}
	require.ElementsMatch(t, []string{message(key.ID.String(), "api_key"), message(secret.ID.String(), "hmac_secret")}, sent)

	h.now = h.now.Add(time.Hour)
	h.reportExpiring()
	sent = nil
	for _, d := range h.deliveries() {
		sent = append(sent, string(d.Data))
	}
	require.Len(t, sent, 3, "the other key has 7 days by now")
	require.Contains(t, sent[0], late.ID.String())
}

func TestRevokedAndRotatedCredentialsAreNotReportedAsExpiring(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageCredentialExpiring)
	expiresAt := november.AddDate(0, 1, 0)
	revoked, rotated := h.key(&expiresAt), h.key(&expiresAt)
	require.NoError(t, h.store.Credentials.Revoke(t.Context(), h.tenant, metering.Operator, revoked.ID))
	h.now = expiresAt.Add(-metering.ExpiryNotice + time.Second)
	h.key(&expiresAt) // created less than 7 days before its expiry
	by := access.Rotating{Tenant: h.tenant, Actor: metering.Operator, Now: h.now, Overlap: time.Hour}
	successor, begun, err := h.store.Rotations.Credential(t.Context(), by, rotated.ID, metering.Credential{LastFour: "efgh", Hash: []byte("successor of " + h.tenant.String())})
	require.NoError(t, err)
	h.exec(`update credentials set created_at = $3 where tenant_id = $1 and id = $2`, h.tenant, successor.ID.Number, h.now)
	h.reportExpiring()
	require.Empty(t, h.deliveries())

	_, err = h.store.Rotations.Keep(t.Context(), h.tenant, begun.ID, h.now)
	require.NoError(t, err)
	h.reportExpiring()
	sent := h.deliveries()
	require.Len(t, sent, 1, "no rotation replaces the key any more")
	require.Contains(t, string(sent[0].Data), rotated.ID.String())

	h.now = expiresAt
	h.key(new(h.now.AddDate(0, 0, 30)))
	h.reportExpiring()
	require.Len(t, h.deliveries(), 1)
}
