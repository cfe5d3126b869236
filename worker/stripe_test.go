package worker_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const stripeKey = "sk_test_canary"

// stripeSystem is a system whose provider is the fake of Stripe. Its customer
// is subscribed there in calendar months.
type stripeSystem struct {
	*system
	fake *stripetest.Fake
}

// newStripe subscribes the customer to one price per mechanism, each named for
// the meter of ours that goes there.
func newStripe(t testing.TB) *stripeSystem {
	t.Helper()
	s := &stripeSystem{newSystem(t), stripetest.New(stripetest.Options{})}
	server := httptest.NewServer(s.fake)
	t.Cleanup(server.Close)
	s.stripeBase = server.URL
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_canary", Key: stripeKey},
		Customers: []stripetest.Customer{{ID: "cus_canary"}, {ID: "cus_other"}},
		Meters: []stripetest.Meter{
			{ID: "mtr_delta", EventName: "delta"},
			{ID: "mtr_window", EventName: "window", EventTimeWindow: "hour"},
			{ID: "mtr_last", EventName: "last", Formula: "last"},
			{ID: "mtr_count", EventName: "count", Formula: "count"},
		},
		Prices: []stripetest.Price{
			{ID: "price_record", LookupKey: "record", UnitAmount: "2.5"},
			{ID: "price_delta", LookupKey: "delta", UnitAmount: "0.3", Meter: "mtr_delta"},
			{ID: "price_window", Metadata: map[string]string{"meter_slug": "window"}, UnitAmount: "1", Meter: "mtr_window"},
			{ID: "price_last", LookupKey: "last", UnitAmount: "1", Meter: "mtr_last"},
			{ID: "price_count", LookupKey: "count", UnitAmount: "1", Meter: "mtr_count"},
		},
		Subscriptions: []stripetest.Subscription{subscribed("1", "cus_canary"), subscribed("2", "cus_other")},
	}))
	s.link("cus_canary")
	s.useStripe("acct_canary", stripeKey, nil)
	return s
}

func subscribed(n, customer string) stripetest.Subscription {
	month := metering.CalendarPeriod(time.Now(), time.UTC)
	in := stripetest.Subscription{ID: "sub_" + n, Customer: customer, Start: month.Start.Unix(), End: month.End.Unix()}
	for _, price := range []string{"record", "delta", "window", "last", "count"} {
		in.Items = append(in.Items, stripetest.Item{ID: "si_" + price + "_" + n, Price: "price_" + price})
	}
	return in
}

func (s *stripeSystem) link(customer string) {
	s.Helper()
	var named *string
	if customer != "" {
		named = &customer
	}
	_, _, err := s.store.Customers.Upsert(s.Context(), s.tenant, metering.Operator,
		metering.Customer{ExternalID: s.customer.ExternalID, BillingProviderID: named})
	require.NoError(s, err)
}

// meters makes a meter of ours for each of these prices, next to the one that
// goes nowhere. Its event type is its slug.
func (s *stripeSystem) meters(slugs ...string) {
	s.Helper()
	for _, slug := range slugs {
		dbtest.Meter(s, s.store, s.tenant, slug, slug)
	}
}

func (s *stripeSystem) useOf(meter, value string) { s.useAt(meter, value, time.Now()) }

func (s *stripeSystem) useAt(meter, value string, at time.Time) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, s.customer.ExternalID, at, value, "", "")})
	require.NoError(s, err)
}

// billed is what the fake would bill the customer's item for.
func (s *stripeSystem) quantity(item string) string {
	return s.fake.Quantity("si_" + item + "_1").String()
}

func (s *stripeSystem) synced() metering.Sync {
	s.Helper()
	sync := s.await(s.request())
	require.Equal(s, metering.SyncSucceeded, sync.Status, sync.Problem)
	return sync
}

// entries are the sync's as "meter mechanism quantity/value status".
func entriesOf(sync metering.Sync) (lines []string) {
	for _, e := range sync.Entries {
		lines = append(lines, fmt.Sprintf("%s %s %s/%s %s", e.MeterSlug, e.Mechanism, e.Quantity, e.Value, e.Status))
	}
	return lines
}

func TestASyncTellsStripeEachMeterInItsOwnWay(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta", "window", "last", "count")
	s.work()
	for _, meter := range []string{"record", "delta", "window", "last", "count"} {
		s.useOf(meter, "40.4")
	}
	sync := s.synced()
	require.Equal(t, []string{
		"record usage_record 40/40 confirmed", "delta meter_delta 40/40 confirmed",
		"window meter_window 40/40 confirmed", "last meter_last 40/40 confirmed",
	}, entriesOf(sync))
	skipped := map[string]string{}
	for _, m := range sync.Skipped {
		skipped[m.MeterSlug] = m.Reason
	}
	require.Equal(t, map[string]string{
		"api-calls": "no subscription item of the customer has the lookup key or the metadata meter_slug=api-calls",
		"count":     "Stripe's meter mtr_count counts events, so no total can be sent to it; use one with formula sum",
	}, skipped)

	for _, meter := range []string{"record", "delta", "window", "last"} {
		s.useOf(meter, "0.2") // 40.6 are 41
	}
	require.Equal(t, []string{
		"record usage_record 41/41 confirmed", "delta meter_delta 1/41 confirmed",
		"window meter_window 41/41 confirmed", "last meter_last 41/41 confirmed",
	}, entriesOf(s.synced()))
	for _, item := range []string{"record", "delta", "window", "last"} {
		require.Equal(t, "41", s.quantity(item), item)
	}
	calls := len(s.writes())
	require.Len(t, s.synced().Entries, 4)
	require.Len(t, s.writes(), calls, "nothing has changed, so nothing is sent")
}

// writes are the calls that told the fake something.
func (s *stripeSystem) writes() (calls []stripetest.Request) {
	for _, r := range s.fake.State().Requests {
		if r.Method == "POST" {
			calls = append(calls, r)
		}
	}
	return calls
}
