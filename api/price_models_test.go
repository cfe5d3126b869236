package api_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// TestEachPriceModelIsStoredShownAndCharged sets prices of a meter and of a plan, reads them
// back, and reads the charge for 1,250 units of one event.
func TestEachPriceModelIsStoredShownAndCharged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1250")
	for _, path := range []string{"/v1/meters/calls/pricing", "/v1/plans/pro/pricing/calls"} {
		for body, want := range map[string][3]string{ // the description, the charge, the unit price
			`{"model":"overage","overage_rate":0.02}`:                                     {"0.02 USD for each unit", "25 USD", "0.02"},
			`{"model":"per_unit","unit_price":2,"per_units":1000,"included_units":250}`:   {"250 units included, 2 USD for each 1000 units", "2 USD", "0.002"},
			`{"model":"per_unit","unit_price":0,"base_price":3,"minimum_charge":4}`:       {"3 USD for the period, 0 USD for each unit, at least 4 USD", "4 USD", "0"},
			`{"model":"package","package_size":500,"package_price":3,"maximum_charge":8}`: {"3 USD for each 500 units; an incomplete package counts as one, at most 8 USD", "8 USD", "3"},
			`{"model":"percentage","percent":2.9,"fixed_fee":0.3}`:                        {"2.9% of the usage and 0.3 USD for each event", "36.55 USD", "0.029"},
			`{"model":"graduated","tiers":[{"up_to":1000,"unit_price":0.01,"flat_fee":1},{"up_to":null,"unit_price":0.005}]}`: {
				"tier by tier: up to 1000 units: 1 USD and 0.01 USD for each unit; beyond: 0.005 USD for each unit", "12.25 USD", "0.005",
			},
			`{"model":"volume","tiers":[{"up_to":1000,"unit_price":0.01},{"up_to":null,"unit_price":0.004}]}`: {
				"all units at the price of the tier that they reach: up to 1000 units: 0.01 USD for each unit; beyond: 0.004 USD for each unit", "5 USD", "0.004",
			},
		} {
			from := fmt.Sprintf(`,"effective_from":%q}`, b.now().UTC().AddDate(0, 0, -31).Format("2006-01-02T00:00:00Z"))
			set := b.pricing(t, "PUT", path, body[:len(body)-1]+from)
			require.Equal(t, want[0], set.Current.Description, body)
			var sent, shown map[string]any
			require.NoError(t, json.Unmarshal([]byte(body), &sent))
			text, err := json.Marshal(set.Current)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &shown))
			for field, value := range sent {
				if field != "tiers" {
					require.Equal(t, value, shown[field], "%s of %s", field, body)
				}
			}
			if tiers, is := sent["tiers"].([]any); is {
				require.Len(t, shown["tiers"], len(tiers))
			}
			if path == "/v1/meters/calls/pricing" {
				require.Equal(t, want[1], b.preview(t), body)
				items := b.send(t, "GET", "/v1/billing/preview?customer=acme", "")
				require.Contains(t, items.body, fmt.Sprintf(`"unit_price":%s,`, want[2]), body)
				var previewed []client.PreviewItem
				require.NoError(t, json.Unmarshal([]byte(items.body), &previewed))
				var explained client.Explain
				require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls", "").body), &explained))
				require.Equal(t, explained.Steps, *previewed[0].Steps, body)
			}
		}
	}
}

