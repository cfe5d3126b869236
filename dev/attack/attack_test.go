package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test's program be the attackers' too.
func TestMain(m *testing.M) {
	attackIfOrdered()
	m.Run()
}

// TestDrillNobodyIsStoppedByTheOthers makes every attack at once beside a tenant
// that behaves. It leaves the machine some time, because who stops whom is what
// it asks; make attack asks how long it takes.
func TestDrillNobodyIsStoppedByTheOthers(t *testing.T) {
	d := newDrill(t)
	require.Empty(t, d.watch(2*time.Second).failed, "alone")
	end := d.attack("", 250*time.Millisecond)
	saw := d.watch(15 * time.Second)
	require.Positive(t, end(), "attempts")
	require.Empty(t, saw.failed, "under attack; p99 %s", saw.p99())
	t.Logf("p99 %s", saw.p99())
	d.requireMemory()
}
