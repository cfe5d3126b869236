package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestParseRetention(t *testing.T) {
	t.Parallel()
	for text, hours := range map[string]int{"35d": 35 * 24, "400d": 9600, "9600h": 9600, "840h0m": 840} {
		retention, err := metering.ParseRetention(text)
		require.NoError(t, err, text)
		require.Equal(t, time.Duration(hours)*time.Hour, time.Duration(retention), text)
	}
	for _, text := range []string{"", "d", "400", "34d", "839h59m", "-400d", "+400d", "1.5d", "400 d", "400d1h", "99999999999d", "1y"} {
		_, err := metering.ParseRetention(text)
		require.Error(t, err, text)
	}
}
