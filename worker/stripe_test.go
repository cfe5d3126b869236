package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

const stripeKey = "sk_test_canary"

// stripeSystem is a system with the fake of Stripe as its provider.
type stripeSystem struct {
	*system
	fake  *stripetest.Fake
	older atomic.Bool // the fake handles each call as a call of an older API version
	used  time.Time   // the time of the events of useOf
}

// newStripe returns a system that is connected to a fake of Stripe.
func newStripe(t testing.TB) *stripeSystem {
	t.Helper()
	base := newSystem(t)
	s := &stripeSystem{system: base, fake: seededStripe(t, base.clock.Now)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.older.Load() {
			r.Header.Set("Stripe-Version", "2023-10-16")
		}
		s.fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.stripeBase = server.URL
	s.link("cus_canary")
	s.useStripe("acct_canary", stripeKey, nil)
	return s
}

// seededStripe returns a fake of Stripe with customers that subscribe to one price per reporting method. Each price
// has the name of the meter that is reported to it.
func seededStripe(t testing.TB, now func() time.Time) *stripetest.Fake {
	t.Helper()
	fake := stripetest.New(stripetest.Options{Now: now})
	require.NoError(t, fake.Seed(&stripetest.Seed{
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
	return fake
}

// subscribed returns a subscription with an item for each price. Its period began ten days ago.
func subscribed(n, customer string) stripetest.Subscription {
	now := time.Now()
	in := stripetest.Subscription{ID: "sub_" + n, Customer: customer, Start: now.AddDate(0, 0, -10).Unix(), End: now.AddDate(0, 0, 20).Unix()}
	for _, price := range []string{"record", "delta", "window", "last", "count"} {
		in.Items = append(in.Items, stripetest.Item{ID: "si_" + price + "_" + n, Price: "price_" + price})
	}
	return in
}

// link links the customer to a customer at Stripe; "": to none.
func (s *stripeSystem) link(customer string) {
	s.Helper()
	var named *string
	if customer != "" {
		named = &customer
	}
	_, _, err := s.store.Customers.Upsert(s.Context(), s.tenant, metering.Operator,
		s.customer.ExternalID, catalog.CustomerChange{Link: true, BillingProviderID: named}, time.Now())
	require.NoError(s, err)
}

// meters creates a meter for each of these prices. The event type of each meter is its slug. The system already has
// a meter without a price at Stripe.
func (s *stripeSystem) meters(slugs ...string) {
	s.Helper()
	for _, slug := range slugs {
		dbtest.Meter(s, s.store, s.tenant, slug, slug)
	}
}

// useOf ingests an event of the current hour. Calls within an hour of the first call use the time of the first call.
// Otherwise, a meter with hourly windows would get two reports if the hour ended during a test.
func (s *stripeSystem) useOf(meter, value string) {
	s.Helper()
	if now := s.clock.Now(); now.Sub(s.used) >= time.Hour {
		s.used = now
	}
	s.useAt(meter, value, s.used)
}

// useAt ingests an event of the given time.
func (s *stripeSystem) useAt(meter, value string, at time.Time) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, s.customer.ExternalID, at, value, "", "")})
	require.NoError(s, err)
}

// quantity returns the usage that the fake would bill for the customer's item.
func (s *stripeSystem) quantity(item string) string {
	return s.fake.Quantity("si_" + item + "_1").String()
}

// synced requests a sync, and requires that it succeeds.
func (s *stripeSystem) synced() metering.Sync {
	s.Helper()
	sync := s.await(s.request())
	require.Equal(s, metering.SyncSucceeded, sync.Status, sync.Error)
	return sync
}

// linesOf returns the sync's lines as "meter method sent/quantity state".
func linesOf(sync metering.Sync) (lines []string) {
	for _, l := range sync.Lines {
		lines = append(lines, fmt.Sprintf("%s %s %s/%s %s", l.MeterSlug, l.Method, l.Sent, l.Quantity, l.State))
	}
	return lines
}

