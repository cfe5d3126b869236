package billing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// unsubscribedFacts returns chargedFacts for a customer without a subscription.
func unsubscribedFacts(t *testing.T) billing.Facts {
	t.Helper()
	f := chargedFacts(t)
	f.Side.Subscription, f.Side.Period, f.Side.Currency = "", metering.Range{}, ""
	f.Stored[0].Subscription, f.Stored[0].Bills = billing.Subscription{}, metering.BillsAmounts
	return f
}

// ownJanuary returns unsubscribedFacts, changed by more, on 5 February after January was closed.
func ownJanuary(t *testing.T, more ...func(*billing.Facts)) billing.Facts {
	t.Helper()
	f := unsubscribedFacts(t)
	for _, change := range more {
		change(&f)
	}
	f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
	plan := billing.NewBooks(f).Plan()
	require.True(t, plan.Unreported || len(plan.Complete) > 0, "there is something to report, or nothing ever will be")
	f.Stored, f.MayClose = plan.Periods, false
	return f
}

// onOwn returns an accepted report that set meter 1's line of January's standalone invoice to the amount.
func onOwn(t *testing.T, f billing.Facts, amount string) billing.Reported {
	t.Helper()
	r := set(t, f, amount)
	r.Target, r.Last, r.Number = billing.OwnInvoice, uuid.New(), 3
	return r
}

func TestOpenPeriodWithoutSubscriptionIsNotReportedBeforeClose(t *testing.T) {
	t.Parallel()
	f := unsubscribedFacts(t)
	plan := billing.NewBooks(f).Plan()
	require.True(t, plan.Periods[0].IsStandalone())
	require.Equal(t, f.Stored[0].Range, plan.Periods[0].Subscription.Range)
	require.Empty(t, plan.Reports)
	require.Empty(t, plan.Excluded)
	require.NotEmpty(t, plan.Reported[0].Configuration, "nobody has to look again before its end")
	counting := unsubscribedFacts(t)
	counting.Meters[0].Version.Status = metering.Backfilling
	require.Len(t, billing.NewBooks(counting).Plan().Reported, 1, "nor while its meter counts its past")
	f.Side.Destinations = []billing.Destination{{MeterID: 1, Excluded: billing.NoTarget("the customer has no active subscription")}}
	shown := billing.NewBooks(f).Preview()[0]
	require.Equal(t, "3", shown.Amount.String())
	require.Empty(t, shown.Excluded)
}

func TestOnlyPeriodWithoutSubscriptionIsStandalone(t *testing.T) {
	t.Parallel()
	january := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		own    bool
	}{
		"who has no subscription":       {func(*billing.Facts) {}, true},
		"whose charges go nowhere":      {func(f *billing.Facts) { f.Side.Charges[0].Excluded = billing.NoTarget("it has credits") }, false},
		"whose periods bill quantities": {func(f *billing.Facts) { f.Stored[0].Bills = metering.BillsQuantities }, false},
		"who has a subscription":        {func(f *billing.Facts) { f.Side.Subscription, f.Side.Period = "sub_1", january }, false},
		"who had one in the period":     {func(f *billing.Facts) { f.Stored[0].Subscription = billing.Subscription{ID: "sub_1", Range: january} }, false},
		"who subscribed before the period": {func(f *billing.Facts) {
			f.Stored[0].Subscription.ID, f.Side.Subscription, f.Side.Period = billing.OwnInvoice, "sub_1", january
		}, false},
		"whose charges were left out since": {func(f *billing.Facts) {
			f.Stored[0].Subscription.ID, f.Side.Charges[0].Excluded = billing.OwnInvoice, billing.NoTarget("it has credits")
		}, true},
	} {
		f := unsubscribedFacts(t)
		c.change(&f)
		require.Equal(t, c.own, billing.NewBooks(f).Plan().Periods[0].IsStandalone(), name)
	}
}

// If a customer subscribes within a period, the part of the period before the subscription gets a standalone invoice.
func TestPartOfPeriodBeforeSubscriptionIsStandalone(t *testing.T) {
	t.Parallel()
	f := unsubscribedFacts(t)
	f.Stored = billing.NewBooks(f).Plan().Periods
	f.Side.Subscription, f.Side.Period = "sub_1", span(t, "2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z")
	periods := billing.NewBooks(f).Plan().Periods
	require.Len(t, periods, 2)
	require.Equal(t, []string{billing.OwnInvoice, "sub_1"}, []string{periods[0].Subscription.ID, periods[1].Subscription.ID})
	require.Equal(t, span(t, "2026-01-01T00:00:00Z", "2026-01-15T00:00:00Z"), periods[0].Range)
	require.Equal(t, periods[0].Range, periods[0].Subscription.Range)
}

