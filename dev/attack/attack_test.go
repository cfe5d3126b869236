package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain runs the attackers instead of the tests if ATTACKERS_ORDERS is set. The drill starts the test
// binary with this variable.
func TestMain(m *testing.M) {
	attackIfOrdered()
	m.Run()
}

// TestDrillRequestsOfOtherTenantsSucceedDuringAttacks checks that no request of a well-behaved tenant fails while all
// attacks except madeAlone run. The attackers pause longer between attempts than in make attack, because this test,
// unlike make attack, does not limit durations.
func TestDrillRequestsOfOtherTenantsSucceedDuringAttacks(t *testing.T) {
	d := newDrill(t)
	require.Empty(t, d.watch(2*time.Second).failed, "alone")
	end := d.attack("", 250*time.Millisecond)
	saw := d.watch(15 * time.Second)
	attempts := end()
	require.Empty(t, saw.failed, "under attack; p99 %s", saw.p99())
	t.Logf("p99 %s, %d attempts", saw.p99(), attempts)
	d.requireMemory()
}
