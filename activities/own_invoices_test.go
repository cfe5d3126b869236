package activities_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// newUnsubscribed returns a subscriber without a subscription, with calendar months that are billed in amounts. The
// fake's time is an hour after the start of a month.
func newUnsubscribed(t *testing.T) *subscriber {
	t.Helper()
	s := newRegular(t)
	s.unsubscribe()
	return s
}

// unsubscribe links the customer to a customer at Stripe without subscriptions, and changes the tenant to amounts.
func (s *subscriber) unsubscribe() {
	s.Helper()
	s.charged, s.atStripe = true, "cus_2"
	require.NoError(s, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey}, Customers: []stripetest.Customer{{ID: s.atStripe}}, Products: []stripetest.Product{{ID: "prod_usage"}},
	}))
	s.first = billing.CalendarPeriod(clock.Month(clock.Now(), -6), time.UTC)
	_, err := s.conn.Exec(s.Context(), `update customers set billing_provider_id = $2, created_at = $3 where tenant_id = $1`, s.tenant, s.atStripe, s.first.Start)
	require.NoError(s, err)
	s.fake.Advance(s.first.Start.Add(time.Hour).Sub(s.fake.Now()))
	s.bill(metering.BillsAmounts, s.first.Start.AddDate(0, -2, 0))
}

// own returns the customer's invoices.
func (s *subscriber) own() (all []stripetest.InvoiceState) {
	for _, in := range s.fake.State().Accounts[0].Invoices {
		if in.Customer == "cus_2" {
			all = append(all, in)
		}
	}
	return all
}

// closeMonth waits for the end of the grace of the n-th month, counted from 0, and closes the month. It reports the
// charges to Stripe, and handles Stripe's events about final invoices.
func (s *subscriber) closeMonth(n int) {
	s.Helper()
	end := s.first.Start.AddDate(0, n+1, 0)
	if d := end.Add(73 * time.Hour).Sub(s.fake.Now()); d > 0 {
		s.fake.Advance(d)
	}
	s.read()
	s.closePeriods(nil)
	s.quiesce(nil)
	s.hearOwn()
}

// hearOwn handles Stripe's events that the customer's invoices are final. Then it closes the due periods and syncs.
func (s *subscriber) hearOwn() {
	s.Helper()
	for _, in := range s.own() {
		if in.Status != "draft" {
			s.hear(in.ID)
		}
	}
	s.closePeriods(nil)
	s.quiesce(nil)
}

func TestMonthWithoutSubscriptionIsBilledByOneStandaloneInvoice(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.ingest("last", "0.01")
	require.Zero(t, s.report(), "the period is open")
	require.Empty(t, s.own())

	s.closeMonth(0)
	require.Len(t, s.own(), 1)
	in := s.own()[0]
	require.Equal(t, []any{"open", "5010000", "charge_automatically", true}, []any{in.Status, in.Total.String(), in.Collection, in.AutoAdvance})
	require.Len(t, in.Lines, 2)
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
	s.requireReconciled("record")
	s.requireReported(billing.ActionReport, billing.ChargeReport, billing.ChargeReport)
	s.closeMonth(1)
	require.Len(t, s.own(), 1, "nothing was used")
	require.Empty(t, s.pending())
	s.requireComplete(2)
}

// requireReported checks the kinds of the reports of the first period, newest first. All reports must be accepted.
func (s *subscriber) requireReported(want ...billing.Kind) {
	s.Helper()
	var period metering.PeriodID
	require.NoError(s, s.conn.QueryRow(s.Context(), `select id from billing_periods where tenant_id = $1 and starts_at = $2`, s.tenant, s.first.Start).Scan(&period))
	statement, err := s.store.Ledger.Statement(s.Context(), s.tenant, period, ledger.ReportPage{Before: math.MaxInt64, Limit: 10}, s.fake.Now())
	require.NoError(s, err)
	var kinds []billing.Kind
	for _, r := range statement.Reports.Items {
		require.Equal(s, billing.Accepted, r.State)
		kinds = append(kinds, r.Kind)
	}
	require.Equal(s, want, kinds)
}

// requireComplete checks the number of complete periods.
func (s *subscriber) requireComplete(periods int) {
	s.Helper()
	var complete int
	require.NoError(s, s.conn.QueryRow(s.Context(), `select count(*) from billing_periods where tenant_id = $1 and complete`, s.tenant).Scan(&complete))
	require.Equal(s, periods, complete)
}

