package stripe

import "github.com/odometer-metering/odometer/metering"

// Whole is the quantity that Stripe is told of a cumulative total: whole
// units, half to even.
func Whole(total metering.Decimal) metering.Decimal { return total.Round(0) }

// Delta is what brings a quantity from one cumulative total to the next.
// Totals are rounded, never deltas, so that no remainder is lost or told twice.
func Delta(from, to metering.Decimal) metering.Decimal { return Whole(to).Sub(Whole(from)) }
