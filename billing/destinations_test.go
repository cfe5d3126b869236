package billing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// The test checks why a plan excludes a meter.
func TestPlanGivesReasonForExcludedMeter(t *testing.T) {
	t.Parallel()
	current := metering.Range{Start: january.Start.AddDate(0, 0, 4), End: january.End.AddDate(0, 0, 4)}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		code   billing.ExclusionCode
	}{
		"NothingIs":          {func(*billing.Facts) {}, ""},
		"ItIsBackfilled":     {func(f *billing.Facts) { f.Meters[0].Version.Status = metering.Backfilling }, billing.ExcludedBackfilling},
		"NothingLeadsThere":  {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, billing.ExcludedNoTarget},
		"ItWasNotReadYet":    {func(f *billing.Facts) { f.Side.Destinations[0].MeterID = 2 }, billing.ExcludedNotRead},
		"AnOperatorLeavesIt": {func(f *billing.Facts) { f.Excluded = []metering.MeterID{1} }, billing.ExcludedByOperator},
		"ThePeriodIsInvoiced": {func(f *billing.Facts) {
			f.Stored[0].Subscription.Invoiced = true
		}, billing.ExcludedInvoiceFinal},
		"ItIsFromBeforeTheSubscription": {func(f *billing.Facts) {
			f.Stored[0].Subscription = billing.Subscription{}
			f.Side.Period = metering.Range{Start: january.End, End: february.End}
		}, billing.ExcludedBeforeSubscription},
		"ItIsOfAnotherSubscription": {func(f *billing.Facts) {
			f.Stored[0].Subscription.ID = "sub_0"
			f.Side.Period = metering.Range{Start: january.End, End: february.End}
		}, billing.ExcludedBeforeSubscription},
		"ThePeriodIsOverWhereThatMatters": {func(f *billing.Facts) {
			f.Side.Destinations[0].OnlyWhileRun = true
			f.Stored[0].Subscription.Range = metering.Range{Start: january.Start, End: january.End}
			f.Side.Period = metering.Range{Start: january.End, End: february.End}
		}, billing.ExcludedPeriodOver},
		"ThePeriodIsOverWhereThatDoesNotMatter": {func(f *billing.Facts) {
			f.Stored[0].Subscription.Range = metering.Range{Start: january.Start, End: january.End}
			f.Side.Period = metering.Range{Start: january.End, End: february.End}
		}, ""},
		"ThePeriodRunsWhereThatMatters": {func(f *billing.Facts) { f.Side.Destinations[0].OnlyWhileRun = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(current, knownOf(january.End.Add(time.Hour), billing.Period{
				Range: january, Subscription: billing.Subscription{ID: "sub_1", Range: current},
			}))
			f.Usage = []billing.Usage{used(january, "10")}
			c.change(&f)
			plan := billing.NewBooks(f).Plan()
			if c.code == "" {
				require.Empty(t, plan.Excluded)
				require.Len(t, plan.Reports, 1)
				return
			}
			require.Len(t, plan.Excluded, 1)
			require.Equal(t, []any{metering.MeterID(1), "calls", c.code}, []any{plan.Excluded[0].MeterID, plan.Excluded[0].MeterSlug, plan.Excluded[0].Code})
			require.Empty(t, plan.Reports)

			f.Usage = nil
			rest := []billing.ExclusionCode{billing.ExcludedInvoiceFinal, billing.ExcludedBeforeSubscription, billing.ExcludedPeriodOver}
			require.Equal(t, slices.Contains(rest, c.code), len(billing.NewBooks(f).Plan().Excluded) == 0, "nothing is left of it")
		})
	}
}

// A meter that belongs to another billing schedule by now is listed as excluded only if this schedule has usage of the
// meter.
func TestOtherSchedulesMeterIsListedAsExcludedOnlyWithUsage(t *testing.T) {
	t.Parallel()
	for total, left := range map[string]int{"0": 0, "3": 1, "-3": 1} {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
		f.Feeds = []billing.Feed{{MeterID: 1, Stream: 1, From: january.Start.AddDate(0, 0, 9)}}
		f.Side.Destinations = []billing.Destination{{MeterID: 1, Excluded: billing.NoTarget("no item")}}
		f.Usage = []billing.Usage{used(january, total)}
		require.Len(t, billing.NewBooks(f).Plan().Excluded, left, total)
	}
}

