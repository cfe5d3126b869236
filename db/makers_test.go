package db_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestNoKeyIsMadeWhileItsMakerIsRemoved creates keys as a member while the member is removed, and checks that none of
// these keys stays live.
func TestNoKeyIsMadeWhileItsMakerIsRemoved(t *testing.T) {
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
	require.NoError(t, create(theirs.ID, 0), "an actor of the same name in another tenant is another")
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
