package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// What nothing of can go onto a period's own invoice makes none, and what it lacks
// is a difference like any other: the period does not wait for it.
func TestAPeriodDoesNotWaitForAnInvoiceThatIsNotMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elsewhere string // of 3 in EUR; of the 3 in USD all is
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

// What comes late is in the currency of the invoice that it goes onto: of the
// subscription's next one, also where the period before that has one of ours.
func TestWhatComesLateIsInTheCurrencyOfTheSubscriptionThatHasItNext(t *testing.T) {
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

// Where the customer has a subscription by then, nothing late goes onto an invoice of
// ours that is not final: it is charged once.
func TestWhatComesLateIsChargedOnceWhereASubscriptionFollows(t *testing.T) {
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

// What a meter counts that was made once it was read where charges go is billed
// all the same, whenever its period closes.
func TestAMeterThatNobodyHasReadTheChargesOfIsBilled(t *testing.T) {
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
			f.Side.Charges[0].Excluded = "name no product for the meter's invoice lines"
		}, false},
	} {
		f := unsubscribedFacts(t)
		c.change(&f)
		f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
		require.Equal(t, c.billed, billing.NewBooks(f).Plan().Closings[0].Lines[0].Billed, name)
	}
}

// That the invoice of a subscription's period is final says nothing of the one
// whose period it becomes.
func TestAPeriodOfAnotherSubscriptionIsNotInvoiced(t *testing.T) {
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

// What a subscription has not been charged with that has ended is carried, also
// where another one runs when the period closes.
func TestWhatAFormerSubscriptionLacksIsBilledWithTheNextOne(t *testing.T) {
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

// Nobody has to have read what the customer is at the provider for a statement.
func TestAStatementOfWhoWasNotReadYet(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	require.True(t, f.Stored[1].Own())
	f.Side = nil
	require.NotEmpty(t, billing.NewBooks(f).StatementOf(f.Stored[1]).Totals())
	require.Empty(t, billing.NewBooks(f).Adjustments())
}

// A draft with lines is made final by whoever the customer is there again, however
// long it was linked to nobody.
func TestADraftWaitsForWhoItIsOf(t *testing.T) {
	t.Parallel()
	f := ownJanuary(t)
	f.Reported = []billing.Reported{onOwn(t, f, "3")}
	charges := f.Side.Charges
	f.Side.Customer, f.Side.Charges = "", []billing.Destination{{MeterID: 1, Excluded: "the customer is linked to none"}}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Empty(t, plan.Reconciled)
	require.Empty(t, plan.Complete)
	f.Side.Customer, f.Side.Charges = "cus_1", charges
	require.Equal(t, billing.ActionReport, billing.NewBooks(f).Plan().Reports[0].Kind)
}
