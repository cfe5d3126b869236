package client

import (
	"cmp"
	"math/big"
)

// formula recomputes a step from its parts and the earlier steps in b.
type formula func(s *statementStep, b breakdown) *big.Rat

// formulas maps each step that a statement can contain to its formula. The amount of a step without a formula is
// not recomputed.
//
//nolint:gochecknoglobals // a table
var formulas = map[string]formula{
	"usage":          nil,
	"late_usage":     nil,
	"total_usage":    func(_ *statementStep, b breakdown) *big.Rat { return b.sum("usage", "late_usage") },
	"reported_units": func(_ *statementStep, b breakdown) *big.Rat { return b.sum("usage", "late_usage") },

	"included_units": nil,
	"overage_units":  unitsBeyondIncluded,
	"overage_rate":   nil,
	"overage_charge": func(_ *statementStep, b breakdown) *big.Rat { return b.multiply("overage_units", "overage_rate") },

	"charged_units": unitsBeyondIncluded,
	"unit_price":    nil,
	"package_size":  nil,
	"packages":      startedPackages,
	"package_price": nil,
	"percent":       nil,
	"unit_charges":  unitCharges,
	"per_units":     nil,
	"flat_fees":     sumOfParts,
	"fixed_fee":     nil,
	"fixed_fees":    fixedFees,
	"usage_charge":  usageCharge,

	"tier":            tierCharge,
	"tier_units":      tierUnits,
	"tier_unit_price": nil,
	"tier_flat_fee":   tierFlatFee,

	"dimension_charge": dimensionCharge,
	"default_charge":   exactCharge,
	"matched_units":    sumOfParts,
	"unrated_units":    sumOfParts,
	"dimension_units":  nil,

	"base_price":     nil,
	"minimum_charge": nil,
	"maximum_charge": nil,
	"exact_charge":   boundedCharge,

	"provider_charge": sumOfParts,
	"price_line":      nil, // rounded by the rules of the provider
	"priced_units":    nil,
	"price_rate":      nil,

	"trial":  func(_ *statementStep, b breakdown) *big.Rat { return b.get("exact_charge", "provider_charge").stated },
	"charge": chargeAfterTrial,

	"closed_units":        nil,
	"closed_charge":       nil,
	"only_reported_units": nil,
	"only_reported":       nil,
	"elsewhere_units":     sumOfParts,
	"billed_elsewhere":    billedElsewhere,
	"part":                nil,

	"quantity": func(_ *statementStep, b breakdown) *big.Rat {
		return new(big.Rat).Sub(b.units().stated, b.sum("closed_units", "only_reported_units", "elsewhere_units"))
	},
	"amount": remainingAmount,
}

// units returns the step with the units that the price applies to.
func (b breakdown) units() *statementStep {
	return b.get("matched_units", "reported_units", "total_usage", "usage")
}

// multiply returns the product of the amounts of two steps.
func (b breakdown) multiply(name, by string) *big.Rat {
	return new(big.Rat).Mul(b.get(name).stated, b.get(by).stated)
}

// divide returns x divided by the amount of a step. A missing step divides by 1.
func (b breakdown) divide(x *big.Rat, name string) *big.Rat {
	by := b.find(name)
	if by == nil {
		return x
	}
	if by.stated.Sign() <= 0 {
		fail(by.path, by.Amount, "it must be above 0")
	}
	return new(big.Rat).Quo(x, by.stated)
}

// requireSum checks that the amount of a step equals the sum of its parts by tier or price.
func (s *statementStep) requireSum(parts *big.Rat) { compare(s.path, s.Amount, parts) }

// sumOfParts returns the sum of all parts, which is 0 without parts.
func sumOfParts(s *statementStep, _ breakdown) *big.Rat {
	total := new(big.Rat)
	for _, part := range s.parts.steps {
		total.Add(total, part.stated)
	}
	return total
}

// unitsBeyondIncluded returns the units beyond the included units, at least 0.
func unitsBeyondIncluded(_ *statementStep, b breakdown) *big.Rat {
	return larger(new(big.Rat).Sub(b.units().stated, b.get("included_units").stated), new(big.Rat))
}