func TestLateUsageIsOnNextStandaloneInvoice(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.read()
	s.closeMonth(0)
	s.late("delta", "3")
	s.quiesce(nil)
	require.Len(t, s.own(), 1, "its period is open")
	s.late("delta", "-1")
	s.closeMonth(1)
	require.Len(t, s.own(), 2, "nothing else was used")
	require.Equal(t, "2000000", s.own()[1].Total.String())

	s.late("delta", "-4")
	s.ingest("delta", "1")
	s.closeMonth(2)
	require.Len(t, s.own(), 3)
	require.Equal(t, "1000000", s.own()[2].Total.String(), "what would lower a final invoice stays booked")
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed", "10000 of 10000 are invoiced: agreed")
	s.requireComplete(3)
}

// TestStandaloneInvoiceIsCreatedOnceAfterFailedResponse checks that, after a failed or lost answer, the next attempt
// finds the same invoice and the same lines.
func TestStandaloneInvoiceIsCreatedOnceAfterFailedResponse(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]stripetest.Behaviour{
		"the answer is lost":       {DropAnswer: true, Times: 2, Method: "POST"}, // net/http repeats the call once
		"an error is saved":        {Status: 500, Mode: stripetest.Saved, Times: 1, Method: "POST"},
		"it was done, and failed":  {Status: 500, Mode: stripetest.Saved, Done: true, Times: 1, Method: "POST"},
		"it was not done, and 503": {Status: 503, Times: 1, Method: "POST"},
	} {
		for what, wait := range map[string]time.Duration{"at once": time.Minute, "two days later": 48 * time.Hour} {
			for _, path := range []string{"/v1/invoices", "/v1/invoiceitems", "/v1/invoices/"} {
				t.Run(name+", "+what+", "+path, func(t *testing.T) {
					t.Parallel()
					s := newUnsubscribed(t)
					s.ingest("delta", "5")
					s.ingest("last", "1")
					s.read()
					s.fake.Advance(s.first.End.Add(73 * time.Hour).Sub(s.fake.Now()))
					s.closePeriods(nil)
					here := trouble
					here.Path = path
					s.fake.Behave(here)
					for range 3 {
						for _, report := range s.planned(true) {
							s.sent(report)
						}
					}
					s.fake.Behave(stripetest.Behaviour{})
					s.fake.Advance(wait)
					s.quiesce(nil)
					s.hearOwn()
					require.Len(t, s.own(), 1)
					require.Len(t, s.own()[0].Lines, 2)
					require.Equal(t, []string{"open", "6000000"}, []string{s.own()[0].Status, s.own()[0].Total.String()})
					s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
				})
			}
		}
	}
}

func TestWorkerStopDoesNotDuplicateStandaloneInvoice(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.ingest("last", "1")
	s.read()
	s.fake.Advance(s.first.End.Add(73 * time.Hour).Sub(s.fake.Now()))
	s.closePeriods(nil)
	for steps := 0; ; steps++ {
		s.read()
		planned := s.planned(true)
		if len(planned) == 0 {
			require.Equal(t, 3, steps, "two lines, and the end")
			break
		}
		_, err := s.store.Ledger.Lease(t.Context(), s.tenant, planned[0], s.fake.Now(), 20*time.Second)
		require.NoError(t, err, "it dies before the call")
		s.fake.Advance(time.Minute)
		s.dies(planned[0]) // after the call
		s.fake.Advance(time.Minute)
		require.True(t, s.sent(planned[0]))
	}
	s.hearOwn()
	require.Len(t, s.own(), 1)
	require.Len(t, s.own()[0].Lines, 2)
	require.Equal(t, "6000000", s.own()[0].Total.String())
}

