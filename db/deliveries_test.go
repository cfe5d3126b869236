package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestWhatComesWhileAMessageWaitsForLongerThanTheRestIsNotHeldUp(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.BillingSynced)
	h.happen("")
	h.attempt(503, 0)
	h.now = h.now.Add(5 * time.Second)
	h.attempt(503, 0)
	require.Equal(t, h.now.Add(5*time.Minute), h.waiting().Next.UTC())
	h.happen("")
	require.False(t, h.wanted(), "it rests")
	h.now = h.now.Add(10 * time.Second)
	require.True(t, h.wanted(), "the run waits for what was tried in vain")
}
