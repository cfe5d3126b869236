package stripetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// swapped is the time at which the tests change the price of sub_1.
var swapped = noon.AddDate(0, 0, 6)

// flexible gives sub_1 the flexible billing mode.
func flexible(in *stripetest.Seed) { in.Subscriptions[0].BillingMode = "flexible" }

// TestPriceSwapInClassicModeBillsNoEarlierUsage checks that usage from before the change is not billed in classic mode:
// https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func TestPriceSwapInClassicModeBillsNoEarlierUsage(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	b.advanceTo(swapped)
	s := b.mustPost("/v1/subscriptions/sub_1", "items[0][id]", "si_1", "items[0][price]", "price_better")
	item := s["items"].(map[string]any)["data"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"si_1", "price_better"}, []any{item["id"], item["price"].(map[string]any)["id"]})
	b.reportCalls(40, swapped)
	b.reportCalls(7, swapped.Add(-time.Second)) // from before the change; never billed
	was := b.firstPage("/v1/events?type=customer.subscription.updated")[0]["data"].(map[string]any)["previous_attributes"].(map[string]any)
	require.Len(t, was, 1)
	item = was["items"].(map[string]any)["data"].([]any)[0].(map[string]any)
	require.Equal(t, "price_calls", item["price"].(map[string]any)["id"], "its event says what the price was")
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"subscription_cycle open 80"}, b.invoices())
	line := b.firstPage("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/lines")[0]
	require.Equal(t, map[string]any{"start": float64(swapped.Unix()), "end": float64(april.Unix())}, line["period"])

	b.reportCalls(10, april.Add(time.Hour))
	b.advanceTo(april.AddDate(0, 1, 0).Add(time.Hour))
	require.Equal(t, []string{"10 20"}, b.lines(b.newestInvoice()["id"]), "a whole period again")
}

// TestPriceSwapInFlexibleModeBillsEarlierUsage checks that an invoice item bills the usage reported before the change
// in flexible mode.
func TestPriceSwapInFlexibleModeBillsEarlierUsage(t *testing.T) {
	t.Parallel()
	b := plain(t, flexible)
	b.reportCalls(100, noon)
	b.advanceTo(swapped)
	b.mustPost("/v1/subscription_items/si_1", "price", "price_better")
	b.reportCalls(40, swapped)
	b.reportCalls(7, swapped.Add(-time.Second)) // reported too late for the segment
	require.Equal(t, []string{"100 250"}, fields(b.firstPage("/v1/invoiceitems?pending=true"), "quantity", "amount"))
	b.advanceTo(april.Add(time.Hour))
	lines := b.firstPage("/v1/invoices/" + b.newestInvoice()["id"].(string) + "/lines")
	require.Equal(t, []string{"40 80 subscription si_1", "100 250 invoiceitem si_1"}, fields(lines, "quantity", "amount", "type", "subscription_item"))
	require.Equal(t, "price_calls", lines[1]["price"].(map[string]any)["id"])
	require.Equal(t, map[string]any{"start": float64(march.Unix()), "end": float64(swapped.Unix())}, lines[1]["period"])
	require.EqualValues(t, 330, b.newestInvoice()["total"])
}

func TestProrationBehaviorDecidesWhenEarlierUsageIsBilled(t *testing.T) {
	t.Parallel()
	for behavior, want := range map[string][]string{
		"always_invoice":    {"subscription_update open 250", "subscription_cycle open 0"},
		"create_prorations": {"subscription_cycle open 250"},
		"none":              {"subscription_cycle open 0"},
	} {
		b := plain(t, flexible)
		b.reportCalls(100, noon)
		b.advanceTo(swapped)
		b.mustPost("/v1/subscriptions/sub_1", "items[0][id]", "si_1", "items[0][price]", "price_better", "proration_behavior", behavior)
		b.advanceTo(april.Add(time.Hour))
		require.Equal(t, want, b.invoices(), behavior)
	}
}

