package activities_test

import (
	"bytes"
	"encoding/base64"
	"log/slog"
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
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const stripeKey = "sk_test_1"

// inAllWays are the meters of every mechanism that has a total at Stripe.
var inAllWays = []string{"record", "delta", "window", "last"}

// trouble is what may meet one call; most meet none.
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

// subscriber drives one customer's ledger at Stripe through arbitrary
// interleavings: two periods of a subscription, of which the first is invoiced
// and closed at some time.
type subscriber struct {
	*testing.T
	*testsuite.TestActivityEnvironment
	do       *activities.Activities
	store    *db.DB
	writer   *db.Writer
	conn     *pgx.Conn
	fake     *stripetest.Fake
	tenant   metering.TenantID
	customer metering.CustomerID
	first    metering.Range
	invoiced bool
	used     [2]map[string]metering.Decimal // by period and meter
	decimals [2]map[string]int32            // those of the first period stay as they are when it is invoiced
	known    []uuid.UUID                    // entries that some process has been handed
	answers  []activities.SettleEntryInput  // that are not recorded yet
}

func newSubscriber(t *testing.T, store *db.DB, writer *db.Writer, conn *pgx.Conn) (s *subscriber, stop func()) {
	began := clock.Now().UTC().Truncate(time.Second).AddDate(0, 0, -75)
	s = &subscriber{
		T: t, store: store, writer: writer, conn: conn, fake: stripetest.New(stripetest.Options{Now: clock.Now}), first: metering.Range{Start: began, End: began.AddDate(0, 0, 20)},
		used: [2]map[string]metering.Decimal{{}, {}}, decimals: [2]map[string]int32{{}, {}},
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
	server := httptest.NewServer(s.fake)

	ring, err := db.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	s.do = activities.New(store, ring, new(far), providers.Registered(stripe.NewProvider(stripe.New(server.URL))), 0, activities.NewMetrics(nil), s.fake.Now)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	s.TestActivityEnvironment = suite.NewTestActivityEnvironment()
	s.RegisterActivity(s.do)
	s.settle(ring)
	return s, server.Close
}

// settle gives the fake's customer its tenant.
func (s *subscriber) settle(ring db.Keyring) {
	s.tenant = dbtest.Tenant(s, s.store).ID
	c, err := s.store.Customers.Create(s.Context(), s.tenant, metering.Operator, metering.Customer{ExternalID: "acme", BillingProviderID: new("cus_1")}, clock.Now())
	require.NoError(s, err)
	s.customer = c.ID
	_, err = s.conn.Exec(s.Context(), `update customers set created_at = $2 where tenant_id = $1`, s.tenant, s.first.Start.Add(time.Hour))
	require.NoError(s, err)
	sealed, err := ring.Seal(s.tenant, db.ProviderSecret, []byte(stripeKey))
	require.NoError(s, err)
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Account: "acct_1", SealedSecret: sealed, ValidatedAt: s.fake.Now(),
	})
	require.NoError(s, err)
	for _, slug := range inAllWays {
		m := dbtest.Meter(s, s.store, s.tenant, slug, slug)
		_, err := s.store.Prices.Set(s.Context(), s.tenant, metering.Operator, billing.Price{
			MeterID: m.ID, OverageRate: metering.Whole(10_000), Currency: "USD", EffectiveFrom: s.fake.Now(), // a cent for a millionth
		})
		require.NoError(s, err)
	}
}

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

// setDecimals changes what a meter's usage is rounded to.
func (s *subscriber) setDecimals(t *rapid.T) {
	meter, decimals := rapid.SampledFrom(inAllWays).Draw(t, "meter"), rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "decimals")
	_, _, err := s.store.Meters.Update(s.Context(), s.tenant, metering.Operator, meter, db.MeterChange{UsageScale: &decimals})
	require.NoError(s, err)
	if meter == "record" {
		return // usage records have none
	}
	s.decimals[1][meter] = decimals
	if !s.invoiced {
		s.decimals[0][meter] = decimals
	}
}

