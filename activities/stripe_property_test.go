package activities_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const stripeKey = "sk_test_1"

// inAllWays contains one meter for each method of reporting quantities to Stripe.
var inAllWays = []string{"record", "delta", "window", "last"}

// trouble contains the possible behaviours of the fake for one call. The empty ones cause no failure.
var trouble = []stripetest.Behaviour{
	{}, {}, {},
	{Status: 503},
	{Status: 500, Mode: stripetest.Saved},
	{Status: 500, Mode: stripetest.Saved, Done: true},
	{Status: 429, RetryAfter: 1},
	{Status: 409},
	{Mode: stripetest.LockTimeout},
	{DropAnswer: true},
}

// subscriber runs the billing of one customer at Stripe through random steps. There are two periods of a subscription.
// The first one is invoiced and closed at some time.
type subscriber struct {
	*testing.T
	*testsuite.TestActivityEnvironment
	do       *activities.Activities
	store    *db.DB
	writer   *usage.Writer
	conn     *pgx.Conn
	fake     *stripetest.Fake
	tenant   metering.TenantID
	customer metering.CustomerID
	atStripe string
	first    metering.Range
	invoiced bool                           // the first period is invoiced
	used     [2]map[string]metering.Decimal // by period and meter
	decimals [2]map[string]int32            // by period and meter; fixed for the first period once it is invoiced
	charged  bool                           // periods are billed in amounts
	known    []uuid.UUID                    // planned reports, which a worker may send
	unknown  []uuid.UUID                    // reports that Stripe has accepted and that are not recorded yet
	of       func(*db.DB) *activities.Activities
	answered func() // called when Stripe has answered
}

// newSubscriber returns a subscriber at a fake of Stripe, one day after the start of the first period.
func newSubscriber(t *testing.T, store *db.DB, writer *usage.Writer, conn *pgx.Conn) (s *subscriber, stop func()) {
	began := clock.Now().UTC().Truncate(time.Second).AddDate(0, 0, -75)
	end := began.AddDate(0, 0, 20)
	end = end.AddDate(0, 0, -max(0, end.Day()-28)) // a day that every month has, because later periods are months
	s = &subscriber{
		T: t, store: store, writer: writer, conn: conn, fake: stripetest.New(stripetest.Options{Now: clock.Now}), first: metering.Range{Start: began, End: end},
		atStripe: "cus_1", used: [2]map[string]metering.Decimal{{}, {}}, decimals: [2]map[string]int32{{}, {}},
	}
	s.fake.Advance(-74 * 24 * time.Hour)
	seed := &stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey, Decimals: true}, Customers: []stripetest.Customer{{ID: "cus_1"}},
		Meters: []stripetest.Meter{
			{ID: "mtr_delta", EventName: "delta"}, {ID: "mtr_window", EventName: "window", EventTimeWindow: "hour"},
			{ID: "mtr_last", EventName: "last", Formula: "last"},
		},
		Prices: []stripetest.Price{{ID: "price_record", LookupKey: "record", UnitAmount: "1000000"}},
	}
	sub := stripetest.Subscription{ID: "sub_1", Customer: "cus_1", Start: s.first.Start.Unix(), End: s.first.End.Unix()}
	for _, meter := range inAllWays {
		if meter != "record" {
			seed.Prices = append(seed.Prices, stripetest.Price{ID: "price_" + meter, LookupKey: meter, UnitAmount: "1000000", Meter: "mtr_" + meter})
		}
		sub.Items = append(sub.Items, stripetest.Item{ID: "si_" + meter, Price: "price_" + meter})
	}
	seed.Subscriptions = []stripetest.Subscription{sub}
	require.NoError(t, s.fake.Seed(seed))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.answered != nil {
			defer s.answered()
		}
		s.fake.ServeHTTP(w, r)
	}))

	ring, err := seal.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	s.of = func(store *db.DB) *activities.Activities {
		return activities.New(activities.Config{
			Store: store, Keyring: ring, Webhook: new(far), Providers: providers.Registered(stripe.NewProvider(stripe.New(server.URL))),
			Metrics: activities.NewMetrics(nil), Now: s.fake.Now,
		})
	}
	s.do = s.of(store)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	s.TestActivityEnvironment = suite.NewTestActivityEnvironment()
	s.RegisterActivity(s.do)
	s.settle(ring)
	return s, server.Close
}

