package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// atStripe returns a replica that uses a fake Stripe with the seed. The API key of the account is
// sk_test_CANARYkey.
func (b *bundle) atStripe(t *testing.T, seed *stripetest.Seed) (r *bundle, stripe *httptest.Server) {
	t.Helper()
	fake := stripetest.New(stripetest.Options{Now: clock.Now})
	seed.Account = stripetest.Account{ID: "acct_1", Key: "sk_test_CANARYkey"}
	require.NoError(t, fake.Seed(seed))
	stripe = httptest.NewServer(fake)
	t.Cleanup(stripe.Close)
	return b.replica(t, func(d *api.Deps) { d.Providers = registry.New(guard, stripe.URL) }), stripe
}

// TestLinkingCustomerComparesPricesWithProvider checks that linking a customer compares its prices. The
// response shows a price that differs from the provider's, and the preview charges the provider's price. If the
// provider's price has another currency, the link is refused. If the provider does not respond, the link is accepted.
func TestLinkingCustomerComparesPricesWithProvider(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := &stripetest.Seed{
		Meters:    []stripetest.Meter{{ID: "mtr_calls", EventName: "calls"}},
		Prices:    []stripetest.Price{{ID: "price_1", LookupKey: "calls", Meter: "mtr_calls", UnitAmount: "3"}, {ID: "price_2", LookupKey: "calls", Meter: "mtr_calls", Currency: "eur"}},
		Customers: []stripetest.Customer{{ID: "cus_1"}, {ID: "cus_2"}},
		Subscriptions: []stripetest.Subscription{
			{ID: "sub_1", Customer: "cus_1", Items: []stripetest.Item{{ID: "si_1", Price: "price_1"}}},
			{ID: "sub_2", Customer: "cus_2", Items: []stripetest.Item{{ID: "si_2", Price: "price_2"}}},
		},
	}
	r, server := b.atStripe(t, seed)
	r.meter(t, "calls", "call")
	require.Equal(t, 200, r.send(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0.02}`).status)
	saved := r.send(t, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","secret_key":"sk_test_CANARYkey","webhook_secret":%q}`, stripeSecret))
	require.Equal(t, 200, saved.status, saved.body)

	refused := r.send(t, "POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_2"}`)
	refused.problem(t, 422, "invalid")
	require.Contains(t, refused.body, "body.billing_provider_id")
	require.Contains(t, refused.body, "bills in EUR for the meter calls, but the meter's price in Odometer is in USD")
	require.Equal(t, 404, r.send(t, "GET", "/v1/customers/acme", "").status, "nobody is made")

	scheduled := r.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0.02,"currency":"EUR"}`).Versions
	refused = r.send(t, "POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_1"}`)
	refused.problem(t, 422, "invalid")
	require.Contains(t, refused.body, "bills in USD for the meter calls, but the meter's price in Odometer is in EUR", "from the next month on")
	require.Equal(t, 200, r.send(t, "DELETE", fmt.Sprintf("/v1/meters/calls/pricing/%d", scheduled[1].Version), "").status)

	made := r.send(t, "POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_1"}`)
	require.Equal(t, 201, made.status, made.body)
	var shown client.Customer
	require.NoError(t, json.Unmarshal([]byte(made.body), &shown))
	require.Len(t, shown.PriceComparison.Differences, 1)
	differs := shown.PriceComparison.Differences[0]
	require.Equal(t, [3]string{"calls", "0.02 USD for each unit", "0.03 USD for each unit"}, [3]string{differs.MeterSlug, differs.OurPrice, differs.TheirPrice})
	var again client.Customer
	require.NoError(t, json.Unmarshal([]byte(r.send(t, "GET", "/v1/customers/acme", "").body), &again))
	require.Equal(t, shown.PriceComparison.Differences, again.PriceComparison.Differences)
	require.NotNil(t, again.PriceComparison.ComparedAt)

	r.at(t, b.now().UTC().Format(time.RFC3339), "a", "142")
	var items []client.PreviewItem
	preview := r.send(t, "GET", "/v1/billing/preview?customer=acme", "")
	require.NoError(t, json.Unmarshal([]byte(preview.body), &items), preview.body)
	require.Equal(t, [3]string{"4.26", "0.03", "price_1"}, [3]string{items[0].Amount.String(), items[0].UnitPrice.String(), *items[0].ProviderPrice})
	require.Equal(t, "0.02 USD for each unit", items[0].PriceDifference.OurPrice)

	require.Equal(t, 200, r.confirmed(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":0.02,"currency":"EUR"}`).status)
	same := r.send(t, "PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":"cus_1","name":"Acme"}`)
	require.Equal(t, 200, same.status, "the link does not change: %s", same.body)

	server.Close()
	unread := r.send(t, "PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_2"}`)
	require.Equal(t, 201, unread.status, unread.body)
	require.Contains(t, unread.body, `"compared_at":null,"reason":"not compared yet: `)
}