func TestErrorOfPriceModelNamesFieldRuleAndFix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	tiers := func(bounds string) string { return `{"model":"graduated","tiers":` + bounds + `}` }
	for body, want := range map[string]api.FieldProblem{
		`{"model":"per_unit"}`:                                       {Location: "body.unit_price", Message: "must be present with the model per_unit; use 0 for free usage"},
		`{"model":"package","package_size":5}`:                       {Location: "body.package_price", Message: "must be present with the model package; use 0 for free usage"},
		`{"model":"package","package_price":5}`:                      {Location: "body.package_size", Message: "must be a whole number from 1 to 1000000000000"},
		`{"model":"percentage"}`:                                     {Location: "body.percent", Message: "must be present with the model percentage; use 0 for free usage"},
		`{"model":"volume"}`:                                         {Location: "body.tiers", Message: "must contain 1 to 100 tiers with the model volume"},
		`{"model":"per_unit","unit_price":1,"overage_rate":0}`:       {Location: "body.overage_rate", Message: "must be absent with the model per_unit; it belongs to the model overage"},
		`{"overage_rate":1,"tiers":[{"up_to":null,"unit_price":1}]}`: {Location: "body.tiers", Message: "must be absent with the model overage; it belongs to the model graduated, volume"},
		`{"overage_rate":1,"maximum_charge":0}`:                      {Location: "body.maximum_charge", Message: "must be greater than 0; omit it for a price without a maximum"},
		`{"overage_rate":1,"minimum_charge":2,"maximum_charge":1}`:   {Location: "body.maximum_charge", Message: "must not be less than minimum_charge, which is 2"},
		tiers(`[{"up_to":5,"unit_price":1},{"up_to":5,"unit_price":1},{"up_to":null,"unit_price":1}]`): {Location: "body.tiers[1].up_to", Message: "must be greater than tiers[0].up_to, which is 5"},
		tiers(`[{"up_to":5,"unit_price":1}]`): {Location: "body.tiers[0].up_to", Message: "must be null in the last tier; add a tier with up_to null for larger quantities"},
	} {
		for path, method := range map[string]string{"/v1/meters/calls/pricing": "PUT", "/v1/meters/calls/pricing/preview": "POST"} {
			p := b.send(t, method, path, body).problem(t, 422, "invalid")
			require.Equal(t, []api.FieldProblem{want}, p.Errors, body)
		}
	}
	for body, location := range map[string]string{
		`{"overage_rate":1,"proration":"daily"}`:               "body.proration",
		`{"dimensions":{"by":["model"],"prices":[]}}`:          "body.dimensions.prices",
		`{"model":"stairs"}`:                                   "body.model",
		tiers(`[{"up_to":null,"unit_price":1,"unit":2}]`):      "body.tiers[0].unit",
		tiers(`[{"up_to":null,"unit_price":1.0000000000001}]`): "body.tiers[0].unit_price",
		tiers(`[{"up_to":0.0000000000001,"unit_price":1}]`):    "body.tiers[0].up_to",
		`{"model":"per_unit","unit_price":1,"per_units":0}`:    "body.per_units",
		`{"model":"per_unit","unit_price":1,"per_units":1.5}`:  "body.per_units",
	} {
		p := b.send(t, "PUT", "/v1/meters/calls/pricing", body).problem(t, 422, "invalid")
		require.Equal(t, location, p.Errors[0].Location, "%s: %v", body, p.Errors)
	}
}

// TestFixedFeeAndQuantityBillingExcludeEachOther checks that a price with a fixed fee is refused while
// the provider bills quantities, and the reverse. A quantity has no event count.
func TestFixedFeeAndQuantityBillingExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, _ := b.atStripe(t, &stripetest.Seed{})
	r.meter(t, "calls", "call")
	const fee, noFee = `{"model":"percentage","percent":1,"fixed_fee":0.3}`, `{"model":"percentage","percent":1,"effective_from":"2020-01-01T00:00:00Z"}`
	provider := func(bills string) answer {
		return r.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","secret_key":"sk_test_CANARYkey","webhook_secret":%q,"bills":%s}`, stripeSecret, bills))
	}
	require.Equal(t, 200, r.send(t, "PUT", "/v1/meters/calls/pricing", fee).status)
	refused := provider(`"quantities"`)
	refused.problem(t, 409, "conflict")
	require.Contains(t, refused.body, "have a fixed_fee or dimensions, which a provider that bills quantities cannot charge: calls;")
	saved := provider(`"amounts","product":"prod_1"`)
	require.Equal(t, 200, saved.status, saved.body)
	require.Equal(t, 200, r.send(t, "PUT", "/v1/meters/calls/pricing", noFee).status)
	saved = provider(`"quantities"`)
	require.Equal(t, 200, saved.status, saved.body)
	p := r.send(t, "PUT", "/v1/meters/calls/pricing", fee).problem(t, 422, "invalid")
	require.Equal(t, "body.fixed_fee", p.Errors[0].Location)
	var preview client.PricePreview
	ok := r.send(t, "POST", "/v1/meters/calls/pricing/preview", `{"model":"percentage","percent":1}`)
	require.NoError(t, json.Unmarshal([]byte(ok.body), &preview), ok.body)
}