// If two meters have the same target, the plan reports only the first meter, because their reports would overwrite each
// other.
func TestSecondMeterWithSameTargetIsExcluded(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "bytes", Version: metering.MeterVersion{Status: metering.Complete}})
	second := f.Side.Destinations[0]
	second.MeterID = 2
	f.Side.Destinations = append(f.Side.Destinations, second)
	f.Usage = []billing.Usage{used(january, "10")}
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, []billing.Exclusion{{MeterID: 2, MeterSlug: "bytes", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedSharedTarget}}}, plan.Excluded)
	require.Len(t, plan.Reports, 1)

	f.Side.Destinations[1].Target = "mtr_2"
	require.Empty(t, billing.NewBooks(f).Plan().Excluded)
}

// A reported quantity is the usage that the destination does not have yet, in the decimals that it takes. Units and
// amounts that other series bill are subtracted.
func TestQuantityIsUsageThatDestinationLacks(t *testing.T) {
	t.Parallel()
	elsewhere := func(quantity string, change func(*billing.Reported)) billing.Reported {
		r := counted(january, quantity)
		r.Standing.Amount, r.Standing.Currency = metering.Whole(50), "USD"
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		change           func(*billing.Facts)
		quantity, amount string // for 10.5 units at 100 USD each
	}{
		"WholeUnitsWithoutAScale": {func(*billing.Facts) {}, "10", "1000"},
		"InDecimals":              {func(f *billing.Facts) { f.Meters[0].UsageScale = 1 }, "10.5", "1050"},
		"InWholeUnitsWhateverTheScale": {func(f *billing.Facts) {
			f.Meters[0].UsageScale, f.Side.Destinations[0].WholeUnits = 1, true
		}, "10", "1000"},
		"InTheScaleOfTheInvoice": {func(f *billing.Facts) {
			f.Stored[0].Subscription.Scales = map[metering.MeterID]int32{1: 1}
		}, "10.5", "1050"},
		"OtherTarget": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Target = "mtr_0" })}
		}, "6", "950"},
		"OtherMethod": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Method = "record" })}
		}, "6", "950"},
		"OtherCustomer": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Customer = "cus_0" })}
		}, "6", "950"},
		"OtherAccount": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Connection = second })}
		}, "6", "950"},
		"TwoOthers": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{
				elsewhere("4", func(r *billing.Reported) { r.Target = "mtr_0" }), elsewhere("1", func(r *billing.Reported) { r.Target = "mtr_9" }),
			}
		}, "5", "900"},
		"OneThatEndedBeforeTheSubscriptionsPeriod": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Window.Start = january.Start.Add(-time.Second) })}
		}, "6", "950"},
		"OneThatIsAddedUpAndBeganLater": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Window.Start = january.Start.Add(time.Second) })}
		}, "6", "950"},
		"Its": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(*billing.Reported) {})}
		}, "6", "1000"},
		"AnotherPeriods": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Period, r.Target = february.Start, "mtr_0" })}
		}, "10", "1000"},
		"AnotherMeters": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.MeterID, r.Target = 2, "mtr_0" })}
		}, "10", "1000"},
		"LateUsages": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Late = true })}
		}, "10", "1000"},
		"OneThatWasNotTaken": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Target, r.Taken, r.Standing = "mtr_0", billing.Sums{}, billing.Sums{} })}
		}, "10", "1000"},
		"OneThatMayHaveBeenTaken": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("4", func(r *billing.Reported) { r.Target, r.Taken = "mtr_0", billing.Sums{} })}
		}, "6", "950"},
		"LessThanElsewhere": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{elsewhere("14", func(r *billing.Reported) { r.Target = "mtr_0" })}
		}, "-4", "950"},
		"NoPriceOfOurs": {func(f *billing.Facts) { f.Prices = nil }, "10", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
			f.Usage = []billing.Usage{used(january, "10.5")}
			c.change(&f)
			plan := billing.NewBooks(f).Plan()
			require.Len(t, plan.Reports, 1)
			require.Equal(t, c.quantity, plan.Reports[0].Quantity.String())
			require.Equal(t, c.amount, plan.Reports[0].Lines[0].Amount.String())
			require.Equal(t, "USD", plan.Reports[0].Lines[0].Currency)
		})
	}

	t.Run("NeverBelowZeroWhereThatIsNotTaken", func(t *testing.T) {
		t.Parallel()
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
		f.Side.Destinations[0].NotNegative = true
		f.Usage = []billing.Usage{used(january, "-3")}
		require.Empty(t, billing.NewBooks(f).Plan().Reports)
		f.Reported = []billing.Reported{counted(january, "2")}
		require.Equal(t, "-2", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
		f.Usage = []billing.Usage{used(january, "3")}
		require.Equal(t, "1", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
	})
}

// A destination with Counting Latest counts only the last quantity. A report therefore contains the period's units and
// those of earlier periods in the same subscription period.
func TestLatestQuantityIncludesEarlierPeriodsOfSubscription(t *testing.T) {
	t.Parallel()
	ofSubscription := metering.Range{Start: january.Start.AddDate(0, 0, 9), End: february.Start.AddDate(0, 0, 9)}
	next := billing.Period{Range: february, Subscription: billing.Subscription{ID: "sub_1", Range: ofSubscription}}
	for name, c := range map[string]struct {
		change func(*billing.Reported)
		want   string // for 3 units used in February, with 4 reported for January
	}{
		"TheSame":                             {func(*billing.Reported) {}, "7"},
		"AnotherMeters":                       {func(r *billing.Reported) { r.MeterID = 2 }, "3"},
		"AnotherAccounts":                     {func(r *billing.Reported) { r.Connection = second }, "3"},
		"AnotherCustomers":                    {func(r *billing.Reported) { r.Customer = "cus_0" }, "3"},
		"AnotherTargets":                      {func(r *billing.Reported) { r.Target = "mtr_0" }, "3"},
		"AnotherMethods":                      {func(r *billing.Reported) { r.Method = "record" }, "3"},
		"LateUsages":                          {func(r *billing.Reported) { r.Late = true }, "3"},
		"OfAnEarlierPeriodOfTheSubscriptions": {func(r *billing.Reported) { r.Window.Start = january.Start }, "3"},
		"ThatWasNotTaken":                     {func(r *billing.Reported) { r.Taken = billing.Sums{} }, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(ofSubscription, knownOf(february.Start.AddDate(0, 0, 2), closedAt(january, "4", "400"), next))
			f.Side.Destinations[0].Counting = billing.Latest
			f.Usage = []billing.Usage{used(february, "3")}
			before := counted(january, "4")
			before.Counting, before.Window.Start = billing.Latest, ofSubscription.Start
			c.change(&before)
			f.Reported = []billing.Reported{before}
			reports := billing.NewBooks(f).Plan().Reports
			require.Len(t, reports, 1)
			require.Equal(t, c.want, reports[0].Quantity.String())
			require.Equal(t, "3", reports[0].Lines[0].Quantity.String())
		})
	}
}

