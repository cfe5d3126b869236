package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// sources returns the amount and the price_source of acme's only meter in the preview and in the explanation of
// the current period.
func (b *bundle) sources(t *testing.T) []string {
	t.Helper()
	var items []client.PreviewItem
	preview := b.send(t, "GET", "/v1/billing/preview?customer=acme", "")
	require.NoError(t, json.Unmarshal([]byte(preview.body), &items), preview.body)
	var line client.StatementLine
	explained := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls", "")
	require.NoError(t, json.Unmarshal([]byte(explained.body), &line), explained.body)
	return []string{fmt.Sprint(items[0].Amount, " ", *items[0].PriceSource), fmt.Sprint(line.Amount, " ", *line.PriceSource)}
}

func TestCustomersOwnPriceReplacesPlanPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.pricing(t, "PUT", "/v1/plans/pro/pricing/calls", `{"overage_rate":2}`)
	require.Equal(t, []string{"142 meter", "142 meter"}, b.sources(t))
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`).status)
	require.Equal(t, []string{"284 plan", "284 plan"}, b.sources(t))

	const path, from = "/v1/customers/acme/pricing/calls", `"effective_from":"2020-01-01T00:00:00Z"`
	require.Equal(t, "USD 284 426 1", changesOf(b.unconfirmed(t, "PUT", path, `{"overage_rate":3}`)), "from the start of the period that the customer was created in")
	require.Equal(t, []string{"284 plan", "284 plan"}, b.sources(t), "nothing is stored")
	preview := b.send(t, "POST", path+"/preview", `{"overage_rate":3}`)
	require.Contains(t, preview.body, `"changes":[{"currency":"USD","before":284,"after":426,"customers":1,"largest":[{"external_id":"acme",`)
	set := b.confirmed(t, "PUT", path, `{"overage_rate":3,`+from+`}`)
	require.Equal(t, 200, set.status, set.body)
	require.Equal(t, []string{"426 customer", "426 customer"}, b.sources(t))

	listed := b.send(t, "GET", "/v1/pricing?customer=acme", "")
	require.Contains(t, listed.body, `"meter_slug":"calls"`)
	require.Contains(t, listed.body, `"overage_rate":3`)
	require.NotContains(t, b.send(t, "GET", "/v1/pricing", "").body, `"overage_rate":3`)
	b.send(t, "GET", "/v1/pricing?customer=acme&plan=pro", "").problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/pricing?customer=nobody", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/customers/nobody/pricing/calls", "").problem(t, 404, "not_found")
	b.send(t, "PUT", "/v1/customers/acme/pricing/nothing", `{"overage_rate":3}`).problem(t, 404, "not_found")

	require.Equal(t, "USD 426 284 1", changesOf(b.unconfirmed(t, "POST", path+"/end", `{}`)), "the plan's price applies again")
	ended := b.confirmed(t, "POST", path+"/end", `{}`)
	require.Equal(t, 200, ended.status, ended.body)
	require.Contains(t, ended.body, `"inherits":true`)
	require.NotContains(t, ended.body, `"current"`)
	require.Contains(t, ended.body, `"overage_rate":3`, "earlier versions stay")
	require.Equal(t, []string{"284 plan", "284 plan"}, b.sources(t))
	log := b.send(t, "GET", "/v1/audit-log", "").body
	require.Equal(t, 4, strings.Count(log, `"price.set"`))
	require.Contains(t, log, `"customer_id":"cus_`)
}

func TestScheduledCustomerPriceCanBeWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	const path = "/v1/customers/acme/pricing/calls"
	b.send(t, "POST", path+"/end", `{}`).problem(t, 409, "conflict")

	b.ahead.Store(int64(32 * 24 * time.Hour))
	var pricing client.Pricing
	scheduled := b.send(t, "PUT", path, `{"overage_rate":3}`)
	require.Equal(t, 200, scheduled.status, "it starts with the next period: %s", scheduled.body)
	require.NoError(t, json.Unmarshal([]byte(scheduled.body), &pricing))
	require.Nil(t, pricing.Current)
	require.True(t, pricing.Versions[0].EffectiveFrom.After(b.now()))
	version := fmt.Sprint(path, "/", pricing.Versions[0].Version)
	require.Equal(t, 200, b.send(t, "DELETE", version, "").status)
	b.send(t, "DELETE", version, "").problem(t, 404, "not_found")
	require.Contains(t, b.send(t, "GET", path, "").body, `"versions":[]`)

	require.Equal(t, 200, b.send(t, "PUT", path, `{"overage_rate":3}`).status)
	b.ahead.Store(int64(64 * 24 * time.Hour))
	b.at(t, b.now().UTC().Format(time.RFC3339), "b", "10")
	require.Equal(t, []string{"30 customer", "30 customer"}, b.sources(t))
	require.Equal(t, 200, b.send(t, "POST", path+"/end", `{}`).status, "it ends with the period")
	require.Equal(t, []string{"30 customer", "30 customer"}, b.sources(t))
	b.ahead.Store(int64(96 * 24 * time.Hour))
	b.at(t, b.now().UTC().Format(time.RFC3339), "c", "10")
	require.Equal(t, []string{"10 meter", "10 meter"}, b.sources(t))
}

// twoSchedules returns a replica with the customer acme and its annual subscription for seats. A second
// subscription bills calls and has a billing schedule of its own with the current period month.
func (b *bundle) twoSchedules(t *testing.T) (r *bundle, month metering.Range) {
	t.Helper()
	today := b.now().Truncate(time.Second)
	year := metering.Range{Start: today.AddDate(0, -3, 0), End: today.AddDate(0, 9, 0)}
	month = metering.Range{Start: today.AddDate(0, 0, -10), End: today.AddDate(0, 0, 20)}
	r, _ = b.atStripe(t, &stripetest.Seed{
		Meters: []stripetest.Meter{{ID: "mtr_seats", EventName: "seats"}, {ID: "mtr_calls", EventName: "calls"}},
		Prices: []stripetest.Price{
			{ID: "price_seats", LookupKey: "seats", Meter: "mtr_seats", UnitAmount: "100", Months: 12}, {ID: "price_calls", LookupKey: "calls", Meter: "mtr_calls", UnitAmount: "100"},
		},
		Customers: []stripetest.Customer{{ID: "cus_1"}},
		Subscriptions: []stripetest.Subscription{
			{ID: "sub_year", Customer: "cus_1", Start: year.Start.Unix(), End: year.End.Unix(), Items: []stripetest.Item{{ID: "si_seats", Price: "price_seats"}}},
			{ID: "sub_month", Customer: "cus_1", Start: month.Start.Unix(), End: month.End.Unix(), Items: []stripetest.Item{{ID: "si_calls", Price: "price_calls"}}},
		},
	})
	r.meter(t, "seats", "seat")
	r.meter(t, "calls", "call")
	for _, call := range [][3]string{
		{"PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`},
		{"PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","bills":"amounts","product":"prod_calls","secret_key":"sk_test_CANARYkey","webhook_secret":%q}`, stripeSecret)},
		{"POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_1"}`},
	} {
		a := r.send(t, call[0], call[1], call[2])
		require.Less(t, a.status, 300, a.body)
	}
	c, err := r.store.Customers.Get(t.Context(), r.tenant.ID, "acme")
	require.NoError(t, err)
	_, err = dbtest.Conn(t).Exec(t.Context(), `update customers set created_at = $3 where tenant_id = $1 and id = $2`, r.tenant.ID, c.ID, year.Start.AddDate(0, 0, -1))
	require.NoError(t, err)
	_, err = r.store.Ledger.Plan(t.Context(), r.tenant.ID, c.ID, ledger.Pass{}, dbtest.Frame, r.now())
	require.NoError(t, err, "the plan adds the schedule")
	return r, month
}

// TestCustomerPriceFollowsBillingScheduleOfMeter checks that an own price, and its end, start with the next period
// of the meter by default, and that the current price is the one that charges the meter's current period. The annual
// period of the customer's other schedule has no effect.
func TestCustomerPriceFollowsBillingScheduleOfMeter(t *testing.T) {
	t.Parallel()
	b, month := setup(t).twoSchedules(t)
	const path = "/v1/customers/acme/pricing/calls"
	started := b.send(t, "PUT", path, `{"overage_rate":0.03}`)
	require.Equal(t, 200, started.status, "no begun period is charged: %s", started.body)
	require.Equal(t, month.End, *b.pricing(t, "GET", path, "").Versions[0].EffectiveFrom)
	var preview client.PricePreview
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "POST", path+"/preview", `{"overage_rate":0.03}`).body), &preview))
	require.Equal(t, month.End, *preview.EffectiveFrom)

	begun := b.pricing(t, "PUT", path, fmt.Sprintf(`{"overage_rate":0.02,"effective_from":%q}`, month.Start.Format(time.RFC3339)))
	require.NotNil(t, begun.Current, "it charges the current period of the meter")
	require.Equal(t, "0.02", begun.Current.OverageRate.String())
	require.Contains(t, b.send(t, "GET", "/v1/pricing?customer=acme", "").body, `"current":{`)

	ended := b.send(t, "POST", path+"/end", `{}`)
	require.Equal(t, 200, ended.status, "no begun period is charged: %s", ended.body)
	versions := b.pricing(t, "GET", path, "").Versions
	require.Equal(t, []any{month.End, true}, []any{*versions[len(versions)-1].EffectiveFrom, *versions[len(versions)-1].Inherits})
}

