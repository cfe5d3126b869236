package activities_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// newCharged returns a subscriber that is billed in amounts from the first period on.
func newCharged(t *testing.T) *subscriber {
	t.Helper()
	s := newRegular(t)
	s.charge()
	return s
}

// charge changes the tenant to amounts, from the first period on.
func (s *subscriber) charge() {
	s.Helper()
	s.charged = true
	s.bill(metering.BillsAmounts, s.first.Start)
}

// bill changes whether the tenant bills amounts or quantities, from the given time on.
func (s *subscriber) bill(in metering.Bills, now time.Time) {
	s.Helper()
	require.NoError(s, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey}, Products: []stripetest.Product{{ID: "prod_usage"}},
	}))
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	active.Bills, active.Text, active.ValidatedAt = in, metering.InvoiceText{Product: "prod_usage", TaxBehavior: "exclusive"}, now
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, active)
	require.NoError(s, err)
}

// requireReconciled checks the reconciliations of a meter, in the order in which they were recorded.
func (s *subscriber) requireReconciled(meter string, said ...string) {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), `
		select format('%s of %s are invoiced: %s%s', r.invoiced, r.units, r.state, coalesce(', ' || nullif(r.reason, ''), ''))
		from billing_reconciliations r
		join meters m on m.tenant_id = r.tenant_id and m.id = r.meter_id
		where r.tenant_id = $1
		  and m.slug = $2
		order by r.id`, s.tenant, meter)
	require.NoError(s, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	require.Equal(s, said, append([]string(nil), found...))
}

// pending returns the pending invoice items at Stripe.
func (s *subscriber) pending() []stripetest.PendingState {
	return s.fake.State().Accounts[0].Pending
}

func TestNextInvoiceLineIsSetToMeterTotal(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	require.Equal(t, 1, s.report())
	require.Len(t, s.pending(), 1)
	require.Equal(t, "5000000", s.pending()[0].Amount.String())
	item := s.pending()[0].InvoiceItem

	s.ingest("delta", "2")
	require.Equal(t, 1, s.report())
	require.Len(t, s.pending(), 1)
	require.Equal(t, "7000000", s.pending()[0].Amount.String())
	require.Equal(t, item, s.pending()[0].InvoiceItem, "it is set, not added to")
	require.Zero(t, s.report(), "nothing has changed")

	s.invoice(nil)
	require.Empty(t, s.pending(), "the renewal has taken it")
	s.closeAndReport(nil)
	require.Empty(t, s.pending())
	s.requireReconciled("delta", "70000 of 70000 are invoiced: agreed")
	invoice := s.fake.State().Accounts[0].Invoices[0]
	require.Equal(t, "7000000", invoice.Total.String())
}

// TestAPeriodClosesWhileItsInvoiceIsADraft checks that a period closes after its grace, even while its
// invoice is a draft. At the close, the invoice line is set to the total. Late usage becomes a line of the
// next invoice.
func TestAPeriodClosesWhileItsInvoiceIsADraft(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	s.report()
	s.fake.Advance(s.first.End.Add(10 * time.Minute).Sub(s.fake.Now()))
	invoice := s.fake.State().Accounts[0].Invoices[0].ID
	s.callIn("2024-10-28.acacia", "/v1/invoices/"+invoice, "automatically_finalizes_at", strconv.FormatInt(s.fake.Now().AddDate(0, 0, 9).Unix(), 10))
	s.late("delta", "2") // the period is still open
	s.fake.Advance(73 * time.Hour)
	s.closePeriods(nil)
	s.late("delta", "1")
	s.quiesce(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "1000000", s.pending()[0].Amount.String(), "it came late")
	require.Equal(t, "7000000", s.fake.State().Accounts[0].Invoices[0].Total.String())
	s.requireReconciled("delta")
	open, err := s.store.Reconciliations.Unresolved(t.Context(), s.tenant, s.customer, 10)
	require.NoError(t, err)
	require.Len(t, open, 1)
	require.Equal(t, "70000", open[0].Units.String(), "it is money")

	s.call("/v1/invoices/" + invoice + "/finalize")
	s.hear(invoice)
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "1000000", s.pending()[0].Amount.String())
	s.requireReconciled("delta", "70000 of 70000 are invoiced: agreed")
	list, err := dbtest.Items(s.store.Reconciliations.List(t.Context(), s.tenant, ledger.ReconciliationFilter{}, 10))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []string{"70000", "70000"}, []string{list[0].Accepted.String(), list[0].Invoiced.String()}, "both are money")
}

