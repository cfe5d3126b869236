package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
)

// eachModel contains terms of every price model. Each field occurs in at least one of them.
var eachModel = []string{
	`{"base_price":25,"included_units":1000,"overage_rate":0.02}`,
	`{"model":"per_unit","unit_price":2,"per_units":3000,"included_units":250}`,
	`{"model":"per_unit","unit_price":0,"base_price":3,"minimum_charge":4}`,
	`{"model":"package","package_size":500,"package_price":3,"maximum_charge":8}`,
	`{"model":"percentage","percent":2.9,"fixed_fee":0.3}`,
	`{"model":"graduated","tiers":[{"up_to":1000,"unit_price":0.01,"flat_fee":1},{"up_to":null,"unit_price":0.005,"flat_fee":2}]}`,
	`{"model":"volume","per_units":7,"tiers":[{"up_to":1000,"unit_price":0.01},{"up_to":null,"unit_price":0.004}]}`,
	`{"overage_rate":0.5,"currency":"JPY"}`,
}

// calculated returns the calculated charges for terms and a list of usages.
func (b *bundle) calculated(t *testing.T, terms, usage string) client.Calculation {
	t.Helper()
	a := b.send(t, "POST", "/v1/pricing/calculate", strings.TrimSuffix(terms, "}")+`,"usage":`+usage+`}`)
	require.Equal(t, 200, a.status, a.body)
	var c client.Calculation
	require.NoError(t, json.Unmarshal([]byte(a.body), &c))
	return c
}

// TestACalculatedChargeIsTheChargeOfTheSavedPrice calculates the charge of usage at given terms. It then sets a
// price with these terms and compares both breakdowns.
func TestACalculatedChargeIsTheChargeOfTheSavedPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	now := b.now().UTC().Format(time.RFC3339)
	b.at(t, now, "a", "1000")
	b.at(t, now, "b", "250.125")
	for n, terms := range eachModel {
		c := b.calculated(t, terms, `[{"quantity":1250.125,"event_count":2}]`)
		require.Len(t, b.pricing(t, "GET", "/v1/meters/calls/pricing", "").Versions, min(n, 1), "nothing is saved")

		from := fmt.Sprintf(`,"effective_from":%q}`, b.now().UTC().AddDate(0, 0, -31).Format("2006-01-02T00:00:00Z"))
		b.pricing(t, "PUT", "/v1/meters/calls/pricing", strings.TrimSuffix(terms, "}")+from)
		e := b.explained(t, "")
		require.Equal(t, e.Currency, c.Currency, terms)
		require.Len(t, c.Charges, 1)
		require.Equal(t, e.Charge, c.Charges[0].Charge, terms)
		require.Equal(t, "usage", string(e.Steps[0].Name))
		require.Equal(t, withoutVersions(e.Steps[1:]), *c.Charges[0].Steps, terms)
	}
}

// withoutVersions removes the version of the saved price from steps.
func withoutVersions(steps []client.Step) []client.Step {
	for i := range steps {
		if steps[i].PriceVersion = nil; steps[i].Steps != nil {
			withoutVersions(*steps[i].Steps)
		}
	}
	return steps
}

// TestACalculatedChargeByDimensionIsTheChargeOfTheSavedPrice compares the breakdown of a calculated charge with
// the explanation of the charge at the saved price.
func TestACalculatedChargeByDimensionIsTheChargeOfTheSavedPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sendTokens(t, b)
	const usage = `[{"by_dimension":[{"dimension":{"model":"large"},"quantity":1500,"event_count":1},{"dimension":{"model":"huge"},"quantity":1500,"event_count":1},
		{"dimension":{"model":"small"},"quantity":1100,"event_count":1},{"dimension":{"model":"tiny"},"quantity":200},
		{"dimension":{"model":"tiny"},"quantity":50,"event_count":1},{"dimension":{"model":null},"quantity":40,"event_count":1}]},{"by_dimension":[]}]`
	for _, terms := range []string{fmt.Sprintf(byModel, ""), fmt.Sprintf(byModel, `,"default":{"model":"percentage","fixed_fee":0.001}`)} {
		c := b.calculated(t, terms, usage)
		require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/customers/acme/pricing/tokens", terms).status)
		a := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=tokens", "")
		var e client.Explain
		require.NoError(t, json.Unmarshal([]byte(a.body), &e), a.body)
		of := c.Charges[0]
		require.Equal(t, []string{e.Charge.String(), "4390", "5"}, []string{of.Charge.String(), of.Quantity.String(), fmt.Sprint(of.EventCount)})
		require.Equal(t, withoutVersions(e.Steps[1:]), *of.Steps, terms)
		require.Equal(t, "5", c.Charges[1].Charge.String(), "without usage")
	}
}

