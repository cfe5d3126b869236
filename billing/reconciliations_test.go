package billing_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// closedWith returns facts with January closed at 10 units, after the given units were reported to sub_1's meter.
func closedWith(reported string) billing.Facts {
	closed := closedAt(january, "10", "1000")
	closed.Subscription = invoiced(january).Subscription
	closed.Closed[0].Scale = new(int32)
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closed, subscribed(february)))
	f.Reported = []billing.Reported{counted(january, reported)}
	return f
}

// A closed line is reconciled with the final invoices, which determine how many of its units are billed.
func TestAClosedPeriodIsReconciledWithItsInvoices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reported string
		invoices []billing.Invoice
		want     string
	}{
		"AllOfIt":            {"10", []billing.Invoice{renewal("10")}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"SomeWasDropped":     {"10", []billing.Invoice{renewal("7")}, "carried 7 invoiced, 0 unexplained, 7 billed: not_billed; carried 300"},
		"NoneIsOnIt":         {"10", []billing.Invoice{{ID: "in_1", Connection: first, Customer: "cus_1", Subscription: "sub_1", Period: january, Renewal: true}}, "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000"},
		"SomeWasNotReported": {"4", []billing.Invoice{renewal("4")}, "carried 4 invoiced, 0 unexplained, 4 billed: unreported; carried 600"},
		"AnAnswerWasLost":    {"4", []billing.Invoice{renewal("10")}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"SomeWasTakenBack":   {"12", []billing.Invoice{renewal("12")}, "carried 12 invoiced, 0 unexplained, 12 billed: usage_decreased; carried -200"},
		"SomebodyElse":       {"10", []billing.Invoice{renewal("41")}, "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0"},
		"LessThanNothing":    {"-3", []billing.Invoice{renewal("0")}, "carried 0 invoiced, 0 unexplained, 0 billed: unreported; carried 1000"},
		"InTwoInvoices":      {"10", []billing.Invoice{threshold("6"), renewal("4")}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"TheFirstOfTwoVoid":  {"10", []billing.Invoice{void(threshold("6")), renewal("4")}, "waived 4 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"TheLastOfTwoVoid":   {"10", []billing.Invoice{threshold("6"), void(renewal("4"))}, "waived 6 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"ReplacedByAnother":  {"10", []billing.Invoice{void(renewal("10")), threshold("10")}, "waived 10 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"ReplacedByMore":     {"10", []billing.Invoice{void(renewal("10")), threshold("12")}, "disputed 12 invoiced, 2 unexplained, 10 billed: billed_more; carried 0"},
		"ReplacedWithALost":  {"4", []billing.Invoice{void(renewal("10")), threshold("10")}, "waived 10 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"AnothersIsValid":    {"10", []billing.Invoice{void(renewal("10")), ofAnother(renewal("4"))}, "waived 4 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"AnothersIsVoid":     {"10", []billing.Invoice{renewal("4"), void(ofAnother(renewal("6")))}, "waived 4 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"AnothersThreshold":  {"10", []billing.Invoice{ofAnother(threshold("6")), renewal("4")}, "carried 4 invoiced, 0 unexplained, 4 billed: not_billed; carried 600"},
		"TheLastIsNotFinal":  {"10", []billing.Invoice{threshold("6")}, "open; carried 0"},
		"ItEndedUnbilled":    {"10", []billing.Invoice{ended(january)}, "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000"},
		"ItEndedBilled":      {"10", []billing.Invoice{cut("10"), ended(january)}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"ItEndedInTwo":       {"10", []billing.Invoice{threshold("6"), cut("4"), ended(january)}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"ItEndedAndDropped":  {"10", []billing.Invoice{cut("7"), ended(january)}, "carried 7 invoiced, 0 unexplained, 7 billed: subscription_ended; carried 300"},
		"ItEndedVoid":        {"10", []billing.Invoice{void(cut("10")), ended(january)}, "waived 0 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"ItEndedAndDoubted":  {"4", []billing.Invoice{ended(january), cut("10")}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"AnotherHasEnded":    {"10", []billing.Invoice{threshold("6"), ofAnother(ended(january))}, "open; carried 0"},
		"AnothersEndInDoubt": {"10", []billing.Invoice{ofAnother(cut("10")), ended(january)}, "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000"},
		"TheNextPeriods":     {"10", []billing.Invoice{renewal("7"), inFebruary(threshold("3"))}, "carried 7 invoiced, 0 unexplained, 7 billed: not_billed; carried 300"},
		"Void":               {"10", []billing.Invoice{void(renewal("10"))}, "waived 0 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closedWith(c.reported)
			f.Invoices = c.invoices
			require.Equal(t, c.want, reconciledAs(f))
			f.Stored = billing.NewBooks(f).Stored
			require.Empty(t, billing.NewBooks(f).Reconciled, "it says the same again")
		})
	}
}

// TestPeriodWithOmittedInvoicesIsNotCompared has an invoice of another subscription, which overlaps January and the last
// days of December. January's own invoice and report were compared before, so they are not among the facts. Without the
// mark, January would seem to be unbilled, and would be charged again.
func TestPeriodWithOmittedInvoicesIsNotCompared(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	billedWith(&f.Stored[0], "10")
	f.Stored[0].Closed[0].Reconciled.State, f.Stored[0].Closed[0].Reconciled.Invoiced = billing.ReconciliationAgreed, metering.Whole(10)
	overlapping := metering.Range{Start: january.Start.AddDate(0, 0, -10), End: january.Start.AddDate(0, 0, 10)}
	refused := counted(metering.Range{Start: overlapping.Start, End: january.Start}, "0")
	refused.To, refused.State, refused.Taken, refused.Standing = billing.InvoicedBy{Subscription: "sub_2", Start: overlapping.Start}, billing.Rejected, billing.Sums{}, billing.Sums{}
	f.Reported = []billing.Reported{refused}
	f.Invoices = []billing.Invoice{{ID: "in_2", Connection: first, Customer: "cus_1", Subscription: "sub_2", Period: overlapping, Renewal: true}}
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: unreported; carried 1000", reconciledAs(f))
	f.Stored[0].Omitted = true
	require.Equal(t, "open; carried 0", reconciledAs(f))
}

// threshold returns a final invoice within January that is not the period's last one.
func threshold(units string) billing.Invoice {
	i := renewal(units)
	i.ID, i.Renewal = "in_0", false
	return i
}

// cut returns the last invoice of a subscription that was canceled in January.
func cut(units string) billing.Invoice {
	i := renewal(units)
	i.Renewal, i.Period = false, metering.Range{Start: january.Start.AddDate(0, 0, 19), End: january.Start.AddDate(0, 0, 20)}
	return i
}

// ended returns the Invoice value that marks sub_1 as ended: no other invoice of its last period follows.
func ended(last metering.Range) billing.Invoice {
	last.End = january.Start.AddDate(0, 0, 20)
	return billing.Invoice{ID: "sub_1", Connection: first, Customer: "cus_1", Subscription: "sub_1", Period: last, Renewal: true, Ended: true}
}

// inFebruary returns the invoice as one that bills February.
func inFebruary(i billing.Invoice) billing.Invoice {
	i.Period = february
	return i
}

// ofAnother returns the invoice as one of the subscription sub_2.
func ofAnother(i billing.Invoice) billing.Invoice {
	i.ID, i.Subscription = "sub_2", "sub_2"
	return i
}

// void returns the invoice as a void one.
func void(i billing.Invoice) billing.Invoice {
	i.Void = true
	return i
}

// reconciledAs returns the planned reconciliation of January as text: its state, units and reason, and the amount
// that the adjustments carry to the target period.
func reconciledAs(f billing.Facts) string {
	text := string(billing.ReconciliationOpen)
	for _, r := range billing.NewBooks(f).Plan().Reconciled {
		text = string(r.State) + " " + r.Invoiced.String() + " invoiced, " + r.Unexplained.String() + " unexplained, " + r.Billed.String() + " billed"
		if r.Reason != billing.ReasonAgreed {
			text += ": " + string(r.Reason)
		}
	}
	carried := metering.Decimal{}
	for _, l := range billing.NewBooks(f).Adjustments() {
		carried = carried.Add(l.Amount)
	}
	return text + "; carried " + carried.String()
}

// If an invoice bills two periods, its units are assigned to the earlier period first. The later period has the
// shortfall or the surplus.
func TestLaterOfTwoInvoicedPeriodsGetsShortfallOrSurplus(t *testing.T) {
	t.Parallel()
	both := metering.Range{Start: january.Start, End: february.End}
	for name, c := range map[string]struct{ units, first, second string }{
		"LessThanReported": {"14", "agreed 10", "carried 4"},
		"Less":             {"8", "carried 8", "carried 0"},
		"More":             {"21", "agreed 10", "disputed 11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closedWith("10")
			later := closedAt(february, "5", "500")
			later.Closed[0].Scale = new(int32)
			f.Now, f.Stored = february.End.Add(time.Hour), []billing.Period{f.Stored[0], later}
			f.Reported = append(f.Reported, counted(february, "5"))
			invoice := renewal(c.units)
			invoice.Period = both
			f.Invoices = []billing.Invoice{invoice}
			require.Len(t, billing.NewBooks(f).Reconciled, 2)
			require.Equal(t, c.first, string(billing.NewBooks(f).Reconciled[0].State)+" "+billing.NewBooks(f).Reconciled[0].Invoiced.String())
			require.Equal(t, c.second, string(billing.NewBooks(f).Reconciled[1].State)+" "+billing.NewBooks(f).Reconciled[1].Invoiced.String())
		})
	}
}

// If the connection is removed after the earlier of two periods on one invoice was reconciled, the later period
// waits. The tenant's next connection reconciles the later period, and carries the units that the invoice does not
// bill.
func TestNextConnectionReconcilesLaterOfTwoInvoicedPeriods(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	later := closedAt(february, "5", "500")
	later.Subscription, later.Complete = f.Stored[0].Subscription, false
	later.Closed[0].Scale = new(int32)
	f.Stored[0].Closed[0].Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Invoiced: metering.Whole(10), Billed: metering.Whole(10)}
	f.Now, f.Stored = february.End.Add(time.Hour), []billing.Period{f.Stored[0], later}
	f.Reported = append(f.Reported, counted(february, "5"))
	f.Invoices = []billing.Invoice{renewal("14")}
	f.Invoices[0].Period.End = february.End

	removed := f
	removed.Connection, removed.Side = nil, nil
	plan := billing.NewBooks(removed).Plan()
	require.Empty(t, plan.Reconciled)
	require.Empty(t, plan.Complete)
	require.Equal(t, []time.Time{january.Start, february.Start}, plan.PartlyKnown)

	next := f
	next.Connection, next.Side = &billing.Connection{ID: second, Invoices: true}, &billing.Side{}
	require.Len(t, billing.NewBooks(next).Reconciled, 1)
	r := billing.NewBooks(next).Reconciled[0]
	require.Equal(t, february.Start, r.Period)
	require.Equal(t, [3]string{"5", "4", "4"}, [3]string{r.Reported.String(), r.Invoiced.String(), r.Billed.String()})
	require.Equal(t, billing.ReconciliationCarried, r.State)
	require.Equal(t, billing.ReasonNotBilled, r.Reason)
}

// An operator's decision on a reconciliation holds until the final invoices bill another number of units.
func TestDecisionHoldsUntilInvoicesBillOtherUnits(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	f.Stored[0].Closed[0].Reconciled = &billing.Reconciliation{
		Period: january.Start, MeterID: 1, Invoiced: metering.Whole(7), Billed: metering.Whole(10), State: billing.ReconciliationWaived, Reason: billing.ReasonNotBilled,
	}
	f.Invoices = []billing.Invoice{renewal("7")}
	require.Equal(t, "open; carried 0", reconciledAs(f))
	f.Invoices = []billing.Invoice{renewal("6")}
	require.Equal(t, "carried 6 invoiced, 0 unexplained, 6 billed: not_billed; carried 400", reconciledAs(f))
}

// A rebill after one of two invoices was voided bills the units of the void invoice, and not those of the valid one. A
// later invoice that replaces the void one takes the rebilled units back.
func TestRebillBillsOnlyUnitsOfVoidInvoice(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	f.Invoices = []billing.Invoice{void(threshold("6")), renewal("4")}
	decided := billing.NewBooks(f).Plan().Reconciled[0].Decide(billing.Rebill)
	f.Stored[0].Closed[0].Reconciled = &decided
	require.Equal(t, "open; carried 600", reconciledAs(f))

	replacement := threshold("6")
	replacement.ID = "in_3"
	f.Invoices = append(f.Invoices, replacement)
	require.Equal(t, "waived 10 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0", reconciledAs(f))
}

// A report of unknown outcome has arrived if valid invoices bill it, even if another invoice of the period is void.
func TestValidInvoiceResolvesReportDespiteVoidInvoice(t *testing.T) {
	t.Parallel()
	f := closedWith("7")
	r := &f.Reported[0]
	r.Standing.Added, r.Outstanding, r.State = metering.Whole(10), true, billing.InDoubt
	f.Open = []billing.Open{{ID: r.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt}}
	f.Invoices = []billing.Invoice{threshold("10"), void(renewal("3"))}
	require.Equal(t, []billing.Resolved{{ID: r.Last, State: billing.Accepted}}, billing.NewBooks(f).Plan().Resolved)
	require.Equal(t, "waived 10 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0", reconciledAs(f))
}

// A plan that withdraws a statement that was never sent to a previous receiver also reconciles the period. The plan
// already treats the base price as billed by the invoice.
func TestWithdrawnStatementDoesNotDelayReconciliation(t *testing.T) {
	t.Parallel()
	f := closedWith("0")
	f.Stored[0].Closed[0].Usage, f.Stored[0].Closed[0].Charge, f.Stored[0].Closed[0].Scale = metering.Decimal{}, metering.Whole(10), nil
	f = atBasic(f)
	never := stated(second, january, "0", "10")
	never.Taken, never.Standing, never.State, never.Outstanding = billing.Sums{}, billing.Sums{}, billing.Planned, true
	f.Reported = []billing.Reported{never}
	f.Open = []billing.Open{{ID: never.Last, Kind: billing.StatementReport, Connection: second, Period: january.Start, State: billing.Planned}}
	f.Invoices = []billing.Invoice{renewal("0")}
	require.Equal(t, "agreed 0 invoiced, 0 unexplained, 0 billed; carried 0", reconciledAs(f))
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, []uuid.UUID{never.Last}, plan.Withdraw)
	require.Empty(t, plan.Reports)
}

// A report of unknown outcome is not resumed after its period is complete: an operator has to find out whether the
// report arrived. Here the subscription ended without an invoice for the usage.
func TestPlanThatCompletesPeriodDoesNotResumeUnknownReport(t *testing.T) {
	t.Parallel()
	f := closedWith("3")
	f.Stored[0].Subscription = billing.Subscription{ID: "sub_2", Range: metering.Range{Start: january.Start.AddDate(0, 0, 20), End: january.End}}
	f.Stored[0].Complete = false
	r := &f.Reported[0]
	r.Standing.Added, r.Outstanding, r.State = metering.Whole(4), true, billing.InDoubt
	f.Open = []billing.Open{{ID: r.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt}}
	require.Equal(t, []uuid.UUID{r.Last}, billing.NewBooks(f).Plan().Resume, "it may be seen counted")
	f.Invoices = []billing.Invoice{ended(january)}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Complete, 1)
	require.Empty(t, plan.Resume)
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000", reconciledAs(f))
}

// The end of a subscription shows that its usage is unbilled, unless the period now lies in another subscription at
// the same connection, or at an unknown one (0).
func TestSubscriptionEndCountsDespiteOtherConnectionsSubscription(t *testing.T) {
	t.Parallel()
	for at, want := range map[metering.ConnectionID]string{
		0:      "open; carried 0",
		first:  "open; carried 0",
		second: "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000",
	} {
		f := closedWith("10")
		f.Stored[0].Subscription = billing.Subscription{ID: "sub_2", Range: january, Connection: at, Invoiced: true}
		f.Invoices = []billing.Invoice{ended(january)}
		require.Equal(t, want, reconciledAs(f), at)
	}
}

// If two subscriptions have the same period, each bills its own meters. An invoice of the other subscription that
// does not name a meter, even a void one, does not affect the meter's reconciliation.
func TestOtherSubscriptionsInvoiceWithoutMeterIsIgnored(t *testing.T) {
	t.Parallel()
	other := billing.Invoice{ID: "in_2", Connection: first, Customer: "cus_1", Subscription: "sub_2", Period: january, Renewal: true}
	for name, c := range map[string]struct {
		invoices []billing.Invoice
		want     string
	}{
		"Before":     {[]billing.Invoice{other, renewal("10")}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"After":      {[]billing.Invoice{renewal("10"), other}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"Void":       {[]billing.Invoice{renewal("10"), void(other)}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"ItsOwn":     {[]billing.Invoice{void(renewal("10")), other}, "waived 0 invoiced, 0 unexplained, 10 billed: invoice_void; carried 0"},
		"Alone":      {[]billing.Invoice{other}, "open; carried 0"},
		"LessOfIt":   {[]billing.Invoice{renewal("7"), other}, "carried 7 invoiced, 0 unexplained, 7 billed: not_billed; carried 300"},
		"OnlyThere":  {[]billing.Invoice{ofAnother(renewal("10"))}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"ToAnother":  {[]billing.Invoice{without(renewal("10")), toAnother(renewal("4"))}, "carried 4 invoiced, 0 unexplained, 4 billed: not_billed; carried 600"},
		"OnBoth":     {[]billing.Invoice{renewal("6"), ofAnother(renewal("4"))}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"OnBothNo":   {[]billing.Invoice{renewal("10"), ofAnother(renewal("0"))}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"OnBothLess": {[]billing.Invoice{renewal("4"), ofAnother(renewal("3"))}, "carried 7 invoiced, 0 unexplained, 7 billed: not_billed; carried 300"},
		"OnBothAll":  {[]billing.Invoice{renewal("10"), ofAnother(renewal("10"))}, "disputed 20 invoiced, 10 unexplained, 10 billed: billed_more; carried 0"},
		"OnNeither":  {[]billing.Invoice{without(renewal("10")), other}, "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closedWith("10")
			f.Invoices = c.invoices
			require.Equal(t, c.want, reconciledAs(f))
			f = closedWith("10")
			slices.Reverse(c.invoices)
			f.Invoices = c.invoices
			require.Equal(t, c.want, reconciledAs(f), "the other way round")
			f = closedWith("10")
			f.Invoices, f.Reported = c.invoices, append(f.Reported, counted(february, "3"))
			require.Equal(t, c.want, reconciledAs(f), "the next period was reported too")
		})
	}
}

// A meter that moved to another subscription within January is billed by the invoices of both subscriptions, in any
// order in which the invoices become final.
func TestAMeterThatMovedToAnotherSubscriptionIsOnBothInvoices(t *testing.T) {
	t.Parallel()
	former, later := renewal("6"), ofAnother(renewal("4"))
	later.Period = metering.Range{Start: january.Start.AddDate(0, 0, 14), End: february.Start.AddDate(0, 0, 14)}
	for _, invoices := range [][]billing.Invoice{{former, later}, {later, former}} {
		f := closedWith("6")
		moved := counted(january, "4")
		moved.Window = later.Period
		f.Reported = append(f.Reported, moved)
		f.Invoices = invoices
		require.Equal(t, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0", reconciledAs(f))
	}
}

// Usage from before a meter moved to another subscription is reconciled with the previous subscription's invoice,
// even if none of it was reported. The new subscription's invoice bills only usage since the move, even if the
// previous one is void.
func TestUsageBeforeMeterMoveIsComparedWithPreviousInvoice(t *testing.T) {
	t.Parallel()
	moves := january.Start.AddDate(0, 0, 14)
	since := metering.Range{Start: moves, End: february.Start.AddDate(0, 0, 14)}
	for name, c := range map[string]struct {
		former      billing.Invoice
		then, later string
	}{
		"final": {without(renewal("0")), "carried 0 of 10", "agreed 4 of 4"},
		"void":  {void(without(renewal("0"))), "waived 0 of 10", "agreed 4 of 4"},
	} {
		another := ofAnother(renewal("4"))
		another.Period = since
		for _, invoices := range [][]billing.Invoice{{c.former, another}, {another, c.former}} {
			f := closedWith("10")
			f.Stored[0].End, f.Stored[0].Complete = moves, false
			later := closedAt(since, "4", "400")
			later.Subscription, later.Closed[0].Scale = billing.Subscription{ID: "sub_2", Range: since, Invoiced: true}, new(int32)
			f.Stored = []billing.Period{f.Stored[0], later, {Range: metering.Range{Start: since.End, End: since.End.AddDate(0, 1, 0)}}}
			moved := counted(since, "4")
			moved.To = billing.InvoicedBy{Subscription: "sub_2", Start: since.Start}
			f.Reported, f.Invoices, f.Side.Subscription, f.Now = []billing.Reported{moved}, invoices, "sub_2", since.End.AddDate(0, 0, 9)
			states := make(map[time.Time]string)
			for _, r := range billing.NewBooks(f).Reconciled {
				states[r.Period] = fmt.Sprintf("%s %s of %s", r.State, r.Invoiced, r.Units)
			}
			require.Equal(t, map[time.Time]string{january.Start: c.then, since.Start: c.later}, states, name)
			require.Len(t, billing.NewBooks(f).Plan().Complete, 1, name)
		}
	}
}

// toAnother returns the invoice as one of subscription sub_2, of provider customer cus_2.
func toAnother(i billing.Invoice) billing.Invoice {
	i = ofAnother(i)
	i.Customer = "cus_2"
	return i
}

// without returns the invoice without lines.
func without(i billing.Invoice) billing.Invoice {
	i.Lines = nil
	return i
}

// If a receiver of statements replaces a provider that has all units of a closed period, the receiver needs no
// statement of the period. The period is still reconciled with the provider's final invoice, which can bill other units
// too.
func TestAPeriodThatNeedsNoStatementIsReconciled(t *testing.T) {
	t.Parallel()
	for billed, want := range map[string]string{
		"10": "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0",
		"12": "disputed 12 invoiced, 2 unexplained, 10 billed: billed_more; carried 0",
		"7":  "open; carried 0", // the receiver gets a statement of the other 3 units
	} {
		f := closedWith("10")
		f.Stored[0].Complete, f.Stored[0].Closed[0].Scale = false, nil
		taken := &f.Reported[0].Taken
		taken.Amount, taken.Currency = metering.Whole(1000), "USD"
		f.Reported[0].Standing = *taken
		f = withStatementReceiver(second, f)
		f.Invoices = []billing.Invoice{renewal(billed)}
		require.Equal(t, want, reconciledAs(f), billed)
	}
}

// Negative usage is invoiced as 0 units. The difference in units is carried, and costs nothing.
func TestNegativeUsageIsReconciledAsZeroUnits(t *testing.T) {
	t.Parallel()
	f := closedWith("-3")
	f.Stored[0].Closed[0].Usage, f.Stored[0].Closed[0].Charge = metering.Whole(-3), metering.Decimal{}
	f.Invoices = []billing.Invoice{renewal("0")}
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: usage_decreased; carried 0", reconciledAs(f))
}

// Units that were reported to another connection are treated as billed there, in addition to the invoiced units.
// Reports of late usage and of other meters are not included.
func TestReconciliationAddsUnitsBilledByOtherConnection(t *testing.T) {
	t.Parallel()
	there, another := counted(january, "4"), stated(second, january, "3", "300")
	there.Connection, another.MeterID = second, 2
	for name, other := range map[string]billing.Reported{"InStatements": stated(second, january, "4", "400"), "InQuantities": there} {
		f := closedWith("6")
		f.Reported = append(f.Reported, other, another, adjusted(second, january, february, "5", "500"))
		f.Invoices = []billing.Invoice{renewal("6")}
		require.Len(t, billing.NewBooks(f).Reconciled, 1, name)
		r := billing.NewBooks(f).Reconciled[0]
		require.Equal(t, [4]string{"10", "6", "4", "10"}, [4]string{r.Reported.String(), r.Invoiced.String(), r.Elsewhere.String(), r.Billed.String()}, name)
		require.Equal(t, billing.ReconciliationAgreed, r.State, name)
	}
}

// A closed line that a provider bills is reconciled after all of its reports to the current connection are on final
// invoices, and every report to another connection has a known outcome.
func TestReconciliationWaitsForInvoicesAndReportOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		want   int
	}{
		"AllIsOnIt": {func(*billing.Facts) {}, 1},
		"SomeIsForTheNextInvoice": {func(f *billing.Facts) {
			f.Invoices[0].Period.End = january.Start.AddDate(0, 0, 19)
			rest := counted(january, "4")
			rest.Window.Start = f.Invoices[0].Period.End
			f.Reported = append(f.Reported, rest)
		}, 0},
		"SomeIsOnItsWayElsewhere": {func(f *billing.Facts) {
			other := stated(second, january, "4", "400")
			other.Outstanding, other.State = true, billing.InDoubt
			f.Reported = append(f.Reported, other)
		}, 0},
		"NothingElseIsReportedHere": {func(f *billing.Facts) {
			f.Reported = append(f.Reported, stated(first, january, "0", "0"))
		}, 1},
		"NobodyBillsIt":          {func(f *billing.Facts) { f.Stored[0].Closed[0].Billed = false }, 0},
		"NobodyBills":            {func(f *billing.Facts) { f.Connection = nil }, 0},
		"ItWasComparedBefore":    {func(f *billing.Facts) { comparedBefore(f) }, 1},
		"ItIsReportedOn":         {func(f *billing.Facts) { f.Stored[0].Complete, f.Side = false, nil }, 0},
		"ItIsNotAndWasNotRead":   {func(f *billing.Facts) { comparedBefore(f); f.Stored[0].Complete, f.Side = false, nil }, 1},
		"TheEndOfAnother":        {func(f *billing.Facts) { onlyElsewhere(f); f.Invoices = []billing.Invoice{ofAnother(ended(january))} }, 0},
		"TheEndOfItsOwn":         {func(f *billing.Facts) { onlyElsewhere(f); f.Invoices = []billing.Invoice{ended(january)} }, 1},
		"AnotherWithNothingOfIt": {func(f *billing.Facts) { f.Reported = nil; f.Invoices = []billing.Invoice{ofAnother(renewal("0"))} }, 1},
		"NothingWasReported":     {func(f *billing.Facts) { f.Reported = nil; f.Invoices = []billing.Invoice{ended(january)} }, 1},
	} {
		f := closedWith("6")
		f.Invoices = []billing.Invoice{renewal("6")}
		c.change(&f)
		require.Len(t, billing.NewBooks(f).Reconciled, c.want, name)
	}
}

// comparedBefore gives January's closed line a reconciliation with 5 invoiced units.
func comparedBefore(f *billing.Facts) {
	f.Stored[0].Closed[0].Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Invoiced: metering.Whole(5), Billed: metering.Whole(5)}
}

// onlyElsewhere replaces all reports by a statement to another connection.
func onlyElsewhere(f *billing.Facts) {
	f.Reported = []billing.Reported{stated(second, january, "10", "1000")}
}

// If a subscription has ended and no invoice follows, its periods are marked Invoiced, so that nothing more is
// reported.
func TestPeriodOfEndedSubscriptionIsMarkedInvoiced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		invoice billing.Invoice
		want    bool
	}{
		"ItsOwn":     {ended(january), true},
		"Anothers":   {ofAnother(ended(january)), false},
		"AnInvoice":  {renewal("10"), false},
		"OfNobody's": {billing.Invoice{ID: "sub_0", Connection: first, Customer: "cus_1", Period: january, Renewal: true, Ended: true}, false},
	} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), subscribed(january), billing.Period{Range: february}))
		f.Invoices = []billing.Invoice{c.invoice}
		require.Equal(t, [2]bool{c.want, false}, [2]bool{billing.NewBooks(f).Stored[0].Subscription.Invoiced, billing.NewBooks(f).Stored[1].Subscription.Invoiced}, name)
	}
}

// A final invoice shows the outcome of a report, unless a worker holds the report's lease. The worker then gets the
// outcome from the provider's answer.
func TestInvoiceResolvesReportThatNoWorkerIsSending(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]int{-time.Microsecond: 1, 0: 1, time.Microsecond: 0} {
		f := closedWith("4")
		r := &f.Reported[0]
		r.Standing.Added, r.Outstanding, r.State = metering.Whole(10), true, billing.Sending
		until := f.Now.Add(lease)
		f.Open = []billing.Open{{ID: r.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.Sending, LeaseUntil: &until}}
		f.Invoices = []billing.Invoice{renewal("10")}
		require.Len(t, billing.NewBooks(f).Resolved, want, lease)
		require.Len(t, billing.NewBooks(f).Open, 1-want, lease)
		require.Equal(t, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0", reconciledAs(f))
	}
}

// A reconciliation is disputed if the units agree and the amount differs from the provider's own price for them. An
// operator has to check it, and no amount is carried.
func TestAmountThatDiffersFromProviderPriceIsDisputed(t *testing.T) {
	t.Parallel()
	price := &tariff{"price_1", "USD", tariffOf(1, 1, 0)}
	right := metering.Decimal{}
	for _, l := range price.Lines(metering.Whole(10)) {
		right = right.Add(l.Amount)
	}
	cent := metering.MustDecimal("0.01")
	for name, c := range map[string]struct {
		change func(f *billing.Facts, l *billing.InvoiceLine)
		want   string
	}{
		"ThePrice":       {func(*billing.Facts, *billing.InvoiceLine) {}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"HalfACentALine": {func(_ *billing.Facts, l *billing.InvoiceLine) { l.Amount = l.Amount.Add(cent) }, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"JustAsMuch": {func(_ *billing.Facts, l *billing.InvoiceLine) { l.Amount = l.Amount.Add(metering.MustDecimal("0.015")) },
			"agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"AnotherAmount": {func(_ *billing.Facts, l *billing.InvoiceLine) { l.Amount = l.Amount.Add(cent).Add(cent) },
			"disputed 10 invoiced, 0 unexplained, 10 billed: other_amount; carried 0"},
		"LessThanIt": {func(_ *billing.Facts, l *billing.InvoiceLine) { l.Amount = metering.Decimal{} },
			"disputed 10 invoiced, 0 unexplained, 10 billed: other_amount; carried 0"},
		"AtSeveralPrices": {func(_ *billing.Facts, l *billing.InvoiceLine) { l.Amount, l.Price = metering.Whole(99), "" },
			"agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"InATrial": {func(f *billing.Facts, l *billing.InvoiceLine) {
			l.Amount, f.Stored[0].Closed[0].Trial, f.Stored[0].Closed[0].Charge = metering.Decimal{}, true, metering.Decimal{}
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"ATrialThatIsCharged": {func(f *billing.Facts, _ *billing.InvoiceLine) {
			f.Stored[0].Closed[0].Trial, f.Stored[0].Closed[0].Charge = true, metering.Decimal{}
		}, "disputed 10 invoiced, 0 unexplained, 10 billed: other_amount; carried 0"},
		"OfTwoPeriods": {func(f *billing.Facts, l *billing.InvoiceLine) {
			l.Amount = metering.Whole(99)
			other := counted(february, "0")
			other.Window = january
			f.Reported = append(f.Reported, other)
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"TheNextPeriodsIsOnAnother": {func(f *billing.Facts, l *billing.InvoiceLine) {
			l.Amount = metering.Whole(99)
			f.Reported = append(f.Reported, counted(february, "3"))
		}, "disputed 10 invoiced, 0 unexplained, 10 billed: other_amount; carried 0"},
		"WithoutALine": {func(f *billing.Facts, _ *billing.InvoiceLine) {
			none := metering.Decimal{}
			f.Stored[0].Closed[0].Usage, f.Stored[0].Closed[0].Charge, f.Reported, f.Invoices[0].Lines = none, metering.MustDecimal("1.56"), nil, nil
		}, "agreed 0 invoiced, 0 unexplained, 0 billed; carried 0"},
		"OfAnotherSubscription": {func(f *billing.Facts, l *billing.InvoiceLine) {
			l.Amount, f.Invoices[0].Subscription = metering.Whole(99), "sub_2"
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"OfAnotherOfItsPeriods": {func(f *billing.Facts, l *billing.InvoiceLine) {
			l.Amount, f.Invoices[0].Period.Start = metering.Whole(99), january.Start.AddDate(0, 0, -5)
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closedWith("10")
			line := &f.Stored[0].Closed[0]
			line.Price, line.Terms, line.PriceVersion, line.Charge = price, billing.Terms{}, 0, right
			f.Invoices = []billing.Invoice{renewal("10")}
			billed := &f.Invoices[0].Lines[0]
			billed.Amount, billed.Price, billed.Lines = right, "price_1", 3
			c.change(&f, billed)
			require.Equal(t, c.want, reconciledAs(f))
			f.Stored = billing.NewBooks(f).Stored
			require.Empty(t, billing.NewBooks(f).Reconciled, "it says the same again")
		})
	}
}

// A reported decrease is treated as arrived only as far as the invoice shows it. After reports of 10 and -13 units,
// an invoice of 4 units shows a decrease of 6.
func TestDecreaseCountsOnlyAsFarAsInvoiceShowsIt(t *testing.T) {
	t.Parallel()
	decrease := counted(january, "-13")
	decrease.Period, decrease.Window.Start, decrease.Number = february.Start, january.Start.AddDate(0, 0, 20), 2
	for billed, want := range map[string]string{"10": "0", "4": "-6", "0": "-10"} {
		f := closedWith("10")
		f.Reported = append(f.Reported, decrease)
		f.Invoices = []billing.Invoice{renewal(billed)}
		require.Equal(t, []string{"10", want}, []string{billing.NewBooks(f).Reported[0].Invoiced.String(), billing.NewBooks(f).Reported[1].Invoiced.String()}, billed)
		require.Equal(t, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0", reconciledAs(f), billed)
	}
}

// A planned report was never sent, so the invoiced units beyond the accepted ones belong to the report that was sent.
// This holds in any order of the two reports, and if both have the same units.
func TestUnsentReportIsNotMatchedWithInvoicedUnits(t *testing.T) {
	t.Parallel()
	for units, neverFirst := range map[int64]bool{1: true, 2: false, 10: false} {
		f := closedWith("0")
		never, sent := f.Reported[0], counted(january, "0")
		never.Standing.Added, never.Outstanding, never.State = metering.Whole(units), true, billing.Planned
		sent.Last, sent.Window.Start, sent.Number = uuid.UUID{9}, january.Start.AddDate(0, 0, 20), 2
		sent.Standing.Added, sent.Outstanding, sent.State = metering.Whole(10), true, billing.Sending
		f.Reported = []billing.Reported{never, sent}
		for _, r := range f.Reported {
			f.Open = append(f.Open, billing.Open{ID: r.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: r.State})
		}
		if !neverFirst {
			slices.Reverse(f.Open)
		}
		f.Invoices = []billing.Invoice{renewal("10")}
		require.Equal(t, []billing.Resolved{{ID: never.Last, State: billing.Rejected}, {ID: sent.Last, State: billing.Accepted}}, billing.NewBooks(f).Resolved, units)
	}
}

// A report of unknown outcome is not resumed after final invoices show the billed units of its series, even if its
// period is not complete. An operator has to find out whether the report arrived.
func TestUnknownReportIsNotResumedAfterSeriesIsInvoiced(t *testing.T) {
	t.Parallel()
	f := closedWith("3")
	f.Stored[0].Subscription = billing.Subscription{ID: "sub_2", Range: january, Connection: second}
	f.Stored[0].Complete = false
	r, elsewhere := &f.Reported[0], stated(second, january, "5", "500")
	r.Standing.Added, r.Outstanding, r.State = metering.Whole(4), true, billing.InDoubt
	elsewhere.Outstanding, elsewhere.State = true, billing.InDoubt
	f.Reported = append(f.Reported, elsewhere)
	f.Open = []billing.Open{{ID: f.Reported[0].Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt}}
	require.Equal(t, []uuid.UUID{f.Reported[0].Last}, billing.NewBooks(f).Plan().Resume, "it may be seen counted")
	f.Invoices = []billing.Invoice{renewal("2")}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Resolved, "neither with it, nor without it")
	require.Empty(t, plan.Complete)
	require.Empty(t, plan.Resume)
}

// PartlyKnown lists the closed periods with invoices that must be read again. There are three cases:
//   - Invoices show some of the reported units, and another invoice may show the rest.
//   - Invoices show some of the reported units, and the tenant has no connection.
//   - The connection is in another mode (test or live) than a billed closed line.
func TestPartlyKnownListsPeriodsWithInvoicesToReadAgain(t *testing.T) {
	t.Parallel()
	rest := func(r billing.Reported) func(*billing.Facts) {
		return func(f *billing.Facts) {
			f.Invoices[0].Period.End = january.Start.AddDate(0, 0, 19)
			r.Window.Start = f.Invoices[0].Period.End
			f.Reported = append(f.Reported, r)
		}
	}
	elsewhere, late, never := counted(january, "4"), counted(january, "4"), counted(january, "4")
	elsewhere.Connection, late.Late, never.Standing = second, true, billing.Sums{}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		again  int
	}{
		"TheyShowAll":          {func(*billing.Facts) {}, 0},
		"TheyShowNothing":      {func(f *billing.Facts) { f.Invoices = nil }, 0},
		"SomeIsOnAnother":      {rest(counted(january, "4")), 1},
		"OfAnotherMeter":       {rest(ofMeter(2, counted(january, "4"))), 0},
		"OfAnotherPeriod":      {rest(counted(february, "4")), 0},
		"SomeIsElsewhere":      {rest(elsewhere), 0},
		"SomeCameLate":         {rest(late), 0},
		"SomeWasNotTaken":      {rest(never), 0},
		"ThePeriodIsNotClosed": {func(f *billing.Facts) { rest(counted(january, "4"))(f); f.Stored[0] = invoiced(january) }, 0},
		"NobodyIsConnected":    {func(f *billing.Facts) { f.Connection = nil }, 1},
		"NorDoTheyShowAny":     {func(f *billing.Facts) { f.Connection, f.Invoices = nil, nil }, 0},
		"TheModeIsTheOther":    {func(f *billing.Facts) { f.InTest, f.Invoices = []metering.ConnectionID{f.Connection.ID}, nil }, 1},
		"NorWasItBilled": {func(f *billing.Facts) {
			f.InTest, f.Invoices, f.Stored[0].Closed[0].Billed = []metering.ConnectionID{f.Connection.ID}, nil, false
		}, 0},
	} {
		f := closedWith("6")
		f.Invoices = []billing.Invoice{renewal("6")}
		c.change(&f)
		require.Len(t, billing.NewBooks(f).Plan().PartlyKnown, c.again, name)
	}
}
