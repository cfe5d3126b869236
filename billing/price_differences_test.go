package billing_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestTheFirstDifferenceBetweenPrices(t *testing.T) {
	t.Parallel()
	d := metering.MustDecimal
	graduated := func(tiers ...billing.Tier) billing.Terms {
		return billing.Terms{Model: billing.ModelGraduated, Tiers: tiers}
	}
	volume := func(tiers ...billing.Tier) billing.Terms {
		return billing.Terms{Model: billing.ModelVolume, Tiers: tiers}
	}
	packages := billing.Terms{Model: billing.ModelPackage, PackageSize: 60, PackagePrice: d("3")}
	short := billing.Terms{BasePrice: d("10"), IncludedUnits: d("100"), OverageRate: d("0.5")}
	two := graduated(upTo("100", "1", "5"), upTo("", "0.5", "7"))
	for name, c := range map[string]struct {
		ours, theirs billing.Terms
		want         string
	}{
		"TheShortFormAsTiers":      {short, graduated(upTo("100", "0", "10"), upTo("", "0.5", "0")), ""},
		"AnotherBound":             {short, graduated(upTo("99", "0", "10"), upTo("", "0.5", "0")), "tier 1: up_to is 100 in Odometer and 99 at the provider"},
		"AnotherFlatFee":           {short, graduated(upTo("100", "0", "11"), upTo("", "0.5", "0")), "tier 1: flat_fee is 10 in Odometer and 11 at the provider"},
		"AnotherRate":              {short, graduated(upTo("100", "0", "10"), upTo("", "0.4", "0")), "tier 2: unit_price is 0.5 in Odometer and 0.4 at the provider"},
		"OneTierLess":              {two, graduated(upTo("", "1", "5")), "tier 1: up_to is 100 in Odometer and null at the provider"},
		"ABaseInTheFirstTier":      {billing.Terms{BasePrice: d("2"), Model: billing.ModelGraduated, Tiers: two.Tiers}, graduated(upTo("100", "1", "7"), upTo("", "0.5", "7")), ""},
		"IncludedUnitsShiftTiers":  {billing.Terms{IncludedUnits: d("10"), Model: billing.ModelGraduated, Tiers: two.Tiers}, graduated(upTo("10", "0", "5"), upTo("110", "1", "0"), upTo("", "0.5", "7")), ""},
		"PerThousand":              {billing.Terms{Model: billing.ModelPerUnit, UnitPrice: d("2"), PerUnits: 1000}, billing.Terms{OverageRate: d("0.002")}, ""},
		"PercentAsAUnitPrice":      {billing.Terms{Model: billing.ModelPercentage, Percent: d("2.9")}, billing.Terms{OverageRate: d("0.029")}, ""},
		"ABoundWithoutEffect":      {graduated(upTo("100", "1", "5"), upTo("", "1", "0")), graduated(upTo("", "1", "5")), ""},
		"VolumeIsNotGraduated":     {two, volume(two.Tiers...), "model is graduated in Odometer and volume at the provider"},
		"ABaseInEachTierOfVolume":  {billing.Terms{BasePrice: d("2"), Model: billing.ModelVolume, Tiers: two.Tiers}, volume(upTo("100", "1", "7"), upTo("", "0.5", "9")), ""},
		"VolumeOfOneTier":          {volume(upTo("", "1", "0")), billing.Terms{OverageRate: d("1")}, ""},
		"VolumeWithIncludedUnits":  {billing.Terms{IncludedUnits: d("2"), Model: billing.ModelVolume, Tiers: two.Tiers}, two, "the provider has no form of included_units with the model volume"},
		"SamePackages":             {packages, packages, ""},
		"OtherPackages":            {packages, billing.Terms{Model: billing.ModelPackage, PackageSize: 50, PackagePrice: d("3")}, "package_size is 60 in Odometer and 50 at the provider"},
		"PackagesOfAnotherPrice":   {packages, billing.Terms{Model: billing.ModelPackage, PackageSize: 60, PackagePrice: d("4")}, "package_price is 3 in Odometer and 4 at the provider"},
		"PackagesWithABase":        {billing.Terms{BasePrice: d("1"), Model: billing.ModelPackage, PackageSize: 60}, packages, "the provider has no form of base_price with the model package"},
		"PackagesWithIncluded":     {billing.Terms{IncludedUnits: d("1"), Model: billing.ModelPackage, PackageSize: 60}, packages, "the provider has no form of included_units with the model package"},
		"AMinimum":                 {billing.Terms{MinimumCharge: d("1")}, short, "the provider has no form of minimum_charge"},
		"AMaximum":                 {billing.Terms{MaximumCharge: d("1")}, short, "the provider has no form of maximum_charge"},
		"AFeeForEachEvent":         {billing.Terms{Model: billing.ModelPercentage, FixedFee: d("1")}, short, "the provider has no form of fixed_fee"},
		"TheirsHasWhatNoneCompare": {short, billing.Terms{MinimumCharge: d("1")}, "Odometer compares no minimum_charge of a provider"},
	} {
		c.ours.Currency, c.theirs.Currency = "USD", "USD"
		require.Equal(t, c.want, c.ours.FirstDifference(c.theirs), name)
	}
	require.Equal(t, "currency is USD in Odometer and EUR at the provider", billing.Terms{Currency: "USD"}.FirstDifference(billing.Terms{Currency: "EUR"}))
}

// TestPricesWithoutADifferenceChargeTheSame checks that pairs of random terms without a FirstDifference charge the
// same amount for usages around their boundaries.
func TestPricesWithoutADifferenceChargeTheSame(t *testing.T) {
	t.Parallel()
	same := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 13))
		ours, theirs := anyTerms(rng), anyTerms(rng)
		ours.Currency = theirs.Currency
		if rng.IntN(2) == 0 {
			theirs = ours
		}
		if ours.FirstDifference(theirs) != "" {
			continue
		}
		same++
		for _, usage := range append(anyUsages(rng, ours), anyUsages(rng, theirs)...) {
			of := billing.Measured{Units: usage}
			require.Equal(t, ours.ChargeIn("JPY", of).String(), theirs.ChargeIn("JPY", of).String(), "seed %d: %s of %s and %s", seed, usage, ours.JSON(), theirs.JSON())
		}
	}
	require.Greater(t, same, 300)
}
