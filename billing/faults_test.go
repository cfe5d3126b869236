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

// Each of these tests covers one numbered fault that the billing rules once had, and checks the correct
// result.

// monthOf returns a calendar month of 2026 in UTC.
func monthOf(month time.Month) metering.Range {
	return billing.CalendarPeriod(time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC), time.UTC)
}

// Two connections of a tenant, one after the other.
const (
	first  metering.ConnectionID = 1
	second metering.ConnectionID = 2
)

var january, february, march = monthOf(time.January), monthOf(time.February), monthOf(time.March)

// knownOf returns the facts at now of a customer that was created in January, without a provider. The
// customer has one meter, and a unit costs 100 USD.
func knownOf(now time.Time, stored ...billing.Period) billing.Facts {
	return billing.Facts{
		Now: now, After: 100, Customer: billing.Customer{CreatedAt: january.Start.Add(24 * time.Hour)},
		Settings: billing.Settings{Timezone: time.UTC, Currency: "USD", Grace: grace, LatePolicy: metering.AdjustLate},
		Meters:   []metering.Meter{{ID: 1, Slug: "calls", Version: metering.MeterVersion{Status: metering.Complete}}},
		Prices:   map[metering.MeterID][]billing.Price{1: {{MeterID: 1, Version: 1, Terms: billing.Terms{OverageRate: metering.Whole(100), Currency: "USD"}}}},
		Stored:   stored,
	}
}

// withStatementReceiver adds a connection to a receiver of statements.
func withStatementReceiver(at metering.ConnectionID, f billing.Facts) billing.Facts {
	f.Connection = &billing.Connection{ID: at, Statements: true}
	return f
}

// atMeters adds a connection to a provider that adds up quantities, and a subscription with the current
// period.
func atMeters(current metering.Range, f billing.Facts) billing.Facts {
	f.Connection = &billing.Connection{ID: first}
	f.Side = &billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: current, Destinations: []billing.Destination{
		{MeterID: 1, Target: "mtr_1", Method: "delta", Counting: billing.Adds},
	}}
	return f
}

// subscribed returns an open period that equals the subscription's period.
func subscribed(r metering.Range) billing.Period {
	return billing.Period{Range: r, Subscription: billing.Subscription{ID: "sub_1", Range: r}}
}

// invoiced returns an open period with a final invoice.
func invoiced(r metering.Range) billing.Period {
	p := subscribed(r)
	p.Subscription.Invoiced = true
	return p
}

// closedAt returns a closed, complete period that was billed in statements, with one line of the given usage
// and charge.
func closedAt(r metering.Range, usage, charge string) billing.Period {
	at := r.End.Add(grace)
	return billing.Period{Range: r, ClosedAt: &at, Complete: true, Closed: []billing.ClosedLine{{
		MeterID: 1, Usage: metering.MustDecimal(usage), Events: 1, PriceVersion: 1, Terms: billing.Terms{OverageRate: metering.Whole(100), Currency: "USD"},
		Charge: metering.MustDecimal(charge), Currency: "USD", Billed: true,
	}}}
}

// billedWith records that a closed period is billed in whole units, and that its invoices bill the given
// number.
func billedWith(p *billing.Period, units string) {
	p.Closed[0].Scale = new(int32)
	p.Closed[0].Reconciled = &billing.Reconciliation{Period: p.Start, MeterID: 1, Billed: metering.MustDecimal(units), State: billing.ReconciliationCarried}
}

// used returns the total usage of the meter in a period.
func used(r metering.Range, total string) billing.Usage {
	return billing.Usage{Period: r.Start, MeterID: 1, Total: metering.MustDecimal(total), Events: 1}
}

// usedLate returns usage like used, of which the late part arrived after the period was closed.
func usedLate(r metering.Range, total, late string) billing.Usage {
	u := used(r, total)
	u.Late, u.LateEvents = metering.MustDecimal(late), 1
	return u
}

