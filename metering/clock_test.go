package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAClockIsRightWithinABound(t *testing.T) {
	t.Parallel()
	for offset, right := range map[time.Duration]bool{
		0: true, time.Minute: true, -time.Minute: true, time.Minute + 1: false, -time.Minute - 1: false, 40 * 24 * time.Hour: false,
	} {
		err := metering.ClockOffset(func() (time.Duration, bool) { return offset, true }).Check(metering.ClockLimit)
		require.Equal(t, right, err == nil, "%s: %v", offset, err)
	}
	unknown := metering.ClockOffset(func() (time.Duration, bool) { return 0, false })
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(unknown.Check(metering.ClockLimit)))
	require.NoError(t, metering.ClockOffset(nil).Check(metering.ClockLimit))
}
