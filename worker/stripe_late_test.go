package worker_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

// subscribeUntil links the customer to a subscription with a period that ends at end.
func (s *stripeSystem) subscribeUntil(end time.Time, prices ...string) {
	s.Helper()
	sub := stripetest.Subscription{ID: "sub_soon", Customer: "cus_soon", Start: end.AddDate(0, -1, 0).Unix(), End: end.Unix()}
	for _, price := range prices {
		sub.Items = append(sub.Items, stripetest.Item{ID: "si_soon_" + price, Price: "price_" + price})
	}
	require.NoError(s, s.fake.Seed(&stripetest.Seed{
		Account:   stripetest.Account{ID: "acct_canary", Key: stripeKey},
		Customers: []stripetest.Customer{{ID: "cus_soon"}},
		Prices: []stripetest.Price{
			{ID: "price_record_at_5", Metadata: map[string]string{"meter_slug": "record"}, UnitAmount: "5"},
			{ID: "price_delta_at_5", Metadata: map[string]string{"meter_slug": "delta"}, UnitAmount: "5", Meter: "mtr_delta"},
		},
		Subscriptions: []stripetest.Subscription{sub},
	}))
	s.link("cus_soon")
}

// soon returns the end of a period, 15 minutes ahead. The period ends by the clock of the test, and not by the
// machine's. The run of a held invoice waits for the end of a lease by Temporal's clock, so the clocks differ by less
// than dbtest.Deadline.
func (s *system) soon() time.Time { return s.clock.Now().Add(15 * time.Minute).Truncate(time.Second) }

// newClosed returns a system with an invoiced and closed period that ended at end, and a function that stops the
// worker. The customer has used 12 units of each of two meters, at 5 cents per unit in Odometer and at Stripe. One
// more unit of the meter with usage records arrived too late for usage records.
func newClosed(t *testing.T) (s *stripeSystem, end time.Time, stop func()) {
	t.Helper()
	s = newStripe(t)
	s.meters("record", "delta")
	for _, slug := range []string{"record", "delta"} {
		s.price(slug, billing.Price{Terms: billing.Terms{OverageRate: metering.MustDecimal("0.05"), Currency: "USD"}})
	}
	end = s.soon()
	s.subscribeUntil(end, "record_at_5", "delta_at_5")
	stop = s.work()
	s.useOf("record", "12")
	s.useOf("delta", "12")
	s.synced()
	s.clock.To(s, end.Add(time.Second))
	s.useAt("record", "1", end.Add(-time.Second))
	require.Equal(t, string(billing.ExcludedPeriodOver), excludedOf(s.synced())["record"])
	s.fake.Advance(time.Hour)
	invoice := s.fake.State().Accounts[0].Invoices[0]
	_, err := s.connect().Exec(s.Context(), `update tenants set grace = interval '0' where id = $1`, s.tenant) // so that closing waits only for the clock
	require.NoError(s, err)
	require.Equal(t, "the invoice was stored and its period closed", s.happened("invoice.finalized", invoice.ID, "cus_soon"))
	return s, end, stop
}

// excludedOf returns the reason of each excluded meter: the cause at the provider or, if none is known, the code.
func excludedOf(sync metering.Sync) map[string]string {
	reasons := make(map[string]string)
	for _, m := range sync.Excluded {
		reasons[m.MeterSlug] = cmp.Or(m.Detail, m.Code)
	}
	return reasons
}

// pending returns the amount that waits for a customer's next invoice, in cents.
func (s *stripeSystem) pending(customer string) string {
	var sum metering.Decimal
	for _, p := range s.fake.State().Accounts[0].Pending {
		if p.Customer == customer {
			sum = sum.Add(p.Amount)
		}
	}
	return sum.String()
}