func TestSyncUsesReportingMethodOfEachMeterAtStripe(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta", "window", "last", "count")
	s.work()
	for _, meter := range []string{"record", "delta", "window", "last", "count"} {
		s.useOf(meter, "40.4")
	}
	sync := s.counted(s.request())
	require.Equal(t, []string{
		"record usage_record 40/40 counted", "delta meter_delta 40/40 counted",
		"window meter_window 40/40 counted", "last meter_last 40/40 counted",
	}, linesOf(sync))
	require.Equal(t, map[string]string{
		"api-calls": "no subscription item of the customer has a price with lookup key api-calls, or a price or Stripe meter with metadata meter_slug=api-calls",
		"count":     "Stripe's meter mtr_count counts events, so it cannot receive totals; use a meter with formula sum",
	}, excludedOf(sync))

	for _, meter := range []string{"record", "delta", "window", "last"} {
		s.useOf(meter, "0.2") // 40.6 is rounded to 41
	}
	require.Equal(t, []string{
		"record usage_record 41/41 counted", "delta meter_delta 1/41 counted",
		"window meter_window 41/41 counted", "last meter_last 41/41 counted",
	}, linesOf(s.counted(s.request())))
	for _, item := range []string{"record", "delta", "window", "last"} {
		require.Equal(t, "41", s.quantity(item), item)
	}
	calls := len(s.writes())
	require.Len(t, s.synced().Lines, 4)
	require.Len(t, s.writes(), calls, "nothing has changed, so nothing is sent")
}

// writes returns the POST requests that the fake received.
func (s *stripeSystem) writes() (calls []stripetest.Request) {
	for _, r := range s.fake.State().Requests {
		if r.Method == http.MethodPost {
			calls = append(calls, r)
		}
	}
	return calls
}

// activities returns the names of the activities that a run has scheduled, in their order.
func (s *system) activities(run string) (names []string) {
	s.Helper()
	for _, event := range s.history(run).GetEvents() {
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			names = append(names, scheduled.GetActivityType().GetName())
		}
	}
	return names
}

func TestSyncOfThreeChangedMetersRunsEightActivities(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta", "last")
	s.work()
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	requireActivities := func(want ...string) {
		t.Helper()
		require.NoError(t, s.awaitClosed(run))
		if !s.isRetried(run) { // a report that an earlier attempt has sent makes the run plan again
			require.Equal(t, want, s.activities(run))
		}
	}
	for _, meter := range []string{"record", "delta", "last"} {
		s.useOf(meter, "1")
	}
	s.synced()
	requireActivities("BeginSync", "ReadProvider", "PlanReports", "SendReport", "SendReport", "SendReport", "ReadProvider", "FinishSync")
	s.synced() // nothing has changed
	requireActivities("BeginSync", "ReadProvider", "PlanReports", "FinishSync")

	s.useProvider(s.farEnd.url)
	s.use("1")
	s.synced() // a webhook provider stores no customer state, so no ReadProvider runs
	requireActivities("BeginSync", "PlanReports", "SendReport", "FinishSync")
}

// connected returns the id of the tenant's active connection.
func (s *stripeSystem) connected() metering.ConnectionID {
	s.Helper()
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	return active.ID
}

// begins stores an event of Stripe and starts the run that handles the event, as the API does.
func (s *stripeSystem) begins(kind, object, customer string) metering.ProviderEventID {
	s.Helper()
	kept, handled, err := s.store.ProviderEvents.Store(s.Context(), s.tenant, metering.ProviderEvent{
		Connection: s.connected(), EventID: "evt_" + kind + object, Kind: kind, Invoice: strings.HasPrefix(kind, "invoice."), ObjectID: object, Customer: customer, MadeAt: s.clock.Now(),
	}, s.clock.Now())
	require.NoError(s, err)
	require.False(s, handled)
	dbtest.Eventually(s, func() error {
		return workflows.StartHandleProviderEvent(s.Context(), s.temporal, s.tenant, kept.Customer, kept.Row, true)
	})
	return kept.Row
}