// TestPriceSwapThatBeginsPeriodBillsEarlierUsage checks that a price change that begins a new period bills the earlier
// usage at the previous price.
func TestPriceSwapThatBeginsPeriodBillsEarlierUsage(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.reportCalls(100, noon)
	b.advanceTo(swapped)
	b.mustPost("/v1/subscriptions/sub_1", "items[0][id]", "si_1", "items[0][price]", "price_better", "billing_cycle_anchor", "now")
	b.reportCalls(40, swapped)
	b.reportCalls(7, swapped.Add(-time.Second)) // reported while its invoice is a draft
	b.advanceTo(swapped.AddDate(0, 1, 0).Add(time.Hour))
	require.Equal(t, []string{"subscription_update open 268", "subscription_cycle open 80"}, b.invoices())
}

func TestAddedAndRemovedItemsAreBilledByBillingMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{"classic": {"30 60"}, "flexible": {"30 60", "120 300"}} {
		b := plain(t, func(in *stripetest.Seed) { in.Subscriptions[0].BillingMode = mode })
		b.reportCalls(100, noon)
		b.advanceTo(swapped)
		added := b.mustPost("/v1/subscription_items", "subscription", "sub_1", "price", "price_better")
		b.reportCalls(20, swapped) // counts for both items
		b.Advance(time.Hour)
		removed := b.call("DELETE", "/v1/subscription_items/si_1", "", "")
		require.Equal(t, true, removed.body["deleted"])
		b.reportCalls(10, swapped.Add(time.Hour))
		require.Equal(t, []string{added["id"].(string)}, fields(b.firstPage("/v1/subscription_items?subscription=sub_1"), "id"))
		b.advanceTo(april.Add(time.Hour))
		require.Equal(t, want, b.lines(b.newestInvoice()["id"]), mode)
	}
}

func TestInvalidChangeOfItemIsRefused(t *testing.T) {
	t.Parallel()
	b := plain(t, func(in *stripetest.Seed) {
		in.Prices = append(in.Prices, stripetest.Price{ID: "price_eur", Currency: "eur"}, stripetest.Price{ID: "price_off", Inactive: true})
	})
	swap := func(item, price string) reply {
		return b.post("/v1/subscriptions/sub_1", "items[0][id]", item, "items[0][price]", price)
	}
	for name, c := range map[string]struct {
		got     reply
		message string
	}{
		"no such item":         {swap("si_9", "price_better"), "No such subscription_item: 'si_9'"},
		"no such price":        {swap("si_1", "price_9"), "No such price: 'price_9'"},
		"an inactive price":    {swap("si_1", "price_off"), "only accepts active prices"},
		"another currency":     {swap("si_1", "price_eur"), "with currency usd"},
		"no such subscription": {b.post("/v1/subscription_items", "subscription", "sub_9", "price", "price_better"), "No such subscription"},
		"another's item":       {b.post("/v1/subscription_items/si_9", "price", "price_better"), "No such subscription_item"},
	} {
		require.Contains(t, []int{400, 404}, c.got.status, name)
		require.Contains(t, c.got.message(), c.message, name)
	}
	b.mustPost("/v1/subscriptions/sub_1", "items[0][id]", "si_1", "items[0][price]", "price_calls")
	b.reportCalls(100, noon.Add(-time.Hour))
	b.advanceTo(april.Add(time.Hour))
	require.EqualValues(t, 250, b.newestInvoice()["total"], "the same price is no swap")
}

// TestBillingModeDefaultsToFlexibleInNewAPIVersion checks that the default billing mode is flexible since version
// 2025-09-30.
func TestBillingModeDefaultsToFlexibleInNewAPIVersion(t *testing.T) {
	t.Parallel()
	b := plain(t)
	form := []string{"customer", "cus_1", "collection_method", "send_invoice", "items[0][price]", "price_calls"}
	mode := func(s map[string]any) any { return s["billing_mode"].(map[string]any)["type"] }
	require.Equal(t, "flexible", mode(b.postModern("/v1/subscriptions", form...).body))
	require.Equal(t, "classic", mode(b.postModern("/v1/subscriptions", append(form, "billing_mode[type]", "classic")...).body))
	require.NotContains(t, b.mustPost("/v1/subscriptions", form...), "billing_mode")
}

// threshold gives sub_1 a billing threshold of 10 dollars.
func threshold(in *stripetest.Seed) { in.Subscriptions[0].ThresholdAmount = 1000 }

