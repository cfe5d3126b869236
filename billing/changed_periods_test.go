package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A price change, or a recount of a meter, changes the open period if it can change the charge for some usage.
func TestChangedPeriodsReturnsPeriodIfChargeCanChange(t *testing.T) {
	t.Parallel()
	one := metering.Whole(1)
	with := func(change func(*billing.Terms)) billing.Terms {
		terms := billing.Terms{Currency: "USD"}
		change(&terms)
		return terms
	}
	tier := func(tier billing.Tier) billing.Terms {
		return with(func(t *billing.Terms) { t.Model, t.Tiers = billing.ModelGraduated, []billing.Tier{tier} })
	}
	byDimension := func(rate string) billing.Terms {
		return dimensionTerms(t, "", `{"by":["model"],"prices":[{"match":{"model":["a"]},"overage_rate":`+rate+`}]}`)
	}
	free, base := with(func(*billing.Terms) {}), with(func(t *billing.Terms) { t.BasePrice = metering.Whole(5) })
	overage := with(func(t *billing.Terms) { t.OverageRate = one })
	for name, c := range map[string]struct {
		before, after billing.Terms
		recounted     metering.MeterID
		want          bool
	}{
		"BothAreFree":             {free, with(func(t *billing.Terms) { t.IncludedUnits = one }), 0, false},
		"AFreeModel":              {free, with(func(t *billing.Terms) { t.Model, t.PerUnits = billing.ModelPerUnit, 10 }), 0, false},
		"AFreeTier":               {free, tier(billing.Tier{}), 0, false},
		"AFreeDimension":          {free, byDimension("0"), 0, false},
		"ABasePrice":              {free, base, 0, true},
		"AMinimum":                {free, with(func(t *billing.Terms) { t.MinimumCharge = one }), 0, true},
		"AnOverageRate":           {free, overage, 0, true},
		"AUnitPrice":              {free, with(func(t *billing.Terms) { t.Model, t.UnitPrice = billing.ModelPerUnit, one }), 0, true},
		"APackagePrice":           {free, with(func(t *billing.Terms) { t.Model, t.PackageSize, t.PackagePrice = billing.ModelPackage, 5, one }), 0, true},
		"APercentage":             {free, with(func(t *billing.Terms) { t.Model, t.Percent = billing.ModelPercentage, one }), 0, true},
		"AFixedFee":               {free, with(func(t *billing.Terms) { t.Model, t.FixedFee = billing.ModelPercentage, one }), 0, true},
		"ATiersPrice":             {free, tier(billing.Tier{UnitPrice: one}), 0, true},
		"ATiersFlatFee":           {free, tier(billing.Tier{FlatFee: one}), 0, true},
		"ADimension":              {free, byDimension("1"), 0, true},
		"AnotherDimensionsPrice":  {byDimension("2"), byDimension("1"), 0, true},
		"TheSameBasePrice":        {base, with(func(t *billing.Terms) { t.BasePrice, t.IncludedUnits = metering.Whole(5), one }), 0, false},
		"TheSameMinimum":          {base, with(func(t *billing.Terms) { t.BasePrice, t.MinimumCharge = one, metering.Whole(5) }), 0, false},
		"ALowerBasePrice":         {base, with(func(t *billing.Terms) { t.BasePrice = one }), 0, true},
		"TheMeterIsCountedAnew":   {overage, overage, 1, true},
		"AnotherMeterIs":          {overage, overage, 2, false},
		"CountedAnewAtABasePrice": {base, base, 1, false},
	} {
		priced := func(terms billing.Terms) billing.Facts {
			f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), billing.Period{Range: february}))
			f.Prices[1][0].Terms = terms
			return f
		}
		changed := billing.ChangedPeriods(priced(c.before), priced(c.after), c.recounted)
		require.Equal(t, c.want, len(changed) == 1, name)
	}
}
