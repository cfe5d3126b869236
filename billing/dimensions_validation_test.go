package billing_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A price that an earlier price covers never applies, and is refused. A price with fewer properties than an earlier
// one, or with another value, is accepted.
func TestPriceCoveredByEarlierPriceIsRefused(t *testing.T) {
	t.Parallel()
	const covered = "would never apply"
	for matches, want := range map[string]string{
		`{"model":["a","b"]};{"model":["b"]}`:                              covered,
		`{"model":["a"]};{"model":["a"],"region":["eu"]}`:                  covered,
		`{"model":["c"]};{"model":["a"]};{"model":["a"]}`:                  covered,
		`{"model":["a"]};{"model":["a","b"]}`:                              "",
		`{"model":["a"],"region":["eu"]};{"model":["a"]}`:                  "",
		`{"model":["a"],"region":["eu"]};{"model":["a"],"region":["us"]}`:  "",
		`{"region":["eu"]};{"model":["a"]}`:                                "",
		`{"model":["1"]};{"model":[1]}`:                                    "",
		`{"model":["` + strings.Repeat("x", 1022) + `"]}`:                  "",
		`{"model":["` + strings.Repeat("x", 1023) + `"]}`:                  "must be at most 1024 bytes",
		`{"model":["a"]};{"region":["eu"]};{"model":["a"],"region":["*"]}`: covered,
	} {
		var prices []string
		for match := range strings.SplitSeq(matches, ";") {
			prices = append(prices, `{"match":`+match+`,"overage_rate":1}`)
		}
		var terms billing.Terms
		require.NoError(t, json.Unmarshal([]byte(`{"currency":"USD","dimensions":{"by":["model","region"],"prices":[`+strings.Join(prices, ",")+`]}}`), &terms))
		if want == "" {
			require.NoError(t, terms.Validate(), matches)
			continue
		}
		require.ErrorContains(t, terms.Validate(), want, matches)
	}
}

// dimensionTerms decodes terms from the JSON of their dimensions. beside is the JSON of further fields.
func dimensionTerms(t *testing.T, beside, dimensions string) (terms billing.Terms) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(`{"currency":"USD"`+beside+`,"dimensions":`+dimensions+`}`), &terms))
	return terms
}

// Each refusal names the field, the rule and the fix.
func TestInvalidDimensionsAreRefused(t *testing.T) {
	t.Parallel()
	const price = `{"match":{"model":["a"]},"overage_rate":1}`
	matching := func(match string) string { return `{"by":["model"],"prices":[{"match":` + match + `}]}` }
	many := func(n int, of func(n int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = of(i)
		}
		return strings.Join(all, ",")
	}
	prices := func(n int) string {
		return `{"by":["model"],"prices":[` + many(n, func(i int) string { return fmt.Sprintf(`{"match":{"model":[%d]}}`, i) }) + `]}`
	}
	values := func(n int) string {
		return matching(`{"model":[` + many(n, strconv.Itoa) + `]}`)
	}
	perUnits := func(a, b int64) string {
		rate := `"model":"per_unit","unit_price":1,"per_units":`
		return fmt.Sprintf(`{"by":["model"],"prices":[{"match":{"model":["a"]},%s%d}],"default":{%s%d}}`, rate, a, rate, b)
	}
	for _, c := range []struct{ dimensions, field, message string }{
		{`{"by":["model"],"prices":[` + price + `]}`, "", ""},
		{`{"by":[],"prices":[` + price + `]}`, "body.dimensions.by", "must contain 1 to 5 properties of the meter's group_by"},
		{`{"by":["a","b","c","d","model"],"prices":[` + price + `]}`, "", ""},
		{`{"by":["a","b","c","d","e","model"],"prices":[` + price + `]}`, "body.dimensions.by", "must contain 1 to 5 properties"},
		{`{"by":["model",""],"prices":[` + price + `]}`, "body.dimensions.by[1]", "is required"},
		{`{"by":["model","region","model"],"prices":[` + price + `]}`, "body.dimensions.by[2]", "repeats an earlier property"},
		{`{"by":["model"],"prices":[]}`, "body.dimensions.prices", "must contain 1 to 100 prices"},
		{prices(100), "", ""},
		{prices(101), "body.dimensions.prices", "must contain 1 to 100 prices"},
		{matching(`{}`), "body.dimensions.prices[0].match", "must name values of at least one property"},
		{matching(`{"region":["eu"]}`), "body.dimensions.prices[0].match", "which are model; add region there"},
		{matching(`{"model":[]}`), "body.dimensions.prices[0].match.model", "must contain 1 to 100 values"},
		{values(100), "", ""},
		{values(101), "body.dimensions.prices[0].match.model", "must contain 1 to 100 values"},
		{matching(`{"model":["a","b","a"]}`), "body.dimensions.prices[0].match.model[2]", "repeats an earlier value"},
		{matching(`{"model":["a","\u0000"]}`), "body.dimensions.prices[0].match.model[1]", "must be a string without NUL"},
		{`{"by":["model"],"prices":[{"match":{"model":["a"]},"overage_rate":-1}]}`, "body.dimensions.prices[0].overage_rate", "must not be negative"},
		{`{"by":["model"],"prices":[` + price + `],"default":{"model":"package","package_size":0}}`, "body.dimensions.default.package_size", "must be a whole number"},
		{perUnits(1_000_000_000_000, 1_000_000_000_000), "", ""},
		{perUnits(1_000_000_000_000, 3), "body.dimensions", "must have per_units with a least common multiple of at most 1000000000000"},
	} {
		requireRefused(t, dimensionTerms(t, "", c.dimensions), c.field, c.message)
	}
}