// TestPriceComparisonFollowsFormOfRunningPeriod changes the provider's setting bills within a billing period. The
// period keeps the form that it had at its start, so the prices are compared as long as it bills quantities.
func TestPriceComparisonFollowsFormOfRunningPeriod(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		b := setup(t)
		r, _ := b.atStripe(t, &stripetest.Seed{
			Meters:        []stripetest.Meter{{ID: "mtr_calls", EventName: "calls"}},
			Prices:        []stripetest.Price{{ID: "price_1", LookupKey: "calls", Meter: "mtr_calls", UnitAmount: "3"}},
			Customers:     []stripetest.Customer{{ID: "cus_1"}, {ID: "cus_2"}},
			Subscriptions: []stripetest.Subscription{{ID: "sub_1", Customer: "cus_1", Items: []stripetest.Item{{ID: "si_1", Price: "price_1"}}}, {ID: "sub_2", Customer: "cus_2", Items: []stripetest.Item{{ID: "si_2", Price: "price_1"}}}},
		})
		r.meter(t, "calls", "call")
		must := func(method, path, body string) string {
			t.Helper()
			a := r.send(t, method, path, body)
			require.Less(t, a.status, 300, a.body)
			return a.body
		}
		bill := func(bills string) {
			t.Helper()
			must("PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","secret_key":"sk_test_CANARYkey","webhook_secret":%q,"bills":%s}`, stripeSecret, bills))
		}
		const listed = "/v1/meters/calls/pricing"
		differences := func() (counts [4]int) {
			t.Helper()
			var c client.Customer
			require.NoError(t, json.Unmarshal([]byte(must("GET", "/v1/customers/acme", "")), &c))
			counts[0] = len(c.PriceComparison.Differences)
			for i, from := range []string{"2020-01-01T00:00:00Z", billing.CalendarPeriod(r.now(), time.UTC).End.Format(time.RFC3339)} {
				var shown client.PricePreview
				require.NoError(t, json.Unmarshal([]byte(must("POST", listed+"/preview", `{"overage_rate":0.04,"effective_from":"`+from+`"}`)), &shown))
				counts[1+i] = len(shown.ProviderDifferences)
			}
			var linked client.Customer
			require.NoError(t, json.Unmarshal([]byte(must("PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":null}`)), &linked))
			require.NoError(t, json.Unmarshal([]byte(must("PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_2"}`)), &linked))
			counts[3] = len(linked.PriceComparison.Differences)
			return counts
		}
		must("PUT", listed, `{"overage_rate":0.02}`)
		bill(`"quantities"`)
		must("POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_1"}`)
		if stored {
			_, err := r.store.Ledger.DuePeriods(t.Context(), r.tenant.ID, 0, 10, r.now())
			require.NoError(t, err)
		}
		require.Equal(t, [4]int{1, 1, 1, 1}, differences(), "quantities")
		bill(`"amounts","product":"prod_1"`)
		require.Equal(t, [4]int{1, 1, 0, 1}, differences(), "amounts from the next period on")
		if !stored {
			continue
		}
		r.ahead.Store(int64(billing.CalendarPeriod(r.now(), time.UTC).End.Sub(r.now())) + int64(time.Hour))
		_, err := r.store.Ledger.DuePeriods(t.Context(), r.tenant.ID, 0, 10, r.now())
		require.NoError(t, err)
		require.Equal(t, 0, differences()[0], "a period in amounts")
		bill(`"quantities"`)
		again := differences()
		require.Equal(t, []int{0, 0, 1}, again[:3], "quantities from the next period on")
	}
}