// TestNextInvoiceBillsLinesMissingFromStandaloneInvoice checks a standalone invoice that is finalized at Stripe before
// it has all lines. The next invoice bills the missing lines, even if Odometer has read the first one as a draft.
func TestNextInvoiceBillsLinesMissingFromStandaloneInvoice(t *testing.T) {
	t.Parallel()
	for name, readDraft := range map[string]bool{"the draft is not read": false, "the draft is read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newUnsubscribed(t)
			s.ingest("delta", "5")
			s.ingest("last", "1")
			s.read()
			s.fake.Advance(s.first.End.Add(73 * time.Hour).Sub(s.fake.Now()))
			s.closePeriods(nil)
			planned := s.planned(true)
			require.Len(t, planned, 2)
			require.True(t, s.sent(planned[0]))
			if readDraft {
				s.hear(s.own()[0].ID)
			}
			s.call("/v1/invoices/" + s.own()[0].ID + "/finalize")
			require.False(t, s.sent(planned[1]), "it takes no lines any more")
			s.hearOwn()
			s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
			s.requireReconciled("last", "0 of 10000 are invoiced: carried, unreported")
			s.closeMonth(1)
			require.Len(t, s.own(), 2)
			require.Equal(t, "1000000", s.own()[1].Total.String())
		})
	}
}

func TestVoidedStandaloneInvoiceIsWaived(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.read()
	s.closeMonth(0)
	s.call("/v1/invoices/" + s.own()[0].ID + "/void")
	s.hear(s.own()[0].ID)
	s.closePeriods(nil)
	s.ingest("delta", "1")
	s.closeMonth(1)
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed", "0 of 50000 are invoiced: waived, invoice_void", "10000 of 10000 are invoiced: agreed")
	require.Equal(t, "1000000", s.own()[1].Total.String())
}

// TestNewSubscriptionBillsCustomerFromItsStart checks that a customer that subscribes is billed by the subscription
// from its start, and that nothing is billed twice.
func TestNewSubscriptionBillsCustomerFromItsStart(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.read()
	s.planned(true)
	s.fake.Advance(10 * 24 * time.Hour)
	begins := s.fake.Now()
	require.NoError(t, s.fake.Seed(&stripetest.Seed{Account: stripetest.Account{ID: "acct_1", Key: stripeKey}, Subscriptions: []stripetest.Subscription{{
		ID: "sub_2", Customer: s.atStripe, Start: begins.Unix(), End: begins.AddDate(0, 1, 0).Unix(), Items: []stripetest.Item{{ID: "si_2", Price: "price_delta"}},
	}}}))
	s.fake.Advance(time.Hour)
	s.ingest("delta", "2")
	s.report()
	require.Len(t, s.pending(), 1)
	require.Equal(t, "2000000", s.pending()[0].Amount.String(), "what is used since")

	s.fake.Advance(begins.Add(73 * time.Hour).Sub(s.fake.Now()))
	s.closePeriods(nil)
	s.quiesce(nil)
	s.hearOwn()
	require.Len(t, s.own(), 1)
	require.Equal(t, []string{"open", "5000000"}, []string{s.own()[0].Status, s.own()[0].Total.String()})
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
	_, err := s.writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, "delta", "acme", metering.Instant(begins.Add(-time.Hour)), "1", "", "")})
	require.NoError(t, err)
	s.quiesce(nil)
	require.Len(t, s.own(), 1)
	require.Len(t, s.pending(), 2, "what comes late is on the subscription's next invoice")
}

// TestPropertyStandaloneInvoicesChargeAmountsOnce checks that, after random steps, the invoices add up to the charges,
// to the cent. There are no more invoices than months.
func TestPropertyStandaloneInvoicesChargeAmountsOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	conn := dbtest.Conn(t)
	histories.Check(t, func(rt *rapid.T) {
		s, stop := newSubscriber(t, store, writer, conn)
		defer stop()
		s.unsubscribe()
		s.read()
		rt.Repeat(map[string]func(*rapid.T){
			"use": s.use, "plan": s.plan, "send": s.send, "record": s.record, "batch": s.batch, "close": s.closePeriods,
			"wait": s.pass, "sync": s.quiesce, "hear": func(*rapid.T) { s.hearOwn() },
		})
		for month := range 3 {
			s.closeMonth(month)
		}
		var billed, used metering.Decimal
		for _, in := range s.own() {
			require.Equal(rt, "open", in.Status)
			billed = billed.Add(in.Total)
		}
		for _, meter := range inAllWays {
			used = used.Add(s.cents(0, meter)).Add(s.cents(1, meter))
		}
		if !billed.Equal(used) || len(s.own()) > 3 {
			rt.Fatalf("%d invoices bill %s cents, the months come to %s", len(s.own()), billed, used)
		}
	})
}

