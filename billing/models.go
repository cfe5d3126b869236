package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Measured is the usage of a meter for which a charge is computed.
type Measured struct {
	Units  metering.Decimal
	Events int64 // counted events; 0 for quantities at a provider, since reports contain no event count

	Dimensions []DimensionUsage // Units by dimension values, for prices by dimension
}

// Add returns the sums of units and events, in total and by dimension values.
func (m Measured) Add(o Measured) Measured {
	return Measured{m.Units.Add(o.Units), m.Events + o.Events, AddDimensions(m.Dimensions, o.Dimensions)}
}

// Sub returns the differences of units and events, in total and by dimension values.
func (m Measured) Sub(o Measured) Measured {
	return Measured{m.Units.Sub(o.Units), m.Events - o.Events, subtractDimensions(m.Dimensions, o.Dimensions)}
}

func (m Measured) isZero() bool { return m.Units.IsZero() && m.Events == 0 && len(m.Dimensions) == 0 }

// unitsAlone returns usage without a number of events.
func unitsAlone(units metering.Decimal) Measured { return Measured{Units: units} }

// Charged is the breakdown of a charge before rounding. Its amounts are exact, except a quotient with infinitely
// many decimals. Such a quotient keeps enough decimals that rounding it once gives the exact result.
type Charged struct {
	Rest     metering.Decimal // units beyond the included units; 0 with prices by dimension: see Rates
	Parts    []ChargedPart    // charged tiers that Rest reaches, with ModelVolume only the last; nil without tiers
	Units    metering.Decimal // charge for Rest by unit prices or percent, before division by PerUnits and without fees
	Packages metering.Decimal // started packages
	Flat     metering.Decimal // sum of the flat fees of Parts
	Events   int64            // events that cost the fixed fee
	Usage    metering.Decimal // charge of the model, without the base price
	Digits   *int32           // number of decimals of Usage if it contains an inexact quotient; nil: Usage is exact
	Exact    metering.Decimal // base price + Usage, within the minimum and the maximum charge

	Rates   []ChargedRate    // charge of each price by dimension, then of the default; nil without prices by dimension
	Unrated []DimensionUsage // usage that no price by dimension charges
}

// ChargedPart is the charge of the units in one tier.
type ChargedPart struct {
	Tier    int // index in Terms.Tiers
	Units   metering.Decimal
	Rate    metering.Decimal
	Amount  metering.Decimal // Units × Rate, before division by PerUnits
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

// chargeModel computes the charge of the model for c.Rest, the units beyond the included units.
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

// Rest returns the usage beyond the included units. It is at least 0.
func (t Terms) Rest(usage metering.Decimal) metering.Decimal {
	return notNegative(notNegative(usage).Sub(t.IncludedUnits))
}

// bounded returns the charge, limited to the range from the minimum to the maximum charge of the terms.
func (t Terms) bounded(charge metering.Decimal) metering.Decimal {
	charge = larger(charge, t.MinimumCharge)
	if t.MaximumCharge.IsZero() {
		return charge
	}
	return smaller(charge, t.MaximumCharge)
}

// amountDigits is an upper bound for the decimals of amounts that a charge is added to, compared with or rounded to.
// metering.Decimal.Div keeps enough decimals that these operations give the same result as the exact quotient.
const amountDigits = 16

// divide returns sum / perUnits. If the quotient has infinitely many decimals, divide rounds it and stores the
// number of decimals that it keeps in c.Digits. A perUnits of 0 stands for 1.
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

// perUnits returns the price of one unit, given the price of PerUnits units.
func (t Terms) perUnits(price metering.Decimal) metering.Decimal {
	return new(Charged).divide(price, t.PerUnits)
}

// chargeTiers computes the charge of the tiers for c.Rest, with the flat fees.
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

// graduated divides the units among the tiers and returns a part for each tier that they reach. Zero units
// reach the first tier, so the result has at least one part.
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

// part returns the charge of units in a tier.
func (t Terms) part(tier int, units metering.Decimal) ChargedPart {
	of := t.Tiers[tier]
	return ChargedPart{tier, units, of.UnitPrice, units.Mul(of.UnitPrice), of.FlatFee}
}

// ChargeIn returns the charge, rounded to the currency's minor unit as it is sent to a provider.
func (t Terms) ChargeIn(currency string, of Measured) metering.Decimal {
	return RoundMoney(t.Charge(of).Exact, currency)
}

// UnitPriceAt returns the price of the last unit of the usage:
//   - for ModelOverage: the overage rate, even if all units are included
//   - for prices by dimension: 0
//   - for all other models: 0 if the usage does not exceed the included units; otherwise the price of a package
//     (ModelPackage) or the rate of the last unit
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

// PerUnit returns the price of each unit. same is false if units can have different prices or anything else is
// charged.
func (t Terms) PerUnit() (rate metering.Decimal, same bool) {
	if t.Dimensions != nil {
		return rate, false
	}
	rate, same = t.rate()
	bare := t.BasePrice.IsZero() && t.IncludedUnits.IsZero() && t.MinimumCharge.IsZero() && t.MaximumCharge.IsZero() && t.FixedFee.IsZero()
	return rate, same && bare
}

// rate returns the price of each unit beyond the included units. same is false for models with tiers or packages.
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

// rises reports whether more usage never costs less, judged by the models alone. Only with ModelVolume can more
// usage cost less.
func (t Terms) rises() bool {
	return t.Model != ModelVolume && !slices.ContainsFunc(t.rates(), func(r Terms) bool { return !r.rises() })
}

// peaks returns the quantities from least to most at which the charge can be highest, unsorted: least, most, and the
// ends of all tiers between them. The charge never falls within a tier. The charge for a quantity is the charge for
// that number of first units of the usage; see First.
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