// TestAPriceIsComparedWithTheProvidersPricesWhenItIsSaved checks that a price is compared with the prices at the
// provider that charge its customers. Both the preview and the saving request compare it. Customers with another
// price in Odometer are excluded.
func TestAPriceIsComparedWithTheProvidersPricesWhenItIsSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := &stripetest.Seed{
		Meters: []stripetest.Meter{{ID: "mtr_calls", EventName: "calls"}},
		Prices: []stripetest.Price{{ID: "price_1", LookupKey: "calls", Meter: "mtr_calls", UnitAmount: "3"}, {ID: "price_2", LookupKey: "calls", Meter: "mtr_calls", UnitAmount: "5"}},
	}
	for i, price := range []string{"price_1", "price_1", "price_2", "price_2", "price_1"} {
		customer := fmt.Sprintf("cus_%d", i+1)
		seed.Customers = append(seed.Customers, stripetest.Customer{ID: customer})
		seed.Subscriptions = append(seed.Subscriptions, stripetest.Subscription{
			ID: fmt.Sprintf("sub_%d", i+1), Customer: customer, Items: []stripetest.Item{{ID: fmt.Sprintf("si_%d", i+1), Price: price}},
		})
	}
	r, _ := b.atStripe(t, seed)
	r.meter(t, "calls", "call")
	const listed = "/v1/meters/calls/pricing"
	for _, call := range [][3]string{
		{"PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"stripe","secret_key":"sk_test_CANARYkey","webhook_secret":%q}`, stripeSecret)},
		{"PUT", listed, `{"overage_rate":0.03}`},
		{"POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`},
		{"POST", "/v1/customers", `{"external_id":"a","billing_provider_id":"cus_1"}`},
		{"POST", "/v1/customers", `{"external_id":"b","billing_provider_id":"cus_2"}`},
		{"POST", "/v1/customers", `{"external_id":"c","billing_provider_id":"cus_3"}`},
		{"POST", "/v1/customers", `{"external_id":"d","billing_provider_id":"cus_4"}`},
		{"POST", "/v1/customers", `{"external_id":"e","billing_provider_id":"cus_5"}`},
		{"PUT", "/v1/customers/d/plan", `{"plan":"pro"}`},
	} {
		a := r.send(t, call[0], call[1], call[2])
		require.Less(t, a.status, 300, a.body)
	}
	preview := func(path, body string) []client.ProviderDifference {
		t.Helper()
		var shown client.PricePreview
		a := r.send(t, "POST", path+"/preview", body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &shown), a.body)
		return shown.ProviderDifferences
	}
	differs := func(theirs, rate string, customers int64) client.ProviderDifference {
		return client.ProviderDifference{
			TheirPrice: theirs + " USD for each unit", FirstDifference: fmt.Sprintf("tier 1: unit_price is %s in Odometer and %s at the provider", rate, theirs), Customers: customers,
		}
	}

	require.Equal(t, []client.ProviderDifference{differs("0.03", "0.04", 3), differs("0.05", "0.04", 2)}, preview(listed, `{"overage_rate":0.04}`))
	require.Equal(t, []client.ProviderDifference{differs("0.05", "0.03", 2)}, preview(listed, `{"overage_rate":0.03}`), "the same price is no difference")
	saved := r.pricing(t, "PUT", listed, `{"overage_rate":0.04}`)
	require.Equal(t, preview(listed, `{"overage_rate":0.04}`), *saved.ProviderDifferences)
	require.Nil(t, r.pricing(t, "GET", listed, "").ProviderDifferences)

	plans := r.pricing(t, "PUT", "/v1/plans/pro/pricing/calls", `{"overage_rate":0.06}`)
	require.Equal(t, []client.ProviderDifference{differs("0.05", "0.06", 1)}, *plans.ProviderDifferences)
	require.Equal(t, []client.ProviderDifference{differs("0.03", "0.04", 3), differs("0.05", "0.04", 1)}, preview(listed, `{"overage_rate":0.04}`), "the plan's price applies to one of them")

	own := r.pricing(t, "PUT", "/v1/customers/a/pricing/calls", `{"overage_rate":0.06}`)
	require.Equal(t, []client.ProviderDifference{differs("0.03", "0.06", 1)}, *own.ProviderDifferences)
	require.Equal(t, []client.ProviderDifference{differs("0.03", "0.04", 2), differs("0.05", "0.04", 1)}, preview(listed, `{"overage_rate":0.04}`), "a customer's own price applies to another")
	next := billing.CalendarPeriod(r.now(), time.UTC).End.Format(time.RFC3339)
	require.Equal(t, 200, r.send(t, "POST", "/v1/customers/a/pricing/calls/end", `{"effective_from":"`+next+`"}`).status)
	require.Equal(t, []client.ProviderDifference{differs("0.03", "0.04", 3), differs("0.05", "0.04", 1)},
		preview(listed, `{"overage_rate":0.04,"effective_from":"`+next+`"}`), "from its end on")
	require.Empty(t, preview("/v1/customers/a/pricing/calls", `{"overage_rate":0.03}`))
}