func TestClosedPeriodCreatesAndFinalizesStandaloneInvoice(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	require.True(t, f.Stored[0].Closed[0].Billed)
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	line := plan.Reports[0]
	require.Equal(t, []any{billing.ChargeReport, billing.OwnInvoice, "3"}, []any{line.Kind, line.Target, line.Quantity.String()})
	require.Equal(t, f.Stored[0].Range, line.Window)
	require.True(t, plan.More, "then it is made final")
	require.Empty(t, plan.Complete)

	final := func(state billing.State, number int64) []billing.Sent {
		return []billing.Sent{{Period: f.Stored[0].Start, Number: number, State: state}}
	}
	taken := onOwn(t, f, "3")
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		plans  []billing.Kind
	}{
		"its line was taken":     {func(*billing.Facts) {}, []billing.Kind{billing.ActionReport}},
		"its line is on its way": {func(f *billing.Facts) { f.Reported[0].Outstanding, f.Reported[0].State = true, billing.Sending }, nil},
		"its line is another":    {func(f *billing.Facts) { f.Reported[0].Taken.Amount, f.After = decimal(t, "2"), 5 }, []billing.Kind{billing.ChargeReport}},
		"its line was refused just now": {func(f *billing.Facts) {
			f.Reported[0].State, f.Reported[0].Taken, f.Reported[0].Standing = billing.Rejected, billing.Sums{}, billing.Sums{}
		}, nil},
		"it is being made final":         {func(f *billing.Facts) { f.Finalized = final(billing.Sending, 4) }, nil},
		"it was made final":              {func(f *billing.Facts) { f.Finalized = final(billing.Accepted, 4) }, nil},
		"that was refused just now":      {func(f *billing.Facts) { f.Finalized = final(billing.Rejected, 4) }, nil},
		"that was refused before":        {func(f *billing.Facts) { f.Finalized, f.After = final(billing.Rejected, 4), 4 }, []billing.Kind{billing.ActionReport}},
		"the ledger was restored":        {func(f *billing.Facts) { f.Unread = true }, nil},
		"its meter is counted anew":      {func(f *billing.Facts) { f.Meters[0].Version.Status = metering.Backfilling }, nil},
		"its meter is left by operators": {func(f *billing.Facts) { f.Excluded = []metering.MeterID{1} }, []billing.Kind{billing.ActionReport}},
		"its invoice is final":           {func(f *billing.Facts) { f.Stored[0].Subscription.Invoiced = true }, nil},
		"the customer has a subscription": {func(f *billing.Facts) {
			f.Side.Subscription, f.Side.Period = "sub_1", span(t, "2026-02-03T00:00:00Z", "2026-03-03T00:00:00Z")
		}, []billing.Kind{billing.ActionReport}},
	} {
		f := ownJanuary(t)
		f.Reported = []billing.Reported{taken}
		c.change(&f)
		var kinds []billing.Kind
		for _, r := range billing.NewBooks(f).Plan().Reports {
			kinds = append(kinds, r.Kind)
		}
		require.Equal(t, c.plans, kinds, name)
	}
}

func TestZeroTotalCreatesNoStandaloneInvoice(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t, func(f *billing.Facts) { f.Usage = nil })
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Len(t, plan.Complete, 1)

	f = ownJanuary(t)
	elsewhere := onOwn(t, f, "3")
	elsewhere.Connection = 9
	f.Reported = []billing.Reported{elsewhere}
	plan = billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports, "it is billed elsewhere")
	require.Len(t, plan.Complete, 1)

	for name, change := range map[string]func(*billing.Reported){
		"a line of nothing is none": func(r *billing.Reported) { r.Taken.Amount, r.Standing.Amount = decimal(t, "0"), decimal(t, "0") },
		"what came late for December is on the subscription's that it had": func(r *billing.Reported) {
			r.Late, r.Target, r.Period = true, "sub_1", r.Period.AddDate(0, -1, 0)
		},
	} {
		f := ownJanuary(t, func(f *billing.Facts) { f.Usage = nil })
		other := onOwn(t, f, "3")
		change(&other)
		f.Reported = []billing.Reported{other}
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, plan.Reports, name)
		require.Len(t, plan.Complete, 1, name)
	}
}