// startedPackages returns the number of packages that the charged units reach, rounded up.
func startedPackages(_ *statementStep, b breakdown) *big.Rat {
	packages := b.divide(b.get("charged_units").stated, "package_size")
	whole, rest := new(big.Int).DivMod(packages.Num(), packages.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).SetInt(whole)
}

// unitCharges returns the charge of the charged units: by percentage, at one price, or as the sum of the tiers. It
// checks that the units of the tiers add up to the charged units.
func unitCharges(s *statementStep, b breakdown) *big.Rat {
	if b.find("percent") != nil {
		return new(big.Rat).Mul(b.multiply("charged_units", "percent"), big.NewRat(1, 100))
	}
	if len(s.Steps) == 0 {
		return b.multiply("charged_units", "unit_price")
	}
	units := new(big.Rat)
	for _, tier := range s.parts.steps {
		units.Add(units, tier.parts.sum("tier_units"))
	}
	b.get("charged_units").requireSum(units)
	return sumOfParts(s, b)
}

// tierUnits returns the charged units within the bounds of the tier. A volume price charges all units in the
// tier that they reach. A statement then lists only this tier, and its number can be above 1.
func tierUnits(s *statementStep, b breakdown) *big.Rat {
	tier, charged := b.owner, b.outer.outer.get("charged_units").stated
	above, inTier := tier.number("above", tier.Above), charged
	if tier.UpTo != "" {
		inTier = smaller(inTier, tier.number("up_to", tier.UpTo))
	}
	units := larger(new(big.Rat).Sub(inTier, above), new(big.Rat))
	isFirst := tier.tierNumber().Cmp(one) == 0
	if !isFirst && units.Sign() == 0 {
		fail(tier.path, tier.Amount, "the charged units do not reach the tier")
	}
	if !isFirst && len(b.outer.steps) == 0 && inTier.Cmp(charged) == 0 {
		return charged
	}
	return units
}

// tierCharge returns the units of a tier times its unit price. It checks that the tier follows the previous tier
// without a gap.
func tierCharge(s *statementStep, b breakdown) *big.Rat {
	number, above := s.tierNumber(), s.number("above", s.Above)
	if previous := b.find("tier"); previous != nil {
		compare(s.path+"/tier", s.Tier, new(big.Rat).Add(previous.tierNumber(), one))
		compare(s.path+"/above", cmp.Or(s.Above, "0"), previous.number("up_to", previous.UpTo))
	} else if number.Cmp(one) == 0 && above.Sign() != 0 {
		compare(s.path+"/above", s.Above, new(big.Rat))
	}
	return s.parts.multiply("tier_units", "tier_unit_price")
}

// tierFlatFee returns the stated fee of a tier. It checks that unit_charges has the tier, and that no two fees belong
// to one tier.
func tierFlatFee(s *statementStep, b breakdown) *big.Rat {
	number, previous := s.tierNumber(), b.find("tier_flat_fee")
	if previous != nil && number.Cmp(previous.tierNumber()) <= 0 {
		fail(s.path+"/tier", s.Tier, "the fees are not in the order of the tiers")
	}
	for _, tier := range b.outer.get("unit_charges").parts.steps {
		if tier.tierNumber().Cmp(number) == 0 {
			return s.stated
		}
	}
	fail(s.path+"/tier", s.Tier, "unit_charges has no such tier")
	return nil
}

var one = big.NewRat(1, 1)

// tierNumber returns the number of the step's tier, from 1.
func (s *statementStep) tierNumber() *big.Rat {
	number := s.number("tier", s.Tier)
	if number.Cmp(one) < 0 {
		fail(s.path+"/tier", cmp.Or(s.Tier, "absent"), "tiers are numbered from 1")
	}
	return number
}

// fixedFees returns the fee of one event times the number of events.
func fixedFees(_ *statementStep, b breakdown) *big.Rat {
	return new(big.Rat).Mul(b.get("fixed_fee").stated, larger(b.units().events, new(big.Rat)))
}

