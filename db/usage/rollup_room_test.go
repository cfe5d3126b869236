package usage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// TestTransactionsShareMemoryBudgetOfRollups fills the memory budget with the rollups of transactions of two tenants.
func TestTransactionsShareMemoryBudgetOfRollups(t *testing.T) {
	t.Parallel()
	memory := &rollupMemory{shares: fair.NewShares[metering.TenantID](4 * bucketBytes), most: heldAtOnce}
	version := metering.MeterVersion{ID: 1, Timezone: "UTC"}
	count := func(r *rollups, hour int) {
		t.Helper()
		_, err := r.add(version, &metering.Event{At: time.Date(2026, 11, 27, hour, 0, 0, 0, time.UTC)}, false)
		require.NoError(t, err)
	}
	ours, theirs := newRollups(memory.roomFor(1)), newRollups(memory.roomFor(2))
	count(ours, 0)
	require.False(t, ours.isFull())
	count(theirs, 0)
	require.False(t, theirs.isFull())
	count(ours, 1)
	require.True(t, ours.isFull(), "a tenant may hold as much as is free")
	theirs.room.give()
	require.False(t, ours.isFull())
	ours.room.give()
	require.True(t, memory.shares.Take(3, 4*bucketBytes), "all memory is released")
}
