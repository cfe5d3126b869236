package billing_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// byModel returns terms with a price for model large, and one for small and tiny. otherwise is the JSON of the default
// rate; null: there is no default.
func byModel(t *testing.T, otherwise string) billing.Terms {
	t.Helper()
	return dimensionTerms(t, "", `{"by":["model"],"default":`+otherwise+`,"prices":[{"match":{"model":["large"]},"overage_rate":10},{"match":{"model":["small","tiny"]},"overage_rate":1}]}`)
}

// byGroup returns usage with a key of dimension values.
func byGroup(key, units string, events int64) billing.DimensionUsage {
	u := billing.DimensionUsage{Units: metering.MustDecimal(units), Events: events}
	if key != "" {
		u.Key = json.RawMessage(`{"model":"` + key + `"}`)
	}
	return u
}

// Terms in words name each price with the values that it matches, and the default for all other usage.
func TestTermsStringDescribesPricesByDimension(t *testing.T) {
	t.Parallel()
	for otherwise, want := range map[string]string{
		"null": `by dimension (model "large": 10 USD for each unit | model "small" or "tiny": 1 USD for each unit | otherwise: no price)`,
		`{"model":"package","package_size":10,"package_price":3}`: `by dimension (model "large": 10 USD for each unit | model "small" or "tiny": 1 USD for each unit | ` +
			`otherwise: 3 USD for each 10 units; an incomplete package counts as one)`,
	} {
		require.Equal(t, want, byModel(t, otherwise).String())
	}
	single := billing.Terms{Model: billing.ModelPerUnit, UnitPrice: metering.Whole(2), PerUnits: 1, Currency: "USD"}
	require.Equal(t, "2 USD for each unit", single.String())
	both := dimensionTerms(t, `,"base_price":10,"minimum_charge":12,"maximum_charge":50`,
		`{"by":["region","model"],"prices":[{"match":{"region":["eu",null],"model":["a"]},"included_units":5,"overage_rate":1}]}`)
	require.Equal(t, `10 USD for the period, by dimension (model "a" and region "eu" or null: 5 units included, 1 USD for each unit | otherwise: no price), at least 12 USD, at most 50 USD`, both.String())
}

// A price by dimension rates usage that it matches, and its default rates other usage. Neither rates usage with unknown
// values.
func TestPriceByDimensionRatesMatchedAndDefaultUsage(t *testing.T) {
	t.Parallel()
	without, with, single := byModel(t, "null"), byModel(t, `{"overage_rate":2}`), billing.Terms{Currency: "USD"}
	for key, want := range map[string]struct{ without, with bool }{
		`{"model":"large"}`:               {true, true},
		`{"model":"tiny","region":"eu"}`:  {true, true},
		`{"model":"other"}`:               {false, true},
		`{"model":null}`:                  {false, true},
		`{"region":"eu"}`:                 {false, false},
		``:                                {false, false},
		`{"model":"large","model":"odd"}`: {false, true},
	} {
		require.Equal(t, want.without, without.Rates([]byte(key)), key)
		require.Equal(t, want.with, with.Rates([]byte(key)), key)
		require.True(t, single.Rates([]byte(key)), key)
	}
	units, events := without.UnratedUsage([]billing.DimensionUsage{byGroup("large", "1", 1), byGroup("other", "2", 3), byGroup("", "4", 5)})
	require.Equal(t, "6", units.String())
	require.Equal(t, int64(8), events)
}

// A closed line's late usage by dimension is taken from the booking if retention has deleted some of the late events.
func TestBookedLateUsageKeepsItsDimensions(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "5", "9")
	line := &closed.Closed[0]
	line.Events, line.Terms = 5, dimensionTerms(t, "", `{"by":["model"],"prices":[`+
		`{"match":{"model":["large"]},"model":"percentage","percent":100,"fixed_fee":2},{"match":{"model":["small"]},"overage_rate":1}]}`)
	line.Dimensions = []billing.DimensionUsage{byGroup("large", "2", 2), byGroup("small", "3", 3)}
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closed, billing.Period{Range: february}))
	f.Booked = []billing.Booked{{
		Period: january.Start, MeterID: 1, Events: 8, Units: metering.Whole(9), Charge: metering.Whole(17),
		Dimensions: []billing.DimensionUsage{byGroup("large", "5", 4), byGroup("small", "4", 4)},
	}}
	f.Usage = []billing.Usage{usedLate(january, "6", "1")} // retention has deleted the other late events
	l, _ := billing.NewBooks(f).StatementOf(closed).Line(1)
	require.Equal(t, []string{"4", "8"}, []string{l.LateUsage.String(), l.LateCharge.String()})
}

// AddDimensions adds usage by key, and drops a key with neither units nor events.
func TestAddDimensions(t *testing.T) {
	t.Parallel()
	a := []billing.DimensionUsage{byGroup("a", "1", 1), byGroup("c", "3", 1)}
	b := []billing.DimensionUsage{byGroup("c", "-3", -1), byGroup("a", "-1", 1), byGroup("b", "2", 1), byGroup("", "5", 1)}
	sum := billing.AddDimensions(a, b)
	require.True(t, slices.EqualFunc(sum, []billing.DimensionUsage{byGroup("", "5", 1), byGroup("a", "0", 2), byGroup("b", "2", 1)}, billing.DimensionUsage.Equal), "%v", sum)
}

