package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Measured is the usage of a meter that is charged.
type Measured struct {
	Units  metering.Decimal
	Events int64 // that were counted; 0 for quantities of a provider, which is reported no number of events

	Dimensions []DimensionUsage // of the units, with prices by dimension
}

// unitsAlone returns usage without a number of events.
func unitsAlone(units metering.Decimal) Measured { return Measured{Units: units} }

// Charged is the unrounded breakdown of a charge. It is exact, except for a quotient that
// does not end: that has so many decimals that rounding it once gives the exact result.
type Charged struct {
	Rest     metering.Decimal // units beyond the included ones; with prices by dimension, each of Rates has its own
	Parts    []ChargedPart    // of the units, with tiers: those of the tiers that they reach
	Units    metering.Decimal // sum of the parts, before it is divided by PerUnits
	Packages metering.Decimal // that are started
	Flat     metering.Decimal // sum of the tiers' flat fees
	Events   int64            // that cost the fixed fee
	Usage    metering.Decimal // the charge of the model
	Digits   *int32           // decimals of Usage, if a quotient does not end; nil: Usage is exact
	Exact    metering.Decimal // with the base price, within the minimum and the maximum

	Rates   []ChargedRate    // with prices by dimension: of each price, and of the default
	Unrated []DimensionUsage // of the units, those that no price charges
}

// ChargedPart is the charge of the units in one tier.
type ChargedPart struct {
	Tier    int // its index
	Units   metering.Decimal
	Rate    metering.Decimal
	Amount  metering.Decimal // units × rate
	FlatFee metering.Decimal
}

// Charge returns the breakdown of the charge for the usage.
func (t Terms) Charge(of Measured) Charged {
	var c Charged
	if t.Dimensions != nil {
		t.chargeDimensions(&c, of.Dimensions)
	} else {
		c.Rest = t.Rest(of.Units)
		t.chargeModel(&c, of)
	}
	c.Exact = t.bounded(t.BasePrice.Add(c.Usage))
	return c
}

// chargeModel charges the units beyond the included ones.
func (t Terms) chargeModel(c *Charged, of Measured) {
	switch t.Model {
	case ModelPerUnit:
		c.Units = c.Rest.Mul(t.UnitPrice)
		c.Usage = c.divide(c.Units, t.PerUnits)
	case ModelGraduated, ModelVolume:
		t.chargeTiers(c)
	case ModelPackage:
		c.Packages = c.Rest.DivUp(t.PackageSize)
		c.Usage = c.Packages.Mul(t.PackagePrice)
	case ModelPercentage:
		c.Units = c.Rest.Mul(t.Percent).Mul(hundredth)
		c.Events = max(of.Events, 0)
		c.Usage = c.Units.Add(metering.Whole(c.Events).Mul(t.FixedFee))
	default:
		c.Usage = c.Rest.Mul(t.OverageRate)
	}
}

var hundredth = metering.MustDecimal("0.01")

// Rest is the usage beyond the included units, never below zero.
func (t Terms) Rest(usage metering.Decimal) metering.Decimal {
	return notNegative(notNegative(usage).Sub(t.IncludedUnits))
}

// bounded returns the charge within the minimum and the maximum.
func (t Terms) bounded(charge metering.Decimal) metering.Decimal {
	charge = larger(charge, t.MinimumCharge)
	if t.MaximumCharge.IsZero() {
		return charge
	}
	return smaller(charge, t.MaximumCharge)
}

// amountDigits is at least the number of decimals of every amount that a charge is added to,
// compared with or rounded to.
const amountDigits = 16

// divide divides a sum of units × unit prices by perUnits. Fees are added afterwards.
func (c *Charged) divide(sum metering.Decimal, perUnits int64) metering.Decimal {
	if perUnits <= 1 {
		return sum
	}
	quotient := sum.Div(perUnits, amountDigits)
	if !quotient.Mul(metering.Whole(perUnits)).Equal(sum) {
		c.Digits = new(quotient.Decimals())
	}
	return quotient
}

// perUnits divides a unit price by PerUnits.
func (t Terms) perUnits(price metering.Decimal) metering.Decimal {
	return new(Charged).divide(price, t.PerUnits)
}

func (t Terms) chargeTiers(c *Charged) {
	if c.Parts = t.graduated(c.Rest); t.Model == ModelVolume {
		last := c.Parts[len(c.Parts)-1].Tier
		c.Parts = []ChargedPart{t.part(last, c.Rest)}
	}
	for _, p := range c.Parts {
		c.Units, c.Flat = c.Units.Add(p.Amount), c.Flat.Add(p.FlatFee)
	}
	c.Usage = c.divide(c.Units, t.PerUnits).Add(c.Flat)
}

