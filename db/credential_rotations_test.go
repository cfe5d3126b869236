package db_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// rotated is a tenant with one credential of each kind.
type rotated struct {
	*testing.T
	store  *db.DB
	tenant metering.TenantID
	now    time.Time
	ids    map[metering.CredentialKind]metering.CredentialID
	hashes int
}

func newRotated(t *testing.T, store *db.DB) *rotated {
	t.Helper()
	r := &rotated{T: t, store: store, tenant: dbtest.Tenant(t, store).ID, now: metering.Instant(clock.Now()), ids: map[metering.CredentialKind]metering.CredentialID{}}
	key, err := store.Credentials.Create(t.Context(), r.tenant, metering.Operator, metering.APIKeyCredential,
		metering.Credential{Name: "k", Scope: metering.ScopeReadOnly, LastFour: "abcd", Hash: r.hash()}, r.now)
	require.NoError(t, err)
	secret, err := store.Credentials.Create(t.Context(), r.tenant, metering.Operator, metering.HMACSecretCredential,
		metering.Credential{Name: "s", Scope: metering.ScopeReadOnly, Sealed: []byte("old"), LastFour: "abcd"}, r.now)
	require.NoError(t, err)
	hook, err := store.Webhooks.Create(t.Context(), r.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com", EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: []byte("old"), LastFour: "abcd"}, r.now)
	require.NoError(t, err)
	r.ids[metering.APIKeyCredential], r.ids[metering.HMACSecretCredential] = key.ID, secret.ID
	r.ids[metering.WebhookCredential] = metering.CredentialID{Kind: metering.WebhookCredential, Number: int64(hook.ID)}
	return r
}

func (r *rotated) hash() []byte {
	r.hashes++
	return []byte(r.Name() + r.tenant.String() + time.Duration(r.hashes).String())
}

func (r *rotated) rotate(kind metering.CredentialKind, overlap time.Duration) (begun metering.Rotation, err error) {
	by := access.Rotating{Tenant: r.tenant, Actor: metering.Operator, Now: r.now, Overlap: overlap}
	switch old := r.ids[kind]; kind {
	case metering.APIKeyCredential:
		_, begun, err = r.store.Rotations.Credential(r.Context(), by, old, metering.Credential{LastFour: "efgh", Hash: r.hash()})
	case metering.HMACSecretCredential:
		_, begun, err = r.store.Rotations.Credential(r.Context(), by, old, metering.Credential{LastFour: "efgh", Sealed: []byte("new")})
	default:
		_, begun, err = r.store.Rotations.WebhookSecret(r.Context(), by, metering.EndpointID(old.Number), []byte("new"), "efgh")
	}
	return begun, err
}

// valid reports whether the old and the new credential are valid at an instant.
func (r *rotated) valid(rotation metering.Rotation, at time.Time) (valid [2]bool) {
	r.Helper()
	if rotation.OldID.Kind == metering.WebhookCredential {
		hook, err := r.store.Webhooks.Get(r.Context(), r.tenant, metering.EndpointID(rotation.OldID.Number))
		require.NoError(r, err)
		for _, sealed := range hook.Signing(at) {
			valid[map[string]int{"old": 0, "new": 1}[string(sealed)]] = true
		}
		return valid
	}
	for i, id := range []metering.CredentialID{rotation.OldID, rotation.NewID} {
		c, err := r.store.Credentials.Get(r.Context(), r.tenant, id)
		require.NoError(r, err)
		valid[i] = c.Live(at)
	}
	return valid
}

func (r *rotated) audited() string {
	r.Helper()
	log, err := dbtest.Items(r.store.AuditLog.List(r.Context(), r.tenant, access.AuditFilter{}, 0, 1))
	require.NoError(r, err)
	return string(log[0].Actor) + " " + log[0].Action + " " + log[0].Resource
}

var (
	both    = [2]bool{true, true}
	newOnly = [2]bool{false, true}
	kinds   = []metering.CredentialKind{metering.APIKeyCredential, metering.HMACSecretCredential, metering.WebhookCredential}
)

func TestBothCredentialsAreValidUntilTheOverlapEnds(t *testing.T) {
	t.Parallel()
	r := newRotated(t, dbtest.Open(t))
	for _, kind := range kinds {
		begun, err := r.rotate(kind, time.Hour)
		require.NoError(t, err)
		require.Equal(t, r.now.Add(time.Hour), begun.Until)
		require.Equal(t, both, r.valid(begun, begun.Until.Add(-time.Microsecond)))
		require.Equal(t, newOnly, r.valid(begun, begun.Until), "although no process has recorded the end")

		same, err := r.store.Rotations.End(t.Context(), r.tenant, begun.ID, false, begun.Until.Add(-time.Microsecond))
		require.NoError(t, err)
		require.Empty(t, same.Outcome, "the overlap has not ended")
		for range 2 {
			ended, err := r.store.Rotations.End(t.Context(), r.tenant, begun.ID, false, begun.Until.Add(time.Hour))
			require.NoError(t, err)
			require.Equal(t, metering.RotationExpired, ended.Outcome)
			require.Equal(t, begun.Until, *ended.EndedAt, "EndedAt does not depend on when the end is recorded")
		}
		require.Equal(t, newOnly, r.valid(begun, begun.Until.Add(-time.Microsecond)), "it is revoked")
		kept, err := r.store.Rotations.Keep(t.Context(), r.tenant, begun.ID, r.now)
		require.NoError(t, err)
		require.Equal(t, metering.RotationExpired, kept.Outcome, "an ended rotation cannot be kept")
	}
	require.Equal(t, "schedule webhook.end_former_secret "+r.ids[metering.WebhookCredential].String(), r.audited())
}

func TestWithoutAnOverlapTheOldCredentialEndsWithItsRotation(t *testing.T) {
	t.Parallel()
	r := newRotated(t, dbtest.Open(t))
	for _, kind := range kinds {
		begun, err := r.rotate(kind, 0)
		require.NoError(t, err)
		require.Equal(t, metering.RotationExpired, begun.Outcome)
		require.Equal(t, newOnly, r.valid(begun, r.now))
		require.Equal(t, newOnly, r.valid(begun, r.now.Add(-time.Hour)), "it is revoked, even for a process with a slow clock")
	}
	_, err := r.rotate(metering.APIKeyCredential, 0)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "%v", err)
}

