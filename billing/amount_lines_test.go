package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// An invoice has at most 200 lines from Odometer. The test checks which series of another meter count towards this
// maximum.
func TestOnlyLinesOfSameInvoiceCountTowardsLineMaximum(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Reported)
		counts bool
	}{
		"ItsOwn":           {func(*billing.Reported) {}, true},
		"LateOfTheTarget":  {func(r *billing.Reported) { r.Late, r.Period = true, r.Period.AddDate(0, -1, 0) }, true},
		"LateOfAnEarlier":  {func(r *billing.Reported) { r.Late, r.Window.Start = true, r.Window.Start.AddDate(0, -1, 0) }, false},
		"OfAnotherPeriod":  {func(r *billing.Reported) { r.Period = r.Period.AddDate(0, -1, 0) }, false},
		"AQuantity":        {func(r *billing.Reported) { r.Kind = billing.QuantityReport }, false},
		"WhatIsAddedUp":    {func(r *billing.Reported) { r.Counting = billing.Adds }, false},
		"OfAnotherAccount": {func(r *billing.Reported) { r.Connection = 9 }, false},
		"WhatWasRejected":  {func(r *billing.Reported) { r.Standing, r.Taken = billing.Sums{}, billing.Sums{} }, false},
		"WhatIsOnAnother":  {func(r *billing.Reported) { r.Line = &billing.ChargeLine{Currency: "USD"} }, false},
	} {
		f := chargedFacts(t)
		for id := metering.MeterID(2); id <= 200; id++ {
			addCharged(t, &f, id)
		}
		r := set(t, f, "2")
		r.MeterID = 999 // a meter that no longer exists
		c.change(&r)
		f.Reported = []billing.Reported{r}
		left := len(billing.NewBooks(f).Plan().Excluded)
		require.Equal(t, c.counts, left == 1, "%s: %d meters are left out", name, left)
	}
}

// A line is set to its charge of 3 USD, minus amounts that other series bill for the same meter and period. Series in
// test mode do not count. The previous amount of the line is replaced, not subtracted.
func TestLineAmountExcludesAmountsBilledByOtherSeries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Reported)
		set    string
	}{
		"TheSame":             {func(*billing.Reported) {}, "3"},
		"AtAnotherConnection": {func(r *billing.Reported) { r.Connection = 9 }, "1"},
		"OfAnotherCustomer":   {func(r *billing.Reported) { r.Customer = "cus_0" }, "1"},
		"OfAnother":           {func(r *billing.Reported) { r.Target = "sub_0" }, "1"},
		"AQuantity":           {func(r *billing.Reported) { r.Kind = billing.QuantityReport }, "1"},
		"WhatIsAddedUp": {func(r *billing.Reported) {
			r.Counting, r.Taken.Added, r.Standing.Added = billing.Adds, metering.Whole(2), metering.Whole(2)
		}, "1"},
		"OfAnotherPart":   {func(r *billing.Reported) { r.Window.Start = r.Window.Start.Add(time.Hour) }, "1"},
		"OfAnotherMeter":  {func(r *billing.Reported) { r.MeterID = 2 }, "3"},
		"OfAnotherPeriod": {func(r *billing.Reported) { r.Period = r.Period.AddDate(0, -1, 0) }, "3"},
		"InTestMode":      {func(r *billing.Reported) { r.Connection = 8 }, "3"},
	} {
		f := chargedFacts(t)
		f.InTest = []metering.ConnectionID{8}
		r := set(t, f, "2")
		c.change(&r)
		f.Reported = []billing.Reported{r}
		require.Equal(t, c.set, billing.NewBooks(f).Plan().Reports[0].Quantity.String(), name)
	}
}

