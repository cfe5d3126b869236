package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// byModel is the body of a request that sets prices of tokens by model. Its %s takes further fields of dimensions.
const byModel = `{"base_price":5,"dimensions":{"by":["model"],"prices":[
	{"match":{"model":["large","huge"]},"model":"graduated","per_units":1000,"tiers":[{"up_to":2000,"unit_price":2},{"up_to":null,"unit_price":1}]},
	{"match":{"model":["small",null,7]},"model":"per_unit","unit_price":0.5,"per_units":1000,"included_units":100}]%s}}`

// sendTokens sends events of acme for the models large (1500 tokens), huge (1500), small (1100) and tiny (250),
// and one without a model (40).
func sendTokens(t *testing.T, b *bundle) {
	t.Helper()
	b.send(t, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","aggregation":"sum","group_by":["model","region"]}`)
	at := b.now().UTC().Format(time.RFC3339)
	for n, properties := range []string{`{"model":"large","region":"eu"}`, `{"model":"huge"}`, `{"model":"small"}`, `{"model":"tiny"}`, `{"region":"us"}`} {
		value := []string{"1500", "1500", "1100", "250", "40"}[n]
		sent := b.send(t, "POST", "/v1/events", fmt.Sprintf(`{"event_type":"llm","customer_id":"acme","idempotency_key":"k%d","timestamp":%q,"value":%s,"properties":%s}`, n, at, value, properties))
		require.Less(t, sent.status, 300, sent.body)
	}
}

// TestPricesByDimensionAreStoredShownAndCharged sets prices by dimension for a meter, for a plan and for a customer. It
// checks the prices in the responses, the explanation of the charge and a preview.
func TestPricesByDimensionAreStoredShownAndCharged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sendTokens(t, b)
	b.send(t, "POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	withDefault := fmt.Sprintf(byModel, `,"default":{"overage_rate":0.001}`)
	for _, path := range []string{"/v1/meters/tokens/pricing", "/v1/plans/pro/pricing/tokens", "/v1/customers/acme/pricing/tokens"} {
		set := b.confirmed(t, "PUT", path, withDefault)
		require.Equal(t, 200, set.status, set.body)
		var shown struct{ Current map[string]any }
		require.NoError(t, json.Unmarshal([]byte(set.body), &shown))
		require.NotContains(t, shown.Current, "model")
		var sent map[string]any
		require.NoError(t, json.Unmarshal([]byte(withDefault), &sent))
		of, dimensions := sent["dimensions"].(map[string]any), shown.Current["dimensions"].(map[string]any)
		require.Equal(t, of["by"], dimensions["by"])
		require.Contains(t, set.body, `"default":{"included_units":0,"model":"overage","overage_rate":0.001}`)
		for n, p := range of["prices"].([]any) {
			require.Equal(t, p.(map[string]any)["match"], dimensions["prices"].([]any)[n].(map[string]any)["match"])
		}
	}
	explained := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=tokens", "")
	require.Equal(t, 200, explained.status, explained.body)
	// 5 + 2000 × 2/1000 + 1000 × 1/1000 + (1100 + 40 − 100) × 0.5/1000 + 250 × 0.001
	require.Contains(t, explained.body, `"amount":10.77,`)
	for _, part := range []string{
		`"name":"matched_units","description":"The usage that the price charges as one quantity, from 2 events.","amount":3000`,
		`"dimension":{"model":"huge"}`, `"name":"default_charge"`, `"dimension_price":2`,
	} {
		require.Contains(t, explained.body, part)
	}
	var preview struct {
		IfInForce []struct{ Before, After json.Number } `json:"if_in_force"`
	}
	previewed := b.send(t, "POST", "/v1/customers/acme/pricing/tokens/preview", fmt.Sprintf(byModel, ""))
	require.Equal(t, 200, previewed.status, previewed.body)
	require.NoError(t, json.Unmarshal([]byte(previewed.body), &preview))
	require.Equal(t, "10.77 10.52", fmt.Sprint(preview.IfInForce[0].Before, " ", preview.IfInForce[0].After), "without a default, the tiny model is unrated")
}

func TestErrorOfPriceByDimensionNamesFieldRuleAndFix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sendTokens(t, b)
	price := func(by, prices, rest string) string {
		return fmt.Sprintf(`{"dimensions":{"by":%s,"prices":[%s]}%s}`, by, prices, rest)
	}
	const by, large = `["model"]`, `{"match":{"model":["large"]},"overage_rate":1}`
	for body, want := range map[string]api.FieldProblem{
		price(by, large, `,"overage_rate":0`):                         {Location: "body.overage_rate", Message: "must be absent with dimensions; set it in each of dimensions.prices and in dimensions.default"},
		price(by, large, `,"model":"overage"`):                        {Location: "body.model", Message: "must be absent with dimensions; set it in each of dimensions.prices and in dimensions.default"},
		price(by, `{"match":{},"overage_rate":1}`, ""):                {Location: "body.dimensions.prices[0].match", Message: "must name values of at least one property of dimensions.by; use dimensions.default for all other usage"},
		price(by, `{"match":{"region":["eu"]},"overage_rate":1}`, ""): {Location: "body.dimensions.prices[0].match", Message: "must have only properties of dimensions.by, which are model; add region there or remove it"},
		price(by, `{"match":{"model":[]},"overage_rate":1}`, ""):      {Location: "body.dimensions.prices[0].match.model", Message: "must contain 1 to 100 values"},
		price(by, `{"match":{"model":[{}]},"overage_rate":1}`, ""):    {Location: "body.dimensions.prices[0].match.model[0]", Message: "must be a string without NUL, a boolean, null, or a number of at most 128 characters and an exponent of at most two digits"},
		price(by, `{"match":{"model":[1e400]},"overage_rate":1}`, ""): {Location: "body.dimensions.prices[0].match.model[0]", Message: "must be a string without NUL, a boolean, null, or a number of at most 128 characters and an exponent of at most two digits"},
		price(by, `{"match":{"model":["`+strings.Repeat("m", 1023)+`"]},"overage_rate":1}`, ""): {
			Location: "body.dimensions.prices[0].match.model[0]", Message: "must be at most 1024 bytes as JSON: usage with longer values is counted in $other, which no price charges",
		},
		price(by, large+`,{"match":{"model":["large"]},"overage_rate":1}`, ""): {
			Location: "body.dimensions.prices[1].match", Message: "must match values that prices[0] does not match; the first price that matches applies, so this price would never apply",
		},
		price(`["model","region"]`, `{"match":{"model":["a","b"]},"overage_rate":1},{"match":{"model":["b"],"region":["eu"]},"overage_rate":1}`, ""): {
			Location: "body.dimensions.prices[1].match", Message: "must match values that prices[0] does not match; the first price that matches applies, so this price would never apply",
		},
		price(`[""]`, large, ""):                                                {Location: "body.dimensions.by[0]", Message: "is required"},
		price(`["$other"]`, large, ""):                                          {Location: "body.dimensions.by[0]", Message: "must not begin with '$'"},
		price(by, `{"match":{"model":[1,1.0]},"overage_rate":1}`, ""):           {Location: "body.dimensions.prices[0].match.model[1]", Message: "repeats an earlier value; name each value once"},
		price(by, `{"match":{"model":["a"]}}`, ""):                              {Location: "body.dimensions.prices[0].overage_rate", Message: "must be present with the model overage; use 0 for free usage"},
		price(by, large+`,{"match":{"model":["a"]},"model":"volume"}`, ""):      {Location: "body.dimensions.prices[1].tiers", Message: "must contain 1 to 100 tiers with the model volume"},
		price(by, `{"match":{"model":["a"]},"percent":1,"overage_rate":1}`, ""): {Location: "body.dimensions.prices[0].percent", Message: "must be absent with the model overage; it belongs to the model percentage"},
		price(`["model","model"]`, large, ""):                                   {Location: "body.dimensions.by[1]", Message: "repeats an earlier property; name each property once"},
		price(by, `{"match":{"model":["a"]},"model":"per_unit","unit_price":1,"per_units":999999999989},{"match":{"model":["b"]},"model":"per_unit","unit_price":1,"per_units":2}`, ""): {
			Location: "body.dimensions", Message: "must have per_units with a least common multiple of at most 1000000000000; use the same per_units in all prices",
		},
	} {
		for path, method := range map[string]string{"/v1/meters/tokens/pricing": "PUT", "/v1/meters/tokens/pricing/preview": "POST"} {
			p := b.send(t, method, path, body).problem(t, 422, "invalid")
			require.Equal(t, []api.FieldProblem{want}, p.Errors, body)
		}
	}
	p := b.send(t, "PUT", "/v1/meters/tokens/pricing", price(by, `{"match":{"model":["a"]},"overage_rate":1,"base_price":1}`, "")).problem(t, 422, "invalid")
	require.Equal(t, "body.dimensions.prices[0].base_price", p.Errors[0].Location)

	other := b.send(t, "PUT", "/v1/meters/tokens/pricing", price(`["user"]`, `{"match":{"user":["a"]},"overage_rate":1}`, ""))
	other.problem(t, 409, "conflict")
	require.Contains(t, other.body, "dimensions.by has user, which is not in the meter's group_by (model, region); add it to group_by first, or remove it from dimensions.by")
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/tokens/pricing", price(by, large, "")).status)
	regrouped := b.send(t, "PATCH", "/v1/meters/tokens", `{"group_by":["region"]}`)
	regrouped.problem(t, 409, "conflict")
	require.Contains(t, regrouped.body, "group_by must keep model: a price of the meter has it in dimensions.by and charges usage by it, or has charged events that are still stored; withdraw the price if it has not begun, or create another meter")
}