// TestLateUsageLineOfNextInvoiceIsSetToNewTotal checks that usage that arrives after the renewal's invoice is final
// becomes a line of the next invoice. Each sync sets that line to the new total, and never below 0.
func TestLateUsageLineOfNextInvoiceIsSetToNewTotal(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	s.report()
	s.invoice(nil)
	s.closeAndReport(nil)
	s.late("delta", "3")
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	late := s.pending()[0]
	require.Equal(t, "3000000", late.Amount.String())

	s.late("delta", "-1")
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, late.InvoiceItem, s.pending()[0].InvoiceItem)
	require.Equal(t, "2000000", s.pending()[0].Amount.String())

	s.late("delta", "-4")
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "0", s.pending()[0].Amount.String(), "what would lower a final invoice stays booked")

	s.late("delta", "3")
	s.closeAndReport(nil)
	require.Equal(t, "1000000", s.pending()[0].Amount.String(), "5 are billed of 6")
}

// late ingests usage at a time in the first period, an hour before its end.
func (s *subscriber) late(meter, value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, "acme", metering.Instant(s.first.End.Add(-time.Hour)), value, "", "")})
	require.NoError(s, err)
}

func TestInvoiceLineIsCreatedOnceAfterLostOrFailedResponse(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]stripetest.Behaviour{
		"the answer is lost":       {DropAnswer: true, Times: 2, Method: "POST"}, // net/http repeats the call once
		"an error is saved":        {Status: 500, Mode: stripetest.Saved, Times: 1, Method: "POST"},
		"it was made, and failed":  {Status: 500, Mode: stripetest.Saved, Done: true, Times: 1, Method: "POST"},
		"it was not made, and 503": {Status: 503, Times: 1, Method: "POST"},
	} {
		for what, wait := range map[string]time.Duration{"at once": time.Minute, "two days later": 48 * time.Hour} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				s := newCharged(t)
				s.ingest("delta", "5")
				s.read()
				report := s.planned(true)[0]
				s.fake.Behave(trouble)
				_, err := s.do.SendReport(t.Context(), activities.SendReportInput{TenantID: s.tenant, ReportID: report})
				require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
				s.fake.Behave(stripetest.Behaviour{})
				s.fake.Advance(wait)
				s.ingest("delta", "2")
				s.quiesce(nil)
				require.Len(t, s.pending(), 1)
				require.Equal(t, "7000000", s.pending()[0].Amount.String())
			})
		}
	}
}

// TestUsageAfterLineIsInvoicedIsCarriedToNextPeriod checks that a pending line is not set again after an invoice has
// taken it during the period. Once the period's last invoice is final, the later usage becomes a line of the
// next period's invoice.
func TestUsageAfterLineIsInvoicedIsCarriedToNextPeriod(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	s.report()
	s.call("/v1/subscription_items", "subscription", "sub_1", "price", "price_last", "proration_behavior", "always_invoice")
	invoices := s.fake.State().Accounts[0].Invoices
	taken := invoices[len(invoices)-1].ID
	s.call("/v1/invoices/" + taken + "/finalize")
	require.Empty(t, s.pending())
	s.ingest("delta", "2")
	s.read()
	require.Empty(t, s.sends(), "the invoice has taken it")
	s.hear(taken)
	require.Zero(t, s.report())

	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	s.hear(s.fake.State().Accounts[0].Invoices[1].ID)
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "2000000", s.pending()[0].Amount.String())
	s.requireReconciled("delta", "50000 of 70000 are invoiced: carried, unreported")
}