// A plan sets no watermark for a period while a report of the meter is being sent for a previous customer at the same
// connection. Reports of unknown outcome and reports to another connection do not matter.
func TestReportBeingSentForPreviousCustomerPreventsWatermark(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Reported)
		known  int
	}{
		"Nothing":             {func(r *billing.Reported) { r.Outstanding = false }, 1},
		"BeingSent":           {func(*billing.Reported) {}, 0},
		"InDoubt":             {func(r *billing.Reported) { r.State = billing.InDoubt }, 1},
		"AtAnotherConnection": {func(r *billing.Reported) { r.Connection = 9 }, 1},
	} {
		f := chargedFacts(t)
		other := set(t, f, "0")
		other.Customer, other.Outstanding, other.State = "cus_0", true, billing.Sending
		c.change(&other)
		f.Reported = []billing.Reported{set(t, f, "3"), other}
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, plan.Reports, name)
		require.Len(t, plan.Reported, c.known, name)
	}
}

// The test checks when the line of a past period is set. The line must exist, its subscription must be the customer's,
// and no final invoice may have been compared with the closed line.
func TestPlanDecidesWhetherPastPeriodLineIsSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		set    []string
		code   billing.ExclusionCode
	}{
		"OfAClosedPeriod": {func(*billing.Facts) {}, []string{"3"}, ""},
		"OfAnotherOne":    {func(f *billing.Facts) { f.Side.Subscription = "sub_2" }, nil, ""},
		"OfNone":          {func(f *billing.Facts) { f.Stored[0].Subscription.ID = "" }, nil, ""},
		"WithoutALine":    {func(f *billing.Facts) { f.Reported = nil }, nil, ""},
		"ComparedWithOthers": {func(f *billing.Facts) {
			f.Stored[0].Closed[0].Reconciled = &billing.Reconciliation{Billed: metering.Whole(3)}
		}, nil, ""},
		"OfAMeterMadeLater": {func(f *billing.Facts) { f.Stored[0].Closed = nil }, nil, ""},
		"OnceItHasEnded": {func(f *billing.Facts) {
			f.Stored = f.Stored[:1]
			f.Stored[0].ClosedAt, f.Stored[0].Closed, f.Reported, f.Side.Ended, f.Side.Period = nil, nil, nil, true, f.Stored[0].Range
		}, nil, billing.ExcludedNoInvoiceLine},
	} {
		f := closedJanuary(t)
		f.Usage = []billing.Usage{{Period: f.Stored[0].Start, MeterID: 1, Total: metering.Whole(7), Events: 7}}
		c.change(&f)
		plan := billing.NewBooks(f).Plan()
		var own []string
		for _, r := range plan.Reports {
			if !r.Late {
				own = append(own, r.Quantity.String())
			}
		}
		require.Equal(t, c.set, own, name)
		if c.code != "" {
			require.Equal(t, c.code, plan.Excluded[0].Code, name)
		}
	}
}

// A period with a final invoice gets no watermark while a report of one of its lines is being sent.
func TestLineReportBeingSentPreventsWatermarkOfInvoicedPeriod(t *testing.T) {
	t.Parallel()
	for outstanding, known := range map[bool]int{true: 0, false: 1} {
		f := chargedFacts(t)
		r := set(t, f, "3")
		r.Outstanding, r.State = outstanding, billing.Sending
		f.Reported, f.Stored[0].Subscription.Invoiced = []billing.Reported{r}, true
		require.Len(t, billing.NewBooks(f).Plan().Reported, known, "on its way: %t", outstanding)
	}
}

func TestZeroChargeIsNotExcludedForItsCurrency(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Side.Currency, f.Usage[0].Total = "EUR", metering.Whole(1)
	require.Empty(t, billing.NewBooks(f).Plan().Excluded)
}