// TestPriceByDimensionAndQuantityBillingExcludeEachOther checks that a price by dimension is refused while the
// provider bills quantities, and the reverse. A quantity has no dimension values.
func TestPriceByDimensionAndQuantityBillingExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, _ := b.atStripe(t, &stripetest.Seed{})
	r.send(t, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","aggregation":"sum","group_by":["model"]}`)
	provider := func(bills string) answer {
		return r.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","secret_key":"sk_test_CANARYkey","webhook_secret":%q,"bills":%s}`, stripeSecret, bills))
	}
	set := r.send(t, "PUT", "/v1/meters/tokens/pricing", fmt.Sprintf(byModel, ""))
	require.Equal(t, 200, set.status, set.body)
	provider(`"quantities"`).problem(t, 409, "conflict")
	saved := provider(`"amounts","product":"prod_1"`)
	require.Equal(t, 200, saved.status, saved.body)
	require.Equal(t, 200, r.send(t, "PUT", "/v1/meters/tokens/pricing", `{"overage_rate":1,"effective_from":"2020-01-01T00:00:00Z"}`).status)
	saved = provider(`"quantities"`)
	require.Equal(t, 200, saved.status, saved.body)
	p := r.send(t, "PUT", "/v1/meters/tokens/pricing", fmt.Sprintf(byModel, "")).problem(t, 422, "invalid")
	require.Equal(t, "body.dimensions", p.Errors[0].Location)
}

