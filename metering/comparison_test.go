package metering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestCompareComputesDeltaAndPercentChange(t *testing.T) {
	for _, c := range []struct{ name, current, previous, delta, percent string }{
		{"Growth", "150", "100", "50", "50"},
		{"Decline", "50", "200", "-150", "-75"},
		{"NoChange", "7", "7", "0", "0"},
		{"NothingAtAll", "0", "0", "0", "0"},
		{"FromNothing", "0.000000000001", "0", "0.000000000001", "100"},
		{"FromNothingToBelowZero", "-5", "0", "-5", "-100"},
		{"ToNothing", "0", "3", "-3", "-100"},
		{"TwoDecimals", "4", "3", "1", "33.33"},
		{"RoundedUp", "5", "3", "2", "66.67"},
		{"HalfAwayFromZero", "1.00005", "1", "0.00005", "0.01"},
		{"HalfAwayFromZeroBelow", "0.99995", "1", "-0.00005", "-0.01"},
		{"LessThanHalf", "1.00004999", "1", "0.00004999", "0"},
		{"Large", "999999999999999999", "0.000000000001", "999999999999999998.999999999999", "99999999999999999899999999999900"},
		{"FromBelowZero", "5", "-5", "10", "-200"},
		{"CloserToZero", "-100", "-200", "100", "-50"},
		{"FurtherBelowZero", "-200", "-100", "-100", "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := metering.Compare(decimal(t, c.current), decimal(t, c.previous))
			require.Equal(t, []string{c.current, c.previous, c.delta, c.percent},
				[]string{got.Current.String(), got.Previous.String(), got.Delta.String(), got.PercentChange.String()})
		})
	}
}