// A meter that was excluded when its period closed needs no standalone invoice: the period is complete without one.
func TestExcludedMeterCreatesNoStandaloneInvoice(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t, func(f *billing.Facts) {
		addCharged(t, f, 2)
		f.Side.Charges[1].Excluded, f.Usage = billing.NoTarget("name no product for the meter's invoice lines"), f.Usage[1:]
	})
	require.Equal(t, "3", f.Stored[0].Closed[1].Charge.String())
	require.False(t, f.Stored[0].Closed[1].Billed)
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Len(t, plan.Complete, 1)
}

// Late usage that lowers the charge of an earlier period creates no standalone invoice. The adjustment stays recorded.
func TestNegativeAdjustmentCreatesNoStandaloneInvoice(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january := f.Stored[0]
	l := &january.Closed[0]
	l.Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Units: l.Charge, Billed: l.Charge, State: billing.ReconciliationAgreed}
	january.Complete, january.Subscription.Invoiced = true, true
	f.Stored = []billing.Period{january, f.Stored[1]}
	f.LateMonths = []metering.Range{january.Range}
	f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "5"), Events: 9, Late: decimal(t, "-2"), LateEvents: 2}}
	f.Now, f.MayClose = instant(t, "2026-03-05T00:00:00Z"), true
	f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Len(t, plan.Complete, 1, "February waits for no invoice")

	f.Usage[0].Total, f.Usage[0].Late = decimal(t, "9"), decimal(t, "2")
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Empty(t, plan.Complete)
}

// A plan has at most 200 reports, resumed ones included. If the lines of another standalone invoice fill the plan, a
// standalone invoice with all of its lines is finalized by the next plan.
func TestPlanFinalizesStandaloneInvoiceWithinReportMaximum(t *testing.T) {
	t.Parallel()
	for lines, final := range map[int]bool{198: true, 199: false} {
		f := ownJanuary(t)
		for id := range metering.MeterID(lines + 1) {
			addCharged(t, &f, id+2)
		}
		for i := range f.Usage[1:] {
			f.Usage[1+i].Period = f.Stored[1].Start
		}
		f.Now, f.MayClose = instant(t, "2026-03-05T00:00:00Z"), true
		f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
		onItsWay := onOwn(t, f, "3")
		onItsWay.MeterID, onItsWay.Period, onItsWay.Window = 2, f.Stored[1].Start, f.Stored[1].Range
		onItsWay.Taken, onItsWay.Outstanding, onItsWay.State = billing.Sums{}, true, billing.Planned
		f.Reported = []billing.Reported{onOwn(t, f, "3"), onItsWay}
		f.Open = []billing.Open{{ID: onItsWay.Last, Kind: billing.ChargeReport, Connection: 1, Period: onItsWay.Period, State: billing.Planned}}
		f.After = 3
		plan := billing.NewBooks(f).Plan()
		require.Len(t, plan.Resume, 1)
		actions := slices.DeleteFunc(plan.Reports, func(r billing.Report) bool { return r.Kind != billing.ActionReport })
		require.Equal(t, final, len(actions) == 1, lines)
	}
}

func TestStandaloneInvoiceHasOneCurrency(t *testing.T) {
	t.Parallel()
	euros := func(f *billing.Facts) {
		addCharged(t, f, 2)
		f.Prices[2][0].Currency = "EUR"
	}
	f := ownJanuary(t, euros)
	require.Equal(t, []bool{true, false}, []bool{f.Stored[0].Closed[0].Billed, f.Stored[0].Closed[1].Billed}, "the tenant's is USD")
	require.Len(t, billing.NewBooks(f).Plan().Reports, 1)

	f = ownJanuary(t, euros, func(f *billing.Facts) { f.Usage = f.Usage[1:] })
	require.True(t, f.Stored[0].Closed[1].Billed, "nothing is in another one")
	require.Equal(t, "EUR", billing.NewBooks(f).Plan().Reports[0].Currency)

	f = unsubscribedFacts(t)
	euros(&f)
	require.Equal(t, []billing.Exclusion{{MeterID: 2, MeterSlug: "meter2", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedPriceCurrency}}}, billing.NewBooks(f).Plan().Excluded)
}

