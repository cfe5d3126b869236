package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// bill returns a draft invoice of Stripe for a period of the subscription sub_1.
func (b *biller) bill(id string, period metering.Range, lines ...metering.InvoiceLine) metering.Invoice {
	in := metering.Invoice{
		ID: id, Connection: b.connection, Customer: "cus_1", Subscription: "sub_1", Status: "draft", Reason: "subscription_cycle", Renewal: true, Currency: "USD",
		Period: period, CreatedAt: period.End, Lines: lines,
	}
	for i := range in.Lines {
		in.Lines[i].ID, in.Lines[i].Period = fmt.Sprintf("il_%s_%d", id, i), period
		in.Total = in.Total.Add(in.Lines[i].Amount)
	}
	return in
}

// line returns an invoice line that bills units of the meter.
func (b *biller) line(units, amount string) metering.InvoiceLine {
	return metering.InvoiceLine{MeterID: b.meter.ID, Item: "si_1", Price: "price_1", Quantity: metering.MustDecimal(units), Amount: metering.MustDecimal(amount)}
}

func (b *biller) save(in metering.Invoice, readAt time.Time) {
	b.Helper()
	require.NoError(b, b.store.Invoices.Save(b.Context(), b.tenant, b.customer.ID, in, readAt))
}

// final returns the invoice as finalized, with lines that no longer change.
func (b *biller) final(in metering.Invoice) metering.Invoice {
	in.Status, in.FinalizedAt = "open", metering.Instant(b.now)
	return in
}

// facts returns the customer's billing facts.
func (b *biller) facts() *billing.Books {
	b.Helper()
	books, err := b.store.Ledger.Books(b.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(b, err)
	return books[0]
}

// invoices returns the invoices in the facts as "id units amount", marked as "before the renewal" or
// "void" if they are.
func (b *biller) invoices() (all []string) {
	b.Helper()
	for _, in := range b.facts().Invoices {
		text := in.ID
		for _, l := range in.Lines {
			require.Equal(b, [2]any{b.meter.ID, "USD"}, [2]any{l.MeterID, l.Currency})
			text += fmt.Sprintf(" %s %s", l.Quantity, l.Amount)
		}
		if !in.Renewal {
			text += " before the renewal"
		}
		if in.Void {
			text += " void"
		}
		all = append(all, text)
	}
	return all
}

// kept returns the latest version of an invoice, its status, the number of lines of all versions, and
// its ledger sequence.
func (b *biller) kept(id string) (is string, sequence int64) {
	b.Helper()
	b.scan(`
		select format('version %s, %s, %s lines', i.version, i.status, (select count(*) from billing_invoice_lines l where l.tenant_id = i.tenant_id and l.invoice_id = i.invoice_id)), i.sequence
		from billing_invoices i
		where i.tenant_id = $1
		  and i.invoice_id = $2`, []any{b.tenant, id}, &is, &sequence)
	return is, sequence
}

func TestEachVersionOfAnInvoiceKeepsItsLines(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.plan(anew)
	first := b.now
	report := uuid.New()
	charge := metering.InvoiceLine{ReportID: &report, Amount: metering.Whole(2)}
	draft := b.bill("in_1", month, b.line("3", "300"), charge)
	b.save(draft, first)
	is, began := b.kept("in_1")
	require.Equal(t, "version 1, draft, 2 lines", is)
	b.save(draft, first.Add(time.Minute))
	is, sequence := b.kept("in_1")
	require.Equal(t, "version 1, draft, 2 lines", is, "the invoice has the same content")
	require.Equal(t, began, sequence)

	b.save(b.bill("in_1", month, b.line("5", "500")), first)
	is, _ = b.kept("in_1")
	require.Equal(t, "version 1, draft, 2 lines", is, "it was read before that")
	final := b.final(b.bill("in_1", month, b.line("4", "400"), charge))
	b.save(final, first.Add(2*time.Minute))
	is, sequence = b.kept("in_1")
	require.Equal(t, "version 2, open, 4 lines", is)
	require.Greater(t, sequence, began)

	paid := final
	paid.Status = "paid"
	paid.Lines = []metering.InvoiceLine{final.Lines[0], final.Lines[1]}
	paid.Lines[0].MeterID = 0
	b.save(paid, first.Add(3*time.Minute))
	is, _ = b.kept("in_1")
	require.Equal(t, "version 3, paid, 6 lines", is)
	require.Equal(t, []string{"in_1 4 400"}, b.invoices(), "a line of a final invoice keeps its meter after a change of the mapping")
}

func TestFinalInvoicePutsCustomerOutOfSync(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("5")
	b.reportEach()
	synced := func(why string) {
		t.Helper()
		require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), why)
		b.reportEach()
		require.Empty(t, b.outOfSync(), why)
	}
	require.Empty(t, b.outOfSync())
	in := b.bill("in_1", month, b.line("5", "500"))
	b.save(in, b.now)
	require.Empty(t, b.outOfSync(), "a draft")
	b.save(b.final(in), b.now)
	synced("it is final")
	b.save(b.final(in), b.now.Add(time.Second))
	require.Empty(t, b.outOfSync(), "the invoice has the same content")

	b.now = over(month)
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.reportEach()
	require.Empty(t, b.outOfSync())
	void := b.final(in)
	void.Status, void.Void = "void", true
	b.save(void, b.now)
	require.Zero(t, b.closePeriods().Closed)
	synced("a closing has compared the invoice of its closed period")
}

