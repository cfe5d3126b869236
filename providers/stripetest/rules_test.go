package stripetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestUsageRecordsFollowStripesRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := march.Add(time.Hour)
	require.Equal(t, 200, b.record("si_", "set", 5, at).status)
	require.Equal(t, 200, b.record("si_", "set", 3, at).status)
	b.requireQuantity("3", "si_")
	require.Equal(t, 200, b.record("si_", "increment", 4, at).status)
	b.requireQuantity("7", "si_")
	require.Equal(t, 200, b.record("si_", "set", 1, noon).status)
	b.requireQuantity("8", "si_")
	require.Equal(t, 200, b.record("si_thresholds", "increment", 2, at).status)
	require.Equal(t, 200, b.call("POST", "/v1/subscription_items/si_/usage_records", "quantity=1&timestamp=now", "").status)
	b.requireQuantity("9", "si_")

	for name, c := range map[string]struct {
		got     reply
		status  int
		message string
	}{
		"the period's first instant": {b.record("si_", "set", 1, march), 400, "timestamps must be after the subscription's last invoice period"},
		"the former period":          {b.record("si_", "set", 1, march.Add(-time.Second)), 400, "timestamps must be after"},
		"the future":                 {b.record("si_", "set", 1, noon.Add(time.Second)), 400, "must not be in the future"},
		"set with thresholds":        {b.record("si_thresholds", "set", 1, at), 400, "can only be incremented"},
		"a meter's item":             {b.record("si_sum", "set", 1, at), 400, "`si_sum` because it is not on the legacy metered billing system"},
		"an unknown item":            {b.record("si_unknown", "set", 1, at), 404, "No such subscription_item: 'si_unknown'"},
		"a negative quantity":        {b.record("si_", "set", -1, at), 400, "Invalid non-negative integer"},
		"a fraction":                 {b.call("POST", "/v1/subscription_items/si_/usage_records", "quantity=1.5", ""), 400, ""},
		"an unknown parameter":       {b.call("POST", "/v1/subscription_items/si_/usage_records", "quantity=1&identifier=x", ""), 400, ""},
	} {
		require.Equal(t, c.status, c.got.status, name)
		require.Contains(t, c.got.message(), c.message, name)
	}
	b.requireQuantity("9", "si_")
}

func TestMeterEventsFollowStripesRules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 200, b.event("sum", "5", noon.Add(-35*24*time.Hour), "old").status)
	require.Equal(t, 200, b.event("sum", "5", noon.Add(5*time.Minute), "ahead").status)
	require.Equal(t, 200, b.event("sum", "-2", time.Time{}, "").status)
	b.requireQuantity("3", "si_sum") // the old event belongs to another period

	for name, c := range map[string]struct {
		got     reply
		message string
	}{
		"too old":            {b.event("sum", "5", noon.Add(-35*24*time.Hour-time.Second), "1"), "more than 35 days in past"},
		"too far ahead":      {b.event("sum", "5", noon.Add(5*time.Minute+time.Second), "2"), "more than 5 minutes in future"},
		"a fraction":         {b.event("sum", "0.5", noon, "3"), "whole number"},
		"16 digits":          {b.event("sum", "1000000000000000", noon, "4"), "at most 15 digits"},
		"no number":          {b.event("sum", "many", noon, "5"), "whole number"},
		"no such meter":      {b.event("nothing", "5", noon, "6"), "No active meter found"},
		"an inactive meter":  {b.event("off", "5", noon, "7"), "No active meter found"},
		"the identifier":     {b.event("sum", "5", noon, "ahead"), "An event already exists with identifier ahead."},
		"no such customer":   {b.call("POST", "/v1/billing/meter_events", "event_name=sum&payload[stripe_customer_id]=cus_9&payload[value]=1", ""), "No such customer"},
		"no payload":         {b.call("POST", "/v1/billing/meter_events", "event_name=sum", ""), "stripe-mock answers 400"},
		"a long identifier":  {b.event("sum", "5", noon, strings.Repeat("x", 101)), "at most 100 characters"},
		"an odd path":        {b.call("POST", "/v1/billing/meter_event", "event_name=sum", ""), "Unrecognized request URL"},
		"odd summary bounds": {b.call("GET", "/v1/billing/meters/sum/event_summaries?customer=cus_1&start_time=61&end_time=120", "", ""), "aligned with minute"},
	} {
		require.Contains(t, c.got.message(), c.message, name)
		require.GreaterOrEqual(t, c.got.status, 400, name)
	}
	b.requireQuantity("3", "si_sum")
}

