package billing_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// reference computes the charge for a price with rational numbers, rounded to the currency's minor unit. It
// implements the documented definition of the models, and uses none of the package's arithmetic.
func reference(t billing.Terms, units *big.Rat, events int64) *big.Rat {
	charge := referenceUsageCharge(t, units, events)
	return referenceBounded(t, charge.Add(charge, rational(t.BasePrice)))
}

// referenceBounded raises a charge to the minimum charge, limits it to the maximum charge, if there is one, and
// rounds it to the currency's minor unit.
func referenceBounded(t billing.Terms, charge *big.Rat) *big.Rat {
	charge = upper(charge, rational(t.MinimumCharge))
	if most := rational(t.MaximumCharge); most.Sign() > 0 {
		charge = lower(charge, most)
	}
	return rounded(charge, map[string]int{"JPY": 0, "USD": 2, "KWD": 3}[t.Currency])
}

// referenceUsageCharge computes the exact charge of the price model, without the base price.
func referenceUsageCharge(t billing.Terms, units *big.Rat, events int64) *big.Rat {
	zero := new(big.Rat)
	rest := upper(zero, units)
	rest = upper(zero, new(big.Rat).Sub(rest, rational(t.IncludedUnits)))
	charge := new(big.Rat)
	add := func(factors ...*big.Rat) {
		product := big.NewRat(1, 1)
		for _, f := range factors {
			product.Mul(product, f)
		}
		charge.Add(charge, product)
	}
	per := big.NewRat(1, max(t.PerUnits, 1))
	switch t.PriceModel() {
	case billing.ModelOverage:
		add(rest, rational(t.OverageRate))
	case billing.ModelPerUnit:
		add(rest, rational(t.UnitPrice), per)
	case billing.ModelGraduated:
		for n := range t.Tiers {
			from := boundBelow(t.Tiers, n)
			if n > 0 && rest.Cmp(from) <= 0 {
				continue
			}
			to := rest
			if t.Tiers[n].UpTo != nil {
				to = lower(rest, rational(*t.Tiers[n].UpTo))
			}
			add(new(big.Rat).Sub(to, from), rational(t.Tiers[n].UnitPrice), per)
			add(rational(t.Tiers[n].FlatFee))
		}
	case billing.ModelVolume:
		reached := 0
		for n := range t.Tiers {
			if n > 0 && rest.Cmp(boundBelow(t.Tiers, n)) > 0 {
				reached = n
			}
		}
		add(rest, rational(t.Tiers[reached].UnitPrice), per)
		add(rational(t.Tiers[reached].FlatFee))
	case billing.ModelPackage:
		packages := new(big.Rat).Quo(rest, big.NewRat(t.PackageSize, 1))
		whole, part := new(big.Int).DivMod(packages.Num(), packages.Denom(), new(big.Int))
		if part.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		add(new(big.Rat).SetInt(whole), rational(t.PackagePrice))
	case billing.ModelPercentage:
		add(rest, rational(t.Percent), big.NewRat(1, 100))
		add(big.NewRat(max(events, 0), 1), rational(t.FixedFee))
	}
	return charge
}

// boundBelow returns the bound of the tier below tier n, or 0 for the first tier.
func boundBelow(tiers []billing.Tier, n int) *big.Rat {
	if n == 0 {
		return new(big.Rat)
	}
	return rational(*tiers[n-1].UpTo)
}

// anyDecimal draws a decimal from 0 to 10¹² with at most 12 decimals. Small and round numbers are frequent.
func anyDecimal(rng *rand.Rand) metering.Decimal {
	digits := []int64{1, 10, 1000, 1_000_000, 1_000_000_000_000}[rng.IntN(5)]
	places := []int{0, 0, 1, 2, 3, 6, 12}[rng.IntN(7)]
	return metering.MustDecimal(fmt.Sprintf("%de-%d", rng.Int64N(digits+1), places))
}

