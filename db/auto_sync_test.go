package db_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func TestAutoSyncIsAppliedAgainAfterOldSettingsWereApplied(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	save := func(enabled bool) metering.AutoSync {
		saved, err := store.AutoSyncs.Save(t.Context(), tenant, metering.Operator, metering.AutoSync{Enabled: enabled, Schedule: metering.Hourly}, clock.Now())
		require.NoError(t, err)
		return saved
	}
	toApply := func() bool {
		list, err := store.AutoSyncs.ToApply(t.Context(), false)
		require.NoError(t, err)
		return slices.ContainsFunc(list, func(a ledger.TenantAutoSync) bool { return a.Tenant.ID == tenant })
	}
	former := save(true)
	latest := save(false)
	require.True(t, toApply())
	require.NoError(t, store.AutoSyncs.Applied(t.Context(), tenant, latest))
	require.False(t, toApply())
	require.NoError(t, store.AutoSyncs.Applied(t.Context(), tenant, former), "a worker that read the previous settings")
	require.True(t, toApply())
	require.NoError(t, store.AutoSyncs.Applied(t.Context(), tenant, latest))
	require.False(t, toApply())
}