// settle creates the tenant of the fake's customer, with the connection, meters and prices.
func (s *subscriber) settle(ring seal.Keyring) {
	s.tenant = dbtest.Tenant(s, s.store).ID
	c, err := s.store.Customers.Create(s.Context(), s.tenant, metering.Operator, metering.Customer{ExternalID: "acme", BillingProviderID: new("cus_1")}, clock.Now())
	require.NoError(s, err)
	s.customer = c.ID
	_, err = s.conn.Exec(s.Context(), `update customers set created_at = $2 where tenant_id = $1`, s.tenant, s.first.Start.Add(time.Hour))
	require.NoError(s, err)
	sealed, err := ring.Seal(s.tenant, seal.ProviderSecret, []byte(stripeKey))
	require.NoError(s, err)
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: "acct_1", SealedSecret: sealed, ValidatedAt: s.fake.Now(),
	})
	require.NoError(s, err)
	for _, slug := range inAllWays {
		m := dbtest.Meter(s, s.store, s.tenant, slug, slug)
		dbtest.Price(s, s.store, s.tenant, billing.Price{
			MeterID: m.ID, Terms: billing.Terms{OverageRate: metering.Whole(10_000), Currency: "USD"}, EffectiveFrom: s.fake.Now(), // one cent per millionth of a unit
		})
	}
}

// use ingests random usage since the start of the first period.
func (s *subscriber) use(t *rapid.T) {
	until := s.fake.Now()
	span := rapid.SampledFrom([]metering.Range{{Start: s.first.Start, End: until}, {Start: until.Add(-time.Hour), End: until}}).Draw(t, "when")
	at := metering.Instant(span.Start.Add(time.Duration(rapid.Int64Range(0, int64(span.End.Sub(span.Start))-1).Draw(t, "age"))))
	meter, value := rapid.SampledFrom(inAllWays).Draw(t, "meter"), rapid.SampledFrom([]string{"1.3", "0.4", "2.5", "100", "1.2345", "0.0000015"}).Draw(t, "value")
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, "acme", at, value, "", "")})
	require.NoError(s, err)
	sums := s.used[0]
	if !at.Before(s.first.End) {
		sums = s.used[1]
	}
	sums[meter] = sums[meter].Add(metering.MustDecimal(value))
}

// setDecimals changes the number of decimals to which a meter's usage is rounded.
func (s *subscriber) setDecimals(t *rapid.T) {
	meter, decimals := rapid.SampledFrom(inAllWays).Draw(t, "meter"), rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "decimals")
	_, _, err := s.store.Meters.Update(s.Context(), s.tenant, metering.Operator, meter, catalog.MeterChange{UsageScale: &decimals})
	require.NoError(s, err)
	if meter == "record" {
		return // usage records have no decimals
	}
	s.decimals[1][meter] = decimals
	if !s.invoiced {
		s.decimals[0][meter] = decimals
	}
}

// plan reads the customer's state at Stripe, and plans the reports. The read may fail.
func (s *subscriber) plan(t *rapid.T) {
	s.meet(t)
	_, _ = s.ExecuteActivity(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput()})
	s.fake.Behave(stripetest.Behaviour{})
	s.known = append(s.known, s.planned(rapid.Bool().Draw(t, "new pass"))...)
}

// customerInput returns the input of activities about the customer.
func (s *subscriber) customerInput() activities.CustomerInput {
	return activities.CustomerInput{TenantID: s.tenant, CustomerID: s.customer}
}

// read reads the customer's state at Stripe.
func (s *subscriber) read() {
	s.Helper()
	s.must(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput()})
}

// planned plans reports, and returns the IDs of the reports to send. With newPass, reports of earlier passes may be
// replaced.
func (s *subscriber) planned(newPass bool) (ids []uuid.UUID) {
	var after int64
	if newPass {
		numbers, err := s.store.Ledger.LastNumbers(s.Context(), s.tenant, []metering.CustomerID{s.customer})
		require.NoError(s, err)
		after = numbers[s.customer]
	}
	value, err := s.ExecuteActivity(s.do.PlanReports, activities.PlanReportsInput{CustomerInput: s.customerInput(), After: after})
	require.NoError(s, err)
	var plan passes.Plan
	require.NoError(s, value.Get(&plan))
	if plan.ReadFirst {
		require.Empty(s, plan.Send, "nobody has read it yet")
	}
	for _, report := range plan.Send {
		ids = append(ids, report.ID)
	}
	return ids
}

// meet sets a random behaviour for the next call.
func (s *subscriber) meet(t *rapid.T) {
	b := rapid.SampledFrom(trouble).Draw(t, "trouble")
	b.Times = 1
	s.fake.Behave(b)
}

// send sends a planned report. The worker may stop before or after the call.
func (s *subscriber) send(t *rapid.T) {
	if len(s.known) == 0 {
		return
	}
	report := rapid.SampledFrom(s.known).Draw(t, "report")
	s.meet(t)
	defer s.fake.Behave(stripetest.Behaviour{})
	switch rapid.SampledFrom([]string{"lives", "lives", "lives", "dies before the call", "dies after the call"}).Draw(t, "who sends") {
	case "lives":
		s.sent(report)
	case "dies before the call":
		_, _ = s.store.Ledger.Lease(s.Context(), s.tenant, report, s.fake.Now(), 20*time.Second)
	case "dies after the call":
		if s.dies(report) {
			s.unknown = append(s.unknown, report)
		}
	}
}