func TestOperatorEndsRotationEarlyOrKeepsBothCredentials(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	finished, kept := newRotated(t, store), newRotated(t, store)
	for _, kind := range kinds {
		begun, err := finished.rotate(kind, time.Hour)
		require.NoError(t, err)
		ended, err := store.Rotations.End(t.Context(), finished.tenant, begun.ID, true, finished.now.Add(time.Minute))
		require.NoError(t, err)
		require.Equal(t, metering.RotationFinished, ended.Outcome)
		require.Equal(t, newOnly, finished.valid(begun, finished.now))

		begun, err = kept.rotate(kind, time.Hour)
		require.NoError(t, err)
		ended, err = store.Rotations.Keep(t.Context(), kept.tenant, begun.ID, kept.now.Add(time.Minute))
		require.NoError(t, err)
		require.Equal(t, metering.RotationKept, ended.Outcome)
		require.Equal(t, both, kept.valid(begun, kept.now.AddDate(1, 0, 0)))

		late, err := kept.rotate(kind, time.Hour)
		if kind == metering.HMACSecretCredential {
			require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "two secrets are live")
			continue
		}
		require.NoError(t, err)
		ended, err = store.Rotations.Keep(t.Context(), kept.tenant, late.ID, late.Until)
		require.NoError(t, err)
		require.Equal(t, metering.RotationExpired, ended.Outcome, "an ended rotation cannot be kept")
	}
	require.Equal(t, "operator webhook.end_former_secret "+finished.ids[metering.WebhookCredential].String(), finished.audited())
}