// counted returns the series of a quantity that the provider has accepted and counted for a period.
func counted(r metering.Range, quantity string) billing.Reported {
	q := metering.MustDecimal(quantity)
	all := billing.Sums{Any: true, Value: q, Added: q, Quantity: q}
	return billing.Reported{
		Series: billing.Series{
			Kind: billing.QuantityReport, Connection: first, Customer: "cus_1", Target: "mtr_1", Method: "delta", Counting: billing.Adds,
			Period: r.Start, Window: r,
		},
		MeterID: 1, Taken: all, Standing: all, Last: uuid.UUID{1}, Number: 1, State: billing.Counted,
	}
}

// stated returns the series of a statement that the receiver has accepted for a period.
func stated(at metering.ConnectionID, r metering.Range, quantity, amount string) billing.Reported {
	q := metering.MustDecimal(quantity)
	all := billing.Sums{Any: true, Value: q, Added: q, Quantity: q, Amount: metering.MustDecimal(amount), Currency: "USD"}
	return billing.Reported{
		Series:  billing.Series{Kind: billing.StatementReport, Connection: at, Counting: billing.Replaces, Period: r.Start, Window: r},
		MeterID: 1, Taken: all, Standing: all, Last: uuid.UUID{1}, Number: 1, State: billing.Accepted,
	}
}

// adjusted returns the totals of an accepted adjustment: the statement of the period target bills late usage of the
// period closed.
func adjusted(at metering.ConnectionID, closed, target metering.Range, quantity, amount string) billing.Reported {
	s := stated(at, closed, quantity, amount)
	s.Window, s.Late = target, true
	return s
}

// afterClosing returns the facts after the oldest open period is closed, and its closed line.
func afterClosing(t *testing.T, f billing.Facts) (after billing.Facts, line billing.ClosedLine) {
	i := slices.IndexFunc(f.Stored, func(p billing.Period) bool { return p.ClosedAt == nil })
	if due := f.Stored[i].Deadline(grace); f.Now.Before(due) {
		f.Now = due
	}
	f.MayClose = true
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Closings, 1)
	require.Len(t, plan.Closings[0].Lines, 1)
	f.MayClose, f.Stored = false, plan.Periods
	return f, plan.Closings[0].Lines[0]
}

// withLate returns the facts after late usage arrived for a closed period.
func withLate(f billing.Facts, r metering.Range, total, late string) billing.Facts {
	f.LateMonths = []metering.Range{{Start: r.Start, End: r.Start.AddDate(0, 0, 32)}}
	f.Usage = []billing.Usage{usedLate(r, total, late)}
	return f
}

// renewal returns the final invoice of January with the given units of the meter.
func renewal(units string) billing.Invoice {
	return billing.Invoice{
		ID: "in_1", Connection: first, Customer: "cus_1", Subscription: "sub_1", Period: january, Renewal: true,
		Lines: []billing.InvoiceLine{{MeterID: 1, Quantity: metering.MustDecimal(units), Currency: "USD"}},
	}
}

// Fault 2: the final invoice bills 10 of 17 units. The test checks that the other 7 units are charged,
// although the provider accepted and counted all 17.
func TestUnitsAcceptedAfterFinalInvoiceAreChargedLater(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(january.End.Add(3*time.Hour), invoiced(january), subscribed(february)))
	f.Usage = []billing.Usage{used(january, "17")}
	f.Reported = []billing.Reported{counted(january, "17")} // the last 7 units after the invoice was final
	f.Invoices = []billing.Invoice{renewal("10")}
	f, line := afterClosing(t, f)
	require.Equal(t, "1700", line.Charge.String(), "what it came to")
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, billing.ChargeReport, reports[0].Kind)
	require.Equal(t, "700", reports[0].Quantity.String())
}

// Fault 3: 10 units were reported before the price was swapped, and no invoice bills them. The test checks
// that these 10 units are charged.
func TestUnitsReportedBeforePriceSwapAreChargedLater(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "13")}
	f.Reported = []billing.Reported{counted(january, "10")} // at the previous price
	f.Side.Destinations[0].Address = map[string]string{"item": "si_2"}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "3", plan.Reports[0].Quantity.String(), "all that the invoice will have")

	f = atMeters(february, knownOf(january.End.Add(2*time.Hour), invoiced(january), subscribed(february)))
	f.Usage = []billing.Usage{used(january, "13")}
	f.Reported = []billing.Reported{counted(january, "13")}
	f.Invoices = []billing.Invoice{renewal("3")}
	f, _ = afterClosing(t, f)
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, "1000", reports[0].Quantity.String())
}

