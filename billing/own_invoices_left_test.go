package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A closed period gets no standalone invoice if the invoice could bill nothing of the remaining amount. The closed
// lines are reconciled without an invoice, and the period is complete.
func TestPeriodIsCompleteIfNoStandaloneInvoiceIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elsewhere string // EUR of meter 2's charge of 3 that connection 9 has billed; it has billed all 3 USD of meter 1
		state     billing.ReconciliationState
	}{
		"the rest is in another currency": {"2", billing.ReconciliationCarried},
		"more is billed elsewhere":        {"4", billing.ReconciliationCarried},
		"all is":                          {"3", billing.ReconciliationAgreed},
	} {
		former := func(id metering.MeterID, amount, currency string) billing.Reported {
			r := set(t, unsubscribedFacts(t), amount)
			r.Connection, r.Customer, r.Target, r.MeterID = 9, "", "", id
			r.Taken.Currency, r.Standing.Currency = currency, currency
			return r
		}
		f := ownJanuary(t, func(f *billing.Facts) {
			addCharged(t, f, 2)
			f.Prices[2][0].Currency = "EUR"
			f.Reported = []billing.Reported{former(1, "3", "USD"), former(2, c.elsewhere, "EUR")}
		})
		require.True(t, f.Stored[0].Closed[1].Billed, name)
		f.Stored[0].Complete = false
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, plan.Reports, name)
		require.Len(t, plan.Reconciled, 2, name)
		require.Equal(t, c.state, plan.Reconciled[1].State, name)
		require.Equal(t, c.elsewhere, plan.Reconciled[1].Billed.String(), name)
		require.Len(t, plan.Complete, 1, name)
	}
}

// Late usage is charged only in the currency of the invoice that bills it. That is the subscription's next invoice,
// even if the target period before the subscription has a standalone invoice.
func TestLateUsageIsChargedOnlyInSubscriptionsCurrency(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]int{"USD": 1, "JPY": 0} {
		f := ownJanuary(t)
		january, february := f.Stored[0], f.Stored[1]
		l := &january.Closed[0]
		l.Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Units: l.Charge, Billed: l.Charge, State: billing.ReconciliationAgreed}
		january.Complete, january.Subscription.Invoiced = true, true
		subscribed := span(t, "2026-02-10T00:00:00Z", "2026-03-10T00:00:00Z")
		february.End, february.Subscription.End = subscribed.Start, subscribed.Start
		f.Stored = []billing.Period{january, february, {ID: 3, Range: subscribed, Bills: metering.BillsAmounts, Subscription: billing.Subscription{ID: "sub_1", Range: subscribed}}}
		f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
		f.LateMonths, f.Now = []metering.Range{january.Range}, subscribed.Start.Add(time.Hour)
		f.Side.Subscription, f.Side.Period, f.Side.Currency = "sub_1", subscribed, currency
		var late []billing.Report
		for _, r := range billing.NewBooks(f).Plan().Reports {
			if r.Late {
				late = append(late, r)
			}
		}
		require.Len(t, late, want, currency)
		require.Len(t, billing.NewBooks(f).StatementOf(f.Stored[1]).Adjustments, want, currency)
	}
}

// If the customer has a subscription by now, late usage is charged once: with the subscription, and not on the
// standalone invoice of an earlier period, even if that invoice is not final.
func TestLateUsageIsChargedOnceAfterCustomerSubscribes(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	january, february := f.Stored[0], f.Stored[0]
	l := january.Closed[0]
	l.Reconciled = &billing.Reconciliation{Period: january.Start, MeterID: 1, Units: l.Charge, Billed: l.Charge, State: billing.ReconciliationAgreed}
	january.Complete, january.Subscription.Invoiced, january.Closed = true, true, []billing.ClosedLine{l}
	subscribed := span(t, "2026-02-10T00:00:00Z", "2026-03-10T00:00:00Z")
	february.ID, february.Range = 2, metering.Range{Start: january.End, End: subscribed.Start}
	february.Subscription.Range = february.Range
	f.Stored = []billing.Period{january, february, {ID: 3, Range: subscribed, Bills: metering.BillsAmounts, Subscription: billing.Subscription{ID: "sub_1", Range: subscribed}}}
	f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.LateMonths, f.Now = []metering.Range{january.Range}, instant(t, "2026-02-20T00:00:00Z")
	f.Side.Subscription, f.Side.Period, f.Side.Currency = "sub_1", subscribed, "USD"
	late := map[metering.Range]string{}
	for _, r := range billing.NewBooks(f).Plan().Reports {
		if r.Late {
			late[r.Window] = r.Quantity.String()
		}
	}
	require.Equal(t, map[metering.Range]string{subscribed: "1"}, late)
}