func TestAccountWithDecimalsAcceptsDecimalValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const exact = "sk_test_exact"
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_exact", Key: exact, Decimals: true}, Customers: []stripetest.Customer{{ID: "cus_1"}},
		Meters: []stripetest.Meter{{ID: "sum"}}, Prices: []stripetest.Price{{ID: "price_exact", Meter: "sum", UnitAmount: "250"}},
		Subscriptions: []stripetest.Subscription{{Customer: "cus_1", Start: march.Unix(), End: april.Unix(),
			Items: []stripetest.Item{{ID: "si_exact", Price: "price_exact"}}}},
	}))
	tell := func(value string) reply {
		return b.callAs(exact, "POST", "/v1/billing/meter_events", "event_name=sum&payload[stripe_customer_id]=cus_1&payload[value]="+value, "")
	}
	for _, value := range []string{"0.1", "0.2", "-0.000001", "123456789.123456"} {
		require.Equal(t, 200, tell(value).status, value)
	}
	require.Contains(t, tell("1234567890.123456").message(), "at most 15 digits")
	require.Contains(t, tell("0.0000000000001").message(), "at most 12 decimals")
	require.Contains(t, tell("many").message(), "must be a number")
	b.requireQuantity("123456789.423455", "si_exact") // 0.3 - 0.000001 + 123456789.123456
	b.Advance(april.Sub(noon) + time.Hour)
	for _, invoice := range b.State().Accounts[1].Invoices {
		require.Equal(t, "30864197356", invoice.Total.String()) // 250 × 123456789.423455 = 30864197355.86375
	}
	require.Len(t, b.State().Accounts[1].Invoices, 1)
}

func TestMeterEventIdentifierCanBeReusedAfterOneDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 200, b.event("sum", "5", noon, "a").status)
	b.Advance(24*time.Hour - time.Second)
	require.Equal(t, 400, b.event("sum", "5", noon, "a").status)
	b.Advance(time.Second)
	require.Equal(t, 200, b.event("sum", "5", noon, "a").status, "at least 24 hours: the fake remembers no longer")
	b.requireQuantity("10", "si_sum")
}

func TestCustomerIsBilledInOneCurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := func(customer string, prices ...string) error {
		s := stripetest.Subscription{Customer: customer, Start: march.Unix(), End: april.Unix()}
		for _, price := range prices {
			s.Items = append(s.Items, stripetest.Item{Price: price})
		}
		return b.Seed(&stripetest.Seed{
			Account: stripetest.Account{ID: "acct_1", Key: key}, Customers: []stripetest.Customer{{ID: customer}},
			Prices: []stripetest.Price{{ID: "price_eur", Currency: "eur"}}, Subscriptions: []stripetest.Subscription{s},
		})
	}
	require.ErrorContains(t, in("cus_1", "price_eur"), "customer cus_1 is billed in usd")
	require.ErrorContains(t, in("cus_2", "price_", "price_eur"), "customer cus_2 is billed in usd")
	require.NoError(t, in("cus_3", "price_eur", "price_eur"))
}

func TestEventNameBelongsToOneActiveMeter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account := stripetest.Account{ID: "acct_1", Key: key}
	require.ErrorContains(t, b.Seed(&stripetest.Seed{Account: account, Meters: []stripetest.Meter{{ID: "other", EventName: "sum"}}}), "another has the event name")
	require.NoError(t, b.Seed(&stripetest.Seed{Account: account, Meters: []stripetest.Meter{{ID: "other", EventName: "off"}}}), "the former is inactive")
}

func TestEndedSubscriptionAcceptsNoUsageOrCharges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: key},
		Subscriptions: []stripetest.Subscription{{ID: "sub_3", Customer: "cus_1", Status: "canceled", Start: march.Unix(), End: april.Unix(),
			Items: []stripetest.Item{{ID: "si_ended", Price: "price_"}}}},
	}))
	require.Equal(t, 400, b.record("si_ended", "set", 1, march.Add(time.Hour)).status)
	require.Equal(t, 400, b.charge("1", "", "subscription", "sub_3").status)
}

func TestCustomerWithoutEventsHasNoSummary(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := fmt.Sprintf("/v1/billing/meters/sum/event_summaries?customer=cus_1&start_time=%d&end_time=%d", march.Unix(), april.Unix())
	require.Empty(t, b.call("GET", path, "", "").body["data"])
	require.Equal(t, 200, b.event("sum", "5", noon, "a").status)
	require.Len(t, b.call("GET", path, "", "").body["data"], 1)
}

func TestPageLimitMustBe1To100(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for limit, status := range map[string]int{"1": 200, "100": 200, "0": 400, "101": 400, "many": 400} {
		require.Equal(t, status, b.call("GET", "/v1/subscriptions?limit="+limit, "", "").status, limit)
	}
}
