package billing_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// referenceUsage is usage with the values of its properties. values is nil if they are not known.
type referenceUsage struct {
	values map[string]string
	units  metering.Decimal
	events int64
}

// referenceByDimension computes the charge of prices by dimension with rationals, as the documentation defines it. The
// charge is rounded to the currency's minor unit.
func referenceByDimension(t billing.Terms, usage []referenceUsage) *big.Rat {
	units, events := make(map[int]*big.Rat), make(map[int]int64)
	for _, u := range usage {
		n := referenceRate(t.Dimensions, u.values)
		if units[n] == nil {
			units[n] = new(big.Rat)
		}
		units[n].Add(units[n], rational(u.units))
		events[n] += u.events
	}
	charge := rational(t.BasePrice)
	add := func(n int, of billing.Rate) {
		quantity := units[n]
		if quantity == nil {
			quantity = new(big.Rat)
		}
		charge.Add(charge, referenceUsageCharge(of.Terms(t.Currency), quantity, events[n]))
	}
	for n, p := range t.Dimensions.Prices {
		add(n, p.Rate)
	}
	if t.Dimensions.Default != nil {
		add(len(t.Dimensions.Prices), *t.Dimensions.Default)
	}
	return referenceBounded(t, charge)
}

// referenceRate returns the number of the first price that matches, that of the default, or -1.
func referenceRate(d *billing.Dimensions, values map[string]string) int {
	if values == nil {
		return -1
	}
	for n, p := range d.Prices {
		matches := true
		for property, alternatives := range p.Match {
			has := false
			for _, value := range alternatives {
				has = has || value.String() == values[property]
			}
			matches = matches && has
		}
		if matches {
			return n
		}
	}
	if d.Default != nil {
		return len(d.Prices)
	}
	return -1
}

// dimensionValues has strings, a null, a boolean and a number. They are few, so that prices often match.
var dimensionValues = []string{`"large"`, `"small"`, `null`, `true`, `1`, `"1"`, `"a<b"`}

// byDimension returns t with random prices by dimension in place of its model. Validate can refuse the result.
func byDimension(rng *rand.Rand, t billing.Terms, rate func() billing.Terms) billing.Terms {
	t = billing.Terms{BasePrice: t.BasePrice, MinimumCharge: t.MinimumCharge, MaximumCharge: t.MaximumCharge, Currency: t.Currency}
	by := []string{"model", "region"}[:1+rng.IntN(2)]
	t.Dimensions = &billing.Dimensions{By: by}
	for range 1 + rng.IntN(4) {
		match := make(map[string][]metering.Scalar)
		for _, property := range by[:1+rng.IntN(len(by))] {
			for _, i := range rng.Perm(len(dimensionValues))[:1+rng.IntN(3)] {
				match[property] = append(match[property], metering.ParseScalar(json.RawMessage(dimensionValues[i])))
			}
		}
		t.Dimensions.Prices = append(t.Dimensions.Prices, billing.DimensionPrice{Match: match, Rate: billing.RateOf(rate())})
	}
	if rng.IntN(2) == 0 {
		t.Dimensions.Default = new(billing.RateOf(rate()))
	}
	return t
}

// anyDimensionTerms draws valid terms with prices by dimension.
func anyDimensionTerms(rng *rand.Rand) billing.Terms {
	for {
		t := byDimension(rng, anyTerms(rng), func() billing.Terms { return anyTerms(rng) })
		if t.Validate() == nil { // invalid: a price never applies, or per_units have no small common multiple
			return t
		}
	}
}

// anyDimensionUsage draws usage by model, region and user. No price matches by user. The units are often at a boundary
// of a rate: a tier, a package or the included units.
func anyDimensionUsage(rng *rand.Rand, t billing.Terms) (usage []referenceUsage) {
	rates := []billing.Terms{{}}
	for _, p := range t.Dimensions.Prices {
		rates = append(rates, p.Terms(t.Currency))
	}
	for range rng.IntN(9) {
		u := referenceUsage{units: anyDecimal(rng), events: rng.Int64N(1000)}
		if all := anyUsages(rng, rates[rng.IntN(len(rates))]); rng.IntN(2) == 0 {
			u.units = all[rng.IntN(len(all))]
		}
		if rng.IntN(8) > 0 {
			u.values = make(map[string]string)
			for _, property := range []string{"model", "region", "user"} {
				u.values[property] = dimensionValues[rng.IntN(len(dimensionValues))]
			}
		}
		usage = append(usage, u)
	}
	return usage
}

// measured converts the usage to billing.Measured, with its units by model, region and user.
func measured(usage []referenceUsage) (of billing.Measured) {
	for _, u := range usage {
		var key json.RawMessage
		if u.values != nil {
			key = fmt.Appendf(nil, `{"model":%s,"region":%s,"user":%s}`, u.values["model"], u.values["region"], u.values["user"])
		}
		of.Units, of.Events = of.Units.Add(u.units), of.Events+u.events
		of.Dimensions = billing.AddDimensions(of.Dimensions, []billing.DimensionUsage{{Key: key, Units: u.units, Events: u.events}})
	}
	return of
}

// TestPropertyChargesByDimensionEqualReference compares charges with the reference, for 500 × HISTORIES random terms
// with four random usages each.
func TestPropertyChargesByDimensionEqualReference(t *testing.T) {
	t.Parallel()
	for seed := range 500 * uint64(histories.Count()) {
		rng := rand.New(rand.NewPCG(seed, 12))
		p := anyDimensionTerms(rng)
		for range 4 {
			usage := anyDimensionUsage(rng, p)
			want, got := referenceByDimension(p, usage), rational(p.ChargeIn(p.Currency, measured(usage)))
			if want.Cmp(got) != 0 {
				t.Fatalf("seed %d: %v cost %s instead of %s at %s", seed, usage, got.FloatString(3), want.FloatString(3), p.JSON())
			}
		}
	}
}

// TestPropertyEachUnitIsChargedOnceOrUnrated checks that each unit is charged by one rate or is unrated. It also checks
// that First returns the requested number of units.
func TestPropertyEachUnitIsChargedOnceOrUnrated(t *testing.T) {
	t.Parallel()
	for seed := range 500 * uint64(histories.Count()) {
		rng := rand.New(rand.NewPCG(seed, 13))
		p := anyDimensionTerms(rng)
		of := measured(anyDimensionUsage(rng, p))
		charged := p.Charge(of)
		var sum billing.Measured
		add := func(usage []billing.DimensionUsage) {
			for _, u := range usage {
				sum.Units, sum.Events = sum.Units.Add(u.Units), sum.Events+u.Events
			}
		}
		for _, r := range charged.Rates {
			add(r.Dimensions)
		}
		add(charged.Unrated)
		require.Equal(t, of.Units.String(), sum.Units.String(), "seed %d", seed)
		require.Equal(t, of.Events, sum.Events, "seed %d", seed)
		all, some := p.First(of, of.Units), p.First(of, of.Units.Mul(metering.MustDecimal("0.5")))
		require.Equal(t, of.Units.String(), unitsOf(all.Dimensions).String(), "seed %d", seed)
		if !slices.ContainsFunc(of.Dimensions, func(u billing.DimensionUsage) bool { return u.Units.IsNegative() }) {
			require.Equal(t, some.Units.String(), unitsOf(some.Dimensions).String(), "seed %d", seed)
		}
	}
}

func unitsOf(usage []billing.DimensionUsage) (units metering.Decimal) {
	for _, u := range usage {
		units = units.Add(u.Units)
	}
	return units
}
