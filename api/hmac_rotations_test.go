package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// rotate replaces the signer's secret, and returns the new signer and the response.
func (s signer) rotate(t testing.TB, b *bundle, body string, headers ...string) (signer, client.CreatedHMACSecret) {
	t.Helper()
	a := b.send(t, http.MethodPost, "/v1/hmac-secrets/"+s.id+"/rotate", body, headers...)
	require.Equal(t, 201, a.status, a.body)
	var made client.CreatedHMACSecret
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	return signer{made.Id, b.tenant.ID, made.Secret, b.now}, made
}

// accepted reports whether the server accepts a request with this secret.
func (s signer) accepted(t testing.TB, b *bundle) bool {
	t.Helper()
	return b.send(t, http.MethodGet, "/v1/customers", "", s.sign("")...).status == 200
}

// auditActions returns the actor, the action and the resource of each audit entry.
func (b *bundle) auditActions(t testing.TB) (lines []string) {
	t.Helper()
	log, err := dbtest.Items(b.store.AuditLog.List(t.Context(), b.tenant.ID, access.AuditFilter{}, 0, 100))
	require.NoError(t, err)
	for _, e := range log {
		lines = append(lines, string(e.Actor)+" "+e.Action+" "+e.Resource)
	}
	return lines
}

// TestBothSecretsAreValidUntilOverlapEnds checks that both secrets are valid until the overlap ends, and that the
// old secret then expires without a worker.
func TestBothSecretsAreValidUntilOverlapEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body    string
		overlap time.Duration
	}{"by default": {"", 24 * time.Hour}, "as asked": {`{"overlap_seconds":3600}`, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			old := b.newSigner(t, metering.ScopeReadOnly)
			fresh, made := old.rotate(t, b, c.body)
			require.Regexp(t, fmt.Sprintf("^rotate-credential/%d/[0-9]+$", b.tenant.ID), <-b.temporal.started)
			require.Equal(t, [2]string{"a service", "read_only"}, [2]string{made.Name, string(made.Scope)})
			require.Nil(t, made.ExpiresAt)
			require.NotEqual(t, old.secret, fresh.secret)
			require.True(t, old.accepted(t, b))
			require.True(t, fresh.accepted(t, b))
			list := b.send(t, http.MethodGet, "/v1/hmac-secrets", "").body
			require.Contains(t, list, `"successor_id":"`+fresh.id+`"`)
			require.NotContains(t, list, fresh.secret)

			b.ahead.Store(int64(c.overlap - time.Minute))
			require.True(t, old.accepted(t, b))
			b.ahead.Store(int64(c.overlap + time.Second))
			b.send(t, http.MethodGet, "/v1/customers", "", old.sign("")...).problem(t, 401, "unauthorized")
			require.True(t, fresh.accepted(t, b))
			require.Equal(t, []string{"hmac_secret.rotate " + old.id, "hmac_secret.create " + fresh.id, "hmac_secret.create " + old.id},
				withoutActors(b.auditActions(t)[1:4]), "before its use was refused")
		})
	}
}

// withoutActors removes the actors from lines of auditActions.
func withoutActors(lines []string) (rest []string) {
	for _, line := range lines {
		var actor, action, resource string
		fmt.Sscan(line, &actor, &action, &resource)
		rest = append(rest, action+" "+resource)
	}
	return rest
}

func TestOldSecretWithoutOverlapExpiresImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newSigner(t, metering.ScopeReadOnly)
	old := b.newSigner(t, metering.ScopeReadOnly)
	fresh, _ := old.rotate(t, b, `{"overlap_seconds":0}`) // two secrets were valid before, and two are valid afterwards
	require.False(t, old.accepted(t, b))
	require.True(t, fresh.accepted(t, b))
}

func TestRotationBeyondTwoSecretsOrOfRevokedSecretIsRefused(t *testing.T) {
	t.Parallel()
	b, others := setup(t), setup(t)
	old := b.newSigner(t, metering.ScopeReadWrite)
	rotate := "/v1/hmac-secrets/" + old.id + "/rotate"
	fresh, _ := old.rotate(t, b, "")
	for _, id := range []string{old.id, fresh.id} {
		p := b.send(t, http.MethodPost, "/v1/hmac-secrets/"+id+"/rotate", "").problem(t, 409, "conflict")
		require.Equal(t, "the tenant already has 2 valid HMAC secrets, the maximum; revoke one first", p.Detail)
	}
	require.True(t, old.accepted(t, b), "what was refused has changed nothing")

	b.send(t, http.MethodPost, rotate, "", "Authorization: Bearer "+b.newKey(t, metering.ScopeReadWrite)).problem(t, 403, "forbidden")
	others.send(t, http.MethodPost, rotate, "").problem(t, 404, "not_found")
	b.send(t, http.MethodPost, "/v1/hmac-secrets/sec_0/rotate", "").problem(t, 404, "not_found")
	for _, body := range []string{`{"overlap_seconds":-1}`, `{"overlap_seconds":604801}`, `{"overlap_seconds":1.5}`, `{"overlap":1}`} {
		b.send(t, http.MethodPost, rotate, body).problem(t, 422, "invalid")
	}

	fresh.revoke(t, b)
	again, _ := old.rotate(t, b, `{"overlap_seconds":60}`) // allowed, because its successor is revoked
	require.True(t, again.accepted(t, b))
	old.revoke(t, b)
	p := b.send(t, http.MethodPost, rotate, "").problem(t, 409, "conflict")
	require.Equal(t, "the secret is revoked or expired; create a new one", p.Detail)
}

func TestSecretIsRotatedWithoutTemporalAndOncePerIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.down.Store(true)
	old := b.newSigner(t, metering.ScopeAdmin)
	fresh, _ := old.rotate(t, b, `{"overlap_seconds":60}`, "Idempotency-Key: once")
	p := b.send(t, http.MethodPost, "/v1/hmac-secrets/"+old.id+"/rotate", `{"overlap_seconds":60}`, "Idempotency-Key: once").problem(t, 409, "conflict")
	require.Contains(t, p.Detail, fresh.id)
	require.NotContains(t, p.Detail, fresh.secret)
	require.True(t, old.accepted(t, b))
	b.ahead.Store(int64(61 * time.Second))
	require.False(t, old.accepted(t, b))
	require.True(t, fresh.accepted(t, b))
}

// TestRotatedSecretKeepsExpiryOfOldSecret checks that the expiry of the old secret also applies to its successor.
func TestRotatedSecretKeepsExpiryOfOldSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	expires := b.now().Add(time.Hour).UTC().Truncate(time.Second)
	a := b.send(t, http.MethodPost, "/v1/hmac-secrets", fmt.Sprintf(`{"name":"n","scope":"admin","expires_at":%q}`, expires.Format(time.RFC3339)))
	require.Equal(t, 201, a.status, a.body)
	var made client.CreatedHMACSecret
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	_, fresh := signer{made.Id, b.tenant.ID, made.Secret, b.now}.rotate(t, b, "")
	require.True(t, expires.Equal(*fresh.ExpiresAt))
	secrets, err := dbtest.Items(b.store.Credentials.List(t.Context(), b.tenant.ID, metering.HMACSecretCredential, 0, 10))
	require.NoError(t, err)
	require.True(t, expires.Equal(*secrets[1].ExpiresAt), "an overlap never lengthens a secret's life")
}