// Fault 4: the last invoice of a canceled subscription is a draft. The test checks that the 7 units since
// the last sync are reported to the draft, and that no charge is added to it.
func TestUsageIsReportedToLastInvoiceOfCanceledSubscription(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.End.Add(time.Minute), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "17")}
	f.Reported = []billing.Reported{counted(january, "10")}
	f.Side.Ended = true
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, billing.QuantityReport, reports[0].Kind)
	require.Equal(t, "7", reports[0].Quantity.String())

	f.Reported, f.Connection.Invoices = []billing.Reported{counted(january, "17")}, true
	f, line := afterClosing(t, f)
	require.Equal(t, "17", line.Usage.String())
	f = withLate(f, january, "20", "3")
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "the subscription takes no charges any more")

	f.Side = &billing.Side{Customer: "cus_1", Destinations: []billing.Destination{{MeterID: 1, Excluded: billing.NoTarget("the customer has no active subscription")}}}
	f.Invoices = []billing.Invoice{renewal("17")}
	require.Equal(t, billing.ReconciliationAgreed, billing.NewBooks(f).Reconciled[0].State)
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "nor is there another one")
	f.Side = atMeters(february, f).Side
	reports = billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, []string{"charge", "300"}, []string{string(reports[0].Kind), reports[0].Quantity.String()}, "what came late")
}

// basic returns a price of 10 USD with 100 included units, and half a cent for each further unit.
func basic() map[metering.MeterID][]billing.Price {
	terms := billing.Terms{BasePrice: metering.Whole(10), IncludedUnits: metering.Whole(100), OverageRate: metering.MustDecimal("0.005"), Currency: "USD"}
	return map[metering.MeterID][]billing.Price{1: {{MeterID: 1, Version: 1, Terms: terms}}}
}

// atBasic sets the basic price for all periods, including closed ones.
func atBasic(f billing.Facts) billing.Facts {
	f.Prices = basic()
	for _, p := range f.Stored {
		for i := range p.Closed {
			p.Closed[i].Terms = f.Prices[1][0].Terms
		}
	}
	return f
}

// Fault 7: the test checks that a final invoice shows whether a report of unknown outcome arrived.
func TestFinalInvoiceResolvesReportOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(january.End.Add(2*time.Hour), invoiced(january), subscribed(february)))
	f.Usage = []billing.Usage{used(january, "10")}
	inDoubt := counted(january, "0")
	inDoubt.Taken, inDoubt.Outstanding, inDoubt.State = billing.Sums{}, true, billing.InDoubt
	inDoubt.Standing = billing.Sums{Any: true, Value: metering.Whole(10), Added: metering.Whole(10), Quantity: metering.Whole(10)}
	f.Reported = []billing.Reported{inDoubt}
	f.Open = []billing.Open{{ID: inDoubt.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt}}
	after, _ := afterClosing(t, f)
	require.Empty(t, billing.NewBooks(after).Plan().Reports, "it may have arrived")

	for units, want := range map[string]struct {
		state   billing.State
		charges int
	}{"10": {billing.Accepted, 0}, "0": {billing.Rejected, 1}} {
		known := f
		known.Reported, known.Invoices = slices.Clone(f.Reported), []billing.Invoice{renewal(units)}
		require.Equal(t, []billing.Resolved{{ID: inDoubt.Last, State: want.state}}, billing.NewBooks(known).Plan().Resolved)
		known, _ = afterClosing(t, known)
		require.Len(t, billing.NewBooks(known).Plan().Reports, want.charges)
	}
}