// anyTerms draws valid terms of a random price model, without prices by dimension.
func anyTerms(rng *rand.Rand) billing.Terms {
	maybe := func() (d metering.Decimal) {
		if rng.IntN(3) == 0 {
			d = anyDecimal(rng)
		}
		return d
	}
	perUnits := func() int64 {
		return []int64{0, 1, 3, 7, 60, 1000, 1024, 3600, 1_000_000, 1_000_000_000_000}[rng.IntN(10)]
	}
	t := billing.Terms{
		BasePrice: maybe(), IncludedUnits: maybe(), MinimumCharge: maybe(), MaximumCharge: maybe(), Currency: []string{"JPY", "USD", "KWD"}[rng.IntN(3)],
	}
	digits := metering.MinorDigits(t.Currency)
	t.MinimumCharge, t.MaximumCharge = t.MinimumCharge.Round(digits), t.MaximumCharge.Round(digits)
	if t.MaximumCharge.Cmp(t.MinimumCharge) < 0 {
		t.MaximumCharge = metering.Decimal{}
	}
	switch model := billing.Model("").Values()[rng.IntN(6)]; model {
	case billing.ModelOverage:
		t.OverageRate = anyDecimal(rng)
		return t
	default:
		t.Model = model
	}
	switch t.Model {
	case billing.ModelPerUnit:
		t.UnitPrice, t.PerUnits = anyDecimal(rng), perUnits()
	case billing.ModelGraduated, billing.ModelVolume:
		t.PerUnits = perUnits()
		var last metering.Decimal
		for range rng.IntN(5) {
			last = last.Add(anyDecimal(rng)).Add(metering.MustDecimal("0.000000000001"))
			t.Tiers = append(t.Tiers, billing.Tier{UpTo: new(last), UnitPrice: anyDecimal(rng), FlatFee: maybe()})
		}
		t.Tiers = append(t.Tiers, billing.Tier{UnitPrice: anyDecimal(rng), FlatFee: maybe()})
	case billing.ModelPackage:
		t.PackageSize, t.PackagePrice = max(perUnits(), 1), anyDecimal(rng)
	case billing.ModelPercentage:
		t.Percent, t.FixedFee = anyDecimal(rng), maybe()
	}
	return t
}

// anyUsages returns usages at the boundaries of the terms, and two random ones, each also 10⁻¹² lower and 10⁻¹²
// higher.
func anyUsages(rng *rand.Rand, t billing.Terms) (all []metering.Decimal) {
	bounds := []metering.Decimal{{}, t.IncludedUnits, anyDecimal(rng), anyDecimal(rng).Add(t.IncludedUnits)}
	for _, tier := range t.Tiers {
		if tier.UpTo != nil {
			bounds = append(bounds, *tier.UpTo, t.IncludedUnits.Add(*tier.UpTo))
		}
	}
	if t.PackageSize > 0 {
		bounds = append(bounds, t.IncludedUnits.Add(metering.Whole(t.PackageSize).Mul(metering.Whole(rng.Int64N(5)))))
	}
	least := metering.MustDecimal("0.000000000001")
	for _, b := range bounds {
		all = append(all, b, b.Sub(least), b.Add(least))
	}
	return all
}

// TestPropertyChargesEqualReference compares the charges of 500 × histories.Count() random terms, for usages around
// their boundaries, with the charges that reference computes.
func TestPropertyChargesEqualReference(t *testing.T) {
	t.Parallel()
	for seed := range 500 * uint64(histories.Count()) {
		rng := rand.New(rand.NewPCG(seed, 11))
		p := anyTerms(rng)
		require.NoError(t, p.Validate(), "seed %d: %s", seed, p.JSON())
		for _, usage := range anyUsages(rng, p) {
			events := rng.Int64N(1000) - 3
			want, got := reference(p, rational(usage), events), rational(p.ChargeIn(p.Currency, billing.Measured{Units: usage, Events: events}))
			if want.Cmp(got) != 0 {
				t.Fatalf("seed %d: %s units from %d events cost %s instead of %s at %s", seed, usage, events, got.FloatString(3), want.FloatString(3), p.JSON())
			}
		}
	}
}