// Late usage is charged on the next standalone invoice, even if that invoice bills nothing else, and never on two
// invoices.
func TestLateUsageIsChargedOnNextStandaloneInvoice(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january := f.Stored[0]
	l := &january.Closed[0]
	l.Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Units: l.Charge, Billed: l.Charge, State: billing.ReconciliationAgreed}
	january.Complete, january.Subscription.Invoiced = true, true
	f.Stored = []billing.Period{january, f.Stored[1]}
	f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.LateMonths = []metering.Range{january.Range}
	f.Now = instant(t, "2026-02-20T00:00:00Z")
	require.Empty(t, billing.NewBooks(f).Plan().Reports)
	statement := billing.NewBooks(f).StatementOf(billing.NewBooks(f).Plan().Periods[1])
	require.Equal(t, "1", statement.Totals()[0].Amount.String(), "the open period's statement has it")

	f.Now, f.MayClose = instant(t, "2026-03-05T00:00:00Z"), true
	plan := billing.NewBooks(f).Plan()
	require.True(t, plan.Unreported)
	require.Empty(t, plan.Complete)
	f.Stored, f.MayClose = plan.Periods, false
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	late := plan.Reports[0]
	require.Equal(t, []any{true, billing.OwnInvoice, "1"}, []any{late.Late, late.Target, late.Quantity.String()})
	require.Equal(t, f.Stored[1].Range, late.Window)
	require.Empty(t, billing.NewBooks(f).Adjustments(), "March does not have it as well")
	require.Empty(t, billing.NewBooks(f).StatementOf(f.Stored[2]).Adjustments)

	sums := billing.Sums{Any: true, Amount: decimal(t, "1"), Currency: "USD"}
	f.Reported = []billing.Reported{{Series: late.Series, MeterID: 1, State: billing.Accepted, Taken: sums, Standing: sums, Number: 7}}
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, billing.ActionReport, plan.Reports[0].Kind)
	require.Equal(t, "1", billing.NewBooks(f).StatementOf(f.Stored[1]).Totals()[0].Amount.String(), "the closed period's statement has it still")
	f.Finalized = []billing.Sent{{Period: f.Stored[1].Start, Number: 8, State: billing.Accepted}}
	f.Usage[0].Total, f.Usage[0].Late, f.Usage[0].Events, f.Usage[0].LateEvents = decimal(t, "11"), decimal(t, "4"), 11, 4
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "it is final: the rest goes onto the next one")
	require.Equal(t, "1", billing.NewBooks(f).Adjustments()[0].Amount.String())
}

// Late usage goes onto the next standalone invoice, even if the standalone invoice of its closed period is not final
// yet.
func TestLateUsageIsNotOnStandaloneInvoiceOfItsPeriod(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january := f.Stored[0]
	f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.LateMonths = []metering.Range{january.Range}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, []any{false, "3"}, []any{reports[0].Late, reports[0].Quantity.String()})
	late := billing.NewBooks(f).Adjustments()
	require.Len(t, late, 1)
	require.Equal(t, "1", late[0].Amount.String())
	require.Empty(t, billing.NewBooks(f).StatementOf(january).Adjustments)
	require.Len(t, billing.NewBooks(f).StatementOf(f.Stored[1]).Adjustments, 1)
}

func TestStandaloneInvoiceIsComparedWithItsPeriod(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	f.Reported, f.Finalized = []billing.Reported{onOwn(t, f, "3")}, []billing.Sent{{Period: f.Stored[0].Start, Number: 4, State: billing.Accepted}}
	require.Empty(t, billing.NewBooks(f).Reconciled, "nobody has read it")
	require.Empty(t, billing.NewBooks(f).Plan().Complete)

	f.Stored[0].Subscription.Invoiced = true
	f.Reported[0].Line = &billing.ChargeLine{Amount: decimal(t, "3"), Set: decimal(t, "3"), Currency: "USD"}
	f.Invoices = []billing.Invoice{{ID: "in_1", Connection: 1, Customer: "cus_1", Subscription: billing.OwnInvoice, Period: f.Stored[0].Range, Renewal: true}}
	require.Len(t, billing.NewBooks(f).Reconciled, 1)
	require.Equal(t, billing.ReconciliationAgreed, billing.NewBooks(f).Reconciled[0].State)
	require.Len(t, billing.NewBooks(f).Plan().Complete, 1)

	for amount, state := range map[string]billing.ReconciliationState{"3.005": billing.ReconciliationAgreed, "3.006": billing.ReconciliationDisputed} {
		f.Reported[0].Line.Amount = decimal(t, amount)
		require.Equal(t, state, billing.NewBooks(f).Reconciled[0].State, "half a cent is no difference")
	}

	f.Reported[0].Line.Void, f.Invoices[0].Void = true, true
	require.Equal(t, []any{billing.ReconciliationWaived, billing.ReasonVoid}, []any{billing.NewBooks(f).Reconciled[0].State, billing.NewBooks(f).Reconciled[0].Reason})
}

