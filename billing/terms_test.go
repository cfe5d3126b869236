package billing_test

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// TestTermsAreNamedByWhatTheySay holds the form that is kept for ever: a change
// of it is another schema.
func TestTermsAreNamedByWhatTheySay(t *testing.T) {
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