// usageCharge returns the charge of the price model, or the sum of the exact charges by dimension.
func usageCharge(_ *statementStep, b breakdown) *big.Rat {
	if b.find("package_price") != nil {
		return b.multiply("packages", "package_price")
	}
	if b.find("charged_units") != nil {
		charges := b.divide(b.get("unit_charges").stated, "per_units")
		return new(big.Rat).Add(charges, b.sum("flat_fees", "fixed_fees"))
	}
	charge, units, events := new(big.Rat), b.sum("unrated_units"), b.sumEvents("unrated_units")
	for _, s := range b.steps {
		if s.Name == "dimension_charge" || s.Name == "default_charge" {
			charge.Add(charge, s.exact)
			units.Add(units, s.parts.sum("matched_units"))
			events.Add(events, s.parts.sumEvents("matched_units"))
		}
	}
	of := b.units()
	if of.Name != "reported_units" || units.Cmp(of.stated) > 0 { // rounding can leave less than reported_units
		of.requireSum(units)
	}
	compare(of.path+"/event_count", cmp.Or(of.EventCount, "0"), events)
	return charge
}

// dimensionCharge returns the exact charge of a price by dimension. It checks that the numbers of the prices
// rise, so that each price charges once.
func dimensionCharge(s *statementStep, b breakdown) *big.Rat {
	number, previous := s.number("dimension_price", s.DimensionPrice), new(big.Rat)
	if last := b.find("dimension_charge"); last != nil {
		previous = last.number("dimension_price", last.DimensionPrice)
	}
	if number.Cmp(previous) <= 0 {
		fail(s.path+"/dimension_price", cmp.Or(s.DimensionPrice, "absent"), "the prices are not in the order of their numbers")
	}
	return exactCharge(s, b)
}

// exactCharge returns the charge of a price by dimension before rounding.
func exactCharge(s *statementStep, _ breakdown) *big.Rat {
	return s.parts.get("usage_charge", "overage_charge").exact
}

// boundedCharge returns the base price and the usage charge, limited by the minimum and the maximum charge. It uses the
// usage charge before rounding.
func boundedCharge(_ *statementStep, b breakdown) *big.Rat {
	charge := new(big.Rat).Add(b.get("base_price").stated, b.get("usage_charge", "overage_charge").exact)
	if least := b.find("minimum_charge"); least != nil {
		charge = larger(charge, least.stated)
	}
	if most := b.find("maximum_charge"); most != nil {
		charge = smaller(charge, most.stated)
	}
	return charge
}

// chargeAfterTrial returns the charge before rounding, or 0 in a trial.
func chargeAfterTrial(_ *statementStep, b breakdown) *big.Rat {
	if b.find("trial") != nil {
		return new(big.Rat)
	}
	return b.get("exact_charge", "provider_charge").exact
}

// billedElsewhere returns the sum of all parts. If a provider's own price charges the usage, a statement has only the
// sum, which is then returned as stated.
func billedElsewhere(s *statementStep, b breakdown) *big.Rat {
	if len(s.Steps) == 0 && b.find("provider_charge") != nil && b.find("late_usage") == nil {
		return s.stated
	}
	return sumOfParts(s, b)
}

// remainingAmount returns the charge less the amounts that were already billed, or 0 in a trial.
func remainingAmount(_ *statementStep, b breakdown) *big.Rat {
	if b.find("trial") != nil {
		return new(big.Rat)
	}
	billed := b.sum("closed_charge", "only_reported", "billed_elsewhere")
	return new(big.Rat).Sub(b.get("charge").stated, billed)
}

// unitPrice returns the rate of the last charged unit. It is 0 without charged units, and for prices by
// dimension.
func unitPrice(b breakdown) *big.Rat {
	if rate := b.find("overage_rate"); rate != nil {
		return rate.stated
	}
	if b.find("provider_charge") != nil {
		return b.get("provider_charge").lastRate("price_rate")
	}
	if b.sum("charged_units").Sign() == 0 {
		return new(big.Rat)
	}
	if b.find("percent") != nil {
		return new(big.Rat).Mul(b.get("percent").stated, big.NewRat(1, 100))
	}
	if price := b.find("package_price", "unit_price"); price != nil {
		return roundHalfEven(b.divide(price.stated, "per_units"), 12)
	}
	return roundHalfEven(b.divide(b.get("unit_charges").lastRate("tier_unit_price"), "per_units"), 12)
}

// lastRate returns the rate of the last part that has the step name, or 0.
func (s *statementStep) lastRate(name string) *big.Rat {
	last := new(big.Rat)
	for _, part := range s.parts.steps {
		if rate := part.parts.find(name); rate != nil {
			last = rate.stated
		}
	}
	return last
}

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func smaller(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}