// An amount that a subscription was not charged before it ended goes onto the customer's next standalone invoice.
func TestStandaloneInvoiceBillsRestOfEndedSubscription(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	addCharged(t, &f, 2)
	f.Stored[0].Bills = metering.BillsAmounts
	f.Side.Subscription, f.Side.Period, f.Side.Currency = "", metering.Range{}, ""
	f.Reported = []billing.Reported{set(t, f, "2")}
	f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
	f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
	require.Equal(t, "sub_1", f.Stored[0].Subscription.ID)
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "February is open")

	f.Now, f.MayClose = instant(t, "2026-03-05T00:00:00Z"), true
	f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 2)
	require.Equal(t, []string{"1", "3"}, []string{reports[0].Quantity.String(), reports[1].Quantity.String()}, "3 less the 2 that are pending, and all of the other")
	require.Equal(t, f.Stored[1].Range, reports[0].Window)
}

// A standalone invoice that bills only late usage has one currency: that of all adjustments other than 0, else the
// tenant's. Late usage in another currency is not charged and stays recorded.
func TestStandaloneInvoiceBillsLateUsageInOneCurrencyOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tenant string
		late   map[metering.MeterID]string // units by meter; meter 1 is priced in USD, meter 2 in EUR
		want   []string
	}{
		"one currency":                      {"USD", map[metering.MeterID]string{2: "2"}, []string{"EUR"}},
		"two, of which one is ours":         {"USD", map[metering.MeterID]string{1: "2", 2: "2"}, []string{"USD"}},
		"two, of which the other one is":    {"EUR", map[metering.MeterID]string{1: "2", 2: "2"}, []string{"EUR"}},
		"two, of which one is charged less": {"USD", map[metering.MeterID]string{1: "-2", 2: "2"}, []string{"EUR"}},
	} {
		f := unsubscribedFacts(t)
		f.Settings.Currency = c.tenant
		f.Usage = f.Usage[:0]
		closed := func(id metering.MeterID, currency string) billing.ClosedLine {
			return billing.ClosedLine{
				MeterID: id, Currency: currency, Billed: true, Bills: metering.BillsAmounts, Aggregation: metering.Sum,
				Terms: billing.Terms{OverageRate: decimal(t, "0.50"), Currency: currency},
			}
		}
		f.Stored[0].Subscription = billing.Subscription{ID: billing.OwnInvoice, Range: f.Stored[0].Range, Invoiced: true}
		f.Stored[0].ClosedAt, f.Stored[0].Complete, f.Stored[0].Closed = &f.Now, true, []billing.ClosedLine{closed(1, "USD"), closed(2, "EUR")}
		february := span(t, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
		f.Stored = append(f.Stored, billing.Period{
			ID: 2, Range: february, ClosedAt: &f.Now, Bills: metering.BillsAmounts, Subscription: billing.Subscription{ID: billing.OwnInvoice, Range: february},
		})
		f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "meter2", Version: metering.MeterVersion{Status: metering.Complete}})
		f.Side.Charges = append(f.Side.Charges, billing.Destination{MeterID: 2, Method: "item", Counting: billing.Replaces})
		for id, units := range c.late {
			f.Usage = append(f.Usage, billing.Usage{Period: f.Stored[0].Start, MeterID: id, Total: decimal(t, units), Events: 2, Late: decimal(t, units), LateEvents: 2})
		}
		f.LateMonths, f.Now = []metering.Range{f.Stored[0].Range}, instant(t, "2026-03-05T00:00:00Z")
		var currencies []string
		for _, r := range billing.NewBooks(f).Plan().Reports {
			currencies = append(currencies, r.Currency)
		}
		require.Equal(t, c.want, currencies, name)
	}
}

