package worker_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// TestNewDestinationInMidPeriodGetsOnlyUnreportedUsage changes the customer, the item and the reporting
// method at Stripe. The quantities at all destinations add up to the customer's usage.
func TestNewDestinationInMidPeriodGetsOnlyUnreportedUsage(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta")
	s.work()
	use := func(value string) {
		s.useOf("record", value)
		s.useOf("delta", value)
	}
	billed := func() (lines []string) {
		for _, item := range []string{"si_record_1", "si_record_2", "si_delta_1", "si_delta_2", "si_last_1"} {
			lines = append(lines, s.fake.Quantity(item).String())
		}
		return lines
	}
	use("10.4")
	s.synced()
	s.link("cus_other")
	use("10.4") // 20.8 is rounded to 21
	s.synced()
	require.Equal(t, []string{"10", "11", "10", "11", "0"}, billed(), "another customer at Stripe")
	s.useStripe("acct_canary", stripeKey, map[string]string{"record": "price_last"})
	s.link("cus_canary")
	use("4.2")
	s.synced()
	require.Equal(t, []string{"10", "11", "14", "11", "4"}, billed(), "another item and reporting method; back at the first customer")
	s.link("")
	use("1")
	sync := s.synced()
	require.Empty(t, sync.Lines)
	require.Equal(t, "the customer has no billing_provider_id; set it to the id of the customer at Stripe", sync.Excluded[0].Detail)
	s.link("cus_canary")
	s.synced()
	require.Equal(t, []string{"10", "11", "15", "11", "5"}, billed())
}

func TestNewAccountInMidPeriodGetsOnlyUnreportedUsage(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	now := time.Now()
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_second", Key: "sk_test_second"},
		Customers: []stripetest.Customer{{ID: "cus_second"}},
		Prices:    []stripetest.Price{{ID: "price_second", LookupKey: "record"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_second", Customer: "cus_second", Start: now.AddDate(0, 0, -10).Unix(), End: now.AddDate(0, 0, 20).Unix(),
			Items: []stripetest.Item{{ID: "si_second", Price: "price_second"}},
		}},
	}))
	s.meters("record")
	s.work()
	s.useOf("record", "10.4")
	s.synced()
	require.Equal(t, "10", s.quantity("record"))

	s.useStripe("acct_second", "sk_test_second", nil)
	s.link("cus_second")
	s.useOf("record", "10.4") // 20.8 is rounded to 21
	s.synced()
	require.Equal(t, "11", s.fake.Quantity("si_second").String())

	s.useProvider(s.url + "/usage")
	s.useOf("record", "3")
	s.synced()
	var message struct {
		Data struct {
			Meters []struct {
				Slug  string `json:"meter_slug"`
				Usage json.Number
			}
		}
	}
	deliveries := s.received()
	require.NoError(t, json.Unmarshal([]byte(deliveries[len(deliveries)-1].Body), &message))
	require.Equal(t, "2.8", message.Data.Meters[1].Usage.String(), "of 23.8, 21 were billed before")

	s.useStripe("acct_canary", stripeKey, nil)
	s.link("cus_canary")
	s.useOf("record", "4.1")
	s.synced()
	require.Equal(t, "14", s.quantity("record"), "28 less what the others have")
	require.Equal(t, "11", s.fake.Quantity("si_second").String())
}

func TestCustomerLinkedInMidPeriodIsBilledFromSubscriptionStart(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta")
	s.work()
	s.link("")
	now := time.Now()
	start := now.Add(-time.Hour).Truncate(time.Second)
	if month := metering.WindowOf(now, metering.Month, time.UTC).Start; start.Before(month) {
		start = month // the period that is running without a subscription
	}
	s.useAt("delta", "100", start.Add(-time.Second))
	s.useAt("delta", "5", now)
	require.Empty(t, s.synced().Lines)
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_canary", Key: stripeKey},
		Customers: []stripetest.Customer{{ID: "cus_new"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_new", Customer: "cus_new", Start: start.Unix(), End: now.AddDate(0, 0, 30).Unix(),
			Items: []stripetest.Item{{ID: "si_new", Price: "price_delta"}},
		}},
	}))
	s.link("cus_new")
	sync := s.counted(s.request())
	require.Equal(t, []string{"delta meter_delta 5/5 counted"}, linesOf(sync))
	require.Equal(t, "5", s.fake.Quantity("si_new").String())
	require.True(t, sync.Lines[0].Period.Start.Equal(start))
}

func TestImportedHistoryIsNotBilledAtStripe(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta", "window")
	for months := 1; months <= 6; months++ {
		for _, slug := range []string{"record", "delta", "window"} {
			s.useAt(slug, "1000", clock.Month(time.Now(), -months))
		}
	}
	s.work()
	s.useOf("record", "1")
	s.useOf("delta", "2")
	s.useOf("window", "3")
	s.synced()
	for item, want := range map[string]string{"record": "1", "delta": "2", "window": "3"} {
		require.Equal(t, want, s.quantity(item))
	}
	require.Len(t, s.writes(), 3)
}

// TestAutoSyncWaitsForStripeAndFailsForUnknownCustomer links one customer to an unknown id at Stripe. It starts
// Auto-Sync during a short outage of Stripe. Only the sync of that customer fails.
func TestAutoSyncWaitsForStripeAndFailsForUnknownCustomer(t *testing.T) {
	t.Parallel()
	const customers = 8
	s := newStripe(t)
	s.meters("delta")
	seed := &stripetest.Seed{Account: stripetest.Account{ID: "acct_canary", Key: stripeKey}}
	for i := range customers {
		id := fmt.Sprintf("fleet%d", i)
		seed.Customers = append(seed.Customers, stripetest.Customer{ID: "cus_" + id})
		sub := subscribed(id, "cus_"+id)
		seed.Subscriptions = append(seed.Subscriptions, sub)
	}
	require.NoError(t, s.fake.Seed(seed))
	for i := range customers {
		linked := fmt.Sprintf("cus_fleet%d", i)
		if i == 3 {
			linked = "cus_canary_nobody"
		}
		name := fmt.Sprintf("fleet-%d", i)
		_, _, err := s.store.Customers.Upsert(t.Context(), s.tenant, metering.Operator, name, catalog.CustomerChange{Link: true, BillingProviderID: &linked}, time.Now())
		require.NoError(t, err)
		_, err = s.writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, "delta", name, time.Now(), fmt.Sprint(i+1), "", "")})
		require.NoError(t, err)
	}
	s.work()
	s.schedule()
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 4})
	_, result := s.autoSync()
	require.Equal(t, 1, result.Failed)
	dbtest.Eventually(t, func() error {
		open, err := s.store.Syncs.Open(t.Context(), time.Now())
		if err == nil && len(open) > 0 {
			err = fmt.Errorf("%d are open", len(open))
		}
		return err
	})
	s.awaitRuns(2) // one for all, and one for the customer that failed
	failed, err := dbtest.Items(s.store.Syncs.List(t.Context(), s.tenant, ledger.SyncFilter{Status: metering.SyncFailed}, 10))
	require.NoError(t, err)
	require.Len(t, failed, 1)
	require.Equal(t, "Stripe has no customer with the customer's billing_provider_id; correct billing_provider_id", failed[0].Error)
	for i := range customers {
		want := fmt.Sprint(i + 1)
		if i == 3 {
			want = "0"
		}
		require.Equal(t, want, s.fake.Quantity(fmt.Sprintf("si_delta_fleet%d", i)).String())
	}
}
