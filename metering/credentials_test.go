package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAKeyIsLiveUntilTheInstantItExpiresOrIsRevoked(t *testing.T) {
	expires := now.Add(time.Hour)
	key := metering.Credential{ExpiresAt: &expires}
	require.True(t, key.Live(expires.Add(-time.Nanosecond)))
	require.False(t, key.Live(expires))
	require.True(t, metering.Credential{}.Live(now))
	require.False(t, metering.Credential{RevokedAt: &expires}.Live(now))
}