// A preview's line of late usage has the reason ExcludedLateCurrency if the target period's standalone invoice has
// another currency. The target period here is February, which is in its grace period while the preview shows March.
func TestPreviewMarksLateUsageInOtherCurrencyAsExcluded(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january := f.Stored[0]
	january.Complete, january.Subscription.Invoiced, january.Closed[0].Reconciled = true, true, &billing.Reconciliation{
		Period: january.Start, MeterID: 1, Units: january.Closed[0].Charge, Billed: january.Closed[0].Charge, State: billing.ReconciliationAgreed,
	}
	f.Stored = []billing.Period{january, f.Stored[1]}
	addCharged(t, &f, 2)
	f.Prices[2][0].Currency = "EUR"
	f.Usage = []billing.Usage{
		{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2},
		{Period: f.Stored[1].Start, MeterID: 2, Total: decimal(t, "7"), Events: 7},
	}
	f.LateMonths, f.Now = []metering.Range{january.Range}, instant(t, "2026-03-02T00:00:00Z")
	f.Stored = billing.Periods(f)
	february := f.Stored[1]
	require.True(t, february.IsStandalone() && february.ClosedAt == nil)
	preview := billing.NewBooks(f).Preview()
	require.Len(t, preview, 3)
	require.Equal(t, []any{"USD", billing.ExcludedLateCurrency}, []any{preview[2].Currency, preview[2].Excluded.Code})
	require.Empty(t, billing.NewBooks(f).StatementOf(february).Adjustments)

	f.Now, f.MayClose = instant(t, "2026-03-05T00:00:00Z"), true
	f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, []billing.Exclusion{{MeterID: 1, MeterSlug: "meter1", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedLateCurrency}}}, plan.Excluded, "February's invoice is in EUR")
}

func TestStandaloneInvoiceGetsAtMost200Lines(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t, func(f *billing.Facts) {
		for id := metering.MeterID(2); id <= 202; id++ {
			addCharged(t, f, id)
		}
	})
	for id := metering.MeterID(1); id <= 200; id++ {
		r := onOwn(t, f, "3")
		r.MeterID = id
		f.Reported = append(f.Reported, r)
	}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, billing.ActionReport, plan.Reports[0].Kind, "the rest is a difference")
}

// Late usage goes onto the last standalone invoice that is not final. A plan that finalizes this invoice also sets the
// late line on the standalone invoice before it, as the next plan would.
func TestStandaloneInvoiceBeingFinalizedGetsNoLateUsage(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january := f.Stored[0]
	l := &january.Closed[0]
	l.Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Units: l.Charge, Billed: l.Charge, State: billing.ReconciliationAgreed}
	january.Complete, january.Subscription.Invoiced = true, true
	f.Stored = []billing.Period{january, f.Stored[1]}
	f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.Usage = append(f.Usage, billing.Usage{Period: instant(t, "2026-03-01T00:00:00Z"), MeterID: 1, Total: decimal(t, "3"), Events: 3})
	f.LateMonths = []metering.Range{january.Range}
	for _, closing := range []string{"2026-03-05T00:00:00Z", "2026-04-05T00:00:00Z"} {
		f.Now, f.MayClose = instant(t, closing), true
		f.Stored = billing.NewBooks(f).Plan().Periods
	}
	february, march := f.Stored[1], f.Stored[2]
	f.MayClose = false
	line := func(series billing.Series, amount string, epoch int64) billing.Reported {
		sums := billing.Sums{Any: true, Amount: decimal(t, amount), Currency: "USD"}
		return billing.Reported{Series: series, MeterID: 1, State: billing.Accepted, Taken: sums, Standing: sums, Number: 7, Epoch: epoch}
	}
	own := onOwn(t, f, "0").Series
	own.Period, own.Window = march.Start, march.Range
	late := own
	late.Late, late.Period, late.Window = true, january.Start, february.Range
	f.After = 7
	lateReport := func(why string) billing.Report {
		t.Helper()
		i := slices.IndexFunc(billing.NewBooks(f).Plan().Reports, func(r billing.Report) bool { return r.Late })
		require.GreaterOrEqual(t, i, 0, why)
		return billing.NewBooks(f).Plan().Reports[i]
	}
	f.Reported = []billing.Reported{line(own, "1", 0)}
	require.Equal(t, march.Range, lateReport("it goes onto the last one").Window)
	onLast := late
	onLast.Window = march.Range
	f.Reported = append(f.Reported, line(onLast, "1", 0))
	f.Usage[0].Late = decimal(t, "0")
	require.Equal(t, "0", lateReport("corrected by then").Quantity.String())
	f.Usage[0].Late = decimal(t, "2")

	f.Epoch, f.Epochs = 1, []int64{1}
	f.Reported = []billing.Reported{line(own, "1", 1), line(late, "1", 0)}

	plan := billing.NewBooks(f).Plan()
	require.NotEmpty(t, plan.Reports)
	require.Equal(t, billing.ActionReport, plan.Reports[0].Kind)
	f.Finalized = []billing.Sent{{Period: march.Start, Number: 8, State: billing.Planned}}
	require.Equal(t, billing.NewBooks(f).Plan().Reports, plan.Reports[1:])
	require.Len(t, plan.Reports, 2)
	require.True(t, plan.Reports[1].Late)
	require.Equal(t, february.Range, plan.Reports[1].Window)
}