// prepare reads where the usage goes and writes down what is to be told.
func (s *subscriber) prepare(t *rapid.T) {
	s.meet(t)
	_, _ = s.ExecuteActivity(s.do.ReadItems, activities.ReadItemsInput{TenantID: s.tenant, CustomerID: s.customer})
	s.fake.Behave(stripetest.Behaviour{})
	s.known = append(s.known, s.prepared(rapid.Bool().Draw(t, "new pass"))...)
}

func (s *subscriber) prepared(newPass bool) (ids []uuid.UUID) {
	var after int64
	var err error
	if newPass {
		after, err = s.store.Ledger.LastEntry(s.Context(), s.tenant, s.customer)
		require.NoError(s, err)
	}
	value, err := s.ExecuteActivity(s.do.PrepareEntries, activities.PrepareEntriesInput{TenantID: s.tenant, CustomerID: s.customer, After: after})
	if err != nil {
		require.ErrorContains(s, err, "the customer's link to the provider has changed", "nobody has read it yet")
		return nil
	}
	var prepared activities.PrepareEntriesResult
	require.NoError(s, value.Get(&prepared))
	for _, e := range prepared.Send {
		ids = append(ids, e.ID)
	}
	return ids
}

// meet prepares some trouble for the next call.
func (s *subscriber) meet(t *rapid.T) {
	b := rapid.SampledFrom(trouble).Draw(t, "trouble")
	b.Times = 1
	s.fake.Behave(b)
}

// send sends an entry. What is answered may be forgotten, as in a crash.
func (s *subscriber) send(t *rapid.T) {
	if len(s.known) == 0 {
		return
	}
	entry := rapid.SampledFrom(s.known).Draw(t, "entry")
	s.meet(t)
	answer, ok := s.sent(entry)
	s.fake.Behave(stripetest.Behaviour{})
	if ok && rapid.IntRange(0, 2).Draw(t, "crash") > 0 {
		s.answers = append(s.answers, answer)
	}
}

func (s *subscriber) sent(entry uuid.UUID) (answer activities.SettleEntryInput, ok bool) {
	value, err := s.ExecuteActivity(s.do.SendEntry, activities.SendEntryInput{TenantID: s.tenant, EntryID: entry})
	if err != nil {
		return answer, false
	}
	var result activities.SendEntryResult
	require.NoError(s, value.Get(&result))
	require.Equal(s, metering.EntryAcknowledged, result.Outcome, result.Answer)
	return activities.SettleEntryInput{TenantID: s.tenant, EntryID: entry, Outcome: result.Outcome, Answer: result.Answer}, true
}

func (s *subscriber) record(t *rapid.T) {
	if len(s.answers) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.answers)-1).Draw(t, "answer")
	s.must(s.do.SettleEntry, s.answers[i])
	s.answers = append(s.answers[:i], s.answers[i+1:]...)
}

func (s *subscriber) confirm(t *rapid.T) {
	s.meet(t)
	_, _ = s.ExecuteActivity(s.do.ConfirmEntries, activities.ConfirmEntriesInput{TenantID: s.tenant, CustomerID: s.customer})
	s.fake.Behave(stripetest.Behaviour{})
}

func (s *subscriber) closePeriods(*rapid.T) {
	s.must(s.do.CloseChunk, activities.SyncChunkInput{TenantID: s.tenant, Customers: []metering.CustomerID{s.customer}})
}

func (s *subscriber) must(activity, in any) {
	s.Helper()
	_, err := s.ExecuteActivity(activity, in)
	require.NoError(s, err)
}

// wait lets time pass, but not the first period nor the time until today.
func (s *subscriber) wait(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{30 * time.Second, time.Minute, 25 * time.Hour}).Draw(t, "wait")
	end := s.first.End
	if s.invoiced {
		end = s.first.End.AddDate(0, 1, 0)
	}
	if s.fake.Now().Add(d).Before(end.Add(-96 * time.Hour)) {
		s.fake.Advance(d)
	}
}

