package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// activate does what the workflow would, for every rotation that is started.
func (b *bundle) activate(t *testing.T) {
	go func() {
		for id := range b.temporal.started {
			var tenant metering.TenantID
			var rotation metering.RotationID
			if _, err := fmt.Sscanf(id, "rotate-key/%d/%d", &tenant, &rotation); err == nil {
				_, _ = b.store.Rotations.Activate(t.Context(), tenant, rotation, b.now())
			}
		}
	}()
	t.Cleanup(func() { close(b.temporal.started) })
}

type shownKey struct {
	ID, Key, Scope, Name string
}

func (b *bundle) rotatableKey(t *testing.T, scope metering.Scope) shownKey {
	t.Helper()
	a := b.send(t, http.MethodPost, "/v1/api-keys", fmt.Sprintf(`{"name":"to rotate","scope":%q}`, scope))
	require.Equal(t, 201, a.status, a.body)
	return a.key(t)
}

func (a answer) key(t *testing.T) (k shownKey) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), &k))
	return k
}

func (b *bundle) accepts(t *testing.T, key string) bool {
	t.Helper()
	return b.send(t, http.MethodGet, "/v1/customers", "", "Authorization: Bearer "+key).status == 200
}

func TestRotatingPutsANewKeyInTheOldOnesPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.activate(t)
	old := b.rotatableKey(t, metering.ScopeReadOnly)
	a := b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "", "Idempotency-Key: once")
	require.Equal(t, 201, a.status, a.body)
	fresh := a.key(t)
	require.True(t, strings.HasPrefix(fresh.Key, "svc_ro_"))
	require.Equal(t, "to rotate", fresh.Name)
	require.NotEqual(t, old.ID, fresh.ID)
	require.True(t, b.accepts(t, fresh.Key))
	require.False(t, b.accepts(t, old.Key))

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

func TestWithoutTemporalTheOldKeyStaysValid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeAdmin)
	b.temporal.down.Store(true)
	b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "", "Idempotency-Key: once").problem(t, 503, "unavailable")
	require.True(t, b.accepts(t, old.Key))

	b.temporal.down.Store(false)
	b.activate(t)
	a := b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "", "Idempotency-Key: once")
	require.Equal(t, 201, a.status, "what made nothing may be repeated: %s", a.body)
	require.False(t, b.accepts(t, old.Key))
}

func TestARotationThatNobodyCarriesOutIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeAdmin)
	p := b.send(t, http.MethodPost, "/v1/api-keys/"+old.ID+"/rotate", "").problem(t, 503, "unavailable")
	require.Contains(t, p.Detail, "the old key is still valid")
	require.True(t, b.accepts(t, old.Key))
	var rotation metering.RotationID
	_, err := fmt.Sscanf(<-b.temporal.started, fmt.Sprintf("rotate-key/%d/%%d", b.tenant.ID), &rotation)
	require.NoError(t, err)
	status, err := b.store.Rotations.Activate(t.Context(), b.tenant.ID, rotation, b.now())
	require.NoError(t, err)
	require.Equal(t, metering.RotationWithdrawn, status, "a worker that comes too late makes no key")
	require.True(t, b.accepts(t, old.Key))
}

func TestNobodyRotatesAStrongerKeyNorAnothersOne(t *testing.T) {
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

func TestAPendingKeyIsNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.rotatableKey(t, metering.ScopeAdmin)
	record, err := b.store.APIKeys.List(t.Context(), b.tenant.ID)
	require.NoError(t, err)
	key, hash, lastFour := b.keys.Make(metering.ScopeAdmin)
	rotation, err := b.store.Rotations.Begin(t.Context(), b.tenant.ID, metering.Operator, metering.Rotation{
		OldKeyID: record[0].ID, LastFour: lastFour, PendingUntil: time.Now().Add(time.Minute),
	}, hash, time.Now())
	require.NoError(t, err)
	require.False(t, b.accepts(t, key))
	other := dbtest.Tenant(t, b.store)
	_, err = b.store.Rotations.Withdraw(t.Context(), other.ID, rotation.ID, time.Now())
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	for range 2 {
		status, err := b.store.Rotations.Activate(t.Context(), b.tenant.ID, rotation.ID, time.Now())
		require.NoError(t, err)
		require.Equal(t, metering.RotationActivated, status)
	}
	require.True(t, b.accepts(t, key))
	require.False(t, b.accepts(t, old.Key))
	ended, err := b.store.Rotations.Withdraw(t.Context(), b.tenant.ID, rotation.ID, time.Now())
	require.NoError(t, err)
	require.Equal(t, metering.RotationActivated, ended.Status, "what was committed first wins")
}