// First returns the units of the first price, then those of the second. Unrated units are last.
func TestFirstReturnsUnitsInOrderOfPrices(t *testing.T) {
	t.Parallel()
	of := billing.Measured{Units: metering.Whole(6), Events: 6, Dimensions: []billing.DimensionUsage{byGroup("large", "3", 3), byGroup("other", "2", 2), byGroup("small", "1", 1)}}
	for units, want := range map[int64][]string{0: {"0", "0", "0"}, 2: {"2", "0", "0"}, 4: {"3", "1", "0"}, 5: {"3", "1", "1"}, 6: {"3", "1", "2"}} {
		first := byModel(t, "null").First(of, metering.Whole(units))
		var got []string
		for _, u := range first.Dimensions {
			require.Zero(t, u.Events)
			got = append(got, u.Units.String())
		}
		require.Equal(t, want, got, units)
	}
}

// Stored usage is decoded with a canonical key.
func TestDimensionUsageIsDecodedAsStored(t *testing.T) {
	t.Parallel()
	var u billing.DimensionUsage
	require.NoError(t, json.Unmarshal([]byte(`{"dimension":{"model": "a"},"units":2,"events":3}`), &u))
	same := byGroup("a", "2", 3)
	require.True(t, u.Equal(same), "%s", u.Key)
	for _, other := range []billing.DimensionUsage{byGroup("b", "2", 3), byGroup("a", "1", 3), byGroup("a", "2", 4), byGroup("b", "1", 3)} {
		require.False(t, u.Equal(other), "%s", other.Key)
	}
	require.Error(t, json.Unmarshal([]byte(`{"dimension":{"model":"a"},"units":"two"}`), &u))

	// A sum of units has no bound, unlike the units of one event.
	large := billing.DimensionUsage{Units: metering.MustDecimal("999999999999999999.5").Add(metering.MustDecimal("123456789012345678.25")), Events: 2}
	for _, of := range []billing.DimensionUsage{large, {Units: metering.Decimal{}.Sub(large.Units), Events: -2}} {
		text, err := json.Marshal(of)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &u))
		require.True(t, u.Equal(of), "%s is read as %s", text, u.Units)
	}
}

// ByDimension returns the properties of all prices that can charge usage: all versions, the customer's own prices, and
// the terms of closed periods.
func TestByDimensionReturnsPropertiesOfAllPrices(t *testing.T) {
	t.Parallel()
	by := func(properties ...string) billing.Terms {
		return billing.Terms{Dimensions: &billing.Dimensions{By: properties}}
	}
	f := knownOf(february.Start, closedAt(january, "5", "23"))
	require.Empty(t, f.ByDimension())
	f.Stored[0].Closed[0].Terms = by("zone")
	f.Prices[1] = append(f.Prices[1], billing.Price{MeterID: 1, Version: 2, Terms: by("region", "model")})
	f.Customer.Prices = []billing.Price{{MeterID: 2, Terms: by("model")}, {MeterID: 1, Terms: by("model", "tier")}}
	require.Equal(t, billing.ByDimension{1: {"model", "region", "tier", "zone"}, 2: {"model"}}, f.ByDimension())
}

// A breakdown has a step for each of the 100 groups with the most units, and one for the others.
func TestBreakdownLists100DimensionsAndOneForOthers(t *testing.T) {
	t.Parallel()
	for groups, want := range map[int]struct {
		steps int
		last  string
	}{100: {100, "1"}, 101: {101, "1"}, 103: {101, "6"}} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), billing.Period{Range: february}))
		f.Prices[1][0].Terms = byModel(t, `{"overage_rate":1}`)
		usage := billing.Usage{Period: february.Start, MeterID: 1}
		for n := range groups {
			usage.Dimensions = append(usage.Dimensions, byGroup(fmt.Sprintf("model-%03d", n), strconv.Itoa(n+1), 1))
		}
		f.Usage = []billing.Usage{usage}
		charge := stepNamed(billing.NewBooks(f).Explain(billing.Period{Range: february}, 1), billing.StepDefaultCharge)
		parts := charge.Of[0].Of
		require.Len(t, parts, want.steps)
		require.Equal(t, want.last, parts[len(parts)-1].Amount.String(), groups)
		require.Equal(t, `{"model":"model-`+fmt.Sprintf("%03d", groups-100)+`"}`, string(parts[99].Dimension))
		require.Equal(t, groups > 100, parts[len(parts)-1].Dimension == nil)
	}
}

// Usage is subtracted in total and by dimension values. Values with no units and events left are omitted.
func TestUsageIsSubtractedByDimension(t *testing.T) {
	t.Parallel()
	used := func(units, events int64, by ...billing.DimensionUsage) billing.Measured {
		return billing.Measured{Units: metering.Whole(units), Events: events, Dimensions: by}
	}
	of := func(model string, units, events int64) billing.DimensionUsage {
		return billing.DimensionUsage{Key: []byte(`{"model":"` + model + `"}`), Units: metering.Whole(units), Events: events}
	}
	subtracted := used(5, 3, of("large", 1, 1), of("small", 4, 2))
	left := used(12, 7, of("large", 8, 5), of("small", 4, 2)).Sub(subtracted)
	require.Equal(t, "7 4", left.Units.String()+" "+strconv.FormatInt(left.Events, 10))
	require.True(t, slices.EqualFunc(left.Dimensions, []billing.DimensionUsage{of("large", 7, 4)}, billing.DimensionUsage.Equal), "%v", left.Dimensions)
	require.Equal(t, int64(1), subtracted.Dimensions[0].Events, "the subtrahend is unchanged")
}
