package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// ChargeSteps returns the breakdown of the charge for the usage. The last step is the charge, rounded to
// the currency's minor unit.
func (t Terms) ChargeSteps(of Measured) []Step {
	c := calculation{price: Price{Terms: t}, currency: t.Currency, usage: of.Units, events: of.Events, dimensions: of.Dimensions}
	return c.charged()
}

// ours returns the steps of the charge at Odometer's price, up to the exact charge before rounding.
func (c *calculation) ours() []Step {
	b := chargeSteps{price: c.price, currency: c.currency, Charged: c.price.Charge(c.measured())}
	if c.price.Dimensions != nil {
		return slices.Concat(b.rates(), b.bounds())
	}
	return slices.Concat(b.usage(), b.bounds())
}

// rates returns a step for each price by dimension and the default, a step for unrated usage if there is any, and a
// step for the total. It omits prices that have neither usage nor a charge.
func (b chargeSteps) rates() (steps []Step) {
	for _, r := range b.Rates {
		if r.Usage.IsZero() && len(r.Dimensions) == 0 {
			continue
		}
		of := chargeSteps{price: Price{Version: b.price.Version, Terms: r.Terms}, currency: b.currency, Charged: r.Charged}
		charge := of.modelCharge(StepRateCharge)
		if charge.Rate = r.Number + 1; r.Default {
			charge.Name, charge.Rate = StepDefaultCharge, 0
		}
		units := Step{Name: StepRateUnits, Amount: r.Of.Units, Unit: inUnits, Events: r.Of.Events, Of: dimensionSteps(r.Dimensions)}
		charge.Of = append([]Step{units}, of.usage()...)
		steps = append(steps, charge)
	}
	if len(b.Unrated) > 0 {
		units, events := b.unratedUnits()
		steps = append(steps, Step{Name: StepUnrated, Amount: units, Unit: inUnits, Events: events, Of: dimensionSteps(b.Unrated)})
	}
	return append(steps, b.modelCharge(StepModelCharge))
}

// maxDimensionSteps is the maximum number of combinations that dimensionSteps lists, to limit the size of a statement.
const maxDimensionSteps = 100

// dimensionSteps returns a step for each combination of dimension values, in descending order of units. After
// maxDimensionSteps combinations, one more step sums up all others.
func dimensionSteps(usage []DimensionUsage) (steps []Step) {
	ordered := slices.Clone(usage)
	slices.SortStableFunc(ordered, func(a, b DimensionUsage) int { return b.Units.Cmp(a.Units) })
	for n, u := range ordered {
		if n <= maxDimensionSteps {
			steps = append(steps, Step{Name: StepDimension, Unit: inUnits})
		}
		last := &steps[len(steps)-1]
		last.Amount, last.Events = last.Amount.Add(u.Units), last.Events+u.Events
		if last.Dimension = nil; n < maxDimensionSteps {
			last.Dimension = u.Key
		}
	}
	return steps
}

// chargeSteps converts the breakdown of a charge to steps.
type chargeSteps struct {
	Charged
	price    Price
	currency string
}

// given returns a step for a figure of the price, with the price version.
func (b chargeSteps) given(name string, amount metering.Decimal, unit string) Step {
	return Step{Name: name, Amount: amount, Unit: unit, PriceVersion: b.price.Version}
}

// modelCharge returns a step with the charge of the model, or of all prices by dimension.
func (b chargeSteps) modelCharge(name string) Step {
	charge := b.money(name, b.Usage)
	charge.Digits = b.Digits
	return charge
}

// money returns a step with an amount in the currency of the charge.
func (b chargeSteps) money(name string, amount metering.Decimal) Step {
	return Step{Name: name, Amount: amount, Unit: b.currency}
}