// lateFacts returns facts in which January is complete, and two units of late usage have arrived for each of two
// meters.
func lateFacts(t *testing.T) billing.Facts {
	t.Helper()
	f := closedJanuary(t)
	january := f.Stored[0].Range
	f.Reported, f.LateMonths = nil, []metering.Range{january}
	f.Stored[0].Complete, f.Stored[0].Closed[0].Reconciled = true, &billing.Reconciliation{Billed: metering.Whole(3), State: billing.ReconciliationAgreed}
	addCharged(t, &f, 2)
	second := f.Stored[0].Closed[0]
	second.MeterID = 2
	f.Stored[0].Closed = append(f.Stored[0].Closed, second)
	f.Usage = nil
	for _, m := range f.Meters {
		f.Usage = append(f.Usage, billing.Usage{Period: january.Start, MeterID: m.ID, Total: metering.Whole(9), Events: 9, Late: metering.Whole(2), LateEvents: 2})
	}
	return f
}

// lateLine returns the series of the first meter's line of late usage, which was set to an amount.
func lateLine(t *testing.T, f billing.Facts, amount string) billing.Reported {
	t.Helper()
	r := set(t, f, amount)
	r.Late, r.Window = true, metering.Range{Start: f.Stored[0].End, End: f.Side.Period.End}
	return r
}

func TestLateUsageLineIsSetUnlessUnchangedOrFinal(t *testing.T) {
	t.Parallel()
	final := func(t *testing.T, f *billing.Facts, amount string) billing.Reported {
		r := lateLine(t, *f, amount)
		r.Line = &billing.ChargeLine{Amount: r.Taken.Amount, Set: r.Taken.Amount, Currency: "USD"}
		return r
	}
	for name, c := range map[string]struct {
		reported func(*billing.Facts) []billing.Reported
		meters   []metering.MeterID
	}{
		"Both":               {func(*billing.Facts) []billing.Reported { return nil }, []metering.MeterID{1, 2}},
		"WhatIsSet":          {func(f *billing.Facts) []billing.Reported { return []billing.Reported{lateLine(t, *f, "1")} }, []metering.MeterID{2}},
		"WhatIsSetToAnother": {func(f *billing.Facts) []billing.Reported { return []billing.Reported{lateLine(t, *f, "0.5")} }, []metering.MeterID{1, 2}},
		"WhatIsOnAnInvoice":  {func(f *billing.Facts) []billing.Reported { return []billing.Reported{final(t, f, "0.5")} }, []metering.MeterID{2}},
	} {
		f := lateFacts(t)
		f.Reported = c.reported(&f)
		var meters []metering.MeterID
		for _, r := range billing.NewBooks(f).Plan().Reports {
			require.True(t, r.Late, name)
			meters = append(meters, r.Lines[0].MeterID)
		}
		require.Equal(t, c.meters, meters, name)
	}
}

func TestInvoiceLineMaximumLimitsLateUsageLines(t *testing.T) {
	t.Parallel()
	f := lateFacts(t)
	for id := metering.MeterID(1000); id < 1199; id++ {
		r := lateLine(t, f, "1")
		r.MeterID = id // a meter that no longer exists
		f.Reported = append(f.Reported, r)
	}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, []billing.Exclusion{{MeterID: 2, MeterSlug: "meter2", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedTooManyLines}}}, plan.Excluded)
}

// A line on a final invoice shows whether the last report of its series was accepted or rejected. A report that was
// never sent was rejected. If the amount fits neither outcome, the line shows nothing.
func TestFinalInvoiceLineShowsOutcomeOfReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state      billing.State
		taken, set string
		shown      []billing.Resolved
	}{
		"ItArrived":        {billing.Sending, "2", "3", []billing.Resolved{{ID: uuid.UUID{7}, State: billing.Accepted}}},
		"ItDidNot":         {billing.Sending, "2", "2", []billing.Resolved{{ID: uuid.UUID{7}, State: billing.Rejected}}},
		"ItWasNeverSent":   {billing.Planned, "2", "3", []billing.Resolved{{ID: uuid.UUID{7}, State: billing.Rejected}}},
		"TheFirstArrived":  {billing.Sending, "", "3", []billing.Resolved{{ID: uuid.UUID{7}, State: billing.Accepted}}},
		"SomethingElseDid": {billing.Sending, "2", "4", nil},
		"NothingTakenIs":   {billing.Sending, "", "0", nil},
	} {
		f := chargedFacts(t)
		r := set(t, f, "3")
		if r.Last, r.State, r.Outstanding, r.Taken = (uuid.UUID{7}), c.state, true, (billing.Sums{}); c.taken != "" {
			r.Taken = set(t, f, c.taken).Taken
		}
		r.Line = &billing.ChargeLine{Amount: decimal(t, c.set), Set: decimal(t, c.set), Currency: "USD"}
		f.Reported = []billing.Reported{r}
		f.Open = []billing.Open{{ID: uuid.UUID{7}, Kind: billing.ChargeReport, Connection: 1, Period: f.Stored[0].Start, State: c.state}}
		require.Equal(t, c.shown, billing.NewBooks(f).Resolved, name)
	}
}