// TestAPlansFirstPriceInAnotherCurrencyIsRefused checks that the first price of a meter in a plan must have the
// currency of the running billing periods, because the price applies to these periods.
func TestAPlansFirstPriceInAnotherCurrencyIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	for _, call := range [][3]string{
		{"PUT", "/v1/meters/calls/pricing", `{"overage_rate":1,"currency":"USD"}`},
		{"POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`},
		{"POST", "/v1/customers", `{"external_id":"acme"}`},
		{"PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`},
	} {
		require.Less(t, b.send(t, call[0], call[1], call[2]).status, 300, call)
	}
	const path = "/v1/plans/pro/pricing/calls"
	refuse := func(body string) {
		t.Helper()
		refused := b.send(t, "PUT", path, body)
		refused.problem(t, 422, "invalid")
		require.Contains(t, refused.body, "body.currency")
		require.Contains(t, refused.body, "must be USD")
	}
	refuse(`{"overage_rate":1,"currency":"EUR"}`)
	b.send(t, "POST", path+"/preview", `{"overage_rate":1,"currency":"EUR"}`).problem(t, 422, "invalid")
	_, err := b.store.Ledger.DuePeriods(t.Context(), b.tenant.ID, 0, 10, b.now()) // stores the running period
	require.NoError(t, err)
	refuse(`{"overage_rate":1,"currency":"EUR"}`)
	b.unconfirmed(t, "PUT", path, `{"overage_rate":1,"currency":"EUR","effective_from":"2100-01-01T00:00:00Z"}`)
	scheduled := b.pricing(t, "PUT", path, `{"overage_rate":1,"currency":"EUR","effective_from":"2100-01-01T00:00:00Z"}`).Versions[0].Version
	refuse(`{"overage_rate":1,"currency":"EUR","effective_from":"2020-01-01T00:00:00Z"}`)
	require.Equal(t, 200, b.send(t, "DELETE", fmt.Sprintf("%s/%d", path, scheduled), "").status)
	refuse(`{"overage_rate":1,"currency":"EUR"}`)
	require.Equal(t, 200, b.send(t, "PUT", path, `{"overage_rate":1,"currency":"USD"}`).status)
	b.unconfirmed(t, "PUT", path, `{"overage_rate":1,"currency":"EUR"}`)
	require.Equal(t, 200, b.confirmed(t, "PUT", path, `{"overage_rate":1,"currency":"EUR"}`).status, "later ones begin with a period")
}