// usage returns the steps from the included units to the charge of the model.
func (b chargeSteps) usage() []Step {
	included := b.given(StepIncluded, b.price.IncludedUnits, inUnits)
	if b.price.Model == "" {
		return []Step{
			included,
			{Name: StepOverage, Amount: b.Rest, Unit: inUnits},
			b.given(StepRate, b.price.OverageRate, b.currency),
			b.money(StepUsageFee, b.Usage),
		}
	}
	steps := []Step{included, {Name: StepRest, Amount: b.Rest, Unit: inUnits}}
	switch b.price.Model {
	case ModelPackage:
		steps = append(steps,
			b.given(StepPackageSize, metering.Whole(b.price.PackageSize), inUnits),
			Step{Name: StepPackages, Amount: b.Packages, Unit: inPackages},
			b.given(StepPackagePrice, b.price.PackagePrice, b.currency))
	case ModelPercentage:
		steps = append(steps, b.given(StepPercent, b.price.Percent, inPercent), b.money(StepUnitCharges, b.Units))
		steps = append(steps, b.fixedFees()...)
	case ModelPerUnit:
		steps = append(steps, b.given(StepUnitPrice, b.price.UnitPrice, b.currency))
		steps = append(steps, b.divided()...)
	default:
		steps = append(steps, b.tiers()...)
	}
	return append(steps, b.modelCharge(StepModelCharge))
}

// divided returns a step for the unit charges, with the given steps as its parts. If PerUnits is greater than 1, it
// also returns a step for this divisor.
func (b chargeSteps) divided(of ...Step) []Step {
	charges := b.money(StepUnitCharges, b.Units)
	charges.Of = of
	if b.price.PerUnits <= 1 {
		return []Step{charges}
	}
	return []Step{charges, b.given(StepPerUnits, metering.Whole(b.price.PerUnits), inUnits)}
}

// tiers returns the steps of the charged tiers: the unit charges, and their flat fees if there are any.
func (b chargeSteps) tiers() []Step {
	var units, fees []Step
	for _, p := range b.Parts {
		rate := b.given(StepTierPrice, p.Rate, b.currency)
		tier := b.money(StepTier, p.Amount)
		tier.Tier, tier.Of = p.Tier+1, []Step{{Name: StepTierUnits, Amount: p.Units, Unit: inUnits}, rate}
		if tier.UpTo = b.price.Tiers[p.Tier].UpTo; p.Tier > 0 {
			tier.Above = b.price.Tiers[p.Tier-1].UpTo
		}
		units = append(units, tier)
		if !p.FlatFee.IsZero() {
			fee := b.given(StepTierFlatFee, p.FlatFee, b.currency)
			fee.Tier = p.Tier + 1
			fees = append(fees, fee)
		}
	}
	steps := b.divided(units...)
	if len(fees) == 0 {
		return steps
	}
	sum := b.money(StepFlatFees, b.Flat)
	sum.Of = fees
	return append(steps, sum)
}

// fixedFees returns the steps of the fee per counted event. It returns nil if the price has no such fee.
func (b chargeSteps) fixedFees() []Step {
	if b.price.FixedFee.IsZero() {
		return nil
	}
	fees := b.money(StepFixedFees, metering.Whole(b.Events).Mul(b.price.FixedFee))
	fees.Events = b.Events
	return []Step{b.given(StepFixedFee, b.price.FixedFee, b.currency), fees}
}

// bounds returns the steps after the charge of the model: base price, minimum and maximum charge if set, and the
// exact charge.
func (b chargeSteps) bounds() []Step {
	steps := []Step{b.given(StepBase, b.price.BasePrice, b.currency)}
	if !b.price.MinimumCharge.IsZero() {
		steps = append(steps, b.given(StepMinimum, b.price.MinimumCharge, b.currency))
	}
	if !b.price.MaximumCharge.IsZero() {
		steps = append(steps, b.given(StepMaximum, b.price.MaximumCharge, b.currency))
	}
	return append(steps, b.money(StepExact, b.Exact))
}