// TestDocumentStatesDefaultStartOfCustomerPrice checks the text of the field. An own price never applies from the
// beginning by default, unlike the first price of a meter.
func TestDocumentStatesDefaultStartOfCustomerPrice(t *testing.T) {
	t.Parallel()
	_, schemas := describedAPI(t)
	textOf := func(schema string) string {
		return schemas[schema].Value.Properties["effective_from"].Value.Description
	}
	for _, schema := range []string{"SetCustomerPricing", "EndCustomerPricing"} {
		require.Contains(t, textOf(schema), "Default: the start of the customer's next billing period of the meter", schema)
	}
	for _, schema := range []string{"SetPricing", "SetPlanPricing"} {
		require.Contains(t, textOf(schema), "Default for the first price: from the beginning", schema)
	}
}

func TestCustomerPriceRequiresPricingPermissions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	b.key = b.newKey(t, metering.ScopeReadWrite)
	const path = "/v1/customers/acme/pricing/calls"
	for _, request := range [][2]string{{"GET", path}, {"PUT", path}, {"POST", path + "/preview"}, {"POST", path + "/end"}, {"DELETE", path + "/1"}} {
		b.send(t, request[0], request[1], `{"overage_rate":1}`).problem(t, 403, "forbidden")
	}
}

func TestCustomerPricesAreReachedByEveryExternalID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, name := range []string{".", "..", "by-external-id", "by-id", "a/b", "pricing"} {
		quoted, err := json.Marshal(name)
		require.NoError(t, err)
		require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":`+string(quoted)+`}`).status)
		const path = "/v1/customers/by-external-id/pricing/calls"
		query := "?external_id=" + url.QueryEscape(name)
		scheduled := b.pricing(t, "PUT", path+query, `{"overage_rate":3,"effective_from":"2100-01-01T00:00:00Z"}`)
		require.Len(t, scheduled.Versions, 1, name)
		require.Empty(t, b.pricing(t, "DELETE", fmt.Sprint(path, "/", scheduled.Versions[0].Version, query), "").Versions)
		require.Equal(t, 200, b.send(t, "POST", path+"/preview"+query, `{"overage_rate":3}`).status)
		b.pricing(t, "PUT", path+query, `{"overage_rate":3}`)
		require.NotNil(t, b.pricing(t, "GET", path+query, "").Current)
		require.Nil(t, b.pricing(t, "POST", path+"/end"+query, `{}`).Current)
	}
}