// With dimensions, terms must not have fields of a rate. The fields of the whole charge are accepted: base_price,
// minimum_charge and maximum_charge.
func TestRateFieldsBesideDimensionsAreRefused(t *testing.T) {
	t.Parallel()
	const dimensions = `{"by":["model"],"prices":[{"match":{"model":["a"]}}]}`
	for field, value := range map[string]string{
		"model": `"per_unit"`, "included_units": "1", "overage_rate": "1", "unit_price": "1", "per_units": "10", "tiers": `[{"up_to":null,"unit_price":1}]`,
		"package_size": "1", "package_price": "1", "percent": "1", "fixed_fee": "1",
	} {
		err := dimensionTerms(t, `,"`+field+`":`+value, dimensions).Validate()
		require.Error(t, err, field)
		requireRefused(t, dimensionTerms(t, `,"`+field+`":`+value, dimensions), "body."+field, "")
	}
	require.NoError(t, dimensionTerms(t, `,"base_price":1,"minimum_charge":2,"maximum_charge":3`, dimensions).Validate())
}

// requireRefused requires that Validate refuses the terms with an error for the field. If field is empty, the terms
// must be valid.
func requireRefused(t *testing.T, terms billing.Terms, field, message string) {
	t.Helper()
	err := terms.Validate()
	if field == "" {
		require.NoError(t, err, string(terms.JSON()))
		return
	}
	var refused *metering.Error
	require.ErrorAs(t, err, &refused, string(terms.JSON()))
	require.Equal(t, field, refused.Fields[0].Location)
	require.Contains(t, refused.Fields[0].Message, message)
}

// TestPriceHasAtMost65536Bytes checks that a price can have the maximum number of prices by dimension, of
// properties, of tiers and of values, but not all of them at once. A tenant's prices are read together.
func TestPriceHasAtMost65536Bytes(t *testing.T) {
	t.Parallel()
	values := func(n int) (all []metering.Scalar) {
		for i := range n {
			all = append(all, metering.ParseScalar(fmt.Appendf(nil, `"a-value-of-36-characters-%011d"`, i)))
		}
		return all
	}
	tiers := func(n int) (all []billing.Tier) {
		for i := range n {
			all = append(all, billing.Tier{UpTo: new(metering.Whole(int64(i + 1))), UnitPrice: metering.MustDecimal("0.000123456789"), FlatFee: metering.MustDecimal("12345.67")})
		}
		all[n-1].UpTo = nil
		return all
	}
	priced := func(prices, properties, ofEach, tierCount int) billing.Terms {
		d := &billing.Dimensions{By: []string{"a", "b", "c", "d", "e"}}
		all := values(prices * ofEach)
		for i := range prices {
			p := billing.DimensionPrice{Match: make(map[string][]metering.Scalar), Rate: billing.Rate{Model: billing.ModelGraduated, Tiers: tiers(tierCount)}}
			for _, property := range d.By[:properties] {
				p.Match[property] = all[i*ofEach : (i+1)*ofEach]
			}
			d.Prices = append(d.Prices, p)
		}
		return billing.Terms{Currency: "USD", Dimensions: d}
	}
	for name, terms := range map[string]billing.Terms{
		"prices and properties": priced(billing.MaxDimensionPrices, metering.MaxGroupByKeys, 1, 1),
		"prices and values":     priced(billing.MaxDimensionPrices, 1, 10, 1),
		"values":                priced(3, metering.MaxGroupByKeys, billing.MaxMatchValues, 1),
		"tiers":                 priced(5, 1, 1, billing.MaxTiers),
	} {
		require.NoError(t, terms.Validate(), name)
	}
	err := priced(billing.MaxDimensionPrices, 1, 1, billing.MaxTiers).Validate()
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.ErrorContains(t, err, "at most 65536 are allowed; use fewer or shorter prices, tiers and values, or several meters")
}
