package stripetest_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// post sends a form of alternating names and values.
func (b bundle) post(path string, form ...string) reply {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return b.call("POST", path, values.Encode(), "")
}

// createObject sends a form of alternating names and values, and returns the id of the created object.
func (b bundle) createObject(path string, form ...string) string {
	b.t.Helper()
	made := b.post(path, form...)
	require.Equal(b.t, 200, made.status, made.message())
	return made.body["id"].(string)
}

// metered returns the parameters of a metered price. more contains further names and values, which replace
// earlier ones.
func metered(product string, more ...string) []string {
	return append([]string{
		"product", product, "currency", "usd", "unit_amount_decimal", "2.5", "recurring[interval]", "month", "recurring[usage_type]", "metered",
	}, more...)
}

// TestCatalogCallsFollowStripesRules checks the errors of the calls that create products, prices, meters, customers and
// subscriptions. It also checks the first period and the first invoice of a created subscription.
func TestCatalogCallsFollowStripesRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	product := b.createObject("/v1/products", "name", "API")
	price := b.createObject("/v1/prices", metered(product, "recurring[meter]", "sum", "lookup_key", "calls")...)
	inactive := b.createObject("/v1/prices", metered(product)...)
	require.Equal(t, false, b.post("/v1/prices/"+inactive, "active", "false").body["active"])
	customer := b.createObject("/v1/customers", "email", "a@example.com")
	nobody := b.createObject("/v1/customers")
	euros := b.createObject("/v1/prices", metered(product, "currency", "eur")...)
	subscription := func(more ...string) reply {
		return b.post("/v1/subscriptions", append([]string{"customer", customer, "collection_method", "send_invoice", "items[0][price]", price}, more...)...)
	}
	meter := func(name string) reply {
		return b.post("/v1/billing/meters", "display_name", name, "event_name", name, "default_aggregation[formula]", "sum")
	}
	for name, c := range map[string]struct {
		got     reply
		message string
	}{
		"no such product":       {b.post("/v1/prices", metered("prod_9")...), "No such product: 'prod_9'"},
		"no such meter":         {b.post("/v1/prices", metered(product, "recurring[meter]", "mtr_9")...), "No such meter: 'mtr_9'"},
		"an inactive meter":     {b.post("/v1/prices", metered(product, "recurring[meter]", "off")...), "inactive"},
		"a lookup key again":    {b.post("/v1/prices", metered(product, "lookup_key", "calls")...), "already uses that lookup key"},
		"no amount":             {b.post("/v1/prices", metered(product, "unit_amount_decimal", "2,5")...), ""},
		"by the year":           {b.post("/v1/prices", metered(product, "recurring[interval]", "year")...), "by the month only"},
		"an event name again":   {meter("sum"), "exists already"},
		"no such customer":      {subscription("customer", "cus_9"), "No such customer: 'cus_9'"},
		"no items":              {b.post("/v1/subscriptions", "customer", customer), "Missing required param: items."},
		"no such price":         {subscription("items[0][price]", "price_9"), "No such price: 'price_9'"},
		"an inactive price":     {subscription("items[0][price]", inactive), "only accepts active prices"},
		"nothing to pay with":   {subscription("collection_method", "charge_automatically"), "no attached payment source"},
		"nowhere to send it":    {subscription("customer", nobody), "Missing email."},
		"two currencies":        {subscription("items[1][price]", euros), "You cannot combine currencies"},
		"another currency":      {subscription("customer", "cus_1", "items[0][price]", euros), "with currency usd."},
		"no such test clock":    {b.post("/v1/customers", "test_clock", "clock_9"), "No such test clock: 'clock_9'"},
		"a customer twice gone": {b.call("DELETE", "/v1/customers/cus_9", "", ""), "No such customer: 'cus_9'"},
	} {
		require.Contains(t, []int{400, 404}, c.got.status, name)
		require.Contains(t, c.got.message(), c.message, name)
	}

	made := subscription()
	require.Equal(t, 200, made.status, made.message())
	require.EqualValues(t, noon.Unix(), made.body["current_period_start"])
	require.EqualValues(t, noon.AddDate(0, 1, 0).Unix(), made.body["current_period_end"])
	id := made.body["id"].(string)
	first := b.call("GET", "/v1/invoices?subscription="+id, "", "").body["data"].([]any)[0].(map[string]any)
	require.Equal(t, "subscription_create", first["billing_reason"])
	require.Equal(t, "paid", first["status"])
	require.Equal(t, "canceled", b.call("DELETE", "/v1/subscriptions/"+id, "", "").body["status"])
	require.Equal(t, 404, b.call("DELETE", "/v1/subscriptions/"+id, "", "").status)

	own := meter("own")
	require.Equal(t, "inactive", b.post("/v1/billing/meters/" + own.body["id"].(string) + "/deactivate").body["status"])
	require.Equal(t, 200, meter("own").status, "its event name is free again")
}