// call sends a POST request to the fake that does not come from Odometer. pairs contains the keys and values of the
// form.
func (s *subscriber) call(path string, pairs ...string) {
	s.Helper()
	s.callIn("", path, pairs...)
}

// callIn is like call, with the given version of the API.
func (s *subscriber) callIn(version, path string, pairs ...string) {
	s.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	request.Header.Set("Authorization", "Bearer "+stripeKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if version != "" {
		request.Header.Set("Stripe-Version", version)
	}
	answer := httptest.NewRecorder()
	s.fake.ServeHTTP(answer, request)
	require.Equal(s, http.StatusOK, answer.Code, answer.Body.String())
}

// sends plans reports and sends them, and returns the accepted ones.
func (s *subscriber) sends() (accepted []uuid.UUID) {
	for _, report := range s.planned(true) {
		if s.sent(report) {
			accepted = append(accepted, report)
		}
	}
	return accepted
}

// hear handles Stripe's event that an invoice is final.
func (s *subscriber) hear(invoice string) {
	s.Helper()
	s.must(s.do.ReadInvoice, s.storeEvent(invoice))
}

// storeEvent stores Stripe's event that an invoice is final.
func (s *subscriber) storeEvent(invoice string) activities.ProviderEventInput {
	s.Helper()
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	kept, _, err := s.store.ProviderEvents.Store(s.Context(), s.tenant, metering.ProviderEvent{
		Connection: active.ID, EventID: "evt_" + uuid.NewString(), Kind: "invoice.finalized", Invoice: true, ObjectID: invoice, Customer: s.atStripe, MadeAt: s.fake.Now(),
	}, s.fake.Now())
	require.NoError(s, err)
	return activities.ProviderEventInput{TenantID: s.tenant, RowID: kept.Row}
}

// TestSwitchBetweenQuantitiesAndAmountsAppliesFromNextPeriod checks that a change between quantities and amounts
// applies from the next period on.
func TestSwitchBetweenQuantitiesAndAmountsAppliesFromNextPeriod(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "5")
	require.Equal(t, 1, s.report())
	s.charged = true
	s.bill(metering.BillsAmounts, s.fake.Now())
	s.ingest("delta", "2")
	require.Equal(t, 1, s.report())
	require.Equal(t, "7", s.fake.Quantity("si_delta").String(), "the period began with quantities")
	require.Empty(t, s.pending())

	s.invoice(nil)
	s.closeAndReport(nil)
	s.ingest("delta", "3")
	s.late("delta", "1")
	s.closeAndReport(nil)
	require.Equal(t, "0", s.fake.Quantity("si_delta").String())
	require.Len(t, s.pending(), 2)
	require.Equal(t, "4000000", s.pending()[0].Amount.Add(s.pending()[1].Amount).String())

	s.bill(metering.BillsQuantities, s.fake.Now())
	s.ingest("delta", "1")
	s.quiesce(nil)
	require.Equal(t, "5000000", s.pending()[0].Amount.Add(s.pending()[1].Amount).String(), "the period began with amounts")
}

// TestCustomerWithBillingCreditsIsNotChargedAmounts checks that a customer with billing credits at Stripe is not
// charged amounts, because the credits apply only to metered prices.
func TestCustomerWithBillingCreditsIsNotChargedAmounts(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.fake.SetCredits("cus_1", 500)
	s.ingest("delta", "5")
	require.Zero(t, s.report())
	require.Empty(t, s.pending())
	planned, err := s.store.Ledger.Plan(t.Context(), s.tenant, s.customer, ledger.Pass{}, nil, s.fake.Now())
	require.NoError(t, err)
	require.NotEmpty(t, planned.Excluded)
	require.Contains(t, planned.Excluded[0].Detail, "billing credits")

	s.fake.SetCredits("cus_1", 0)
	require.Equal(t, 1, s.report())
	require.Len(t, s.pending(), 1)
}

