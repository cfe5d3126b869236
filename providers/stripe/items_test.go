package stripe_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestItemsAreReadAlikeInEveryAPIVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2023-10-16", "2025-03-31.basil", "2026-08-26.dahlia"} {
		b := setupVersion(t, version)
		items, err := b.client.Items(t.Context(), key, "cus_1")
		require.NoError(t, err)
		require.Len(t, items, 6)
		require.Equal(t, stripe.Item{
			SubscriptionID: "sub_cus_1", ItemID: "si_legacy_cus_1", PriceID: "price_legacy", LookupKey: "storage",
			PriceMetadata: map[string]string{}, Currency: "USD", UsageType: "metered", PeriodStart: march, PeriodEnd: april,
		}, items[0], version)
		require.Equal(t, stripe.Item{
			SubscriptionID: "sub_cus_1", ItemID: "si_window_cus_1", PriceID: "price_window",
			PriceMetadata: map[string]string{"meter_slug": "minutes"}, Currency: "USD", UsageType: "metered",
			MeterID: "mtr_window", MeterStatus: "active", MeterEventName: "minutes", MeterFormula: "sum", MeterMapping: "by_id",
			CustomerKey: "who", ValueKey: "amount", EventTimeWindow: "hour", PeriodStart: march, PeriodEnd: april,
		}, items[2], version)
		require.Equal(t, map[string]string{"meter_slug": "seats"}, items[3].MeterMetadata)
	}
}

func TestItemsOfAllPagesAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := &stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_many"}}}
	for n := range 103 {
		in.Subscriptions = append(in.Subscriptions, stripetest.Subscription{
			ID: fmt.Sprintf("sub_%d", n), Customer: "cus_many", Items: []stripetest.Item{{Price: "price_delta"}},
		})
	}
	for range 12 {
		in.Subscriptions[5].Items = append(in.Subscriptions[5].Items, stripetest.Item{Price: "price_legacy"})
	}
	require.NoError(t, b.fake.Seed(in))
	items, err := b.client.Items(t.Context(), key, "cus_many")
	require.NoError(t, err)
	require.Len(t, items, 103+12)
	seen := map[string]bool{}
	for _, i := range items {
		seen[i.ItemID] = true
		require.NotZero(t, i.PeriodEnd)
	}
	require.Len(t, seen, 103+12)
}

func TestOnlyItemsOfBilledSubscriptionsAreRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := &stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: "cus_2"}}}
	for _, status := range []string{"active", "trialing", "past_due", "canceled", "unpaid", "incomplete", "incomplete_expired", "paused"} {
		in.Subscriptions = append(in.Subscriptions, stripetest.Subscription{
			Customer: "cus_2", Status: status, Items: []stripetest.Item{{ID: "si_" + status, Price: "price_legacy"}},
		})
	}
	require.NoError(t, b.fake.Seed(in))
	items, err := b.client.Items(t.Context(), key, "cus_2")
	require.NoError(t, err)
	var ids []string
	for _, i := range items {
		ids = append(ids, i.ItemID)
	}
	require.ElementsMatch(t, []string{"si_active", "si_trialing", "si_past_due"}, ids)
}

