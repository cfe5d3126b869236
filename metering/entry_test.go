package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func TestTotalsAreRoundedHalfToEven(t *testing.T) {
	t.Parallel()
	for total, want := range map[string]string{
		"0": "0", "0.4": "0", "0.5": "0", "0.500000000001": "1", "1.5": "2", "2.5": "2", "-0.5": "0", "-1.5": "-2", "7": "7",
		"999999999999999999.5": "1000000000000000000",
	} {
		require.Equal(t, want, metering.WholeUnits(decimal(t, total)).String(), total)
	}
	require.Equal(t, "1", metering.UnitsBetween(decimal(t, "0.5"), decimal(t, "1.1")).String())
	require.Equal(t, "0", metering.UnitsBetween(decimal(t, "0.6"), decimal(t, "1.4")).String())
	require.Equal(t, "-2", metering.UnitsBetween(decimal(t, "3.7"), decimal(t, "2.4")).String())
}

func TestDeltasNeverLoseARemainder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sent, total metering.Decimal
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			next := total.Add(metering.Whole(rapid.Int64Range(-1_000_000, 5_000_000).Draw(t, "millis")).Mul(decimal(t, "0.001")))
			sent, total = sent.Add(metering.UnitsBetween(total, next)), next
		}
		require.Equal(t, metering.WholeUnits(total).String(), sent.String())
	})
}
