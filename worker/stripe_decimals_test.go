package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// decimals sets the usage scale of the meters.
func (s *stripeSystem) decimals(n int32, slugs ...string) {
	s.Helper()
	for _, slug := range slugs {
		_, _, err := s.store.Meters.Update(s.Context(), s.tenant, metering.Operator, slug, catalog.MeterChange{UsageScale: &n})
		require.NoError(s, err)
	}
}

// subscribeExactly bills the customer through an account that accepts decimals, at 80 dollars per unit of each
// meter.
func (s *stripeSystem) subscribeExactly(slugs ...string) {
	s.Helper()
	const key = "sk_test_exact"
	now := time.Now()
	sub := stripetest.Subscription{ID: "sub_exact", Customer: "cus_exact", Start: now.AddDate(0, 0, -10).Unix(), End: now.AddDate(0, 0, 20).Unix()}
	seed := &stripetest.Seed{
		Account: stripetest.Account{ID: "acct_exact", Key: key, Decimals: true}, Customers: []stripetest.Customer{{ID: "cus_exact"}},
		Meters: []stripetest.Meter{{ID: "delta"}, {ID: "window", EventTimeWindow: "hour"}, {ID: "last", Formula: "last"}},
	}
	for _, slug := range slugs {
		price := stripetest.Price{ID: "price_exact_" + slug, LookupKey: slug, UnitAmount: "8000", Meter: slug}
		if slug == "record" {
			price.Meter = ""
		}
		seed.Prices = append(seed.Prices, price)
		sub.Items = append(sub.Items, stripetest.Item{ID: "si_exact_" + slug, Price: price.ID})
		s.price(slug, billing.Price{Terms: billing.Terms{OverageRate: metering.Whole(80), Currency: "USD"}})
	}
	seed.Subscriptions = []stripetest.Subscription{sub}
	require.NoError(s, s.fake.Seed(seed))
	s.useStripe("acct_exact", key, nil)
	s.link("cus_exact")
}

// charged returns the sync's lines as "meter sent/quantity amount".
func charged(sync metering.Sync) (lines []string) {
	for _, l := range sync.Lines {
		lines = append(lines, fmt.Sprintf("%s %s/%s %s", l.MeterSlug, l.Sent, l.Quantity, l.Amount))
	}
	return lines
}

func TestStripeReceivesAndBillsDecimalsOfUsageScale(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	all := []string{"record", "delta", "window", "last"}
	s.meters(all...)
	s.subscribeExactly(all...)
	s.decimals(3, all...)
	s.work()
	for _, meter := range all {
		s.useOf(meter, "1.2345")
	}
	// Rounded half to even, 1.2345 is 1.234, which costs 98.72. A usage record accepts only whole units.
	require.Equal(t, []string{"record 1/1 80", "delta 1.234/1.234 98.72", "window 1.234/1.234 98.72", "last 1.234/1.234 98.72"}, charged(s.synced()))
	for _, meter := range all {
		s.useOf(meter, "0.0004")
	}
	// 1.2349 is rounded to 1.235, which costs 98.80. The total is rounded, and never the added 0.0004.
	require.Equal(t, []string{"record 1/1 80", "delta 0.001/1.235 98.8", "window 1.235/1.235 98.8", "last 1.235/1.235 98.8"}, charged(s.synced()))

	s.fake.Advance(21 * 24 * time.Hour)
	var billed []string
	for _, invoice := range s.fake.State().Accounts[1].Invoices {
		require.Equal(t, "open", invoice.Status)
		require.Equal(t, "37640", invoice.Total.String()) // 80 + 3 × 98.80 dollars
		for _, line := range invoice.Lines {
			billed = append(billed, fmt.Sprintf("%s %s %s", line.Item, line.Quantity, line.Amount))
		}
	}
	require.Equal(t, []string{"si_exact_record 1 8000", "si_exact_delta 1.235 9880", "si_exact_window 1.235 9880", "si_exact_last 1.235 9880"}, billed)
}

func TestSyncFailsUntilUsageScaleMatchesAccountWithoutDecimals(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta")
	s.decimals(3, "record", "delta")
	s.work()
	s.useOf("record", "1.2345")
	s.useOf("delta", "1.2345")
	refused := s.counted(s.request())
	require.Equal(t, metering.SyncFailed, refused.Status)
	require.Equal(t, "Stripe refused a value with decimals: 400. If the account accepts whole units only, "+
		"set the meter's usage_scale to 0; otherwise see the request log at Stripe", refused.Error)
	require.Equal(t, []string{"record usage_record 1/1 counted", "delta meter_delta 1.234/1.234 rejected"}, linesOf(refused))

	s.decimals(0, "delta")
	require.Equal(t, []string{"record usage_record 1/1 counted", "delta meter_delta 1/1 counted"}, linesOf(s.counted(s.request())))
	require.Equal(t, "1", s.quantity("delta"))
}
