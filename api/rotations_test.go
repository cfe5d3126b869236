package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

type shownKey struct {
	ID, Key, Scope, Name string
}

// rotatableKey creates an API key with this scope.
func (b *bundle) rotatableKey(t *testing.T, scope metering.Scope) shownKey {
	t.Helper()
	a := b.send(t, http.MethodPost, "/v1/api-keys", fmt.Sprintf(`{"name":"to rotate","scope":%q}`, scope))
	require.Equal(t, 201, a.status, a.body)
	return a.key(t)
}

// key returns the API key in the response.
func (a answer) key(t *testing.T) (k shownKey) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), &k))
	return k
}

// rotateKey rotates an API key and returns its replacement.
func (b *bundle) rotateKey(t *testing.T, id, body string, headers ...string) shownKey {
	t.Helper()
	a := b.send(t, http.MethodPost, "/v1/api-keys/"+id+"/rotate", body, headers...)
	require.Equal(t, 201, a.status, a.body)
	return a.key(t)
}

// accepts reports whether the server accepts a request with the key.
func (b *bundle) accepts(t *testing.T, key string) bool {
	t.Helper()
	return b.send(t, http.MethodGet, "/v1/customers", "", "Authorization: Bearer "+key).status == 200
}

// listed returns the metadata of a key.
func (b *bundle) listed(t *testing.T, id string) client.APIKeyMetadata {
	t.Helper()
	var list client.ListAPIKeyMetadata
	require.NoError(t, json.Unmarshal([]byte(b.send(t, http.MethodGet, "/v1/api-keys", "").body), &list))
	for _, k := range list.Data {
		if k.Id == id {
			return k
		}
	}
	t.Fatalf("%s is not listed", id)
	return client.APIKeyMetadata{}
}

func TestRotationReplacesOldAPIKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeReadOnly)
	fresh := b.rotateKey(t, old.ID, "", "Idempotency-Key: once")
	require.True(t, strings.HasPrefix(fresh.Key, "svc_ro_"))
	require.Equal(t, "to rotate", fresh.Name)
	require.NotEqual(t, old.ID, fresh.ID)
	require.True(t, b.accepts(t, fresh.Key))
	require.False(t, b.accepts(t, old.Key))
	require.NotNil(t, b.listed(t, old.ID).RevokedAt)
	require.Equal(t, fresh.ID, *b.listed(t, old.ID).SuccessorId)
	require.Regexp(t, fmt.Sprintf("^rotate-credential/%d/[0-9]+$", b.tenant.ID), <-b.temporal.started, "people see it")
	require.Equal(t, []string{"api_key.revoke " + old.ID, "api_key.rotate " + old.ID, "api_key.create " + fresh.ID}, withoutActors(b.auditActions(t)[1:4]))

	again := b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "", "Idempotency-Key: again").problem(t, 409, "conflict")
	require.Contains(t, again.Detail, "revoked or expired")
	other := b.send(t, http.MethodPost, "/v1/api-keys/"+fresh.ID+"/rotate", "", "Idempotency-Key: once").problem(t, 422, "invalid")
	require.Equal(t, "header.Idempotency-Key", other.Errors[0].Location, "that was for another key")
	repeat := b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "", "Idempotency-Key: once").problem(t, 409, "conflict")
	require.Contains(t, repeat.Detail, fresh.ID)
	require.Contains(t, repeat.Detail, fresh.Key[len(fresh.Key)-4:])
	require.NotContains(t, repeat.Detail, fresh.Key)
	require.True(t, b.accepts(t, fresh.Key))
}

// TestEveryCredentialIsRotatedWithoutTemporal checks that every kind of credential is rotated while Temporal is
// unavailable. Each old credential still ends in time.
func TestEveryCredentialIsRotatedWithoutTemporal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.down.Store(true)
	old := b.rotatableKey(t, metering.ScopeAdmin)
	fresh := b.rotateKey(t, old.ID, "")
	require.False(t, b.accepts(t, old.Key))
	require.True(t, b.accepts(t, fresh.Key))
	overlapping := b.rotateKey(t, fresh.ID, `{"overlap_seconds":60}`)
	secret := b.newSigner(t, metering.ScopeAdmin)
	freshSecret, _ := secret.rotate(t, b, `{"overlap_seconds":60}`)
	hook := b.makeHook(t, someHook)
	a := b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/rotate-secret", `{"overlap_seconds":60}`)
	require.Equal(t, 201, a.status, a.body)

	require.True(t, b.accepts(t, fresh.Key))
	require.True(t, secret.accepted(t, b))
	require.Len(t, b.signing(t, hook.Id), 2)
	b.ahead.Store(int64(61 * time.Second))
	require.False(t, b.accepts(t, fresh.Key))
	require.True(t, b.accepts(t, overlapping.Key))
	require.False(t, secret.accepted(t, b))
	require.True(t, freshSecret.accepted(t, b))
	require.Len(t, b.signing(t, hook.Id), 1)
}

// TestARotationDoesNotWaitForATemporalThatHangs checks that the client gets its new key although Temporal does not
// respond, because the key is shown only once.
func TestARotationDoesNotWaitForATemporalThatHangs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.hangs.Store(true) // until the call times out
	old := b.rotatableKey(t, metering.ScopeAdmin)
	fresh := b.rotateKey(t, old.ID, "")
	require.True(t, b.accepts(t, fresh.Key))
}

