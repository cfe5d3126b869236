package billing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// upTo returns a tier. bound "" stands for the last tier, without a bound.
func upTo(bound, unitPrice, flatFee string) billing.Tier {
	tier := billing.Tier{UnitPrice: metering.MustDecimal(unitPrice), FlatFee: metering.MustDecimal(flatFee)}
	if bound != "" {
		tier.UpTo = new(metering.MustDecimal(bound))
	}
	return tier
}

func TestChargesOfEachModel(t *testing.T) {
	t.Parallel()
	d := metering.MustDecimal
	tiers := []billing.Tier{upTo("100", "1", "5"), upTo("1000", "0.5", "7"), upTo("", "0.1", "0")}
	perUnit := billing.Terms{Model: billing.ModelPerUnit, UnitPrice: d("2"), PerUnits: 1_000_000, Currency: "USD"}
	graduated := billing.Terms{Model: billing.ModelGraduated, Tiers: tiers, Currency: "USD"}
	volume := billing.Terms{Model: billing.ModelVolume, Tiers: tiers, Currency: "USD"}
	packages := billing.Terms{Model: billing.ModelPackage, PackageSize: 60, PackagePrice: d("3"), Currency: "JPY"}
	percentage := billing.Terms{Model: billing.ModelPercentage, Percent: d("2.9"), FixedFee: d("0.3"), Currency: "USD"}
	with := func(t billing.Terms, change func(*billing.Terms)) billing.Terms {
		change(&t)
		return t
	}
	thirds := with(perUnit, func(t *billing.Terms) { t.UnitPrice, t.PerUnits = d("1"), 3 })
	for name, c := range map[string]struct {
		terms                   billing.Terms
		usage                   string
		events                  int64
		exact, charge, unitRate string
	}{
		"TwoForAMillion":                {perUnit, "1234567", 1, "2.469134", "2.47", "0.000002"},
		"AThirdEach":                    {thirds, "1", 1, "0.3333333333333333", "0.33", "0.333333333333"},
		"AHalfThatIsNoHalf":             {with(thirds, func(t *billing.Terms) { t.UnitPrice, t.BasePrice = d("0.015000000001"), d("0.01") }), "1", 1, "0.0150000000003333", "0.02", "0.005"},
		"AllIncluded":                   {with(perUnit, func(t *billing.Terms) { t.IncludedUnits, t.BasePrice = d("5"), d("9") }), "5", 1, "9", "9", "0"},
		"GraduatedNothing":              {graduated, "0", 0, "5", "5", "0"},
		"GraduatedBelowNothing":         {graduated, "-3", 1, "5", "5", "0"},
		"GraduatedLastOfATier":          {graduated, "100", 1, "105", "105", "1"},
		"GraduatedBeyondATier":          {graduated, "100.01", 1, "112.005", "112", "0.5"},
		"GraduatedAllTiers":             {graduated, "1010", 1, "563", "563", "0.1"},
		"GraduatedBeyondIncluded":       {with(graduated, func(t *billing.Terms) { t.IncludedUnits = d("10") }), "110", 1, "105", "105", "1"},
		"GraduatedPerThousand":          {with(graduated, func(t *billing.Terms) { t.PerUnits = 1000 }), "1010", 1, "12.551", "12.55", "0.0001"},
		"VolumeNothing":                 {volume, "0", 0, "5", "5", "0"},
		"VolumeLastOfATier":             {volume, "100", 1, "105", "105", "1"},
		"VolumeBeyondATierCostsLess":    {volume, "101", 1, "57.5", "57.5", "0.5"},
		"VolumeWithoutAFlatFee":         {volume, "1001", 1, "100.1", "100.1", "0.1"},
		"NoPackage":                     {packages, "0", 0, "0", "0", "0"},
		"AStartedPackage":               {packages, "60.000000000001", 1, "6", "6", "3"},
		"AFullPackage":                  {packages, "60", 1, "3", "3", "3"},
		"PercentAndAFeeForEachEvent":    {percentage, "100", 4, "4.1", "4.1", "0.029"},
		"AFeeWithoutAnAmount":           {percentage, "0", 4, "1.2", "1.2", "0"},
		"VoidedEventsPayNoFee":          {percentage, "0", -4, "0", "0", "0"},
		"AtLeast":                       {with(perUnit, func(t *billing.Terms) { t.MinimumCharge = d("10") }), "1000000", 1, "10", "10", "0.000002"},
		"AtMost":                        {with(perUnit, func(t *billing.Terms) { t.MaximumCharge = d("10") }), "6000000", 1, "10", "10", "0.000002"},
		"TheBaseCountsForTheMinimum":    {with(perUnit, func(t *billing.Terms) { t.MinimumCharge, t.BasePrice = d("10"), d("9") }), "1000000", 1, "11", "11", "0.000002"},
		"TheShortFormTakesBoundsAsWell": {billing.Terms{OverageRate: d("1"), MinimumCharge: d("3"), MaximumCharge: d("4"), Currency: "USD"}, "5", 1, "4", "4", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.terms.Validate())
			got := c.terms.Charge(billing.Measured{Units: d(c.usage), Events: c.events})
			require.Equal(t, c.exact, got.Exact.Round(16).String())
			require.Equal(t, c.charge, c.terms.ChargeIn(c.terms.Currency, billing.Measured{Units: d(c.usage), Events: c.events}).String())
			require.Equal(t, c.unitRate, c.terms.UnitPriceAt(d(c.usage)).String())
		})
	}
}