func TestFactsHaveTheInvoicesOfPeriodsThatAreNotReconciled(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	proration, others := b.line("9", "9"), b.line("8", "8")
	proration.Proration, others.MeterID = true, 0
	threshold := b.bill("in_threshold", metering.Range{Start: month.Start, End: b.now.Add(time.Hour)}, b.line("4", "40"))
	threshold.Reason, threshold.Renewal = "subscription_threshold", false
	renewal := b.bill("in_renewal", month, b.line("10", "1"), b.line("5", "0.25"), proration, others)
	b.save(threshold, b.now)
	b.save(renewal, b.now)
	require.Empty(t, b.invoices(), "drafts")
	b.now = b.now.Add(time.Hour)
	b.save(b.final(threshold), b.now)
	require.Equal(t, []string{"in_threshold 4 40 before the renewal"}, b.invoices())
	b.now = month.End.Add(time.Hour)
	b.save(b.final(renewal), b.now)
	byHand := b.bill("in_by_hand", month, b.line("7", "7"))
	byHand.Subscription = ""
	b.save(b.final(byHand), b.now)
	both := []string{"in_threshold 4 40 before the renewal", "in_renewal 15 1.25"}
	require.Equal(t, both, b.invoices())

	b.now = over(month)
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	reported := func() (units []string) {
		for _, r := range b.facts().Reported {
			units = append(units, r.Taken.Value.String())
		}
		return units
	}
	reconciled := func() billing.Reconciliation {
		line, known := b.facts().Stored[0].Line(b.meter.ID)
		require.True(t, known)
		r := *line.Reconciled
		r.Period = r.Period.UTC()
		return r
	}
	require.Empty(t, b.invoices(), "the invoices were compared when the period closed")
	require.Empty(t, reported())
	row := billing.Reconciliation{
		Period: month.Start, MeterID: b.meter.ID, Units: metering.Whole(20), Reported: metering.Whole(20), Invoiced: metering.Whole(19), Billed: metering.Whole(19),
		State: billing.ReconciliationCarried, Reason: billing.ReasonNotBilled,
	}
	require.Equal(t, fmt.Sprint(row), fmt.Sprint(reconciled()))

	void := b.final(renewal)
	void.Status, void.Void = "void", true
	b.save(void, b.now)
	require.Equal(t, []string{both[0], both[1] + " void"}, b.invoices(), "all invoices of the period, because one has changed")
	require.Equal(t, []string{"20"}, reported())
	b.plan(anew)
	require.Empty(t, b.invoices())
	last := reconciled()
	require.Equal(t, billing.ReconciliationWaived, last.State)
	require.Equal(t, billing.ReasonVoid, last.Reason)
	var rows int
	b.scan(`select count(*) from billing_reconciliations where tenant_id = $1`, []any{b.tenant}, &rows)
	require.Equal(t, 2, rows, "the previous reconciliation is kept")

	b.useMode("acct_1", false)
	void.Total = metering.Whole(1)
	b.save(void, b.now.Add(time.Second))
	require.Empty(t, b.invoices(), "the invoices are of another mode")
}