// pass lets time pass, up to the end of the second month.
func (s *subscriber) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{30 * time.Second, 25 * time.Hour, 9 * 24 * time.Hour}).Draw(t, "wait")
	if s.fake.Now().Add(d).Before(s.first.Start.AddDate(0, 2, 0)) {
		s.fake.Advance(d)
	}
}

// TestStandaloneInvoiceIsNotFinalizedDuringPause checks that a standalone invoice is not finalized while the customer
// is paused.
func TestStandaloneInvoiceIsNotFinalizedDuringPause(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.read()
	s.fake.Advance(s.first.End.Add(73 * time.Hour).Sub(s.fake.Now()))
	s.closePeriods(nil)
	require.True(t, s.sent(s.planned(true)[0]))
	end := s.planned(true)
	require.Len(t, end, 1)
	err := s.store.Syncs.Pause(t.Context(), s.tenant, ledger.Steering{Customer: s.customer, Actor: metering.Operator, Reason: "wait"}, s.fake.Now())
	require.NoError(t, err)
	_, err = s.do.SendReport(t.Context(), activities.SendReportInput{TenantID: s.tenant, ReportID: end[0]})
	require.Equal(t, metering.CodePaused, metering.CodeOf(err))
	require.Equal(t, "draft", s.own()[0].Status)
}

// TestListInvoicesFindsStandaloneInvoiceWithoutEvent checks that ListInvoices finds a standalone invoice if no event
// about it has arrived.
func TestListInvoicesFindsStandaloneInvoiceWithoutEvent(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	s.ingest("delta", "5")
	s.read()
	s.fake.Advance(s.first.End.Add(73 * time.Hour).Sub(s.fake.Now()))
	s.closePeriods(nil)
	s.quiesce(nil)
	require.Equal(t, "open 0", s.reconciled())
	s.lists(1)
	require.Equal(t, "agreed 50000", s.reconciled())
	s.requireComplete(1)
}

func TestStandaloneInvoiceUsesTenantsCollectionMethod(t *testing.T) {
	t.Parallel()
	s := newUnsubscribed(t)
	active, err := s.store.Providers.Active(t.Context(), s.tenant)
	require.NoError(t, err)
	active.Text.CollectionMethod, active.Text.DaysUntilDue = "send_invoice", 14
	_, err = s.store.Providers.Save(t.Context(), s.tenant, metering.Operator, active)
	require.NoError(t, err)
	s.ingest("delta", "5")
	s.read()
	s.closeMonth(0)
	require.Equal(t, []any{"send_invoice", int64(14)}, []any{s.own()[0].Collection, s.own()[0].DaysUntilDue})
}

// TestRestoredDatabaseFindsStandaloneInvoices checks that a restored database finds standalone invoices and lines that
// were created after the backup. It neither creates nor bills them again.
func TestRestoredDatabaseFindsStandaloneInvoices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines int  // lines that were set after the backup
		final bool // the invoice was finalized after the backup
		heard bool // Stripe's events about final invoices are handled right after the restore
	}{
		"nothing":                      {0, false, false},
		"a line":                       {1, false, false},
		"all lines":                    {2, false, false},
		"a final invoice":              {2, true, false},
		"a final invoice that is read": {2, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			d.unsubscribe()
			d.ingest("delta", "5")
			d.ingest("last", "1")
			d.sync(time.Minute)
			backup := d.backUp()
			d.fake.Advance(d.first.End.Add(73 * time.Hour).Sub(d.fake.Now()))
			d.closePeriods(nil)
			for _, report := range d.planned(true)[:c.lines] {
				require.True(t, d.sent(report))
			}
			if c.final {
				d.quiesce(nil)
			}
			d.restore(backup)
			if c.heard {
				d.hearOwn()
			}
			for range 4 {
				d.sync(25 * time.Hour)
				d.closePeriods(nil)
			}
			d.quiesce(nil)
			d.hearOwn()
			require.Len(t, d.own(), 1)
			require.Len(t, d.own()[0].Lines, 2)
			require.Equal(t, []string{"open", "6000000"}, []string{d.own()[0].Status, d.own()[0].Total.String()})
			d.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
		})
	}
}
