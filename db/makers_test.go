package db_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestNoKeyOfConcurrentlyRemovedMemberStaysLive creates keys as a member while the member is removed, and checks that
// none of these keys stays live.
func TestNoKeyOfConcurrentlyRemovedMemberStaysLive(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	ours, theirs := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	ada := member(t, store, ours.ID, mail(t, "ada"), metering.RoleAdmin)
	maker := metering.Actor(ada.ID.String())
	create := func(tenant metering.TenantID, n int) error {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", t.Name(), tenant, n))
		_, err := store.Credentials.Create(t.Context(), tenant, maker, metering.APIKeyCredential,
			metering.Credential{Name: "key", Scope: metering.ScopeReadOnly, LastFour: "abcd", Hash: hash[:]}, clock.Now())
		return err
	}
	require.NoError(t, create(theirs.ID, 0), "an actor with the same name in another tenant is another actor")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if err := create(ours.ID, n); err != nil && metering.CodeOf(err) != metering.CodeUnauthorized {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		if err := store.Members.Remove(t.Context(), ours.ID, metering.Operator, ada.ID, metering.RevokeKeys, clock.Now()); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	for tenant, want := range map[metering.TenantID]int{ours.ID: 0, theirs.ID: 1} {
		keys, err := dbtest.Items(store.Credentials.List(t.Context(), tenant, metering.APIKeyCredential, 0, 100))
		require.NoError(t, err)
		live := 0
		for _, k := range keys {
			if k.Live(clock.Now()) {
				live++
			}
		}
		require.Equal(t, want, live)
	}
	require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(create(ours.ID, 9)))
}

func TestAMemberThatRemovesItselfTakesOverNoKeys(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	bob := member(t, store, tenant, mail(t, "bob"), metering.RoleAdmin)
	actor, hash := metering.Actor(bob.ID.String()), sha256.Sum256([]byte(t.Name()))
	_, err := store.Credentials.Create(t.Context(), tenant, actor, metering.APIKeyCredential,
		metering.Credential{Name: "key", Scope: metering.ScopeReadOnly, LastFour: "abcd", Hash: hash[:]}, clock.Now())
	require.NoError(t, err)
	err = store.Members.Remove(t.Context(), tenant, actor, bob.ID, metering.HandOverKeys, clock.Now())
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.NoError(t, store.Members.Remove(t.Context(), tenant, actor, bob.ID, metering.RevokeKeys, clock.Now()))
}

// TestNoKeyIsHandedOverToARemovedMember removes bob, and hands his key over to ada, while ada is removed.
func TestNoKeyIsHandedOverToARemovedMember(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	for n := range 8 {
		tenant := dbtest.Tenant(t, store).ID
		ada, bob := member(t, store, tenant, mail(t, fmt.Sprint("ada", n)), metering.RoleAdmin), member(t, store, tenant, mail(t, fmt.Sprint("bob", n)), metering.RoleAdmin)
		hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", t.Name(), tenant))
		_, err := store.Credentials.Create(t.Context(), tenant, metering.Actor(bob.ID.String()), metering.APIKeyCredential,
			metering.Credential{Name: "key", Scope: metering.ScopeReadOnly, LastFour: "abcd", Hash: hash[:]}, clock.Now())
		require.NoError(t, err)
		handOver := func() error {
			return store.Members.Remove(context.WithoutCancel(t.Context()), tenant, metering.Actor(ada.ID.String()), bob.ID, metering.HandOverKeys, clock.Now())
		}
		var handing sync.WaitGroup
		var refused error
		handing.Go(func() { refused = handOver() })
		require.NoError(t, store.Members.Remove(t.Context(), tenant, metering.Operator, ada.ID, metering.RevokeKeys, clock.Now()))
		handing.Wait()
		keys, err := dbtest.Items(store.Credentials.List(t.Context(), tenant, metering.APIKeyCredential, 0, 100))
		require.NoError(t, err)
		if refused == nil {
			require.False(t, keys[0].Live(clock.Now()), "the key was handed over before ada was removed")
			continue
		}
		require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(refused))
		require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(handOver()))
		require.Nil(t, keys[0].HandedTo)
	}
}