// invoicedLine returns the series of a line on a final invoice. last is the amount that Odometer set last, and amount
// is the amount on the invoice.
func invoicedLine(t *testing.T, f billing.Facts, last, amount string) billing.Reported {
	t.Helper()
	r := set(t, f, last)
	r.Line = &billing.ChargeLine{Amount: decimal(t, amount), Set: decimal(t, last), Currency: "USD"}
	return r
}

// A closed line's charge is compared with the sum of the amounts on final invoices and the amounts that other series
// bill. The comparison waits until all of these amounts are known.
func TestClosedChargeIsComparedWithInvoicesAndOtherSeries(t *testing.T) {
	t.Parallel()
	former := func(r billing.Reported) billing.Reported { // of sub_0, an hour later
		r.Target, r.Window.Start = "sub_0", r.Window.Start.Add(time.Hour)
		return r
	}
	changed := func(r billing.Reported, change func(*billing.Reported)) billing.Reported {
		change(&r)
		return r
	}
	type compared struct {
		reported, invoiced, unexplained, elsewhere, billed string

		state  billing.ReconciliationState
		reason billing.ReconciliationReason
	}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		want   *compared
	}{
		"One": {func(f *billing.Facts) { f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "3")} },
			&compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"Two": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{invoicedLine(t, *f, "1", "1"), former(invoicedLine(t, *f, "2", "2"))}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"TwoThatWereRaised": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{invoicedLine(t, *f, "1", "5"), former(invoicedLine(t, *f, "2", "3"))}
		}, &compared{"3", "8", "5", "0", "3", billing.ReconciliationDisputed, billing.ReasonBilledMore}},
		"OneThatWasLowered": {func(f *billing.Facts) { f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "1")} },
			&compared{"3", "1", "0", "0", "3", billing.ReconciliationWaived, billing.ReasonLineEdited}},
		"OneThatIsVoid": {func(f *billing.Facts) {
			r := invoicedLine(t, *f, "3", "1")
			r.Line.Void = true
			f.Reported = []billing.Reported{r, former(invoicedLine(t, *f, "0", "0"))}
		}, &compared{"3", "0", "0", "0", "3", billing.ReconciliationWaived, billing.ReasonVoid}},
		"OneThatWasRaisedAndIsVoid": {func(f *billing.Facts) {
			r := invoicedLine(t, *f, "3", "8")
			r.Line.Void = true
			f.Reported = []billing.Reported{r}
		}, &compared{"3", "0", "0", "0", "3", billing.ReconciliationWaived, billing.ReasonVoid}},
		"OneOfTwoThatIsVoid": {func(f *billing.Facts) {
			r := invoicedLine(t, *f, "1", "1")
			r.Line.Void = true
			f.Reported = []billing.Reported{r, former(invoicedLine(t, *f, "2", "2"))}
		}, &compared{"3", "2", "0", "0", "3", billing.ReconciliationWaived, billing.ReasonVoid}},
		"AndElsewhere": {func(f *billing.Facts) {
			other := changed(set(t, *f, "1"), func(r *billing.Reported) { r.Connection = 9 })
			f.Reported = []billing.Reported{invoicedLine(t, *f, "2", "2"), other}
		}, &compared{"3", "2", "0", "1", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NotWhatIsLate": {func(f *billing.Facts) {
			late := changed(invoicedLine(t, *f, "1", "1"), func(r *billing.Reported) { r.Late = true })
			f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "3"), late}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NotAnotherMeters": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "3"), ofMeter(2, former(invoicedLine(t, *f, "1", "1")))}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NotAnotherPeriods": {func(f *billing.Facts) {
			other := changed(invoicedLine(t, *f, "1", "1"), func(r *billing.Reported) { r.Period = r.Period.AddDate(0, -1, 0) })
			f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "3"), other}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NotAnotherModes": {func(f *billing.Facts) {
			other := changed(invoicedLine(t, *f, "1", "1"), func(r *billing.Reported) { r.Connection = 8 })
			f.Reported = []billing.Reported{invoicedLine(t, *f, "3", "3"), other}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"OneIsPending": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{invoicedLine(t, *f, "1", "1"), former(set(t, *f, "2"))}
		}, nil},
		"AQuantityIsNot": {func(f *billing.Facts) {
			units := changed(former(set(t, *f, "1")), func(r *billing.Reported) { r.Kind = billing.QuantityReport })
			f.Reported = []billing.Reported{invoicedLine(t, *f, "2", "2"), units}
		}, &compared{"3", "2", "0", "1", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NothingWasCharged": {func(*billing.Facts) {}, &compared{"0", "0", "0", "0", "0", billing.ReconciliationCarried, billing.ReasonUnreported}},
		"NorIsToBe":         {func(f *billing.Facts) { f.Stored[0].Closed[0].Charge = metering.Decimal{} }, nil},
		"ALineOfNothing": {func(f *billing.Facts) {
			r := invoicedLine(t, *f, "0", "0")
			r.Standing, r.Taken, f.Stored[0].Closed[0].Charge = billing.Sums{}, billing.Sums{}, metering.Decimal{}
			f.Reported = []billing.Reported{r}
		}, &compared{"0", "0", "0", "0", "0", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NothingElsewhere": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{changed(set(t, *f, "0"), func(r *billing.Reported) { r.Connection = 9 })}
			f.Stored[0].Closed[0].Charge = metering.Decimal{}
		}, &compared{"0", "0", "0", "0", "0", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NoInvoiceOfThePeriod": {func(f *billing.Facts) {
			f.Invoices, f.Reported = nil, []billing.Reported{invoicedLine(t, *f, "3", "3")}
		}, &compared{"3", "3", "0", "0", "3", billing.ReconciliationAgreed, billing.ReasonAgreed}},
		"NeitherThatNorALine": {func(f *billing.Facts) { f.Invoices = nil }, nil},
		"AnInvoiceOfAnother":  {func(f *billing.Facts) { f.Invoices[0].Subscription = "sub_0" }, nil},
		"OneOfItsNextPeriod":  {func(f *billing.Facts) { f.Invoices[0].Period = f.Side.Period }, nil},
	} {
		f := closedJanuary(t)
		f.InTest, f.Reported, f.Stored[0].Subscription.Invoiced = []metering.ConnectionID{8}, nil, true
		f.Invoices = []billing.Invoice{{ID: "in_1", Connection: 1, Customer: "cus_1", Subscription: "sub_1", Period: f.Stored[0].Range, Renewal: true}}
		c.change(&f)
		if c.want == nil {
			require.Empty(t, billing.NewBooks(f).Reconciled, name)
			continue
		}
		require.Len(t, billing.NewBooks(f).Reconciled, 1, name)
		r := billing.NewBooks(f).Reconciled[0]
		require.Equal(t, *c.want, compared{
			r.Reported.String(), r.Invoiced.String(), r.Unexplained.String(), r.Elsewhere.String(), r.Billed.String(), r.State, r.Reason,
		}, name)
	}
}

