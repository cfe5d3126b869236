package billing_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// TestTermsHaveStableJSONAndHash checks the JSON form of terms and its hash. Stored terms keep this form for ever, so
// a changed form needs a new schema number.
func TestTermsHaveStableJSONAndHash(t *testing.T) {
	t.Parallel()
	terms := billing.Terms{BasePrice: metering.MustDecimal("20.00"), IncludedUnits: metering.Whole(1000), OverageRate: metering.MustDecimal("0.020"), Currency: "USD"}
	const kept = `{"schema":1,"base_price":20,"included_units":1000,"overage_rate":0.02,"currency":"USD"}`
	if got := string(terms.JSON()); got != kept {
		t.Errorf("terms are kept as %s instead of %s", got, kept)
	}
	hash := terms.Hash()
	const name = "90104338e734ab4740bf5290e0bb478bca4d4e98a3a943172382e0924763f170"
	if got := hex.EncodeToString(hash[:]); got != name {
		t.Errorf("they are named %s instead of %s", got, name)
	}
	var read billing.Terms
	if err := json.Unmarshal(terms.JSON(), &read); err != nil {
		t.Fatal(err)
	}
	if read.Hash() != hash {
		t.Errorf("read again they are %s", read.JSON())
	}
	terms.Model, terms.PerUnits, terms.MaximumCharge = billing.ModelGraduated, 1000, metering.Whole(9)
	terms.Tiers = []billing.Tier{upTo("10", "1.50", "2"), upTo("", "1", "0")}
	const modelled = `{"schema":1,"base_price":20,"included_units":1000,"overage_rate":0.02,"currency":"USD","model":"graduated","per_units":1000,` +
		`"tiers":[{"up_to":10,"unit_price":1.5,"flat_fee":2},{"up_to":null,"unit_price":1}],"maximum_charge":9}`
	if got := string(terms.JSON()); got != modelled {
		t.Errorf("terms of a model are kept as %s instead of %s", got, modelled)
	}
	for _, other := range []billing.Terms{
		terms,
		{BasePrice: metering.MustDecimal("20.01"), IncludedUnits: terms.IncludedUnits, OverageRate: terms.OverageRate, Currency: "USD"},
		{BasePrice: terms.BasePrice, IncludedUnits: metering.Whole(1001), OverageRate: terms.OverageRate, Currency: "USD"},
		{BasePrice: terms.BasePrice, IncludedUnits: terms.IncludedUnits, OverageRate: metering.MustDecimal("0.03"), Currency: "USD"},
		{BasePrice: terms.BasePrice, IncludedUnits: terms.IncludedUnits, OverageRate: terms.OverageRate, Currency: "EUR"},
	} {
		if other.Hash() == hash {
			t.Errorf("%s has the same name", other.JSON())
		}
	}
}

func TestTermsStringAbbreviatesLongLists(t *testing.T) {
	t.Parallel()
	var tiers []billing.Tier
	for n := range billing.MaxTiers {
		tier := billing.Tier{UnitPrice: metering.Whole(int64(n)), FlatFee: metering.MustDecimal("123456789012.123456789012")}
		if n < billing.MaxTiers-1 {
			tier.UpTo = new(metering.Whole(int64(n + 1)))
		}
		tiers = append(tiers, tier)
	}
	terms := billing.Terms{Currency: "USD", Model: billing.ModelGraduated, Tiers: tiers[94:]}
	require.NotContains(t, terms.String(), "more", "five tiers and the last one are listed")
	terms.Tiers = tiers
	for n := range terms.Tiers {
		terms.Tiers[n].FlatFee = metering.Decimal{}
	}
	require.Equal(t, "tier by tier: up to 1 units: 0 USD for each unit; up to 2 units: 1 USD for each unit; up to 3 units: 2 USD for each unit; "+
		"up to 4 units: 3 USD for each unit; 95 more tiers; beyond: 99 USD for each unit", terms.String())

	d := &billing.Dimensions{By: []string{"a", "b", "c", "d", strings.Repeat("e", 255)}}
	for n := range billing.MaxDimensionPrices {
		match := make(map[string][]metering.Scalar)
		for _, property := range d.By {
			for m := range billing.MaxMatchValues {
				match[property] = append(match[property], metering.ParseScalar([]byte(fmt.Sprintf("%q", fmt.Sprintf("%d-%d-%s", n, m, strings.Repeat("é", 400))))))
			}
		}
		d.Prices = append(d.Prices, billing.DimensionPrice{Match: match, Rate: billing.RateOf(terms)})
	}
	whole := billing.Terms{Currency: "USD", Dimensions: d}
	require.ErrorContains(t, whole.Validate(), "at most 65536 are allowed")
	require.Less(t, len(whole.String()), 10_000)
	require.Contains(t, whole.String(), " or 96 more values and b ")
	require.True(t, strings.HasSuffix(whole.String(), "beyond: 99 USD for each unit | 96 more prices | otherwise: no price)"), whole.String()[len(whole.String())-200:])
}

// A name of 40 characters is shown whole. A longer name is cut after 40 characters.
func TestDescriptionShortensLongNames(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]string{strings.Repeat("é", 40): strings.Repeat("é", 40), strings.Repeat("é", 41): strings.Repeat("é", 40) + "…"} {
		match := map[string][]metering.Scalar{name: {metering.ParseScalar([]byte(`"a"`))}}
		d := &billing.Dimensions{By: []string{name}, Prices: []billing.DimensionPrice{{Match: match, Rate: billing.RateOf(billing.Terms{Currency: "USD", OverageRate: metering.Whole(1)})}}}
		require.Contains(t, billing.Terms{Currency: "USD", Dimensions: d}.String(), shown+` "a":`)
	}
}

// Terms can have MaxTermsBytes bytes as JSON, and no more.
func TestTermsHaveAtMostTheirBytes(t *testing.T) {
	t.Parallel()
	with := func(bytes int) billing.Terms {
		d := &billing.Dimensions{By: []string{"a"}}
		for n := range 75 {
			value := fmt.Sprintf("%q", fmt.Sprintf("%03d-", n)+strings.Repeat("x", 835))
			if n == 74 {
				value = fmt.Sprintf("%q", "074-"+strings.Repeat("x", bytes))
			}
			d.Prices = append(d.Prices, billing.DimensionPrice{
				Match: map[string][]metering.Scalar{"a": {metering.ParseScalar([]byte(value))}},
				Rate:  billing.RateOf(billing.Terms{Currency: "USD", OverageRate: metering.Whole(1)}),
			})
		}
		return billing.Terms{Currency: "USD", Dimensions: d}
	}
	rest := billing.MaxTermsBytes - len(with(0).JSON())
	require.Len(t, with(rest).JSON(), billing.MaxTermsBytes)
	require.NoError(t, with(rest).Validate())
	require.ErrorContains(t, with(rest+1).Validate(), "the price has 65537 bytes as JSON, and at most 65536 are allowed")
}