// TestWorkerStopDoesNotDuplicateInvoiceLine checks that the next worker sets the same line after a worker has stopped
// at any step.
func TestWorkerStopDoesNotDuplicateInvoiceLine(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	for _, value := range []string{"5", "2"} {
		s.ingest("delta", value)
		s.read()
		report := s.planned(true)[0]
		_, err := s.store.Ledger.Lease(t.Context(), s.tenant, report, s.fake.Now(), 20*time.Second)
		require.NoError(t, err, "it dies before the call")
		s.fake.Advance(time.Minute)
		s.dies(report) // after the call
		s.fake.Advance(time.Minute)
	}
	s.quiesce(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "7000000", s.pending()[0].Amount.String())
}

func TestVoidedLineIsWaivedUntilOperatorRebillsIt(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	s.report()
	s.invoice(nil)
	invoice := s.fake.State().Accounts[0].Invoices[0].ID
	s.closeAndReport(nil)
	s.call("/v1/invoices/" + invoice + "/void")
	s.hear(invoice)
	s.closeAndReport(nil)
	require.Empty(t, s.pending())
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed", "0 of 50000 are invoiced: waived, invoice_void")

	open, err := dbtest.Items(s.store.Reconciliations.List(t.Context(), s.tenant, ledger.ReconciliationFilter{State: billing.ReconciliationWaived}, 10))
	require.NoError(t, err)
	require.NotEmpty(t, open)
	for _, r := range open {
		if r.MeterSlug == "delta" {
			_, err = s.store.Reconciliations.Decide(t.Context(), s.tenant, r.Key(), ledger.Verdict{Decision: billing.Rebill, Actor: metering.Operator, Note: "by mistake"}, s.fake.Now())
			require.NoError(t, err)
		}
	}
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "5000000", s.pending()[0].Amount.String())
}

// TestPropertyStripeChargesTheAmountsOnce checks that, after random steps, the invoices and the pending invoice items
// add up to the charges, to the cent.
func TestPropertyStripeChargesTheAmountsOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	conn := dbtest.Conn(t)
	histories.Check(t, func(rt *rapid.T) {
		s, stop := newSubscriber(t, store, writer, conn)
		defer stop()
		s.charge()
		rt.Repeat(map[string]func(*rapid.T){
			"use": s.use, "plan": s.plan, "send": s.send, "record": s.record, "batch": s.batch, "close": s.closePeriods,
			"wait": s.wait, "sync": s.quiesce, "invoice": s.invoice,
		})
		s.invoice(rt)
		s.closeAndReport(rt)
		s.requireBilled(rt, 1)
		s.end(1)
		s.closeAndReport(rt)
		s.requireBilled(rt, 2)
	})
}

// TestLineCreatedAfterRenewalDraftIsOnFollowingInvoice checks a line that is created after the renewal's draft. The
// line waits for the following invoice and is treated as billed. It is reconciled when that invoice is final.
func TestLineCreatedAfterRenewalDraftIsOnFollowingInvoice(t *testing.T) {
	t.Parallel()
	s := newCharged(t)
	s.ingest("delta", "5")
	s.read()
	report := s.planned(true)[0]
	s.fake.Advance(s.first.End.Add(time.Minute).Sub(s.fake.Now()))
	require.True(t, s.sent(report))
	s.fake.Advance(2 * time.Hour)
	s.hear(s.fake.State().Accounts[0].Invoices[0].ID)
	s.closeAndReport(nil)
	require.Len(t, s.pending(), 1)
	require.Equal(t, "5000000", s.pending()[0].Amount.String())

	s.end(1)
	s.closeAndReport(nil)
	require.Empty(t, s.pending())
	s.requireReconciled("delta", "50000 of 50000 are invoiced: agreed")
}