// Fault 9: the test checks that a million late units are billed at the provider's price during January, even
// if its price is another one now.
func TestLateUsageIsBilledAtProviderPriceOfItsPeriod(t *testing.T) {
	t.Parallel()
	then, now := &tariff{"price_then", "USD", tariffOf(1, 1, 0)}, &tariff{"price_now", "USD", tariffOf(1, 1, 1)}
	ended := invoiced(january)
	ended.Subscription.Prices = map[metering.MeterID]billing.ProviderPrice{1: then}
	f := atMeters(february, knownOf(january.End.Add(2*time.Hour), ended, subscribed(february)))
	f.Prices, f.Side.Currency, f.Side.Destinations[0].Price = nil, "USD", now
	f.Usage = []billing.Usage{used(january, "10")}
	f.Reported = []billing.Reported{counted(january, "10")}
	f, line := afterClosing(t, f)
	require.Equal(t, then, line.Price)
	require.Equal(t, 0, rational(line.Charge).Cmp(then.oracle(rational(metering.Whole(10)))))
	f = withLate(f, january, "1000010", "1000000")
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 1)
	require.Equal(t, "1000000", lines[0].Quantity.String())
	want := then.oracle(rational(metering.Whole(1000010)))
	require.Equal(t, 0, rational(lines[0].Amount).Cmp(want.Sub(want, rational(line.Charge))), "%s", lines[0].Amount)
	require.Equal(t, then, lines[0].Price)
}

// Fault 12: the test checks that the start of the first period does not depend on when syncs ran.
func TestFirstPeriodStartDoesNotDependOnSyncs(t *testing.T) {
	t.Parallel()
	december := metering.Range{Start: january.Start.AddDate(0, -1, 0), End: january.Start}
	decided := january.Start.Add(grace + metering.MaxIngestDelay)
	f := withStatementReceiver(first, knownOf(decided.Add(-time.Microsecond)))
	f.Customer.EarlyEvents = []billing.EarlyEvents{{At: december.End.Add(-time.Hour), IngestedAt: january.Start.Add(25 * time.Hour)}}
	f.Usage = []billing.Usage{used(december, "500"), used(january, "1")}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Periods, 1)
	require.Equal(t, "1", plan.Reports[0].Lines[0].Quantity.String(), "of January alone")
	require.Equal(t, decided, *plan.HeadOpenUntil)
	require.Equal(t, decided, plan.ReplanAt)

	for name, synced := range map[string]bool{"BySomebodyWhoLookedBefore": true, "ByNobody": false} {
		later := f
		later.Now = decided
		if synced {
			later.Stored, later.Customer.HeadOpenUntil = []billing.Period{{Range: january}}, plan.HeadOpenUntil
		}
		again := billing.NewBooks(later).Plan()
		require.Len(t, again.Periods, 2, name)
		require.Equal(t, december, again.Periods[0].Range, name)
		require.Equal(t, "500", again.Reports[0].Lines[0].Quantity.String(), name)
		require.Nil(t, again.HeadOpenUntil, name)

		later.Stored, later.Customer.HeadOpenUntil = []billing.Period{{Range: january}}, nil
		require.Len(t, billing.NewBooks(later).Plan().Periods, 1, "it was decided")
	}
}

