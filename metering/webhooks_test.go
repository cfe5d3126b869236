package metering_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestWebhookMessageIsAttemptedTenTimesInThreeDays(t *testing.T) {
	t.Parallel()
	var all time.Duration
	attempts := 1
	for ; ; attempts++ {
		wait, again := metering.RetryAfter(attempts)
		if !again {
			break
		}
		require.Greater(t, wait, all/10, "each wait is longer")
		all += wait
	}
	require.Equal(t, 10, attempts)
	require.Equal(t, 75*time.Hour+35*time.Minute+5*time.Second, all)
	_, again := metering.RetryAfter(0)
	require.False(t, again)
}

func TestEndpointBackoffGrowsWithFailures(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 6: 160 * time.Second, 7: 5 * time.Minute, 1 << 30: 5 * time.Minute,
	} {
		require.Equal(t, want, metering.Backoff(failures), "%d failures", failures)
	}
}

func TestAMessageHasTheFormOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	body, err := metering.Message{
		ID: uuid.New(), Kind: metering.MessagePeriodClosed, At: time.Date(2026, 5, 1, 2, 0, 0, 0, time.FixedZone("", 7200)),
		Data: json.RawMessage(`{"customer_id":"cus_1"}`),
	}.Body()
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"period.closed","timestamp":"2026-05-01T00:00:00Z","data":{"customer_id":"cus_1"}}`, string(body))
}

func TestNewAndPreviousSecretsSignDuringOverlap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	hook := metering.Endpoint{Sealed: []byte("new")}
	require.Equal(t, [][]byte{[]byte("new")}, hook.Signing(now))
	hook.SealedFormer = []byte("old")
	require.Equal(t, [][]byte{[]byte("new"), []byte("old")}, hook.Signing(now), "an operator has kept it")
	hook.FormerUntil = &now
	require.Equal(t, [][]byte{[]byte("new"), []byte("old")}, hook.Signing(now.Add(-time.Nanosecond)))
	require.Equal(t, [][]byte{[]byte("new")}, hook.Signing(now))
}
