package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestTotalsAreRoundedHalfToEven(t *testing.T) {
	t.Parallel()
	for scale, totals := range map[int32]map[string]string{
		0: {
			"0": "0", "0.4": "0", "0.5": "0", "0.500000000001": "1", "1.5": "2", "2.5": "2", "-0.5": "0", "-1.5": "-2", "7": "7",
			"999999999999999999.5": "1000000000000000000",
		},
		3: {"1.2345": "1.234", "1.2355": "1.236", "1.234500000001": "1.235", "-1.2345": "-1.234", "0.0005": "0", "7": "7"},
		6: {"0.0000005": "0", "0.0000015": "0.000002", "999999999.9999995": "1000000000"},
	} {
		for total, want := range totals {
			require.Equal(t, want, billing.Units(decimal(t, total), scale).String(), "%s to %d decimals", total, scale)
		}
	}
}

func TestTheUnitsBetweenTwoTotalsAreThoseOfTheRoundedTotals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		scale    int32
		want     string
	}{
		{"0.5", "1.1", 0, "1"},
		{"0.6", "1.4", 0, "0"},
		{"3.7", "2.4", 0, "-2"},
		{"1.2345", "1.2349", 3, "0.001"}, // 1.235 less 1.234
		{"1.2355", "1.2364", 3, "0"},
		{"1.2345", "1.2345", 6, "0"},
	} {
		require.Equal(t, c.want, billing.UnitsBetween(decimal(t, c.from), decimal(t, c.to), c.scale).String(), "%v", c)
	}
}

func TestDeltasNeverLoseARemainder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sent, total metering.Decimal
		scale := rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "scale")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			next := total.Add(metering.Whole(rapid.Int64Range(-1_000_000, 5_000_000).Draw(t, "ten-millionths")).Mul(decimal(t, "0.0000001")))
			sent, total = sent.Add(billing.UnitsBetween(total, next, scale)), next
		}
		require.Equal(t, billing.Units(total, scale).String(), sent.String())
	})
}