// sent sends a report, and reports whether it was accepted. If a worker stopped at the call and the summaries do not
// show the report, its outcome is unknown until the invoice.
func (s *subscriber) sent(report uuid.UUID) bool { return s.outcome(report) == billing.Accepted }

// outcome sends a report and returns its state, or "" if the attempt failed.
func (s *subscriber) outcome(report uuid.UUID) billing.State {
	value, err := s.ExecuteActivity(s.do.SendReport, activities.SendReportInput{TenantID: s.tenant, ReportID: report})
	if err != nil {
		return ""
	}
	var result activities.SendReportResult
	require.NoError(s, value.Get(&result))
	if !s.charged || result.State != billing.Rejected { // an invoice may have taken the line
		require.Contains(s, []billing.State{billing.Accepted, billing.InDoubt}, result.State, result.Response)
	}
	return result.State
}

// dies sends a report from a worker that loses the database once Stripe has answered. It reports whether Stripe
// accepted the report.
func (s *subscriber) dies(report uuid.UUID) bool {
	store, err := dbtest.Connect(s.Context(), dbtest.URL(s))
	require.NoError(s, err)
	s.answered = store.Close
	result, err := s.of(store).SendReport(s.Context(), activities.SendReportInput{TenantID: s.tenant, ReportID: report})
	s.answered = nil
	store.Close()
	require.Error(s, err)
	return result.State == billing.Accepted
}

// record completes a report late, like a slow worker that continues after Temporal has started
// another attempt.
func (s *subscriber) record(t *rapid.T) {
	if len(s.unknown) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.unknown)-1).Draw(t, "report")
	require.NoError(s, s.store.Ledger.Complete(s.Context(), s.tenant, s.unknown[i], billing.Accepted, "Stripe answered 200", s.fake.Now()))
	s.unknown = append(s.unknown[:i], s.unknown[i+1:]...)
}

// count reads Stripe's counts. The read may fail.
func (s *subscriber) count(t *rapid.T) {
	s.meet(t)
	_, _ = s.ExecuteActivity(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput(), Counts: true})
	s.fake.Behave(stripetest.Behaviour{})
}

// batch runs a bulk sync for the customer, possibly with a failure.
func (s *subscriber) batch(t *rapid.T) {
	s.meet(t)
	_, _ = s.ExecuteActivity(s.do.SyncBatch, s.batchInput())
	s.fake.Behave(stripetest.Behaviour{})
}

// batchInput returns the input of activities for a batch with only this customer.
func (s *subscriber) batchInput() activities.BatchInput {
	return activities.BatchInput{TenantID: s.tenant, Customers: []metering.CustomerID{s.customer}}
}

// closePeriods closes the periods that are due.
func (s *subscriber) closePeriods(*rapid.T) { s.must(s.do.CloseBatch, s.batchInput()) }

// must executes an activity and requires that it succeeds.
func (s *subscriber) must(activity, in any) {
	s.Helper()
	_, err := s.ExecuteActivity(activity, in)
	require.NoError(s, err)
}

// wait lets time pass, up to 96 hours before the end of the current period.
func (s *subscriber) wait(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{30 * time.Second, time.Minute, 25 * time.Hour}).Draw(t, "wait")
	end := s.endOf(0)
	if s.invoiced {
		end = s.endOf(1)
	}
	if s.fake.Now().Add(d).Before(end.Add(-96 * time.Hour)) {
		s.fake.Advance(d)
	}
}

// invoice ends the first period, unless it has ended. Later usage is not on its invoice.
func (s *subscriber) invoice(*rapid.T) {
	if s.invoiced {
		return
	}
	s.invoiced = true
	s.end(0)
}

// endOf returns the end of a period; the first period is 0.
func (s *subscriber) endOf(period int) time.Time { return s.first.End.AddDate(0, period, 0) }

// end ends a period: it reports the last usage, waits for the final invoice, and handles Stripe's event about it.
func (s *subscriber) end(period int) {
	s.quiesce(nil)
	s.fake.Advance(s.endOf(period).Add(2 * time.Hour).Sub(s.fake.Now()))
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	invoices := s.fake.State().Accounts[0].Invoices
	require.Len(s, invoices, period+1)
	kept, _, err := s.store.ProviderEvents.Store(s.Context(), s.tenant, metering.ProviderEvent{
		Connection: active.ID, EventID: fmt.Sprint("evt_", period), Kind: "invoice.finalized", Invoice: true, ObjectID: invoices[period].ID, Customer: "cus_1", MadeAt: s.fake.Now(),
	}, s.fake.Now())
	require.NoError(s, err)
	s.must(s.do.ReadInvoice, activities.ProviderEventInput{TenantID: s.tenant, RowID: kept.Row})
}

