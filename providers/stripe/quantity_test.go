package stripe_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
)

func TestTotalsAreRoundedHalfToEven(t *testing.T) {
	t.Parallel()
	for total, want := range map[string]string{
		"0": "0", "0.4": "0", "0.5": "0", "0.500000000001": "1", "1.5": "2", "2.5": "2", "-0.5": "0", "-1.5": "-2", "7": "7",
		"999999999999999999.5": "1000000000000000000",
	} {
		requireDecimal(t, want, stripe.Whole(decimal(total)), total)
	}
	requireDecimal(t, "1", stripe.Delta(decimal("0.5"), decimal("1.1")))
	requireDecimal(t, "0", stripe.Delta(decimal("0.6"), decimal("1.4")))
	requireDecimal(t, "-2", stripe.Delta(decimal("3.7"), decimal("2.4")))
}

func TestDeltasNeverLoseARemainder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var sent, total metering.Decimal
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			next := total.Add(whole(rapid.Int64Range(-1_000_000, 5_000_000).Draw(t, "millis")).Mul(decimal("0.001")))
			sent, total = sent.Add(stripe.Delta(total, next)), next
		}
		requireDecimal(t, stripe.Whole(total).String(), sent)
	})
}