func TestChargesAreCalculatedForEachQuantity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.calculated(t, `{"model":"volume","base_price":5,"tiers":[{"up_to":10,"unit_price":1.005,"flat_fee":1},{"up_to":null,"unit_price":0.5}],"steps":false}`,
		`[{"quantity":0},{"quantity":-3},{"quantity":1},{"quantity":3},{"quantity":10},{"quantity":10.000000000001}]`)
	var charges []string
	for _, charge := range c.Charges {
		require.Nil(t, charge.Steps)
		charges = append(charges, charge.Quantity.String()+": "+charge.Charge.String())
	}
	require.Equal(t, []string{"0: 6", "-3: 6", "1: 7", "3: 9.02", "10: 16.05", "10.000000000001: 10"}, charges)

	c = b.calculated(t, `{"model":"percentage","fixed_fee":0.3}`, `[{"quantity":10},{"quantity":10,"event_count":3}]`)
	require.Equal(t, []string{"0", "0.9"}, []string{c.Charges[0].Charge.String(), c.Charges[1].Charge.String()})
	require.Equal(t, int64(3), c.Charges[1].EventCount)
}

// TestCalculationHasMaximumNumberOfSteps charges 100 quantities in 100 tiers each.
func TestCalculationHasMaximumNumberOfSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tiers := ""
	for n := range 99 {
		tiers += fmt.Sprintf(`{"up_to":%d,"unit_price":1},`, n+1)
	}
	terms := `"model":"graduated","tiers":[` + tiers + `{"up_to":null,"unit_price":1}]`
	usage := strings.TrimSuffix(strings.Repeat(`{"quantity":1000},`, 100), ",")
	p := b.send(t, "POST", "/v1/pricing/calculate", `{`+terms+`,"usage":[`+usage+`]}`).problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{
		Location: "body.usage", Message: "must have fewer quantities, because the charges have more than 5000 steps; or set steps to false",
	}}, p.Errors)
	require.Len(t, b.calculated(t, `{`+terms+`,"steps":false}`, `[`+usage+`]`).Charges, 100)
	require.Len(t, b.calculated(t, `{`+terms+`}`, `[{"quantity":1000}]`).Charges, 1)
}

func TestTermsThatCannotBeSavedAreNotCalculated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	byLarge := func(usage string) string {
		return `{"dimensions":{"by":["model"],"prices":[{"match":{"model":["large"]},"overage_rate":1}]},"usage":[` + usage + `]}`
	}
	many := strings.Repeat(`{"quantity":1},`, 100) + `{"quantity":1}`
	for body, want := range map[string]api.FieldProblem{
		`{"usage":[{"quantity":1}]}`:                                                       {Location: "body", Message: "must contain base_price or overage_rate; use 0 for free usage"},
		`{"model":"package","package_price":5,"usage":[{"quantity":1}]}`:                   {Location: "body.package_size", Message: "must be a whole number from 1 to 1000000000000"},
		`{"model":"volume","tiers":[{"up_to":5,"unit_price":1}],"usage":[{"quantity":1}]}`: {Location: "body.tiers[0].up_to", Message: "must be null in the last tier; add a tier with up_to null for larger quantities"},
		`{"overage_rate":1,"currency":"XAU","usage":[{"quantity":1}]}`:                     {Location: "body.currency", Message: "must be an active ISO 4217 currency code, such as USD; codes of metals, funds and tests are not accepted"},
		`{"overage_rate":1,"usage":[]}`:                                                    {Location: "body.usage", Message: "expected array length >= 1"},
		`{"overage_rate":1,"usage":[` + many + `]}`:                                        {Location: "body.usage", Message: "expected array length <= 100"},
		`{"overage_rate":1,"usage":[{"quantity":1,"event_count":-1}]}`:                     {Location: "body.usage[0].event_count", Message: "expected number >= 0"},
		`{"overage_rate":1,"usage":[{"event_count":1}]}`:                                   {Location: "body.usage[0].quantity", Message: "is required"},
		`{"overage_rate":1,"usage":[{"quantity":1,"by_dimension":[]}]}`:                    {Location: "body.usage[0].by_dimension", Message: "must be absent without dimensions; use quantity"},
		byLarge(`{"quantity":1}`):                                                          {Location: "body.usage[0].quantity", Message: "must be absent with dimensions; use by_dimension"},
		byLarge(`{"event_count":1}`):                                                       {Location: "body.usage[0].event_count", Message: "must be absent with dimensions; use event_count of by_dimension"},
		byLarge(`{"by_dimension":[{"dimension":{},"quantity":1}]}`): {
			Location: "body.usage[0].by_dimension[0].dimension", Message: "must have a value of each property of dimensions.by, which are model; null is the value of events without the property",
		},
		byLarge(`{"by_dimension":[{"dimension":{"region":"eu"},"quantity":1}]}`): {Location: "body.usage[0].by_dimension[0].dimension", Message: "must have only properties of dimensions.by, which are model"},
		byLarge(`{"by_dimension":[{"dimension":{"model":[]},"quantity":1}]}`): {
			Location: "body.usage[0].by_dimension[0].dimension.model", Message: "must be a string without NUL, a boolean, null, or a number of at most 128 characters and an exponent of at most two digits",
		},
		`{"overage_rate":1,"effective_from":"2026-11-01T00:00:00Z","usage":[{"quantity":1}]}`: {Location: "body.effective_from", Message: "unexpected property"},
	} {
		p := b.send(t, "POST", "/v1/pricing/calculate", body).problem(t, 422, "invalid")
		require.Len(t, p.Errors, 1, body)
		require.Equal(t, want, p.Errors[0], body)
	}
}