// happens calls begins and waits until the event is handled.
func (s *stripeSystem) happens(kind, object, customer string) metering.ProviderEventID {
	s.Helper()
	row := s.begins(kind, object, customer)
	require.NoError(s, s.awaitClosed(workflows.HandleProviderEventID(s.tenant, row)))
	return row
}

// happened calls happens, and returns the outcome of the event.
func (s *stripeSystem) happened(kind, object, customer string) (outcome string) {
	s.Helper()
	return s.outcome(s.happens(kind, object, customer))
}

// outcome returns the outcome of a handled event.
func (s *stripeSystem) outcome(row metering.ProviderEventID) (outcome string) {
	s.Helper()
	require.NoError(s, s.connect().QueryRow(s.Context(), `
		select outcome from provider_events where tenant_id = $1 and id = $2 and handled_at is not null`, s.tenant, row).Scan(&outcome))
	return outcome
}

func TestPeriodIsReportedToItsEndAndClosedWithFinalInvoice(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	end := s.soon()
	s.meters("delta")
	s.price("delta", billing.Price{Terms: billing.Terms{OverageRate: metering.MustDecimal("0.003"), Currency: "USD"}})
	s.subscribeUntil(end, "delta")
	s.work()
	s.useOf("delta", "12.25")
	sync := s.counted(s.request())
	require.Equal(t, []string{"delta meter_delta 12/12 counted"}, linesOf(sync))
	require.True(t, sync.Lines[0].Period.End.Equal(end), "the period is the subscription's")

	s.clock.To(t, end.Add(time.Second))
	s.useAt("delta", "7.5", end.Add(-time.Second)) // 19.75 is rounded to 20
	invoice := s.fake.State().Accounts[0].Invoices[0]
	require.Equal(t, "the period's last usage was sent; meters excluded: 1", s.happened("invoice.created", invoice.ID, "cus_soon"))
	require.Equal(t, "6", s.fake.State().Accounts[0].Invoices[0].Total.String(), "cents, as soon as that is said")
	s.fake.Advance(time.Hour)
	_, err := s.connect().Exec(s.Context(), `update tenants set grace = interval '0' where id = $1`, s.tenant) // so that closing waits only for the clock
	require.NoError(s, err)
	require.Equal(t, "the invoice was stored and its period closed", s.happened("invoice.finalized", invoice.ID, "cus_soon"))
	var billed string
	require.NoError(t, s.connect().QueryRow(t.Context(), `
		select string_agg(format('%s %s of %s', l.quantity, l.amount, m.slug), ', ')
		from billing_invoices i
		join billing_invoice_lines l using (tenant_id, connection_id, invoice_id, version)
		join meters m on m.tenant_id = l.tenant_id and m.id = l.meter_id
		where i.tenant_id = $1`, s.tenant).Scan(&billed))
	require.Equal(t, "20 0.06 of delta", billed)
	require.Equal(t, "the customer was synced with its current subscription items; meters excluded: 1", s.happened("customer.subscription.updated", "sub_soon", "cus_soon"))
	require.Equal(t, "the event concerns no customer in Odometer", s.happened("customer.subscription.updated", "sub_2", "cus_stranger"))
}