// A new report of a series contains the period, the destination, a deadline and, in Former, the timestamp of the
// series' previous report.
func TestQuantityReportHasPeriodDestinationAndDeadline(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "10")}
	former := january.Start.AddDate(0, 0, 3)
	before := counted(january, "4")
	before.Timestamp = &former
	f.Reported = []billing.Reported{before}
	r := billing.NewBooks(f).Plan().Reports[0]
	require.Equal(t, before.Series, r.Series)
	require.Equal(t, &former, r.Former)
	require.Equal(t, f.Side.Destinations[0], r.Destination)
	require.Equal(t, january, r.Of)
	require.Equal(t, january.End.Add(grace), r.Deadline)
}

// A closed period is complete once every report has a known outcome and the invoice is final. Without invoices, the
// provider must also have counted the reports.
func TestClosedPeriodIsCompleteOnceOutcomesAndInvoiceAreFinal(t *testing.T) {
	t.Parallel()
	invoices := func(f *billing.Facts) { f.Connection.Invoices = true }
	for name, c := range map[string]struct {
		state       billing.State
		outstanding bool
		invoiced    bool
		complete    bool
		change      func(*billing.Facts)
	}{
		"SeenCounted":                {billing.Counted, false, false, true, nil},
		"NotSeenYet":                 {billing.Accepted, false, false, false, nil},
		"NotSeenYetBeforeAnInvoice":  {billing.Accepted, false, false, false, invoices},
		"OnItsWay":                   {billing.Sending, true, false, false, nil},
		"InDoubt":                    {billing.InDoubt, true, false, false, nil},
		"SeenCountedOnTheInvoice":    {billing.Counted, false, true, true, invoices},
		"OnItsWayToTheInvoice":       {billing.Sending, true, true, false, invoices},
		"NotBegunOnItsWayToIt":       {billing.Planned, true, true, false, invoices},
		"InDoubtWhetherOnTheInvoice": {billing.InDoubt, true, true, false, invoices},
		"InDoubtAndTheInvoiceIsRead": {billing.InDoubt, true, true, true, func(f *billing.Facts) { f.Invoices = []billing.Invoice{renewal("10")} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			period := subscribed(january)
			period.Subscription.Invoiced = c.invoiced
			f := atMeters(february, knownOf(january.End.Add(grace), period, subscribed(february)))
			f.Usage = []billing.Usage{used(january, "10")}
			r := counted(january, "10")
			r.State, r.Outstanding, r.Last = c.state, c.outstanding, uuid.UUID{3}
			f.Reported = []billing.Reported{r}
			if c.change != nil {
				c.change(&f)
			}
			plan := closes(f)
			require.Len(t, plan.Closings, 1, "it closes all the same")
			require.Equal(t, c.complete, len(plan.Complete) == 1)
		})
	}
}