// TestEndedSubscriptionGetsUsageUntilLastInvoiceIsFinal checks that an ended subscription receives usage
// until its last invoice is final. If another subscription runs, only that one receives usage.
func TestEndedSubscriptionGetsUsageUntilLastInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	half := noon.Truncate(time.Second)
	for name, c := range map[string]struct {
		method string
		form   []string
		end    time.Time
	}{
		"AtOnce":         {http.MethodDelete, []string{"invoice_now", "true"}, half},
		"WithoutInvoice": {http.MethodDelete, nil, time.Time{}},
		"AtPeriodEnd":    {http.MethodPost, []string{"cancel_at_period_end", "true"}, april},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			at := &contract{T: t, base: b.url, key: key, version: "2023-10-16"}
			_, err := at.call(c.method, "/v1/subscriptions/sub_cus_1", c.form...)
			require.NoError(t, err)
			read := func() (side billing.Side) {
				side, err := stripe.NewProvider(b.client).Read(t.Context(), credentials, providers.Question{Customer: "cus_1", Meters: fourMeters})
				require.NoError(t, err)
				return side
			}
			if c.end.Equal(april) {
				require.False(t, read().Ended)
				b.fake.Advance(april.Sub(noon) + time.Minute)
			}
			side := read()
			require.Equal(t, !c.end.IsZero(), side.Ended)
			if side.Ended {
				require.Equal(t, metering.Range{Start: march, End: c.end}, side.Period)
				require.Equal(t, "subscription sub_cus_1 has ended and no longer accepts usage records", side.Destinations[0].Excluded.Detail)
				require.Equal(t, "mtr_delta", side.Destinations[1].Target)
			}
			other := &stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: key}, Subscriptions: []stripetest.Subscription{{
				ID: "sub_other", Customer: "cus_1", Start: april.Unix(), End: april.AddDate(0, 1, 0).Unix(), Items: []stripetest.Item{{Price: "price_delta"}},
			}}}
			b.fake.Advance(2 * time.Hour)
			require.Equal(t, "the customer has no active subscription at Stripe", read().Destinations[1].Excluded.Detail)
			require.NoError(t, b.fake.Seed(other))
			side = read()
			require.Equal(t, "sub_other", side.Subscription)
			require.False(t, side.Ended)
			ended := half
			if c.end.Equal(april) {
				ended = april
			}
			require.ElementsMatch(t, []billing.Run{
				{Subscription: "sub_other", BeganAt: april, Targets: []string{"mtr_delta"}},
				{Subscription: "sub_cus_1", BeganAt: march, EndedAt: &ended, Targets: []string{"si_legacy_cus_1", "mtr_delta", "mtr_window", "mtr_last", "mtr_count"}},
			}, side.Runs)
		})
	}
}

func TestItemsOfUnknownCustomerReturnError(t *testing.T) {
	t.Parallel()
	_, err := setup(t).client.Items(t.Context(), key, "cus_unknown")
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "Stripe refused the request: 400 resource_missing")
	require.Equal(t, "resource_missing", stripe.AnswerOf(err).Code)
	requireSafe(t, err)
}

func TestStripeMeterIsReadOncePerAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.fake.Seed(seed("acct_2", "sk_test_other", "cus_1")))
	reads := func() (n int) {
		for _, r := range b.fake.State().Requests {
			if strings.HasPrefix(r.Path, "/v1/billing/meters/") {
				n++
			}
		}
		return n
	}
	for range 3 {
		_, err := b.client.Items(t.Context(), key, "cus_1")
		require.NoError(t, err)
	}
	require.Equal(t, 4, reads())
	_, err := b.client.Items(t.Context(), "sk_test_other", "cus_1")
	require.NoError(t, err)
	require.Equal(t, 8, reads(), "ids of two accounts are never mistaken for each other")
}

func TestReportingMethodDependsOnSubscriptionItem(t *testing.T) {
	t.Parallel()
	metered := func(change func(*stripe.Item)) stripe.Item {
		i := stripe.Item{SubscriptionID: "sub_1", PriceID: "price_1", UsageType: "metered", MeterID: "mtr_1",
			MeterStatus: "active", MeterFormula: "sum", MeterMapping: "by_id"}
		change(&i)
		return i
	}
	for name, c := range map[string]struct {
		item   stripe.Item
		want   billing.Method
		reason string
	}{
		"legacy":                {metered(func(i *stripe.Item) { i.MeterID = "" }), stripe.UsageRecord, ""},
		"sum":                   {metered(func(*stripe.Item) {}), stripe.MeterDelta, ""},
		"hour":                  {metered(func(i *stripe.Item) { i.EventTimeWindow = "hour" }), stripe.MeterWindow, ""},
		"day":                   {metered(func(i *stripe.Item) { i.EventTimeWindow = "day" }), stripe.MeterWindow, ""},
		"last":                  {metered(func(i *stripe.Item) { i.MeterFormula = "last" }), stripe.MeterLast, ""},
		"last, hour":            {metered(func(i *stripe.Item) { i.MeterFormula, i.EventTimeWindow = "last", "hour" }), stripe.MeterLast, ""},
		"meter with thresholds": {metered(func(i *stripe.Item) { i.BillingThresholds = true }), stripe.MeterDelta, ""},
		"count":                 {metered(func(i *stripe.Item) { i.MeterFormula = "count" }), "", "counts events, so it cannot receive totals"},
		"count, hour":           {metered(func(i *stripe.Item) { i.MeterFormula, i.EventTimeWindow = "count", "hour" }), "", "counts events"},
		"max":                   {metered(func(i *stripe.Item) { i.MeterFormula = "max" }), "", `has formula "max"`},
		"inactive":              {metered(func(i *stripe.Item) { i.MeterStatus = "inactive" }), "", "meter mtr_1 is inactive"},
		"mapping":               {metered(func(i *stripe.Item) { i.MeterMapping = "by_email" }), "", "does not map events to customers by id"},
		"licensed":              {metered(func(i *stripe.Item) { i.UsageType = "licensed" }), "", "price price_1 is not metered"},
		"legacy with thresholds": {metered(func(i *stripe.Item) { i.MeterID, i.BillingThresholds = "", true }), "",
			"subscription sub_1 has billing thresholds"},
	} {
		got, reason := c.item.Method()
		require.Equal(t, c.want, got, name)
		require.Contains(t, reason, c.reason, name)
		require.Equal(t, c.reason == "", reason == "", name)
	}
	for method, overwrites := range map[billing.Method]bool{
		stripe.UsageRecord: true, stripe.MeterWindow: true, stripe.MeterLast: true, stripe.MeterDelta: false,
	} {
		require.Equal(t, overwrites, stripe.CountingOf(method) != billing.Adds, method)
	}
}