func TestLateUsageIsBilledOnceDespiteStripeErrors(t *testing.T) {
	t.Parallel()
	s, end, stop := newClosed(t)
	s.synced()
	require.Equal(t, "5", s.pending("cus_soon"), "what came too late for usage records")
	cents := 5
	late := func() {
		s.useAt("delta", "1", end.Add(-time.Second))
		cents += 5
	}
	for _, b := range []stripetest.Behaviour{
		{Status: 503, Times: 2},
		{Status: 429, RetryAfter: 1, Times: 1},
		{Mode: stripetest.LockTimeout, Times: 1},
		{DropAnswer: true, Times: 2},
		{Mode: stripetest.Hang, Done: true, Times: 1},
		{Status: 500, Done: true, Times: 1},
		{Status: 500, Mode: stripetest.Saved, Times: 1},
		{Status: 500, Mode: stripetest.Saved, Done: true, Times: 1},
	} {
		late()
		b.Path = "/v1/invoiceitems"
		s.fake.Behave(b)
		s.synced()
		s.fake.Behave(stripetest.Behaviour{})
		t.Logf("%+v", b)
		require.Equal(t, fmt.Sprint(cents), s.pending("cus_soon"))
	}

	s.link("cus_other")
	late()
	s.synced()
	require.Equal(t, "5", s.pending("cus_other"), "another customer at Stripe gets what is new")
	require.Equal(t, fmt.Sprint(cents-5), s.pending("cus_soon"))
	s.link("cus_soon")
	s.useAt("delta", "-9", end.Add(-time.Second))
	s.synced()
	require.Equal(t, fmt.Sprint(cents-5-9*5), s.pending("cus_soon"), "what was too much is taken back")

	for _, taken := range []bool{true, false} {
		cents = 10
		s.useAt("delta", "2", end.Add(-time.Second))
		before := metering.MustDecimal(s.pending("cus_soon"))
		s.fake.Behave(stripetest.Behaviour{Mode: stripetest.Hang, Done: taken, Times: 1000, Path: "/v1/invoiceitems"})
		calls := len(s.writes())
		id := s.request()
		dbtest.Eventually(t, func() error {
			if len(s.writes()) == calls {
				return fmt.Errorf("nothing was sent yet")
			}
			return nil
		})
		stop()
		s.fake.Behave(stripetest.Behaviour{})
		s.fake.Advance(25 * time.Hour) // Stripe has forgotten the key
		_, err := s.connect().Exec(t.Context(), `
			update billing_reports set first_sent_at = first_sent_at - interval '25 hours', lease_until = null where tenant_id = $1`, s.tenant)
		require.NoError(t, err)
		stop = s.work()
		require.Equal(t, metering.SyncSucceeded, s.await(id).Status)
		require.Equal(t, before.Add(metering.Whole(10)).String(), s.pending("cus_soon"), "uncertain for a day, taken: %v", taken)
	}
}

// TestUsageOfReportOpenWhenInvoiceIsFinalIsCarried sends a report that is outstanding when the invoice of its
// period becomes final. The invoice lacks the usage, which is then rolled forward.
func TestUsageOfReportOpenWhenInvoiceIsFinalIsCarried(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("delta")
	s.price("delta", billing.Price{Terms: billing.Terms{OverageRate: metering.MustDecimal("0.05"), Currency: "USD"}})
	end := s.soon()
	s.subscribeUntil(end, "delta_at_5")
	s.work()
	s.useOf("delta", "12")
	s.synced()
	s.useOf("delta", "3")
	calls := len(s.writes())
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1000, Path: "/v1/billing/meter_events"})
	waiting := s.request()
	dbtest.Eventually(t, func() error {
		if len(s.writes()) == calls {
			return fmt.Errorf("nothing was sent yet")
		}
		return nil
	})
	s.clock.To(s, end.Add(time.Second))
	s.fake.Advance(time.Hour)
	invoice := s.fake.State().Accounts[0].Invoices[0]
	conn := s.connect()
	_, err := conn.Exec(s.Context(), `update tenants set grace = interval '0' where id = $1`, s.tenant) // so that closing waits only for the clock
	require.NoError(s, err)
	require.Equal(t, "the invoice was stored and its period closed", s.happened("invoice.finalized", invoice.ID, "cus_soon"))
	// While Stripe answers 503, the report is decided without being sent, because its invoice lacks the usage.
	// If Stripe answered an attempt with 200 instead, the usage would be late usage on the final invoice.
	require.NoError(t, s.update(workflows.SyncCustomerID(s.tenant, s.customer.ID), "retry-now"))
	dbtest.Eventually(t, func() error {
		var state billing.State
		err := conn.QueryRow(s.Context(), `
			select r.state
			from billing_reports r
			join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
			where r.tenant_id = $1
			  and p.closed_at is not null
			order by r.number desc
			limit 1`, s.tenant).Scan(&state)
		if err == nil && state.Outstanding() {
			err = fmt.Errorf("the report is %s", state)
		}
		return err
	})
	s.fake.Behave(stripetest.Behaviour{})
	require.Equal(t, metering.SyncSucceeded, s.await(waiting).Status)
	s.synced()
	line := s.fake.State().Accounts[0].Invoices[0].Lines[0]
	require.Equal(t, [2]string{"12", "0"}, [2]string{line.Quantity.String(), line.Late.String()}, "the invoice shows that it did not arrive: it is not sent again")
	require.Equal(t, "15", s.pending("cus_soon"), "three more on the next invoice, once")
}

func TestLateUsageWithPolicyReportIsNotBilledAtStripe(t *testing.T) {
	t.Parallel()
	s, end, _ := newClosed(t)
	_, err := s.connect().Exec(t.Context(), `update tenants set late_policy = 'report' where id = $1`, s.tenant)
	require.NoError(t, err)
	s.useAt("delta", "3", end.Add(-time.Second))
	s.synced()
	require.Equal(t, "5", s.pending("cus_soon"), "what usage records could not take any more: that did not come late")
}