// TestHistoriesAtStripe runs every branch of the workflows for a provider with a report for each meter.
func TestHistoriesAtStripe(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta", "last", "canary-unmapped")
	s.work()
	syncing := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	histories := map[string]*historypb.History{}
	keep := func(name, workflowID string) {
		_ = s.awaitClosed(workflowID)
		histories[name] = s.history(workflowID)
	}
	s.useOf("record", "5")
	s.useOf("delta", "5")
	s.useOf("last", "5")
	s.await(s.request())
	keep("sync_customer_quantities", syncing)
	require.Equal(t, []string{"BeginSync", "ReadProvider", "PlanReports", "SendReport", "SendReport", "SendReport", "ReadProvider", "FinishSync"},
		withoutIdlePass(activitiesOf(histories["sync_customer_quantities"])))
	s.await(s.request())
	keep("sync_customer_nothing_to_report", syncing)
	require.Equal(t, []string{"BeginSync", "ReadProvider", "PlanReports", "FinishSync"}, withoutIdlePass(activitiesOf(histories["sync_customer_nothing_to_report"])))
	s.useOf("record", "5")
	s.useOf("delta", "5")
	s.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: "/v1/billing/meter_events"})
	require.Equal(t, "the API key lacks a permission at Stripe; grant it there, or save another key with PUT /v1/billing/provider", s.await(s.request()).Error)
	keep("sync_customer_quantity_refused", syncing)
	s.fake.Behave(stripetest.Behaviour{Status: 503, Times: 1})
	s.await(s.request())
	keep("sync_customer_quantities_after_an_outage", syncing)
	s.link("cus_canary_nobody")
	require.Equal(t, "Stripe has no customer with the customer's billing_provider_id; correct billing_provider_id", s.await(s.request()).Error)
	keep("sync_customer_unknown_at_the_provider", syncing)
	s.link("cus_canary")

	row := s.happens("customer.subscription.updated", "sub_1", "cus_canary")
	keep("handle_provider_event_subscription", workflows.HandleProviderEventID(s.tenant, row))
	invoice := s.drafted()
	row = s.happens("invoice.created", invoice, "cus_soon")
	keep("handle_provider_event_invoice", workflows.HandleProviderEventID(s.tenant, row))
	s.fake.Advance(time.Hour)
	row = s.happens("invoice.finalized", invoice, "cus_soon")
	keep("handle_provider_event_invoice_final", workflows.HandleProviderEventID(s.tenant, row))
	keepHistories(t, histories)
}

// price sets a price of the meter, from now on.
func (s *stripeSystem) price(slug string, p billing.Price) {
	s.Helper()
	meter, err := s.store.Meters.Get(s.Context(), s.tenant, slug)
	require.NoError(s, err)
	p.MeterID, p.EffectiveFrom = meter.ID, time.Now()
	dbtest.Price(s, s.store, s.tenant, p)
}

func TestWorkerStartsRunForUnhandledProviderEvent(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("delta")
	s.useOf("delta", "3")
	_, _, err := s.store.ProviderEvents.Store(t.Context(), s.tenant, metering.ProviderEvent{
		Connection: s.connected(), EventID: "evt_lost", Kind: "customer.subscription.updated", ObjectID: "sub_1", Customer: "cus_canary", MadeAt: time.Now(),
	}, time.Now().Add(-2*time.Minute))
	require.NoError(t, err)
	s.work()
	dbtest.Eventually(t, func() error {
		if got := s.quantity("delta"); got != "3" {
			return fmt.Errorf("Stripe has %s", got)
		}
		return nil
	})
}

func TestAutoSyncReportsToStripeAndPeriodThenCloses(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	s.meters("record", "delta")
	s.work()
	s.useOf("record", "2")
	s.useOf("delta", "3")
	due := func() []metering.CustomerID {
		page, err := s.store.Ledger.OutOfSync(t.Context(), s.tenant, 0, 10, time.Now())
		require.NoError(t, err)
		return page.Customers
	}
	require.Equal(t, []metering.CustomerID{s.customer.ID}, due())
	s.schedule()
	require.NoError(t, s.awaitClosed(s.trigger()))
	require.Equal(t, "2", s.quantity("record"))
	require.Equal(t, "3", s.quantity("delta"))
	require.Empty(t, due())
	s.link("cus_other")
	require.Equal(t, []metering.CustomerID{s.customer.ID}, due(), "another link")
	s.link("cus_canary")
	require.Empty(t, due())
	closed, err := s.store.Ledger.ClosePeriods(t.Context(), s.tenant, []metering.CustomerID{s.customer.ID}, time.Now().AddDate(0, 0, 24))
	require.NoError(t, err)
	require.Equal(t, 1, closed.Closed)
}