// TestALateEventThatNoPriceByDimensionChargesIsWarnedAbout sends late events to a closed period. Another price has
// replaced the price of the period since.
func TestALateEventThatNoPriceByDimensionChargesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sendTokens(t, b)
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/tokens/pricing", fmt.Sprintf(byModel, "")).status)
	month := billing.CalendarPeriod(b.now(), time.UTC)
	b.ahead.Store(int64(month.End.Add(b.tenant.Grace + time.Hour).Sub(b.now())))
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	closing, err := b.store.Ledger.ClosePeriods(t.Context(), b.tenant.ID, []metering.CustomerID{acme.ID}, b.now())
	require.NoError(t, err)
	require.Equal(t, 1, closing.Closed)
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/tokens/pricing", `{"overage_rate":1,"effective_from":"2020-01-01T00:00:00Z"}`).status)
	event := func(key, model string, at time.Time) []string {
		body := fmt.Sprintf(`{"event_type":"llm","customer_id":"acme","idempotency_key":%q,"timestamp":%q,"value":20,"properties":{"model":%q,"region":"eu"}}`, key, at.Format(time.RFC3339), model)
		return b.ingest(t, "/v1/events/batch", `{"events":[`+body+`]}`).Warnings
	}
	require.Empty(t, event("l1", "large", month.End.Add(-time.Hour)))
	require.Equal(t, []string{`events[0] has no price: meter "tokens" counts it, but no price in dimensions charges its values; GET /v1/billing/unrated lists such usage, late usage once it is booked`},
		event("l2", "tiny", month.End.Add(-time.Hour)))
	require.Empty(t, event("l3", "tiny", b.now()), "the price of the open period has no dimensions")
}