// A meter that is missing in Side.Charges, because it was created after Side.Charges was read, is billed when its
// period closes, if the period has a subscription or a standalone invoice.
func TestMeterCreatedAfterReadIsBilledAtClose(t *testing.T) {
	t.Parallel()
	unread := func(f *billing.Facts) { f.Side.Charges = f.Side.Charges[:0] }
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		billed bool
	}{
		"its invoice is one of ours": {func(f *billing.Facts) {
			f.Stored[0].Subscription = billing.Subscription{ID: billing.OwnInvoice, Range: f.Stored[0].Range}
			unread(f)
		}, true},
		"its invoice is the subscription's": {func(f *billing.Facts) { *f = chargedFacts(t); unread(f) }, true},
		"nobody says whose invoice it is":   {unread, false},
		"it is left out": {func(f *billing.Facts) {
			f.Stored[0].Subscription = billing.Subscription{ID: billing.OwnInvoice, Range: f.Stored[0].Range}
			f.Side.Charges[0].Excluded = billing.NoTarget("name no product for the meter's invoice lines")
		}, false},
	} {
		f := unsubscribedFacts(t)
		c.change(&f)
		f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
		require.Equal(t, c.billed, billing.NewBooks(f).Plan().Closings[0].Lines[0].Billed, name)
	}
}

// If a period moves to another subscription, or to another period of its subscription, Subscription.Invoiced and
// Subscription.Scales are reset, because they belong to the previous subscription period.
func TestPeriodThatMovesToOtherSubscriptionIsNotInvoiced(t *testing.T) {
	t.Parallel()
	january := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	for name, c := range map[string]struct {
		now      billing.Subscription
		invoiced bool
	}{
		"it is the same":          {billing.Subscription{ID: "sub_1", Range: january}, true},
		"it is cut short":         {billing.Subscription{ID: "sub_1", Range: span(t, "2026-01-01T00:00:00Z", "2026-01-15T00:00:00Z")}, true},
		"it is another period":    {billing.Subscription{ID: "sub_1", Range: span(t, "2025-12-20T00:00:00Z", "2026-02-20T00:00:00Z")}, false},
		"it is another one there": {billing.Subscription{ID: "sub_2", Range: january}, false},
	} {
		f := chargedFacts(t)
		f.Stored[0].Subscription.Invoiced, f.Stored[0].Subscription.Scales = true, map[metering.MeterID]int32{1: 2}
		f.Side.Subscription, f.Side.Period = c.now.ID, c.now.Range
		s := billing.Periods(f)[0].Subscription
		require.Equal(t, c.invoiced, s.Invoiced, name)
		require.Equal(t, c.invoiced, s.Scales != nil, name)
	}
}

// An amount that was not charged with a previous subscription is charged with the next one, even if the next one was
// already running when the period closed. A period without a subscription leaves no such amount.
func TestAmountMissingAtPreviousSubscriptionIsChargedToNext(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]string{"it was of one": "sub_0", "it was of none": ""} {
		f := chargedFacts(t)
		february := span(t, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
		f.Stored[0].Bills, f.Stored[0].Subscription.ID = metering.BillsAmounts, of
		f.Side.Subscription, f.Side.Period = "sub_1", february
		f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
		f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
		require.Empty(t, billing.NewBooks(f).Reconciled, "no invoice of it was read")
		var late []string
		for _, r := range billing.NewBooks(f).Plan().Reports {
			if r.Late {
				late = append(late, r.Quantity.String()+" on "+r.Target)
			}
		}
		want := []string{"3 on sub_1"}
		if of == "" {
			want = nil
		}
		require.Equal(t, want, late, name)
	}
}

// StatementOf and Adjustments work before the customer was read at the provider, while Facts.Side is nil.
func TestStatementIsShownBeforeCustomerIsRead(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	require.True(t, f.Stored[1].IsStandalone())
	f.Side = nil
	require.NotEmpty(t, billing.NewBooks(f).StatementOf(f.Stored[1]).Totals())
	require.Empty(t, billing.NewBooks(f).Adjustments())
}

// A standalone draft with lines waits while the customer is linked to no provider customer. The draft is finalized
// after the customer is linked again.
func TestStandaloneDraftWaitsUntilCustomerIsLinked(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	f.Reported = []billing.Reported{onOwn(t, f, "3")}
	charges := f.Side.Charges
	f.Side.Customer, f.Side.Charges = "", []billing.Destination{{MeterID: 1, Excluded: billing.NoTarget("the customer is linked to none")}}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Empty(t, plan.Reconciled)
	require.Empty(t, plan.Complete)
	f.Side.Customer, f.Side.Charges = "cus_1", charges
	require.Equal(t, billing.ActionReport, billing.NewBooks(f).Plan().Reports[0].Kind)
}
