package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

func TestDemoUsageOfHourIsSameInEveryRun(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	before := byKey(t, usage(customers, now.Add(-month), now))
	same := 0
	for key, e := range byKey(t, usage(customers, now.Add(36*time.Hour-month), now.Add(36*time.Hour))) {
		if e.Timestamp.Before(now.Truncate(time.Hour)) {
			require.Equal(t, before[key], e)
			same++
		}
	}
	require.Greater(t, same, len(before)*9/10)
}

// byKey returns the events by their idempotency keys, and checks that the keys differ.
func byKey(t *testing.T, events []client.Event) map[string]client.Event {
	keyed := make(map[string]client.Event)
	for _, e := range events {
		keyed[*e.IdempotencyKey] = e
	}
	require.Len(t, keyed, len(events), "no key is used twice")
	return keyed
}

func TestUsageEndsWithTheLastFullHour(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.FixedZone("", 5*3600+45*60)) // 28 February, 18:45 UTC
	for _, e := range usage(customers, now.Add(-month), now) {
		require.True(t, e.Timestamp.Before(time.Date(2026, 2, 28, 18, 0, 0, 0, time.UTC)))
		require.False(t, e.Timestamp.Before(time.Date(2026, 1, 28, 18, 0, 0, 0, time.UTC)))
		require.NotEqual(t, "quiet", e.CustomerId)
	}
}