// graduated divides the units among the tiers that they reach. The first tier is always
// reached.
func (t Terms) graduated(units metering.Decimal) (parts []ChargedPart) {
	var from metering.Decimal
	for n, tier := range t.Tiers {
		if n > 0 && units.Cmp(from) <= 0 {
			break
		}
		to := units
		if tier.UpTo != nil {
			to = smaller(units, *tier.UpTo)
		}
		parts = append(parts, t.part(n, to.Sub(from)))
		from = to
	}
	return parts
}

func (t Terms) part(tier int, units metering.Decimal) ChargedPart {
	of := t.Tiers[tier]
	return ChargedPart{tier, units, of.UnitPrice, units.Mul(of.UnitPrice), of.FlatFee}
}

// ChargeIn is the charge in the currency's minor unit, as a provider is sent it.
func (t Terms) ChargeIn(currency string, of Measured) metering.Decimal {
	return RoundMoney(t.Charge(of).Exact, currency)
}

// UnitPriceAt is the overage rate, and 0 with prices by dimension. With other models it is the rate of the last of the units
// beyond the included ones, of a package of them with packages; 0 without such units.
func (t Terms) UnitPriceAt(usage metering.Decimal) metering.Decimal {
	if t.Model == "" {
		return t.OverageRate
	}
	c := t.Charge(unitsAlone(usage))
	switch {
	case c.Rest.IsZero():
		return metering.Decimal{}
	case t.Model == ModelPackage:
		return t.PackagePrice
	case t.Model == ModelPercentage:
		return t.Percent.Mul(hundredth)
	case len(c.Parts) > 0:
		return t.perUnits(c.Parts[len(c.Parts)-1].Rate).Round(metering.MaxFractionDigits)
	}
	return t.perUnits(t.UnitPrice).Round(metering.MaxFractionDigits)
}

// PerUnit returns the price of each unit, if all units cost the same and nothing else is charged.
func (t Terms) PerUnit() (rate metering.Decimal, same bool) {
	if t.Dimensions != nil {
		return rate, false
	}
	rate, same = t.rate()
	bare := t.BasePrice.IsZero() && t.IncludedUnits.IsZero() && t.MinimumCharge.IsZero() && t.MaximumCharge.IsZero() && t.FixedFee.IsZero()
	return rate, same && bare
}

// rate returns the price of each unit beyond the included ones, if all of them cost the same.
func (t Terms) rate() (rate metering.Decimal, same bool) {
	switch t.Model {
	case "":
		return t.OverageRate, true
	case ModelPerUnit:
		return t.perUnits(t.UnitPrice), true
	case ModelPercentage:
		return t.Percent.Mul(hundredth), true
	}
	return rate, false
}

// rises reports whether more usage never costs less.
func (t Terms) rises() bool {
	return t.Model != ModelVolume && !slices.ContainsFunc(t.rates(), func(r Terms) bool { return !r.rises() })
}

// peaks returns the first units of usage, from least to most, of which one quantity has the
// highest charge of all of them: the charge only rises within a tier.
func (t Terms) peaks(of Measured, least, most metering.Decimal) []metering.Decimal {
	peaks := []metering.Decimal{least, most}
	add := func(t Terms, before metering.Decimal) {
		for _, tier := range t.Tiers {
			if tier.UpTo == nil {
				return
			}
			if at := before.Add(t.IncludedUnits).Add(*tier.UpTo); at.Cmp(least) > 0 && at.Cmp(most) < 0 {
				peaks = append(peaks, at)
			}
		}
	}
	add(t, metering.Decimal{})
	var before metering.Decimal
	for _, r := range t.Charge(of).Rates {
		add(r.Terms, before)
		before = before.Add(notNegative(r.Of.Units))
	}
	return peaks
}

// byUsage reports whether the charge depends on usage.
func (t Terms) byUsage() bool {
	if slices.ContainsFunc(t.rates(), Terms.byUsage) {
		return true
	}
	for _, tier := range t.Tiers {
		if !tier.UnitPrice.IsZero() || !tier.FlatFee.IsZero() {
			return true
		}
	}
	return !(t.OverageRate.IsZero() && t.UnitPrice.IsZero() && t.PackagePrice.IsZero() && t.Percent.IsZero() && t.FixedFee.IsZero())
}

// isFree reports whether the charge is 0 for any usage.
func (t Terms) isFree() bool { return !t.byUsage() && t.BasePrice.IsZero() && t.MinimumCharge.IsZero() }