// TestPeriodsOfCreatedSubscriptionKeepItsDay checks the periods of a subscription that a call creates on the 31st. In
// shorter months, they end on the last day.
func TestPeriodsOfCreatedSubscriptionKeepItsDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	product := b.createObject("/v1/products", "name", "API")
	price := b.createObject("/v1/prices", metered(product)...)
	last := time.Date(2026, 1, 31, 7, 0, 0, 0, time.UTC)
	clock := b.createObject("/v1/test_helpers/test_clocks", "frozen_time", fmt.Sprint(last.Unix()))
	customer := b.createObject("/v1/customers", "email", "a@example.com", "test_clock", clock)
	b.createObject("/v1/subscriptions", "customer", customer, "collection_method", "send_invoice", "items[0][price]", price)
	b.createObject("/v1/test_helpers/test_clocks/"+clock+"/advance", "frozen_time", fmt.Sprint(last.AddDate(0, 0, 59).Unix()))
	var ends []string
	for _, in := range b.State().Accounts[0].Invoices {
		if in.Customer == customer {
			ends = append(ends, in.PeriodEnd.Format("01-02 15:04"))
		}
	}
	require.Equal(t, []string{"01-31 07:00", "02-28 07:00", "03-31 07:00"}, ends)
}

// TestTestClockControlsItsCustomers checks the times of usage records and meter events, the invoices and the deletion
// of a customer on a test clock, and that the time of the fake does not change.
func TestTestClockControlsItsCustomers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const clocks = "/v1/test_helpers/test_clocks"
	start := noon.Add(-20 * 24 * time.Hour)
	clock := b.createObject(clocks, "frozen_time", fmt.Sprint(start.Unix()))
	customer := b.createObject("/v1/customers", "email", "a@example.com", "test_clock", clock)
	product := b.createObject("/v1/products", "name", "API")
	made := b.post("/v1/subscriptions", "customer", customer, "collection_method", "send_invoice", "items[0][price]", b.createObject("/v1/prices", metered(product)...))
	item := made.body["items"].(map[string]any)["data"].([]any)[0].(map[string]any)["id"].(string)

	require.Contains(t, b.record(item, "set", 5, noon).message(), "must not be in the future")
	require.Contains(t, b.post("/v1/billing/meter_events", "event_name", "sum", "payload[stripe_customer_id]", customer, "payload[value]", "5",
		"timestamp", fmt.Sprint(noon.Unix())).message(), "more than 5 minutes in future")
	advanced := b.post(clocks+"/"+clock+"/advance", "frozen_time", fmt.Sprint(start.Add(time.Hour).Unix()))
	require.Equal(t, "advancing", advanced.body["status"])
	require.Equal(t, "ready", b.call("GET", clocks+"/"+clock, "", "").body["status"])
	require.Equal(t, 200, b.record(item, "set", 5, start.Add(time.Minute)).status)
	require.Equal(t, noon, b.Now())

	for to, message := range map[time.Time]string{start: "only be advanced", start.AddDate(0, 2, 1): "at most two intervals"} {
		require.Contains(t, b.post(clocks+"/"+clock+"/advance", "frozen_time", fmt.Sprint(to.Unix())).message(), message)
	}
	b.createObject(clocks+"/"+clock+"/advance", "frozen_time", fmt.Sprint(start.AddDate(0, 1, 0).Add(time.Hour).Unix()))
	invoices := b.State().Accounts[0].Invoices
	require.Equal(t, "13", invoices[1].Total.String(), "5 × 2.5 cents, up")
	require.Equal(t, "open", invoices[1].Status)

	require.Equal(t, true, b.call("DELETE", clocks+"/"+clock, "", "").body["deleted"])
	require.Equal(t, 404, b.call("GET", clocks+"/"+clock, "", "").status)
	require.Equal(t, 404, b.call("DELETE", "/v1/customers/"+customer, "", "").status, "deleted with its clock")
}

func TestMeterEventMustBeRecentByTestClockAndFakeClock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for ago, status := range map[time.Duration]int{-36 * 24 * time.Hour: 400, -34 * 24 * time.Hour: 200, time.Hour: 400} {
		at := fmt.Sprint(noon.Add(ago).Unix())
		customer := b.createObject("/v1/customers", "test_clock", b.createObject("/v1/test_helpers/test_clocks", "frozen_time", at))
		require.Equal(t, status, b.post("/v1/billing/meter_events", "event_name", "sum", "payload[stripe_customer_id]", customer, "payload[value]", "5",
			"timestamp", at).status, "it is now by its clock, and %s by ours", ago)
	}
}

func TestThereAreNoTestClocksInLiveMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_live", Key: "sk_live_1"}}))
	require.Equal(t, 400, b.callAs("sk_live_1", "POST", "/v1/test_helpers/test_clocks", fmt.Sprint("frozen_time=", noon.Unix()), "").status)
}