// TestTheBreakdownOfEachModel checks the steps of the breakdown from the included units to the exact charge.
func TestTheBreakdownOfEachModel(t *testing.T) {
	t.Parallel()
	d := metering.MustDecimal
	tiers := []billing.Tier{upTo("100", "1", "5"), upTo("", "0.5", "7")}
	for want, terms := range map[string]billing.Terms{
		"included_units 20 units, charged_units 200 units, unit_price 2 USD, unit_charges 400 USD, per_units 1000 units, usage_charge 0.4 USD, base_price 1 USD, exact_charge 1.4 USD": {
			Model: billing.ModelPerUnit, UnitPrice: d("2"), PerUnits: 1000, IncludedUnits: d("20"), BasePrice: d("1"),
		},
		"included_units 0 units, charged_units 220 units, unit_charges 160 USD [tier 100 USD [tier_units 100 units, tier_unit_price 1 USD], tier 60 USD [tier_units 120 units, tier_unit_price 0.5 USD]], " +
			"flat_fees 12 USD [tier_flat_fee 5 USD, tier_flat_fee 7 USD], usage_charge 172 USD, base_price 0 USD, exact_charge 172 USD": {Model: billing.ModelGraduated, Tiers: tiers},
		"included_units 0 units, charged_units 220 units, unit_charges 110 USD [tier 110 USD [tier_units 220 units, tier_unit_price 0.5 USD]], " +
			"flat_fees 7 USD [tier_flat_fee 7 USD], usage_charge 117 USD, base_price 0 USD, exact_charge 117 USD": {Model: billing.ModelVolume, Tiers: tiers},
		"included_units 0 units, charged_units 220 units, package_size 50 units, packages 5 packages, package_price 3 USD, usage_charge 15 USD, base_price 0 USD, maximum_charge 12 USD, exact_charge 12 USD": {
			Model: billing.ModelPackage, PackageSize: 50, PackagePrice: d("3"), MaximumCharge: d("12"),
		},
		"included_units 0 units, charged_units 220 units, percent 2.9 percent, unit_charges 6.38 USD, fixed_fee 0.3 USD, fixed_fees 1.2 USD, usage_charge 7.58 USD, base_price 0 USD, minimum_charge 9 USD, exact_charge 9 USD": {
			Model: billing.ModelPercentage, Percent: d("2.9"), FixedFee: d("0.3"), MinimumCharge: d("9"),
		},
	} {
		terms.Currency = "USD"
		facts := billing.Facts{
			Now: february.Start, Customer: billing.Customer{CreatedAt: january.Start}, Settings: billing.Settings{Timezone: location(t, "UTC"), Currency: "USD"},
			Meters: []metering.Meter{{ID: 1, Slug: "calls", Version: metering.MeterVersion{Status: metering.Complete}}},
			Prices: map[metering.MeterID][]billing.Price{1: {{MeterID: 1, Version: 3, Terms: terms}}},
			Usage:  []billing.Usage{{Period: february.Start, MeterID: 1, Total: d("220"), Events: 4}},
		}
		steps := billing.NewBooks(facts).Preview()[0].Working
		require.Equal(t, want, nested(steps[1:len(steps)-1]))
		for _, s := range steps {
			require.NotEmpty(t, s.Sentence())
		}
	}
}

// nested returns the steps as text, each followed by its parts.
func nested(steps []billing.Step) string {
	lines := text(steps)
	for i, s := range steps {
		if len(s.Of) > 0 {
			lines[i] += " [" + nested(s.Of) + "]"
		}
	}
	return strings.Join(lines, ", ")
}