// After a restore, a period may be open again although its draft invoice already has lines. The draft is finalized
// after the period closes.
func TestADraftWaitsForItsPeriodToClose(t *testing.T) {
	t.Parallel()
	f := unsubscribedFacts(t)
	f.Stored = billing.NewBooks(f).Plan().Periods
	f.Reported = []billing.Reported{onOwn(t, f, "3")}
	require.Empty(t, billing.NewBooks(f).Plan().Reports)

	f.Now, f.MayClose = instant(t, "2026-02-05T00:00:00Z"), true
	f.Stored, f.MayClose, f.After = billing.NewBooks(f).Plan().Periods, false, 3
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, billing.ActionReport, reports[0].Kind)
}

// After a restore, a standalone invoice may be final before its period closes. The plan that closes the period also
// reconciles the period with the invoice, because nothing triggers a later plan.
func TestFinalStandaloneInvoiceIsComparedWhenPeriodCloses(t *testing.T) {
	t.Parallel()
	f := unsubscribedFacts(t)
	f.Stored = billing.NewBooks(f).Plan().Periods
	f.Stored[0].Subscription.Invoiced = true
	f.Reported = []billing.Reported{onOwn(t, f, "3")}
	f.Reported[0].Line = &billing.ChargeLine{Amount: decimal(t, "3"), Set: decimal(t, "3"), Currency: "USD"}
	f.Invoices = []billing.Invoice{{ID: "in_1", Connection: 1, Customer: "cus_1", Subscription: billing.OwnInvoice, Period: f.Stored[0].Range, Renewal: true}}
	f.Now, f.MayClose = instant(t, "2026-02-05T00:00:00Z"), true
	plan := billing.NewBooks(f).Plan()
	require.True(t, plan.Periods[0].Subscription.Invoiced)
	require.Len(t, plan.Reconciled, 1)
	require.Equal(t, billing.ReconciliationAgreed, plan.Reconciled[0].State)
	require.Len(t, plan.Complete, 1)

	f.Stored[0].Subscription = billing.Subscription{Invoiced: true}
	require.False(t, billing.Periods(f)[0].Subscription.Invoiced, "that was of no invoice of ours")
}

// If a receiver of statements replaces a provider before a standalone period closes, the receiver has the closed total.
// Without a final invoice, the period is not reconciled, because the facts lack the receiver's lines. It is complete,
// and no later period bills it again.
func TestStandalonePeriodOfReceiverIsNotReconciledWithoutInvoice(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "3", "300")
	closed.Complete, closed.Bills, closed.Closed[0].Bills = false, metering.BillsAmounts, metering.BillsAmounts
	closed.Subscription = billing.Subscription{ID: billing.OwnInvoice, Range: january, Connection: first}
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 5), closed, billing.Period{Range: february}))
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{{
		MeterID: 1, Usage: metering.Whole(3), Events: 1, PriceVersion: 1, Charge: metering.Whole(300), Currency: "USD",
		Quantity: metering.Whole(3), Amount: metering.Whole(300),
	}}}}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reconciled)
	require.Empty(t, billing.NewBooks(f).Adjustments())
	require.Len(t, plan.Complete, 1)
}
