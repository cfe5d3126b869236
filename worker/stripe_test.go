package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
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
		if r.Method == http.MethodPost {
			calls = append(calls, r)
		}
	}
	return calls
}

// happened is an event of Stripe's as the API keeps it, handled to its end.
func (s *stripeSystem) happened(kind, object, customer string) (outcome string) {
	s.Helper()
	row, handled, err := s.store.ProviderEvents.Store(s.Context(), s.tenant, metering.ProviderEvent{
		Account: "acct_canary", EventID: "evt_" + kind + object, Kind: kind, ObjectID: object, Customer: customer, MadeAt: time.Now(),
	}, time.Now())
	require.NoError(s, err)
	require.False(s, handled)
	require.NoError(s, workflows.StartHandleProviderEvent(s.Context(), s.temporal, s.tenant, row))
	require.NoError(s, s.awaitClosed(workflows.HandleProviderEventID(s.tenant, row)))
	require.NoError(s, s.connect().QueryRow(s.Context(), `
		select outcome from provider_events where tenant_id = $1 and id = $2 and handled_at is not null`, s.tenant, row).Scan(&outcome))
	return outcome
}

func TestAPeriodIsSentToItsEndAndFrozenWithItsInvoice(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	end := time.Now().Add(20 * time.Second).Truncate(time.Second)
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_canary", Key: stripeKey},
		Customers: []stripetest.Customer{{ID: "cus_soon"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_soon", Customer: "cus_soon", Start: end.AddDate(0, -1, 0).Unix(), End: end.Unix(),
			Items: []stripetest.Item{{ID: "si_soon", Price: "price_delta"}},
		}},
	}))
	s.meters("delta")
	meter, err := s.store.Meters.Get(t.Context(), s.tenant, "delta")
	require.NoError(t, err)
	_, err = s.store.Prices.Set(t.Context(), s.tenant, metering.Operator, metering.Price{
		MeterID: meter.ID, OverageRate: metering.MustDecimal("0.003"), Currency: "USD", EffectiveFrom: time.Now(),
	})
	require.NoError(t, err)
	s.link("cus_soon")
	s.work()
	s.useOf("delta", "12.25")
	sync := s.synced()
	require.Equal(t, []string{"delta meter_delta 12/12 confirmed"}, entriesOf(sync))
	require.True(t, sync.Entries[0].Period.End.Equal(end), "the period is the subscription's")

	dbtest.Eventually(t, time.Minute, func() error {
		if time.Now().Before(end.Add(time.Second)) {
			return fmt.Errorf("the period runs")
		}
		return nil
	})
	s.useAt("delta", "7.5", end.Add(-time.Second)) // 19.75 are 20
	invoice := s.fake.State().Accounts[0].Invoices[0]
	require.Equal(t, "the period's last usage was sent", s.happened("invoice.created", invoice.ID, "cus_soon"))
	dbtest.Eventually(t, 30*time.Second, func() error {
		if got := s.fake.State().Accounts[0].Invoices[0].Total.String(); got != "6" { // cents
			return fmt.Errorf("the invoice comes to %s", got)
		}
		return nil
	})
	s.fake.Advance(time.Hour)
	require.Equal(t, "the invoice was kept and its period frozen", s.happened("invoice.finalized", invoice.ID, "cus_soon"))
	var billed, estimate string
	require.NoError(t, s.connect().QueryRow(t.Context(), `
		select usage_amount::text, estimate::text from billing_invoices where tenant_id = $1`, s.tenant).Scan(&billed, &estimate))
	require.Equal(t, [2]string{"0.06", "0.06"}, [2]string{billed, estimate})
	require.Equal(t, "the customer was synced with its items as they are now", s.happened("customer.subscription.updated", "sub_soon", "cus_soon"))
	require.Equal(t, "it is about no customer of ours", s.happened("customer.subscription.updated", "sub_2", "cus_stranger"))
}