// signing returns the sealed secrets that sign messages to the webhook now.
func (b *bundle) signing(t *testing.T, hook string) [][]byte {
	t.Helper()
	id, ok := metering.ParseEndpointID(hook)
	require.True(t, ok)
	e, err := b.store.Webhooks.Get(t.Context(), b.tenant.ID, id)
	require.NoError(t, err)
	return e.Signing(b.now())
}

func TestBothKeysAreValidDuringOverlapAndUseOfOldKeyIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeReadOnly)
	asked := b.now()
	fresh := b.rotateKey(t, old.ID, `{"overlap_seconds":3600}`)
	require.True(t, b.accepts(t, fresh.Key))
	require.True(t, b.accepts(t, old.Key))
	record := b.listed(t, old.ID)
	require.Nil(t, record.RevokedAt)
	require.Equal(t, fresh.ID, *record.SuccessorId)
	require.WithinRange(t, *record.ExpiresAt, asked.Add(time.Hour), b.now().Add(time.Hour))
	dbtest.Eventually(t, func() error { // the use is recorded asynchronously
		if b.listed(t, fresh.ID).OldLastUsedAt == nil {
			return fmt.Errorf("the old key's use is not shown")
		}
		return nil
	})
	require.Nil(t, b.listed(t, fresh.ID).ExpiresAt)

	b.ahead.Store(int64(time.Hour + time.Second))
	require.False(t, b.accepts(t, old.Key))
	require.True(t, b.accepts(t, fresh.Key))
	for _, body := range []string{`{"overlap_seconds":-1}`, `{"overlap_seconds":604801}`, `{"overlap_seconds":1.5}`, `{"overlap":1}`} {
		b.send(t, http.MethodPost, "/v1/api-keys/"+fresh.ID+"/rotate", body).problem(t, 422, "invalid")
	}
}

func TestTheUseOfAReplacedSecretIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.newSigner(t, metering.ScopeReadOnly)
	fresh, _ := old.rotate(t, b, "")
	require.True(t, old.accepted(t, b))
	dbtest.Eventually(t, func() error {
		var list client.ListHMACSecret
		require.NoError(t, json.Unmarshal([]byte(b.send(t, http.MethodGet, "/v1/hmac-secrets", "").body), &list))
		if list.Data[0].OldLastUsedAt == nil || list.Data[1].LastUsedAt == nil {
			return fmt.Errorf("the old secret's use is not shown")
		}
		require.Equal(t, fresh.id, list.Data[0].Id)
		require.Nil(t, list.Data[0].LastUsedAt)
		return nil
	})
}

func TestRevokingTheOldKeyEndsItsOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.down.Store(true)
	old := b.rotatableKey(t, metering.ScopeReadOnly)
	fresh := b.rotateKey(t, old.ID, `{"overlap_seconds":3600}`)
	require.Equal(t, 200, b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/revoke", "").status)
	require.False(t, b.accepts(t, old.Key))
	require.True(t, b.accepts(t, fresh.Key))
	require.Nil(t, b.listed(t, fresh.ID).OldLastUsedAt)
}

func TestOnlyOneOfConcurrentRotationsSucceeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeReadOnly)
	const clients = 4
	statuses := make([]int, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { statuses[i] = b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "").status })
	}
	all.Wait()
	counts := map[int]int{}
	for _, status := range statuses {
		counts[status]++
	}
	require.Equal(t, map[int]int{201: 1, 409: clients - 1}, counts)
}

func TestOnlyAdminOfSameTenantRotatesKey(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	theirs := other.rotatableKey(t, metering.ScopeReadOnly)
	b.send(t, http.MethodPost, "/v1/api-keys/"+theirs.ID+"/rotate", "").problem(t, 404, "not_found")
	b.send(t, http.MethodPost, "/v1/api-keys/key_0/rotate", "").problem(t, 404, "not_found")
	for _, scope := range []metering.Scope{metering.ScopeReadWrite, metering.ScopeReadOnly, metering.ScopeIngestOnly} {
		weak := b.newKey(t, scope)
		b.send(t, http.MethodPost, "/v1/api-keys/key_1/rotate", "", "Authorization: Bearer "+weak).problem(t, 403, "forbidden")
	}
}

func TestWebhookSecretIsReplacedWithoutOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.makeHook(t, someHook)
	a := b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/rotate-secret", `{"overlap_seconds":0}`)
	require.Equal(t, 201, a.status, a.body)
	var rotated client.CreatedWebhook
	require.NoError(t, json.Unmarshal([]byte(a.body), &rotated))
	require.Nil(t, rotated.FormerSecretUntil)
	signing := b.signing(t, hook.Id)
	require.Len(t, signing, 1)
	plain, err := b.deps.Keyring.Open(b.tenant.ID, seal.EndpointSecret, signing[0])
	require.NoError(t, err)
	require.Equal(t, rotated.Secret, string(plain))
	require.NotEqual(t, hook.Secret, rotated.Secret)
	b.send(t, http.MethodPost, "/v1/webhooks/"+hook.Id+"/rotate-secret", `{"overlap_seconds":604801}`).problem(t, 422, "invalid")
}