// TestInvoiceReadAsDraftCanBecomeLastOfItsPeriod reads an invoice as a draft first. Only the final invoice shows that it
// is the last one of its period: a standalone invoice is, and the latest invoice of a canceled subscription.
func TestInvoiceReadAsDraftCanBecomeLastOfItsPeriod(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("5")
	b.reportEach()
	in := b.bill("in_1", month, b.line("5", "500"))
	in.Renewal = false
	b.save(in, b.now)
	b.now = over(month)
	in = b.final(in)
	in.Renewal = true
	b.save(in, b.now)
	require.True(t, b.facts().Stored[0].Subscription.Invoiced)
	in.Total, in.Renewal = metering.Whole(1), false // by now, the canceled subscription has a later invoice
	b.save(in, b.now.Add(time.Second))
	require.True(t, b.facts().Stored[0].Subscription.Invoiced)
}

func TestADisputedReconciliationIsPublishedOnce(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	hook, err := b.store.Webhooks.Create(t.Context(), b.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/hook", EventTypes: []metering.MessageKind{metering.MessageDiscrepancyDetected}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, b.now)
	require.NoError(t, err)
	b.use("10")
	b.reportEach()
	in := b.final(b.bill("in_1", month, b.line("9", "900")))
	b.save(in, b.now)
	b.now = over(month)
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	for i, version := range []struct {
		units  string
		status string
		want   billing.ReconciliationState
	}{
		{"9", "open", billing.ReconciliationCarried},
		{"10", "open", billing.ReconciliationAgreed},
		{"12.5", "open", billing.ReconciliationDisputed},
		{"12.5", "paid", billing.ReconciliationDisputed},
		{"12.5", "void", billing.ReconciliationWaived},
	} {
		in.Lines = []metering.InvoiceLine{b.line(version.units, "900")}
		in.Status, in.Void = version.status, version.status == "void"
		b.save(in, b.now.Add(time.Duration(i)*time.Second))
		b.plan(anew)
		line, known := b.facts().Stored[0].Line(b.meter.ID)
		require.True(t, known)
		require.Equal(t, version.want, line.Reconciled.State, "version %d", i)
	}
	claimed, err := b.store.Deliveries.Claim(t.Context(), b.tenant, hook.ID, b.now, time.Minute)
	require.NoError(t, err)
	require.Equal(t, metering.MessageDiscrepancyDetected, claimed.Message.Kind)
	require.JSONEq(t, `{
		"kind": "reconciliation_disputed",
		"tenant_id": "`+b.tenant.String()+`", "customer_id": "`+b.customer.ID.String()+`", "customer_external_id": "acme",
		"period": {"id": "`+b.periodOf(month.Start).String()+`", "start": "`+month.Start.Format(time.RFC3339)+`", "end": "`+month.End.Format(time.RFC3339)+`"},
		"meter_id": "`+b.meter.ID.String()+`", "meter_slug": "api-calls", "units": 10, "reported": 10, "invoiced": 12.5, "unexplained": 2.5, "reason": "billed_more",
		"message": "`+billing.ReasonBilledMore.Text().Message+`", "next_step": "`+billing.ReasonBilledMore.Text().NextStep+`"
	}`, string(claimed.Message.Data))
	deliveries, err := dbtest.Items(b.store.Deliveries.List(t.Context(), b.tenant, hook.ID, "", uuid.Nil, 10))
	require.NoError(t, err)
	require.Len(t, deliveries, 1)
}

// TestAnInvoiceIsFinalForAllPeriodsThatItBills has two billing periods in one subscription period. The
// customer's usage was reported to a webhook before the subscription began.
func TestAnInvoiceIsFinalForAllPeriodsThatItBills(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.accept()
	b.useStripe("acct_1")
	subscribed := metering.Range{Start: b.now, End: b.now.AddDate(0, 0, 31)}
	b.link("sub_1", subscribed, asDelta)
	b.now = month.End.Add(time.Hour)
	b.use("5")
	b.reportAll()
	b.now = subscribed.End.Add(time.Hour)
	b.invoiced(subscribed, "5")
	b.link("sub_1", metering.Range{Start: subscribed.End, End: subscribed.End.AddDate(0, 1, 0)}, asDelta)
	b.reportAll()
	var invoiced []bool
	for _, p := range b.facts().Stored {
		invoiced = append(invoiced, p.Subscription.Invoiced)
	}
	require.Equal(t, []bool{true, true, false}, invoiced)
}

// TestFactsContainAllInvoicesOfPeriodThatANewInvoiceConcerns stores an invoice of the next period that also
// concerns a reconciled period. All invoices of the reconciled period are read, because only all of them
// show the amount that is billed for it.
func TestFactsContainAllInvoicesOfPeriodThatANewInvoiceConcerns(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	next := billing.CalendarPeriod(month.End, time.UTC)
	b.now = over(month)
	b.subscribe(next, asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.invoiced(month, "20")
	b.reportEach()
	require.Empty(t, b.invoices())

	require.True(t, b.facts().Stored[0].Omitted)
	both := b.bill("in_both", metering.Range{Start: month.End.AddDate(0, 0, -10), End: next.End}, b.line("0", "0"))
	both.Subscription = "sub_2"
	b.save(b.final(both), b.now)
	require.False(t, b.facts().Stored[0].Omitted)
	b.reportEach()
	require.Equal(t, []string{"in_1 20 0", "in_both 0 0"}, b.invoices(), "the next month wants one, which wants the other")
	require.Empty(t, b.facts().Reconciled)
}

// TestFactsContainReportsOfOtherScheduleOnSharedInvoice checks that a schedule's facts contain the reports of the other
// schedule that one of its invoices may bill, even if the other schedule has compared the invoice already. Otherwise, the
// reported units on the invoice would seem to be of unknown origin.
func TestFactsContainReportsOfOtherScheduleOnSharedInvoice(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	tokens := asDelta
	tokens.MeterID, tokens.Target = dbtest.Meter(t, b.store, b.tenant, "tokens", "token").ID, "mtr_tokens"
	beside := []billing.Side{{
		Customer: "cus_1", Subscription: "sub_2", Period: metering.Range{Start: month.Start.AddDate(0, 0, 10), End: month.End.AddDate(0, 0, 15)}, Destinations: []billing.Destination{tokens},
	}}
	b.linkTo(billing.Side{Subscription: "sub_1", Period: month, Others: beside})
	b.use("20")
	b.reportEach()
	b.now = over(month)
	b.linkTo(billing.Side{Subscription: "sub_1", Period: billing.CalendarPeriod(month.End, time.UTC), Others: beside})
	b.closePeriods()
	b.invoiced(month, "20")
	b.reportEach()
	began := beside[0].Period.Start
	early := b.bill("in_early", metering.Range{Start: began, End: began.AddDate(0, 0, 10)}, b.line("5", "5"))
	early.Subscription, early.Renewal = "sub_2", false
	b.save(b.final(early), b.now)
	b.reportEach()

	books, err := b.store.Ledger.Books(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Len(t, books, 2)
	require.Empty(t, books[0].Invoices)
	require.Len(t, books[1].Invoices, 1)
	require.Len(t, books[1].Beside, 1)
	require.Equal(t, "20", books[1].Beside[0].Taken.Added.String())
}

// TestPeriodOfReceiverIsOmittedUntilAnInvoiceConcernsIt replaces Stripe by a receiver of statements. The receiver's
// statements of an incomplete period are read only with an invoice of that period.
func TestPeriodOfReceiverIsOmittedUntilAnInvoiceConcernsIt(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	renewal := b.final(b.bill("in_1", month, b.line("20", "0")))
	b.useProvider("https://billing.example.com")
	require.True(t, b.facts().Stored[0].Omitted)
	b.save(renewal, b.now)
	require.False(t, b.facts().Stored[0].Omitted)
}

func (b *biller) end(subscription string, last metering.Range) {
	b.Helper()
	of := metering.EndedSubscription{ID: subscription, Connection: b.connection, Customer: "cus_1", LastPeriod: last}
	require.NoError(b, b.store.Invoices.SaveEnded(b.Context(), b.tenant, b.customer.ID, of, b.now))
}

// TestInvoiceOfOtherSubscriptionIsIgnoredWithoutMeterLines checks that the invoices of the customer's other
// subscriptions are ignored, unless they bill usage of our meters.
func TestInvoiceOfOtherSubscriptionIsIgnoredWithoutMeterLines(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	seats := b.line("3", "30")
	seats.MeterID = 0
	others := b.bill("in_others", month, seats)
	others.Subscription = "sub_2"
	b.save(b.final(others), b.now)
	require.Empty(t, b.invoices())
	b.end("sub_2", metering.Range{Start: month.Start, End: b.now})
	require.Empty(t, b.invoices(), "the end of the subscription is not in the facts either")

	ours := b.bill("in_ours", month, b.line("3", "30"))
	ours.Subscription, ours.Renewal = "sub_3", false
	b.save(b.final(ours), b.now)
	require.Equal(t, []string{"in_ours 3 30 before the renewal"}, b.invoices())
	books := &books{store: b.store, tenant: b.tenant, Books: &dbtest.Books{TB: b.TB}}
	b.now = over(month)
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	shown := books.list(ledger.ReconciliationFilter{})
	require.Len(t, shown, 1)
	require.Len(t, shown[0].Invoices, 1, "the list shows the same invoices")
	require.Equal(t, "in_ours", shown[0].Invoices[0].ID)
}

// TestFactsContainSubscriptionEndDespiteAnotherConnection checks that the end of a subscription is known even if the
// customer also has a subscription at another connection for the same month.
func TestFactsContainSubscriptionEndDespiteAnotherConnection(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	b.useStripe("acct_2")
	b.link("sub_2", month, asDelta)
	b.plan(anew)
	require.Equal(t, [2]any{"sub_2", b.connection}, [2]any{b.facts().Stored[0].Subscription.ID, b.facts().Stored[0].Subscription.Connection})
	b.useStripe("acct_1")
	require.Empty(t, b.facts().Invoices)
	b.end("sub_1", metering.Range{Start: month.Start, End: month.End.AddDate(0, 0, -3)})
	require.Len(t, b.facts().Invoices, 1)
	require.True(t, b.facts().Invoices[0].Ended)
}

func TestSubscriptionEndReconcilesItsLastPeriod(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	b.reportEach()
	b.now = over(month)
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.reportEach()
	require.Empty(t, b.outOfSync())
	due := func() []ledger.InvoiceList {
		lists, err := b.store.Invoices.DueLists(t.Context(), b.tenant, b.connection, 10, b.now, b.now.Add(time.Hour))
		require.NoError(t, err)
		return lists
	}
	list := due()
	require.Len(t, list, 1)
	require.Equal(t, []any{b.customer.ID, "cus_1", month.Start}, []any{list[0].Customer, list[0].AtProvider, list[0].Since.UTC()})
	require.Empty(t, due(), "another process is listing the invoices")
	b.now = b.now.Add(time.Hour)
	require.Equal(t, list, due(), "the process that listed them may have died")
	require.NoError(t, b.store.Invoices.Listed(t.Context(), b.tenant, list[0], b.now.Add(24*time.Hour)))
	b.now = b.now.Add(23 * time.Hour)
	require.Empty(t, due())
	b.now = b.now.Add(time.Hour)
	require.Len(t, due(), 1)

	b.end("sub_1", metering.Range{Start: month.Start, End: month.End.AddDate(0, 0, -3)})
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	b.end("sub_1", metering.Range{Start: month.Start, End: month.End.AddDate(0, 0, -3)})
	b.reportEach()
	last := b.facts().Stored[0].Closed[0].Reconciled
	require.Equal(t, []any{billing.ReconciliationCarried, billing.ReasonSubscriptionEnded, "0"}, []any{last.State, last.Reason, last.Billed.String()})
	b.now = b.now.Add(48 * time.Hour)
	require.Empty(t, due(), "the reconciliation is decided")

	late := b.bill("in_late", metering.Range{Start: month.Start, End: month.End.AddDate(0, 0, -3)}, b.line("20", "2"))
	late.Reason, late.Renewal = "manual", false
	b.save(b.final(late), b.now)
	b.reportEach()
	last = b.facts().Stored[0].Closed[0].Reconciled
	require.Equal(t, []any{billing.ReconciliationAgreed, "20"}, []any{last.State, last.Billed.String()}, "the later invoice bills the usage")
}

// TestReportTimedInNextSubscriptionIsNotReportedAgain sends a report before Odometer knows
// of the next subscription. The time of the report is in that subscription, so its invoice bills the
// report. The end of the previous subscription without an invoice does not change this.
func TestReportTimedInNextSubscriptionIsNotReportedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		billing.Destination
		rest string // usage of the previous subscription that is on no invoice
	}{"added up": {asDelta, "4"}, "the last one counts": {asLast, "0"}} {
		b, month := newOldBiller(t)
		b.useStripe("acct_1")
		b.link("sub_1", month, c.Destination)
		b.sendAccepted("4")
		b.now = b.now.Add(time.Hour)
		swapped := b.now
		b.sendAccepted("10")
		b.link("sub_2", metering.Range{Start: swapped, End: month.End}, c.Destination)
		b.plan(anew)
		b.end("sub_1", metering.Range{Start: month.Start, End: swapped})
		require.Equal(t, c.rest, b.reportAll().String(), name)
	}
}

// TestReportOfRelinkedSubscriptionIsAddedToItsTotal links a customer to its subscription again after the next period was
// stored without one. The report in the first period belongs to the same invoice, so the provider's total includes it.
func TestReportOfRelinkedSubscriptionIsAddedToItsTotal(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asLast)
	b.use("1")
	require.Equal(t, []string{"meter_last 1"}, b.reportEach())
	b.now = b.now.Add(time.Hour)
	period := metering.Range{Start: b.now, End: month.End.AddDate(0, 0, 15)}
	b.link("sub_2", period, asLast)
	b.use("7")
	require.Equal(t, []string{"meter_last 7"}, b.reportEach())
	b.exec(`update customers set billing_provider_id = null where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	b.now = over(month)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.plan(anew)
	require.Len(t, b.facts().Stored, 2)
	b.exec(`update billing_periods set complete = true where tenant_id = $1 and customer_id = $2 and closed_at is not null`, b.tenant, b.customer.ID)
	b.link("sub_2", period, asLast)
	b.use("3")
	require.Equal(t, []string{"meter_last 10"}, b.reportEach())
}

// TestReportIsBilledBySubscriptionActiveAtItsTime checks which subscription bills a report. The reported
// subscription bills the report if a pass has read that this subscription continues beside the next one. If the
// reported subscription had ended, another subscription bills the report: the one that was active at the report's time
// and bills the report's target. The customer's billing periods may never have followed that other subscription, or
// that subscription may have its own billing schedule now.
func TestReportIsBilledBySubscriptionActiveAtItsTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ended, between, goesOn, elsewhere bool   // the last two: sub_between continues; sub_between bills another target
		followed                          bool   // sub_between also bills another meter, in its own schedule
		next                              string // quantity reported to the next subscription
	}{
		"continues": {next: "2"}, "ended": {ended: true, next: "12"}, "other between, ended": {ended: true, between: true, next: "2"},
		"other between, continues":  {ended: true, between: true, goesOn: true, next: "2"},
		"other has own schedule":    {ended: true, between: true, goesOn: true, followed: true, next: "2"},
		"other bills other target":  {ended: true, between: true, goesOn: true, elsewhere: true, next: "2"},
		"ended other, other target": {ended: true, between: true, elsewhere: true, next: "2"},
	} {
		b, month := newOldBiller(t)
		b.useStripe("acct_1")
		var beside []billing.Side
		read := func(subscription string, period metering.Range, runs ...billing.Run) {
			b.link(subscription, period, asLast)
			side := b.facts().Side
			side.Runs, side.Others = runs, beside
			require.NoError(t, b.store.Links.Save(t.Context(), b.tenant, b.customer.ID, b.connection, *side, b.now))
		}
		targets := []string{asLast.Target}
		former := billing.Run{Subscription: "sub_1", BeganAt: month.Start, Targets: targets}
		read("sub_1", month, former)
		b.now = b.now.Add(time.Hour)
		began := b.now
		b.sendAccepted("10")
		require.Empty(t, b.outOfSync(), name)
		running := former
		if c.ended {
			former.EndedAt = &began
		}
		next := billing.Run{Subscription: "sub_2", BeganAt: began, Targets: targets}
		runs := []billing.Run{former, next}
		if c.between {
			b.now = b.now.Add(time.Hour)
			next.BeganAt = b.now
			between := billing.Run{Subscription: "sub_between", BeganAt: began, EndedAt: &next.BeganAt, Targets: targets}
			if c.goesOn {
				between.EndedAt = nil
			}
			if c.elsewhere {
				between.Targets = []string{"mtr_other"}
			}
			runs = []billing.Run{former, between, next}
			if c.followed {
				d := asDelta
				d.MeterID, d.Target = dbtest.Meter(t, b.store, b.tenant, "tokens", "token").ID, "mtr_tokens"
				beside = []billing.Side{{Customer: "cus_1", Subscription: "sub_between", Period: metering.Range{Start: began, End: began.AddDate(0, 0, 40)}, Destinations: []billing.Destination{d}}}
			}
		}
		read("sub_2", metering.Range{Start: next.BeganAt, End: month.End}, runs...)
		b.plan(anew)
		b.use("2")
		require.Equal(t, []string{"meter_last " + c.next}, b.reportEach(), name)
		require.Equal(t, c.followed, len(b.facts().Followed) > 0, name)
		switch {
		case c.elsewhere:
			require.Equal(t, billing.InvoicedBy{Subscription: "sub_1", Start: month.Start}, b.facts().Reported[0].To, name)
		case c.between:
			require.Equal(t, billing.InvoicedBy{Subscription: "sub_between", Start: began}, b.facts().Reported[0].To, name)
		}
		read("sub_2", metering.Range{Start: next.BeganAt, End: month.End}, running, next)
		require.Empty(t, b.reportEach(), "%s: what was read before that changes nothing", name)
		if c.between && !c.goesOn && !c.elsewhere {
			b.end("sub_between", metering.Range{Start: began, End: next.BeganAt})
			require.Equal(t, []string{"meter_last 12"}, b.reportEach(), "it has ended, and bills nothing of it")
		}
		if c.goesOn && !c.elsewhere {
			renewed := b.bill("in_between", metering.Range{Start: began, End: next.BeganAt})
			renewed.Subscription = "sub_between"
			b.save(b.final(renewed), b.now)
			require.Equal(t, []string{"meter_last 12"}, b.reportEach(), "its invoice bills nothing of it")
		}
	}
}

// TestASubscriptionKeepsItsScheduleAfterItsProviderIsReplaced checks that a subscription of a previous provider still
// has its own billing schedule. Otherwise, its invoices would also be of the reports to another subscription that began
// at the same instant, which they do not bill, and the next provider would bill the reported usage again.
func TestASubscriptionKeepsItsScheduleAfterItsProviderIsReplaced(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	tokens := asDelta
	tokens.MeterID, tokens.Target = dbtest.Meter(t, b.store, b.tenant, "tokens", "token").ID, "mtr_tokens"
	b.linkTo(billing.Side{Subscription: "sub_1", Period: month, Others: []billing.Side{{
		Customer: "cus_1", Subscription: "sub_2", Period: metering.Range{Start: month.Start, End: month.Start.AddDate(0, 0, 20)}, Destinations: []billing.Destination{tokens},
	}}})
	b.plan(anew)
	own := []billing.Followed{{Connection: b.connection, Subscription: "sub_2", Stream: 1}}
	require.Equal(t, own, b.facts().Followed)
	b.useProvider("https://billing.example.com")
	require.Equal(t, own, b.facts().Followed)
}

// TestInvoicesOfPartlyBilledUsageAreReadAgain checks that invoices are read again if they show only a part of the
// billed usage, even after the period is complete. After a change of the connection, the remaining usage is no longer
// awaited.
func TestInvoicesOfPartlyBilledUsageAreReadAgain(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.sendAccepted("4")
	b.now = b.now.Add(time.Hour)
	swapped := b.now
	b.link("sub_2", metering.Range{Start: swapped, End: month.End}, asDelta)
	b.sendAccepted("6")
	b.now = over(month)
	b.link("sub_3", nextMonth(month), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.plan(anew)
	require.True(t, b.facts().Stored[0].Complete)

	part := metering.Range{Start: month.Start, End: swapped}
	in := b.bill("in_1", part, b.line("3", "3"))
	in.Renewal = false
	b.save(b.final(in), b.now)
	b.end("sub_1", part)
	for range 2 {
		b.plan(anew)
		require.Len(t, b.facts().Invoices, 2)
	}
	b.useStripe("acct_2")
	b.link("sub_4", nextMonth(month), asDelta)
	b.plan(anew)
	facts := b.facts()
	require.Equal(t, "9", facts.Stored[0].Closed[0].Reconciled.Billed.String())
	require.Empty(t, facts.Invoices)
}

// TestUsageChargedToNextSubscriptionIsNotReportedToPreviousOne charges usage of a closed period at
// the next subscription. A pass reads the previous subscription again once the next one has ended,
// because the last invoice of the previous one is a draft. The charged usage is not reported to it
// again.
func TestUsageChargedToNextSubscriptionIsNotReportedToPreviousOne(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.use("20")
	require.Equal(t, []string{"meter_delta 20"}, b.reportEach())
	b.use("5")
	b.now = over(month)
	b.link("sub_2", nextMonth(month), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, []string{"charge 500"}, b.reportEach())
	former := billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: month, Ended: true, Destinations: []billing.Destination{asDelta}}
	former.Destinations[0].MeterID = b.meter.ID
	b.now = b.now.Add(time.Hour)
	require.NoError(t, b.store.Links.Save(t.Context(), b.tenant, b.customer.ID, b.connection, former, b.now))
	require.Empty(t, b.reportEach())
}