// quiesce plans and sends reports without failures until all are decided. Reports can keep an unknown outcome until
// their invoice is final.
func (s *subscriber) quiesce(*rapid.T) {
	s.fake.Behave(stripetest.Behaviour{})
	for n := range 50 {
		wait := 30 * time.Second // longer than any lease
		if n == 10 {
			wait = 25 * time.Hour // Stripe repeats a saved 500 for a day to a report that must not be counted twice
		}
		s.fake.Advance(wait)
		s.read()
		open, doubt := s.planned(true), 0
		for _, report := range open {
			if s.outcome(report) == billing.InDoubt {
				doubt++
			}
		}
		s.must(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput(), Counts: true})
		// The outcome of a report that Stripe dropped is unknown until its invoice is final.
		if len(open) == 0 || n > 10 && doubt == len(open) {
			return
		}
	}
	s.Fatal("there is always something left to send")
}

// closeAndReport closes the periods that have ended, after their grace, and reports the remaining usage.
func (s *subscriber) closeAndReport(t *rapid.T) {
	s.quiesce(t)
	s.fake.Advance(72 * time.Hour)
	s.closePeriods(t)
	s.quiesce(t)
}

// requireBilled checks that the invoices of the first periods and the pending invoice items for late usage bill exactly
// the usage. It also checks that these periods are closed.
func (s *subscriber) requireBilled(t *rapid.T, periods int) {
	account := s.fake.State().Accounts[0]
	var billed, used metering.Decimal
	for _, invoice := range account.Invoices[:periods] {
		for _, line := range invoice.Lines {
			billed = billed.Add(line.Amount)
		}
	}
	for _, late := range account.Pending {
		billed = billed.Add(late.Amount)
	}
	for period := range periods {
		var closed bool
		row := s.conn.QueryRow(s.Context(), `select closed_at is not null from billing_periods where tenant_id = $1 and ends_at = $2`, s.tenant, s.endOf(period))
		require.NoError(s, row.Scan(&closed))
		if !closed {
			t.Fatalf("period %d is not closed", period)
		}
	}
	counted := periods
	if s.charged {
		counted = len(s.used) // pending items also charge the current period
	}
	for period := range counted {
		for _, meter := range inAllWays {
			used = used.Add(s.cents(period, meter))
		}
	}
	if !billed.Equal(used) {
		t.Fatalf("Stripe bills %s cents for the first %d periods, they come to %s", billed, periods, used)
	}
}

// cents returns the charge of a meter's usage in a period, in cents.
func (s *subscriber) cents(period int, meter string) metering.Decimal {
	if s.charged {
		return s.used[period][meter].Mul(metering.Whole(1_000_000)).Round(0)
	}
	return billing.Units(s.used[period][meter], s.decimals[period][meter]).Mul(metering.Whole(1_000_000))
}

// requireCounted checks that Stripe has counted the usage of the second period, unless a report has an unknown outcome.
func (s *subscriber) requireCounted(t *rapid.T) {
	var inDoubt bool
	row := s.conn.QueryRow(s.Context(), `select exists (select from billing_reports where tenant_id = $1 and state = 'in_doubt')`, s.tenant)
	require.NoError(s, row.Scan(&inDoubt))
	for _, meter := range inAllWays {
		if got, want := s.fake.Quantity("si_"+meter), billing.Units(s.used[1][meter], s.decimals[1][meter]); !inDoubt && !got.Equal(want) {
			t.Fatalf("of %s Stripe has counted %s, we %s", meter, got, want)
		}
	}
}

func TestPropertyStripeBillsAllUsageAfterRandomSteps(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	conn := dbtest.Conn(t)
	histories.Check(t, func(rt *rapid.T) {
		s, stop := newSubscriber(t, store, writer, conn)
		defer stop()
		rt.Repeat(map[string]func(*rapid.T){
			"use": s.use, "plan": s.plan, "send": s.send, "record": s.record, "count": s.count, "batch": s.batch, "close": s.closePeriods,
			"wait": s.wait, "sync": s.quiesce, "invoice": s.invoice, "decimals": s.setDecimals,
		})
		s.invoice(rt)
		s.closeAndReport(rt)
		s.requireBilled(rt, 1)
		s.requireCounted(rt)
		s.end(1)
		s.closeAndReport(rt)
		s.requireBilled(rt, 2)
	})
}