func TestSecondRotationSupersedesFirstAndKeepsExpiry(t *testing.T) {
	t.Parallel()
	r := newRotated(t, dbtest.Open(t))
	own := r.now.Add(30 * time.Minute)
	key, err := r.store.Credentials.Create(t.Context(), r.tenant, metering.Operator, metering.APIKeyCredential,
		metering.Credential{Name: "k", Scope: metering.ScopeReadOnly, LastFour: "abcd", ExpiresAt: &own, Hash: r.hash()}, r.now)
	require.NoError(t, err)
	r.ids[metering.APIKeyCredential] = key.ID
	first, err := r.rotate(metering.APIKeyCredential, time.Minute)
	require.NoError(t, err)
	second, err := r.rotate(metering.APIKeyCredential, time.Hour)
	require.NoError(t, err)
	require.Equal(t, own, second.Until, "an overlap never lengthens a credential's life")
	require.Equal(t, both, r.valid(second, own.Add(-time.Microsecond)))
	for _, id := range []metering.CredentialID{first.NewID, second.NewID} {
		made, err := r.store.Credentials.Get(t.Context(), r.tenant, id)
		require.NoError(t, err)
		require.Equal(t, own, *made.ExpiresAt)
	}
	old, err := r.store.Credentials.Get(t.Context(), r.tenant, key.ID)
	require.NoError(t, err)
	require.Equal(t, second.NewID, *old.SuccessorID)
	watched, err := r.store.Rotations.Watch(t.Context(), r.tenant, first.ID)
	require.NoError(t, err)
	require.Equal(t, metering.RotationSuperseded, watched.Outcome)

	hook := metering.WebhookCredential
	for range 2 { // after the second rotation, the oldest secret stops signing
		_, err = r.rotate(hook, time.Hour)
		require.NoError(t, err)
	}
}

func TestRevokingTheOldCredentialEndsItsRotation(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	r := newRotated(t, store)
	begun := map[metering.CredentialKind]metering.Rotation{}
	for _, kind := range kinds {
		rotation, err := r.rotate(kind, time.Hour)
		require.NoError(t, err)
		begun[kind] = rotation
		_, err = store.Rotations.Watch(t.Context(), r.tenant, rotation.ID)
		require.NoError(t, err)
	}
	unwatched, err := store.Rotations.Unwatched(t.Context(), clock.Now().Add(2*time.Minute))
	require.NoError(t, err)
	require.Empty(t, unwatched, "the runs wait for the ends")

	require.NoError(t, store.Credentials.Revoke(t.Context(), r.tenant, metering.Operator, begun[metering.APIKeyCredential].OldID))
	require.NoError(t, store.Credentials.Revoke(t.Context(), r.tenant, metering.Operator, begun[metering.HMACSecretCredential].OldID))
	require.NoError(t, store.Webhooks.Delete(t.Context(), r.tenant, metering.Operator, metering.EndpointID(begun[metering.WebhookCredential].OldID.Number)))
	unwatched, err = store.Rotations.Unwatched(t.Context(), clock.Now().Add(time.Second))
	require.NoError(t, err)
	require.Len(t, unwatched, len(kinds), "the runs must be notified of the changes")
	for _, rotation := range begun {
		for _, change := range []func() (metering.Rotation, error){
			func() (metering.Rotation, error) {
				return store.Rotations.Keep(t.Context(), r.tenant, rotation.ID, r.now)
			},
			func() (metering.Rotation, error) { return store.Rotations.Watch(t.Context(), r.tenant, rotation.ID) },
		} {
			now, err := change()
			require.NoError(t, err)
			require.Equal(t, metering.RotationRevoked, now.Outcome)
		}
	}
	unwatched, err = store.Rotations.Unwatched(t.Context(), clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, unwatched)
}

func TestARotationWithoutARunIsFoundByOneWorkerAtATime(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	r := newRotated(t, store)
	begun, err := r.rotate(metering.APIKeyCredential, time.Hour)
	require.NoError(t, err)
	find := func(at time.Time) []access.UnwatchedRotation {
		found, err := store.Rotations.Unwatched(t.Context(), at)
		require.NoError(t, err)
		return found
	}
	require.Empty(t, find(r.now.Add(59*time.Second)), "another worker may be starting the run")
	require.Equal(t, []access.UnwatchedRotation{{Tenant: r.tenant, ID: begun.ID}}, find(r.now.Add(time.Minute)))
	require.Empty(t, find(r.now.Add(time.Minute)))
	require.Len(t, find(r.now.Add(2*time.Minute)), 1, "that worker did not start the run")
	_, err = store.Rotations.Watch(t.Context(), r.tenant, begun.ID)
	require.NoError(t, err)
	require.Empty(t, find(begun.Until))
	require.Len(t, find(begun.Until.Add(time.Minute)), 1, "the run has not recorded the end")
}

func TestUseOfOldCredentialIsWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	r := newRotated(t, dbtest.Open(t))
	for _, kind := range []metering.CredentialKind{metering.APIKeyCredential, metering.HMACSecretCredential} {
		begun, err := r.rotate(kind, 4*time.Hour)
		require.NoError(t, err)
		use := func(at time.Time) {
			require.NoError(t, r.store.Credentials.Used(t.Context(), []access.CredentialUse{{Tenant: r.tenant, ID: begun.OldID}}, at))
		}
		warn := func(at time.Time) *time.Time {
			warned, err := r.store.Rotations.Warn(t.Context(), r.tenant, begun.ID, at)
			require.NoError(t, err)
			return warned.WarnedAt
		}
		require.Equal(t, r.now.Add(3*time.Hour), begun.WarnAt())
		require.Nil(t, warn(begun.WarnAt()), "the old credential is not used")
		use(r.now.Add(time.Hour))
		require.Nil(t, warn(begun.WarnAt()), "the last use was too long ago")
		use(r.now.Add(150 * time.Minute))
		require.Nil(t, warn(begun.Until), "the old credential is not valid any more, so a warning comes too late")
		require.Equal(t, begun.WarnAt(), *warn(begun.WarnAt()))
		require.Equal(t, "schedule "+string(kind)+".still_used "+begun.Old(), r.audited())
		require.Equal(t, begun.WarnAt(), *warn(begun.WarnAt().Add(time.Minute)))
	}
}

func TestTenantCannotUseRotationsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	ours, theirs := newRotated(t, store), newRotated(t, store)
	for _, kind := range kinds {
		foreign, err := theirs.rotate(kind, time.Hour)
		require.NoError(t, err)
		ours.ids[kind] = foreign.OldID
		for name, touch := range map[string]func() error{
			"rotate": func() error { _, err := ours.rotate(kind, time.Hour); return err },
			"watch":  func() error { _, err := store.Rotations.Watch(t.Context(), ours.tenant, foreign.ID); return err },
			"warn": func() error {
				_, err := store.Rotations.Warn(t.Context(), ours.tenant, foreign.ID, ours.now)
				return err
			},
			"end": func() error {
				_, err := store.Rotations.End(t.Context(), ours.tenant, foreign.ID, true, ours.now)
				return err
			},
			"keep": func() error {
				_, err := store.Rotations.Keep(t.Context(), ours.tenant, foreign.ID, ours.now)
				return err
			},
		} {
			require.Equal(t, metering.CodeNotFound, metering.CodeOf(touch()), name)
		}
		require.Equal(t, both, theirs.valid(foreign, theirs.now))
	}
}

// TestOnlyOneOfConcurrentRotationsSucceeds rotates a credential in four concurrent requests, without an
// overlap. One request creates a new credential, and the others find the old one revoked.
func TestOnlyOneOfConcurrentRotationsSucceeds(t *testing.T) {
	t.Parallel()
	r := newRotated(t, dbtest.Open(t))
	var made, refused atomic.Int64
	var all sync.WaitGroup
	by := access.Rotating{Tenant: r.tenant, Actor: metering.Operator, Now: r.now}
	hashes := [][]byte{r.hash(), r.hash(), r.hash(), r.hash()}
	for _, hash := range hashes {
		all.Go(func() {
			_, _, err := r.store.Rotations.Credential(t.Context(), by, r.ids[metering.APIKeyCredential], metering.Credential{LastFour: "efgh", Hash: hash})
			switch metering.CodeOf(err) {
			case metering.CodeConflict:
				refused.Add(1)
			default:
				made.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, [2]int64{1, 3}, [2]int64{made.Load(), refused.Load()})
}