func TestAPriceModelIsValidated(t *testing.T) {
	t.Parallel()
	one, none := metering.Whole(1), metering.Whole(-1)
	graduated := func(tiers ...billing.Tier) billing.Terms {
		return billing.Terms{Model: billing.ModelGraduated, Tiers: tiers}
	}
	for want, terms := range map[string]billing.Terms{
		"body.model must be one of overage, per_unit, graduated, volume, package, percentage":                 {Model: "stairs"},
		"body.unit_price must be absent with the model overage; it belongs to the model per_unit":             {UnitPrice: one},
		"body.overage_rate must be absent with the model per_unit; it belongs to the model overage":           {Model: billing.ModelPerUnit, OverageRate: one},
		"body.per_units must be absent with the model overage; it belongs to the model per_unit, graduated":   {PerUnits: 10},
		"body.per_units must be a whole number from 1 to 1000000000000":                                       {Model: billing.ModelPerUnit, PerUnits: -1},
		"body.package_size must be a whole number from 1 to 1000000000000":                                    {Model: billing.ModelPackage},
		"body.package_size must be absent with the model overage; it belongs to the model package":            {PackageSize: 1},
		"body.tiers must contain 1 to 100 tiers with the model volume":                                        {Model: billing.ModelVolume},
		"body.tiers must be absent with the model overage; it belongs to the model graduated, volume":         {Tiers: []billing.Tier{{}}},
		"body.fixed_fee must be absent with the model package; it belongs to the model percentage":            {Model: billing.ModelPackage, PackageSize: 1, FixedFee: one},
		"body.percent must not be negative":                                                                   {Model: billing.ModelPercentage, Percent: none},
		"body.minimum_charge must not be negative":                                                            {MinimumCharge: none},
		"body.maximum_charge must not be less than minimum_charge, which is 2":                                {MinimumCharge: metering.Whole(2), MaximumCharge: one},
		"body.minimum_charge must have at most 2 decimals, because charges in USD are rounded to 2 decimals":  {MinimumCharge: metering.MustDecimal("10.004")},
		"body.maximum_charge must have at most 2 decimals, because charges in USD are rounded to 2 decimals":  {MaximumCharge: metering.MustDecimal("100.001")},
		"body.tiers[0].up_to must be a number in every tier except the last":                                  graduated(upTo("", "1", "0"), upTo("", "1", "0")),
		"body.tiers[0].up_to must be null in the last tier; add a tier with up_to null for larger quantities": graduated(upTo("5", "1", "0")),
		"body.tiers[0].up_to must be greater than 0":                                                          graduated(upTo("0", "1", "0"), upTo("", "1", "0")),
		"body.tiers[1].up_to must be greater than tiers[0].up_to, which is 5":                                 graduated(upTo("5", "1", "0"), upTo("5", "1", "0"), upTo("", "1", "0")),
		"body.tiers[0].unit_price must not be negative":                                                       graduated(upTo("", "-1", "0")),
		"body.tiers[0].flat_fee must not be negative":                                                         graduated(upTo("", "1", "-1")),
	} {
		terms.Currency = "USD"
		var err *metering.Error
		require.ErrorAs(t, terms.Validate(), &err, want)
		require.Contains(t, err.Fields[0].Location+" "+err.Fields[0].Message, want)
	}
	yen := billing.Terms{Currency: "JPY", OverageRate: one, MaximumCharge: metering.MustDecimal("100.6")}
	require.ErrorContains(t, yen.Validate(), "body.maximum_charge must have at most 0 decimals, because charges in JPY are rounded to 0 decimals")
	yen.MaximumCharge = metering.MustDecimal("100.0")
	require.NoError(t, yen.Validate())
}

func TestTermsStringDescribesPriceModels(t *testing.T) {
	t.Parallel()
	d := metering.MustDecimal
	for want, terms := range map[string]billing.Terms{
		"2 USD for each 1000000 units, at least 5 USD, at most 90 USD": {Model: billing.ModelPerUnit, UnitPrice: d("2"), PerUnits: 1_000_000, MinimumCharge: d("5"), MaximumCharge: d("90")},
		"tier by tier: up to 5 units: 1 USD and 0.5 USD for each unit; beyond: 2 USD for each unit": {
			Model: billing.ModelGraduated, Tiers: []billing.Tier{upTo("5", "0.5", "1"), upTo("", "2", "0")},
		},
		"all units at the price of the tier that they reach: beyond: 2 USD for each 10 units": {Model: billing.ModelVolume, PerUnits: 10, Tiers: []billing.Tier{upTo("", "2", "0")}},
		"3 USD for each 60 units; an incomplete package counts as one":                        {Model: billing.ModelPackage, PackageSize: 60, PackagePrice: d("3")},
		"2.9% of the usage":                            {Model: billing.ModelPercentage, Percent: d("2.9")},
		"2.9% of the usage and 0.3 USD for each event": {Model: billing.ModelPercentage, Percent: d("2.9"), FixedFee: d("0.3")},
	} {
		terms.Currency = "USD"
		require.Equal(t, want, terms.String())
	}
}