// A meter that is excluded when its period closes is billed only if an amount was charged for it before.
func TestMeterExcludedAtCloseIsBilledOnlyIfAlreadyCharged(t *testing.T) {
	t.Parallel()
	for charged, billed := range map[string]bool{"": false, "2": true} {
		f := chargedFacts(t)
		f.Settings.Grace, f.Now, f.MayClose = time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
		f.Side.Charges[0].Excluded = billing.NoTarget("it has credits")
		if charged != "" {
			f.Reported = []billing.Reported{set(t, f, charged)}
		}
		require.Equal(t, billed, billing.NewBooks(f).Plan().Closings[0].Lines[0].Billed, charged)
	}
}

// ChargedSince returns the start of an incomplete period that is billed in amounts and began before the given instant,
// or of the window of an outstanding report that sets a line. Otherwise ChargedSince returns the instant.
func TestChargedSinceIncludesIncompletePeriodsAndOpenReports(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	begins := f.Stored[0].Start
	f.Stored[0].Bills = metering.BillsAmounts
	require.Equal(t, begins, f.ChargedSince(begins.Add(time.Hour)))
	require.Equal(t, begins.Add(-time.Hour), f.ChargedSince(begins.Add(-time.Hour)))
	f.Stored[0].Bills = metering.BillsQuantities
	require.Equal(t, begins.Add(time.Hour), f.ChargedSince(begins.Add(time.Hour)))
	f.Stored[0].Bills, f.Stored[0].Complete = metering.BillsAmounts, true
	f.Reported = []billing.Reported{set(t, f, "2")}
	require.Equal(t, begins.Add(time.Hour), f.ChargedSince(begins.Add(time.Hour)))
	f.Reported[0].Outstanding = true
	require.Equal(t, begins, f.ChargedSince(begins.Add(time.Hour)), "without its line, the report would be rejected")
	f.Reported[0].Connection = 9
	require.Equal(t, begins.Add(time.Hour), f.ChargedSince(begins.Add(time.Hour)))
}