// The statement of an open period has the decimals that the provider takes. A meter that the provider does not bill is
// stated with its exact usage.
func TestOpenPeriodStatementRoundsUnitsAsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		charge string // for 10.5 units at 100 USD each
	}{
		"Reported":                  {func(*billing.Facts) {}, "1000"},
		"NothingLeadsThere":         {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, "1050"},
		"FromBeforeTheSubscription": {func(f *billing.Facts) { f.Stored[0].Subscription = billing.Subscription{} }, "1050"},
		"NotRead":                   {func(f *billing.Facts) { f.Side = nil }, "1050"},
		"InStatements":              {func(f *billing.Facts) { f.Connection.Statements = true }, "1050"},
		"Nowhere":                   {func(f *billing.Facts) { f.Connection = nil }, "1050"},
	} {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
		f.Usage = []billing.Usage{used(january, "10.5")}
		c.change(&f)
		require.Equal(t, c.charge, billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0].Charge.String(), name)
	}
}

// A meter of an invoiced period is listed as excluded only if the provider lacks some of its units. The period gets no
// watermark while a report is outstanding.
func TestInvoicedPeriodExcludesMeterOnlyIfUnitsAreMissing(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]int{"10": 0, "12": 1} {
		f := atMeters(january, knownOf(january.End.Add(-time.Hour), invoiced(january)))
		f.Usage, f.Reported = []billing.Usage{used(january, usage)}, []billing.Reported{counted(january, "10")}
		plan := billing.NewBooks(f).Plan()
		require.Len(t, plan.Excluded, want, usage)
		require.Len(t, plan.Reported, 1, "no more is to be known")
		f.Reported[0].Outstanding, f.Reported[0].State = true, billing.Sending
		require.Empty(t, billing.NewBooks(f).Plan().Reported, "nobody knows what was taken")
	}
}

// Providers do not bill negative quantities: a negative quantity at another connection counts as zero.
func TestNegativeQuantityOfOtherConnectionCountsAsZero(t *testing.T) {
	t.Parallel()
	for elsewhere, want := range map[string]string{"-13": "5", "2": "3"} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 9), subscribed(february)))
		former := counted(february, elsewhere)
		former.Connection = second
		f.Reported, f.Usage = []billing.Reported{former}, []billing.Usage{used(february, "5")}
		require.Equal(t, want, billing.NewBooks(f).Plan().Reports[0].Quantity.String(), elsewhere)
	}
}

// A provider with its own price charges the 9 of 12 units that it bills as its first units: 5 units at 1 USD and 4
// units at 0.10 USD.
func TestProviderPricesItsShareOfUnitsAsFirstUnits(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Side.Destinations[0].Price = &tariff{"price_1", "USD", lives.Tariff{UpTo: metering.Whole(5), First: metering.Whole(100), Rest: metering.Whole(10)}}
	f.Usage = []billing.Usage{used(january, "12")}
	f.Reported = []billing.Reported{stated(second, january, "3", "300")}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, [2]string{"9", "5.4"}, [2]string{reports[0].Quantity.String(), reports[0].Lines[0].Amount.String()})
	other := stepNamed(billing.NewBooks(f).Explain(billing.Periods(f)[0], 1), billing.StepOther)
	require.Equal(t, "0.3", other.Amount.String(), "12 would have cost 5.70")
	require.Empty(t, other.Of, "whatever they cost elsewhere")
}

// Units that previous destinations billed at the provider's own price are subtracted at Odometer's price. The base
// price counts with the first of them.
func TestUnitsBilledAtProviderPriceAreDeductedAtOdometersPrice(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "112")}
	for _, target := range []string{"mtr_1", "mtr_2"} {
		r := counted(january, "2")
		r.Target, r.Taken.Theirs, r.Taken.Amount, r.Taken.Currency = target, true, metering.Whole(7), "USD"
		r.Standing = r.Taken
		f.Reported = append(f.Reported, r)
	}
	left := func(f billing.Facts) [2]string {
		l := billing.NewBooks(f).Plan().Reports[0].Lines[0]
		return [2]string{l.Quantity.String(), l.Amount.String()}
	}
	require.Equal(t, [2]string{"108", "10800"}, left(f))
	require.Equal(t, [2]string{"108", "0.06"}, left(atBasic(f)), "12 units at half a cent")
}