// TestAnEventThatNoPriceByDimensionChargesIsWarnedAbout checks the warning, and that the event's usage is listed
// as unrated.
func TestAnEventThatNoPriceByDimensionChargesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","aggregation":"sum","group_by":["model","region"]}`)
	require.Equal(t, 200, b.send(t, "PUT", "/v1/meters/tokens/pricing", fmt.Sprintf(byModel, "")).status)
	event := func(customer, key, model string) string {
		return fmt.Sprintf(`{"event_type":"llm","customer_id":%q,"idempotency_key":%q,"value":20,"properties":{"model":%s,"region":"eu"}}`, customer, key, model)
	}
	batch := func(events ...string) []string {
		return b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`).Warnings
	}
	const warning = `events[%d] has no price: meter "tokens" counts it, but no price in dimensions charges its values; GET /v1/billing/unrated lists such usage, late usage once it is booked`
	require.Equal(t, []string{fmt.Sprintf(warning, 1)}, batch(event("acme", "1", `"large"`), event("acme", "2", `"tiny"`), event("acme", "3", `"other"`)), "once per request and meter")
	require.Empty(t, batch(event("acme", "2", `"tiny"`)), "a repeat adds nothing")
	require.Empty(t, batch(event("acme", "4", `null`), event("acme", "5", `7`)))
	long := batch(event("acme", "6", `"`+strings.Repeat("x", metering.MaxGroupKeyBytes)+`"`))
	require.Contains(t, long, fmt.Sprintf(warning, 0), "$other has no price")

	own := b.confirmed(t, "PUT", "/v1/customers/acme/pricing/tokens", fmt.Sprintf(byModel, `,"default":{"overage_rate":0.001}`))
	require.Equal(t, 200, own.status, own.body)
	b.ahead.Add(int64(2 * time.Minute))
	require.Empty(t, batch(event("acme", "7", `"tiny"`)), "the own price has a default")
	require.Equal(t, []string{fmt.Sprintf(warning, 1)}, batch(event("acme", "8", `"tiny"`), event("other", "9", `"tiny"`)))

	var lines []string
	for _, l := range b.unrated(t, "").Data {
		if l.Reason == client.UnratedUsageReasonUnpricedDimension {
			require.Empty(t, l.Estimate)
			require.Nil(t, l.Currency)
			lines = append(lines, fmt.Sprint(l.ExternalId, " ", l.Usage, " ", l.EventCount))
		}
	}
	require.Equal(t, []string{"acme 20 1", "other 20 1"}, lines, "of acme, only the event in $other has no price")
	require.Contains(t, b.send(t, "GET", "/v1/billing/unrated/totals", "").body, `{`+reasonFields(billing.UnpricedDimension)+`,"currency":null,"customers":2,"lines":2,"estimate":null}`)
	var causes []string
	for _, item := range b.listAttention(t, "kind=unrated_usage").Data {
		causes = append(causes, item.Reference+": "+item.Cause)
	}
	require.Contains(t, causes, "2 customers: no price in dimensions charges usage with these values")
}