func TestTermsStringDescribesPrice(t *testing.T) {
	t.Parallel()
	for want, terms := range map[string]billing.Terms{
		"0.5 USD for each unit":                                            {OverageRate: decimal(t, "0.5"), Currency: "USD"},
		"29 USD for the period, 0.5 USD for each unit":                     {BasePrice: metering.Whole(29), OverageRate: decimal(t, "0.5"), Currency: "USD"},
		"29 USD for the period, 100 units included, 0.5 USD for each unit": {BasePrice: metering.Whole(29), IncludedUnits: metering.Whole(100), OverageRate: decimal(t, "0.5"), Currency: "USD"},
		"100 units included, 0.0000000001 JPY for each unit":               {IncludedUnits: metering.Whole(100), OverageRate: decimal(t, "0.0000000001"), Currency: "JPY"},
	} {
		require.Equal(t, want, terms.String())
	}
}

// A target period of sub_2 bills an amount that a closed period lacks. The closed period's own line is then not set to
// include that amount. The customer has sub_1 again, which has ended and has a draft as last invoice.
func TestClosedLineExcludesAmountBilledByLaterPeriod(t *testing.T) {
	t.Parallel()
	for carried, set := range map[string]int{"0": 1, "2": 0} {
		f := chargedFacts(t)
		f.Now, f.MayClose = instant(t, "2026-02-05T00:00:00Z"), true
		f.Stored, f.MayClose = billing.NewBooks(f).Plan().Periods, false
		f.Side.Ended = true
		own := invoicedLine(t, f, "1", "1")
		own.Line = nil
		late := invoicedLine(t, f, carried, carried)
		late.Line, late.Late, late.Target, late.Window = nil, true, "sub_2", metering.Range{Start: f.Stored[0].End, End: f.Now}
		f.Reported = []billing.Reported{own, late}
		require.Len(t, billing.NewBooks(f).Plan().Reports, set, carried)
		require.Empty(t, billing.NewBooks(f).Adjustments(), carried)
	}
}