// Fault 13: late usage that is booked as billed stays billed after the late policy changes. Late usage that arrives
// under the policy ReportLate is booked as reported only, and no later policy bills it.
func TestLatePolicyChangeDoesNotAffectEarlierBookings(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "100", "10"), billing.Period{Range: february}))
	f = atBasic(f)
	f = withLate(f, january, "1100", "1000")
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, []billing.Booking{{
		Period: january.Start, MeterID: 1, Events: 2, UnitsBefore: metering.Whole(100), Units: metering.Whole(1100),
		ChargeBefore: metering.Whole(10), Charge: metering.Whole(15), Currency: "USD", Billed: true,
	}}, rescaled(plan.Bookings))
	lines := plan.Reports[0].Lines
	require.Len(t, lines, 2)
	require.Equal(t, "5", lines[1].Amount.String())

	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 2, Units: metering.Whole(1100), Charge: metering.Whole(15)}}
	f.Settings.LatePolicy = metering.ReportLate
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: february.Start, Number: 1, State: billing.Accepted, Lines: lines}}
	f.Reported = []billing.Reported{stated(first, february, "0", "10"), adjusted(first, january, february, "1000", "5")}
	plan = billing.NewBooks(f).Plan()
	require.Empty(t, plan.Bookings)
	require.Empty(t, plan.Reports, "February's statement keeps it")

	f = withLate(f, january, "1300", "1200")
	f.Usage[0].LateEvents = 2
	plan = billing.NewBooks(f).Plan()
	require.False(t, plan.Bookings[0].Billed)
	require.Equal(t, "1", plan.Bookings[0].Charge.Sub(plan.Bookings[0].ChargeBefore).String())
	require.Equal(t, "5", plan.Reports[0].Lines[1].Amount.String())
	require.Equal(t, "1000", plan.Reports[0].Lines[1].Quantity.String())

	f.Booked[0].Events, f.Booked[0].Units, f.Booked[0].Charge = 3, metering.Whole(1300), metering.Whole(16)
	f.Booked[0].OnlyReported, f.Booked[0].OnlyReportedCharge = metering.Whole(200), metering.Whole(1)
	f.Settings.LatePolicy = metering.AdjustLate
	f.Now = march.Start.AddDate(0, 0, 20)
	f.Stored = []billing.Period{f.Stored[0], closedAt(february, "0", "10"), {Range: march}}
	f = atBasic(f)
	require.Empty(t, billing.NewBooks(f).Adjustments(), "5 USD are billed in February, and 1 USD never")
	f.Reported = f.Reported[:1]
	late := billing.NewBooks(f).Adjustments()
	require.Len(t, late, 1)
	require.Equal(t, "5", late[0].Amount.String())
	working := billing.NewBooks(f).Explain(f.Stored[2], 1)
	adjustment := stepNamed(working, billing.StepAdjustment)
	require.Equal(t, "1", stepNamed(adjustment.Of, billing.StepOnly).Amount.String())
	require.Equal(t, "200", stepNamed(adjustment.Of, billing.StepOnlyUnits).Amount.String())
}

// rescaled returns the bookings with their decimals in the shortest form.
func rescaled(all []billing.Booking) []billing.Booking {
	for i := range all {
		for _, d := range []*metering.Decimal{&all[i].UnitsBefore, &all[i].Units, &all[i].ChargeBefore, &all[i].Charge} {
			*d = metering.MustDecimal(d.String())
		}
	}
	return all
}

// Fault 15: one invoice bills two periods, and only the second period is marked as invoiced. The test checks
// that the first period's remaining 50 units are still reported.
func TestFirstOfTwoPeriodsOnOneInvoiceIsStillReported(t *testing.T) {
	t.Parallel()
	ofSubscription := metering.Range{Start: january.Start.AddDate(0, 0, 9), End: february.Start.AddDate(0, 0, 9)}
	first, second := subscribed(january), invoiced(metering.Range{Start: february.Start, End: ofSubscription.End})
	first.Subscription.Range, second.Subscription.Range = ofSubscription, ofSubscription
	next := metering.Range{Start: ofSubscription.End, End: ofSubscription.End.AddDate(0, 1, 0)}
	f := atMeters(next, knownOf(next.Start.Add(2*time.Hour), first, second, subscribed(next)))
	f.Settings.Grace = 30 * 24 * time.Hour
	reported := counted(january, "5")
	reported.Window.Start = ofSubscription.Start
	f.Usage = []billing.Usage{used(january, "55")}
	f.Reported = []billing.Reported{reported}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, billing.QuantityReport, plan.Reports[0].Kind)
	require.Equal(t, "50", plan.Reports[0].Quantity.String())
	require.Equal(t, january.End, plan.Reports[0].Window.End, "a time whose invoice is final")
}

// Fault 14: the test checks that 40 late units stay in the target period's statement after their events are
// deleted.
func TestAdjustmentRemainsAfterItsEventsAreDeleted(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "100", "10000"), billing.Period{Range: february}))
	f = withLate(f, january, "140", "40")
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 2)
	require.Equal(t, "40", lines[1].Quantity.String())

	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: february.Start, Number: 1, State: billing.Accepted, Lines: lines}}
	f.Reported = []billing.Reported{stated(first, february, "0", "0"), adjusted(first, january, february, "40", "4000")}
	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 2, Units: metering.Whole(140), Charge: metering.Whole(14000)}}
	f.LateMonths, f.Usage = nil, []billing.Usage{used(february, "1")} // the meter was regrouped, and January is not counted again
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Len(t, plan.Reports[0].Lines, 2)
	require.Equal(t, "40", plan.Reports[0].Lines[1].Quantity.String())
}