// TestThresholdCreatesInvoiceWithinPeriod checks that usage on the invoice of a threshold is not billed again.
func TestThresholdCreatesInvoiceWithinPeriod(t *testing.T) {
	t.Parallel()
	b := plain(t, threshold)
	b.reportCalls(399, noon)
	require.Empty(t, b.invoices())
	b.reportCalls(21, noon)
	require.Equal(t, []string{"subscription_threshold draft 1050"}, b.invoices())
	b.requireQuantity("0", "si_1")
	b.reportCalls(10, noon.Add(-time.Hour))
	b.advanceTo(april.Add(-time.Hour))
	require.Equal(t, []string{"420 1050"}, b.lines(b.newestInvoice()["id"]), "its draft isn't counted again")
	b.reportCalls(500, april.Add(-time.Hour))
	require.Len(t, b.invoices(), 1, "none in the last day")
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"510 1275"}, b.lines(b.newestInvoice()["id"]))
	require.Equal(t, []string{"subscription_threshold open 1050", "subscription_cycle open 1275"}, b.invoices())
}

// TestTiersContinueAfterThresholdInvoice follows
// https://docs.stripe.com/billing/subscriptions/usage-based/thresholds: tiers continue after the invoice of
// a threshold.
func TestTiersContinueAfterThresholdInvoice(t *testing.T) {
	t.Parallel()
	b := plain(t, threshold, func(in *stripetest.Seed) {
		in.Prices[0].TiersMode = "graduated"
		in.Prices[0].Tiers = []stripetest.Tier{{UpTo: "100", UnitAmount: "10"}, {UpTo: "inf", UnitAmount: "1"}}
	})
	b.reportCalls(110, noon)
	b.advanceTo(april.Add(-time.Hour))
	b.reportCalls(50, noon)
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"subscription_threshold open 1010", "subscription_cycle open 50"}, b.invoices())
}

func TestVolumePriceAppliesToWholePeriodDespiteThreshold(t *testing.T) {
	t.Parallel()
	b := plain(t, threshold, func(in *stripetest.Seed) {
		in.Prices[0].TiersMode = "volume"
		in.Prices[0].Tiers = []stripetest.Tier{{UpTo: "100", UnitAmount: "10", FlatAmount: "5"}, {UpTo: "inf", UnitAmount: "9", FlatAmount: "7"}}
	})
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(-time.Hour))
	b.reportCalls(100, noon)
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"subscription_threshold open 1005", "subscription_cycle open 802"}, b.invoices(), "1807 in all")
	require.Equal(t, []string{"100 800", "0 2"}, b.lines(b.newestInvoice()["id"]))
}

func TestThresholdInvoiceCanBeginNewPeriod(t *testing.T) {
	t.Parallel()
	b := plain(t)
	b.mustPost("/v1/subscriptions/sub_1", "billing_thresholds[amount_gte]", "1000", "billing_thresholds[reset_billing_cycle_anchor]", "true")
	b.reportCalls(400, noon.Add(-time.Hour))
	s := b.read("/v1/subscriptions/sub_1")
	require.Equal(t, []any{float64(noon.Unix()), float64(noon.AddDate(0, 1, 0).Unix())}, []any{s["current_period_start"], s["current_period_end"]})
	b.reportCalls(4, noon)
	b.advanceTo(noon.AddDate(0, 1, 0).Add(time.Hour))
	require.Equal(t, []string{"subscription_threshold open 1000", "subscription_cycle open 10"}, b.invoices())
	require.Equal(t, 400, b.post("/v1/subscriptions/sub_1", "billing_thresholds[amount_gte]", "49").status)
}

// TestPriceSwapIgnoresThresholdInvoiceOfPreviousPrice checks that the invoice of a threshold at the previous price does
// not reduce the charges at the new price.
func TestPriceSwapIgnoresThresholdInvoiceOfPreviousPrice(t *testing.T) {
	t.Parallel()
	b := plain(t, threshold)
	b.reportCalls(400, noon)
	b.advanceTo(swapped)
	b.reportCalls(20, noon)
	b.mustPost("/v1/subscription_items/si_1", "price", "price_better")
	b.reportCalls(30, swapped)
	b.advanceTo(april.Add(time.Hour))
	require.Equal(t, []string{"subscription_threshold open 1000", "subscription_cycle open 60"}, b.invoices())
}