func TestBillingThresholdsAreReadFromSubscriptionAndItem(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"id":"sub_1","status":"active","billing_thresholds":{"amount_gte":1},"items":{"data":[{"id":"si_1","billing_thresholds":null}]}}`,
		`{"id":"sub_1","status":"active","billing_thresholds":null,"items":{"data":[{"id":"si_1","billing_thresholds":{"usage_gte":5}}]}}`,
	} {
		items, err := serve(t, answer(200, `{"data":[`+body+`]}`)).Items(t.Context(), key, "cus_1")
		require.NoError(t, err)
		require.True(t, items[0].BillingThresholds)
	}
}

func TestItemPeriodTakesPrecedenceOverSubscriptionPeriod(t *testing.T) {
	t.Parallel()
	items, err := serve(t, answer(200, `{"data":[{"id":"sub_1","status":"active","current_period_start":1,"current_period_end":2,
		"items":{"data":[{"id":"si_1","current_period_start":60,"current_period_end":120},{"id":"si_2"}]}}]}`)).Items(t.Context(), key, "cus_1")
	require.NoError(t, err)
	require.Equal(t, time.Unix(60, 0).UTC(), items[0].PeriodStart)
	require.Equal(t, time.Unix(2, 0).UTC(), items[1].PeriodEnd)
}

// TestReadReturnsCurrencyAndTrial checks that Read returns the currency of the subscription, and whether
// its period is a trial. A trial ends with its period, at the fake and at Stripe.
func TestReadReturnsCurrencyAndTrial(t *testing.T) {
	t.Parallel()
	meters := []metering.Meter{{ID: 1, Slug: "storage"}}
	for _, version := range []string{"2023-10-16", "2025-03-31.basil"} {
		b := setupVersion(t, version)
		side := func(customer string) billing.Side {
			read, err := stripe.NewProvider(b.client).Read(t.Context(), providers.Credentials{Secret: key}, providers.Question{Customer: customer, Meters: meters})
			require.NoError(t, err)
			require.Len(t, read.Destinations, 1)
			require.Empty(t, read.Destinations[0].Excluded)
			return read
		}
		require.NoError(t, b.fake.Seed(&stripetest.Seed{
			Account:   stripetest.Account{ID: "acct_1", Key: key},
			Customers: []stripetest.Customer{{ID: "cus_trial"}, {ID: "cus_later"}},
			Prices:    []stripetest.Price{{ID: "price_francs", LookupKey: "storage", Currency: "chf"}},
			Subscriptions: []stripetest.Subscription{
				{ID: "sub_trial", Customer: "cus_trial", Start: march.Unix(), End: april.Unix(), TrialEnd: april.Unix(), Items: []stripetest.Item{{Price: "price_francs"}}},
				{ID: "sub_later", Customer: "cus_later", Start: march.Unix(), End: april.Unix(), TrialEnd: march.Unix(), Items: []stripetest.Item{{Price: "price_francs"}}},
			},
		}))
		of := metering.Range{Start: march, End: april}
		for customer, want := range map[string]billing.Side{
			"cus_1":     {Subscription: "sub_cus_1", Currency: "USD"},
			"cus_trial": {Subscription: "sub_trial", Currency: "CHF", Trial: true},
			"cus_later": {Subscription: "sub_later", Currency: "CHF"},
		} {
			want.Customer, want.Period, want.Runs = customer, of, []billing.Run{{Subscription: want.Subscription, BeganAt: march}}
			got := side(customer)
			got.Destinations, got.Runs[0].Targets = nil, nil
			require.Equal(t, want, got, version)
		}
	}
}
