package client

import (
	"cmp"
	"math/big"
)

// formula recomputes a step from its parts and the earlier steps in b.
type formula func(s *statementStep, b breakdown) *big.Rat

// formulas has each step that a statement can contain, as GET /v1/billing/explain names them.
// A step without a formula is taken as stated.
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

	"tier":            func(s *statementStep, _ breakdown) *big.Rat { return s.parts.multiply("tier_units", "tier_unit_price") },
	"tier_units":      tierUnits,
	"tier_unit_price": nil,
	"tier_flat_fee":   nil,

	"dimension_charge": exactCharge,
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

	"trial": func(_ *statementStep, b breakdown) *big.Rat { return b.get("exact_charge", "provider_charge").stated },
	"charge": func(_ *statementStep, b breakdown) *big.Rat {
		return new(big.Rat).Sub(b.get("exact_charge", "provider_charge").stated, b.sum("trial"))
	},

	"unbilled_units":      nil,
	"unbilled_charge":     nil,
	"closed_units":        nil,
	"closed_charge":       nil,
	"only_reported_units": nil,
	"only_reported":       nil,
	"elsewhere_units":     sumOfParts,
	"billed_elsewhere":    sumOfParts,
	"part":                nil,

	"quantity": func(_ *statementStep, b breakdown) *big.Rat {
		return new(big.Rat).Sub(b.units().stated, b.sum("unbilled_units", "closed_units", "only_reported_units", "elsewhere_units"))
	},
	"amount": remainingAmount,

	"adjustment": adjustment,
	"amount_with_adjustments": func(_ *statementStep, b breakdown) *big.Rat {
		return new(big.Rat).Add(b.get("amount", "charge").stated, b.sum("adjustment"))
	},
}

// units returns the step with the units that the price applies to.
func (b breakdown) units() *statementStep {
	return b.get("matched_units", "reported_units", "total_usage", "usage")
}

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

// sumOfParts returns the sum of all parts. The amount of a step without parts is not recomputed.
func sumOfParts(s *statementStep, _ breakdown) *big.Rat {
	if len(s.Steps) == 0 {
		return s.stated
	}
	total := new(big.Rat)
	for _, part := range s.parts.steps {
		total.Add(total, part.stated)
	}
	return total
}

func unitsBeyondIncluded(_ *statementStep, b breakdown) *big.Rat {
	return larger(new(big.Rat).Sub(b.units().stated, b.get("included_units").stated), new(big.Rat))
}

func startedPackages(_ *statementStep, b breakdown) *big.Rat {
	packages := b.divide(b.get("charged_units").stated, "package_size")
	whole, rest := new(big.Int).DivMod(packages.Num(), packages.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).SetInt(whole)
}

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

// tierUnits returns the charged units within the bounds of the tier. With the volume model, the only tier
// contains all charged units.
func tierUnits(s *statementStep, b breakdown) *big.Rat {
	if b.outer == nil || b.outer.outer == nil {
		fail(s.path, s.Amount, "the step tier is missing")
	}
	tier, charged := b.owner, b.outer.outer.get("charged_units").stated
	above, inTier := tier.number("above", tier.Above), charged
	if tier.UpTo != "" {
		inTier = smaller(inTier, tier.number("up_to", tier.UpTo))
	}
	isVolume := tier.number("tier", tier.Tier).Cmp(big.NewRat(1, 1)) > 0 && len(b.outer.steps) == 0
	if isVolume && inTier == charged && charged.Cmp(above) > 0 {
		return charged
	}
	return larger(new(big.Rat).Sub(inTier, above), new(big.Rat))
}

func fixedFees(s *statementStep, b breakdown) *big.Rat {
	units := b.units()
	events := larger(units.number("event_count", units.EventCount), new(big.Rat)) // 0 with reported_units, which have no number of events
	compare(s.path+"/event_count", cmp.Or(s.EventCount, "0"), events)
	return new(big.Rat).Mul(b.get("fixed_fee").stated, events)
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
	charge, units := new(big.Rat), b.sum("unrated_units")
	for _, s := range b.steps {
		if s.Name == "dimension_charge" || s.Name == "default_charge" {
			charge.Add(charge, s.exact)
			units.Add(units, s.parts.sum("matched_units"))
		}
	}
	if b.find("reported_units") == nil {
		b.units().requireSum(units)
	}
	return charge
}

// exactCharge returns the charge of a price by dimension before rounding.
func exactCharge(s *statementStep, _ breakdown) *big.Rat {
	return s.parts.get("usage_charge", "overage_charge").exact
}

func boundedCharge(_ *statementStep, b breakdown) *big.Rat {
	charge := new(big.Rat).Add(b.get("base_price").stated, b.get("usage_charge", "overage_charge").stated)
	if least := b.find("minimum_charge"); least != nil {
		charge = larger(charge, least.stated)
	}
	if most := b.find("maximum_charge"); most != nil {
		charge = smaller(charge, most.stated)
	}
	return charge
}

func remainingAmount(_ *statementStep, b breakdown) *big.Rat {
	if b.find("trial") != nil {
		return new(big.Rat)
	}
	billed := b.sum("unbilled_charge", "closed_charge", "only_reported", "billed_elsewhere")
	return new(big.Rat).Sub(b.get("charge").stated, billed)
}

// adjustment returns the result of the step's own breakdown, or the sum of reported parts.
func adjustment(s *statementStep, b breakdown) *big.Rat {
	if result := s.parts.find("amount", "charge"); result != nil {
		return result.stated
	}
	return sumOfParts(s, b)
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

// lastRate returns the rate of the last part with one.
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