// invoice ends the first period: the last usage is told, the invoice is
// finalized, and Stripe says so. Usage that comes later is not on it.
func (s *subscriber) invoice(*rapid.T) {
	if s.invoiced {
		return
	}
	s.invoiced = true
	s.quiesce(nil)
	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	row, _, err := s.store.ProviderEvents.Store(s.Context(), s.tenant, metering.ProviderEvent{
		Account: "acct_1", EventID: "evt_1", Kind: "invoice.finalized", Invoice: true, ObjectID: s.fake.State().Accounts[0].Invoices[0].ID, Customer: "cus_1", MadeAt: s.fake.Now(),
	}, s.fake.Now())
	require.NoError(s, err)
	s.must(s.do.ReadInvoice, activities.ProviderEventInput{TenantID: s.tenant, RowID: row})
}

// quiesce is what a worker does once everything answers again.
func (s *subscriber) quiesce(*rapid.T) {
	s.fake.Behave(stripetest.Behaviour{})
	for n := range 50 {
		wait := 30 * time.Second // longer than any lease
		if n == 10 {
			wait = 25 * time.Hour // a 500 that Stripe saved comes again for a day where nothing may be told twice
		}
		s.fake.Advance(wait)
		s.must(s.do.ReadItems, activities.ReadItemsInput{TenantID: s.tenant, CustomerID: s.customer})
		open := s.prepared(true)
		for _, entry := range open {
			answer, ok := s.sent(entry)
			if ok {
				s.must(s.do.SettleEntry, answer)
			}
		}
		s.must(s.do.ConfirmEntries, activities.ConfirmEntriesInput{TenantID: s.tenant, CustomerID: s.customer})
		if len(open) == 0 {
			return
		}
	}
	s.Fatal("there is always something left to send")
}

// requireBilled holds what Stripe bills of both periods to what was used: of
// the first, the invoice and what was added to the next one because it came
// late.
func (s *subscriber) requireBilled(t *rapid.T) {
	account := s.fake.State().Accounts[0]
	cents := map[bool]metering.Decimal{}
	for _, line := range account.Invoices[0].Lines {
		cents[true] = cents[true].Add(line.Amount)
	}
	for _, late := range account.Pending {
		cents[true] = cents[true].Add(late.Amount)
	}
	for _, meter := range inAllWays {
		first := billing.Units(s.used[0][meter], s.decimals[0][meter])
		cents[false] = cents[false].Add(first.Mul(metering.Whole(1_000_000)))
		if got, want := s.fake.Quantity("si_"+meter), billing.Units(s.used[1][meter], s.decimals[1][meter]); !got.Equal(want) {
			t.Fatalf("of %s Stripe has counted %s, we %s", meter, got, want)
		}
	}
	if !cents[true].Equal(cents[false]) {
		t.Fatalf("Stripe bills %s cents for the first period, it comes to %s", cents[true], cents[false])
	}
	var closed bool
	row := s.conn.QueryRow(s.Context(), `select closed_at is not null from billing_periods where tenant_id = $1 and ends_at = $2`, s.tenant, s.first.End)
	require.NoError(s, row.Scan(&closed))
	if !closed {
		t.Fatalf("the first period is not closed")
	}
}

func TestWhateverHappensStripeBillsWhatWasUsed(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	writer := db.NewWriter(store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	conn := dbtest.Conn(t)
	rapid.Check(t, func(rt *rapid.T) {
		s, stop := newSubscriber(t, store, writer, conn)
		defer stop()
		rt.Repeat(map[string]func(*rapid.T){
			"use": s.use, "prepare": s.prepare, "send": s.send, "record": s.record, "confirm": s.confirm, "close": s.closePeriods,
			"wait": s.wait, "sync": s.quiesce, "invoice": s.invoice, "decimals": s.setDecimals,
		})
		s.invoice(rt)
		s.quiesce(rt)
		s.closePeriods(rt)
		s.quiesce(rt)
		s.requireBilled(rt)
	})
}
