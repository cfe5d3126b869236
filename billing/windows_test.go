package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// byWindow returns the facts with a provider that keeps one quantity for each window of the granularity.
func byWindow(g metering.Granularity, f billing.Facts, current metering.Range) billing.Facts {
	f = atMeters(current, f)
	f.Side.Destinations[0].Counting, f.Side.Destinations[0].Window = billing.Replaces, g
	return f
}

// usedAt returns the usage of the period in the hour that begins at start.
func usedAt(period metering.Range, start time.Time, total string) billing.HourUsage {
	return billing.HourUsage{Period: period.Start, MeterID: 1, Start: start, Total: metering.MustDecimal(total)}
}

// The windows are days or hours of UTC. A window's quantity is the usage of the hours that begin in it. The last window
// also has the usage between its end and the end of the period.
func TestPeriodIsReportedInDailyOrHourlyWindows(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time { return instant(t, "2026-01-"+text+"Z") }
	for name, c := range map[string]struct {
		granularity metering.Granularity
		start, end  string
		now         string
		windows     []metering.Range
		quantities  []string // usage: 1 in the first hour, 2 on the 2nd at 00:00, 4 at 23:00, 8 on the 3rd at 03:00
	}{
		"Days": {
			metering.Day, "01T00:00:00", "03T00:00:00", "02T12:00:00",
			[]metering.Range{{Start: at("01T00:00:00"), End: at("02T00:00:00")}, {Start: at("02T00:00:00"), End: at("03T00:00:00")}},
			[]string{"1", "6"},
		},
		"ADayThatHasNotBegun": {
			metering.Day, "01T00:00:00", "03T00:00:00", "01T23:59:59",
			[]metering.Range{{Start: at("01T00:00:00"), End: at("02T00:00:00")}},
			[]string{"1"},
		},
		"ADayThatBeginsNow": {
			metering.Day, "01T00:00:00", "03T00:00:00", "02T00:00:00",
			[]metering.Range{{Start: at("01T00:00:00"), End: at("02T00:00:00")}, {Start: at("02T00:00:00"), End: at("03T00:00:00")}},
			[]string{"1", "6"},
		},
		"TheFirstDayIsCutByTheStartAndTheLastByTheEnd": {
			metering.Day, "01T08:00:00", "03T08:00:00", "03T04:00:00",
			[]metering.Range{{Start: at("01T08:00:00"), End: at("02T00:00:00")}, {Start: at("02T00:00:00"), End: at("03T00:00:00")}},
			[]string{"1", "14"},
		},
		"ADayWithoutAWholeMinuteGoesToTheNext": {
			metering.Day, "01T23:58:01", "03T00:00:00", "02T12:00:00",
			[]metering.Range{{Start: at("01T23:58:01"), End: at("03T00:00:00")}},
			[]string{"7"},
		},
		"ADayWithAWholeMinuteIsOne": {
			metering.Day, "01T23:58:00", "03T00:00:00", "02T12:00:00",
			[]metering.Range{{Start: at("01T23:58:00"), End: at("02T00:00:00")}, {Start: at("02T00:00:00"), End: at("03T00:00:00")}},
			[]string{"1", "6"},
		},
		"APeriodWithinADay": {
			metering.Day, "01T08:00:00", "01T20:00:00", "01T09:00:00", nil, nil,
		},
		"APeriodThatHasBegunByAnotherClock": {
			metering.Day, "03T00:00:00", "05T00:00:00", "02T23:59:59", nil, nil,
		},
		"Hours": {
			metering.Hour, "01T22:30:00", "02T01:00:00", "03T12:00:00",
			[]metering.Range{{Start: at("01T22:30:00"), End: at("01T23:00:00")}, {Start: at("02T00:00:00"), End: at("02T01:00:00")}},
			[]string{"1", "2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			period := metering.Range{Start: at(c.start), End: at(c.end)}
			f := byWindow(c.granularity, knownOf(at(c.now), subscribed(period)), period)
			var total metering.Decimal
			for _, h := range []billing.HourUsage{ // deliberately not sorted
				usedAt(period, at("03T03:00:00"), "8"), usedAt(period, at("02T23:00:00"), "4"), usedAt(period, period.Start, "1"), usedAt(period, at("02T00:00:00"), "2"),
			} {
				if h.Start.Before(period.End) {
					f.Hours, total = append(f.Hours, h), total.Add(h.Total)
				}
			}
			f.Hours = append(f.Hours, usedAt(february, period.Start, "100"), billing.HourUsage{Period: period.Start, MeterID: 2, Start: period.Start, Total: metering.Whole(100)})
			f.Usage = []billing.Usage{used(period, total.String())}
			var windows []metering.Range
			var quantities []string
			for _, r := range billing.NewBooks(f).Plan().Reports {
				windows, quantities = append(windows, r.Window), append(quantities, r.Quantity.String())
			}
			require.Equal(t, c.windows, windows)
			require.Equal(t, c.quantities, quantities)
		})
	}
}

// The quantities and the charges of the windows add up to those of the period. Only windows that changed are reported
// again.
func TestWindowQuantitiesAddUpToPeriod(t *testing.T) {
	t.Parallel()
	period := metering.Range{Start: january.Start, End: january.Start.AddDate(0, 0, 3)}
	f := byWindow(metering.Day, knownOf(period.End.Add(-time.Hour), subscribed(period)), period)
	f = atBasic(f)
	for day, total := range []string{"100.4", "0.3", "100.3"} {
		f.Hours = append(f.Hours, usedAt(period, period.Start.AddDate(0, 0, day), total))
	}
	f.Usage = []billing.Usage{used(period, "201")}
	f.Side.Destinations[0].WholeUnits = true
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 3)
	for i, want := range []struct{ quantity, amount, charge string }{{"100", "10", "10"}, {"1", "0", "10"}, {"100", "0.5", "10.5"}} {
		l := reports[i].Lines[0]
		require.Equal(t, want.quantity, l.Quantity.String(), i)
		require.Equal(t, want.amount, l.Amount.String(), i)
		require.Equal(t, want.charge, l.Charge.String(), i)
	}

	for i, r := range reports {
		taken := counted(period, r.Quantity.String())
		taken.Series, taken.Last = r.Series, uuid.UUID{byte(i + 1)}
		f.Reported = append(f.Reported, taken)
	}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Len(t, plan.UpToDate, 3)

	f.Hours[1].Total, f.Usage[0].Total = metering.MustDecimal("1.3"), metering.Whole(202)
	reports = billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, "2", reports[0].Quantity.String())
}

// The base price is charged with the first units, and taken back when the period's quantity returns to zero.
func TestBasePriceIsChargedWithFirstUnitsOfWindows(t *testing.T) {
	t.Parallel()
	period := metering.Range{Start: january.Start, End: january.Start.AddDate(0, 0, 3)}
	for name, c := range map[string]struct{ used, quantities, amounts []string }{
		"NothingFirst":       {[]string{"0", "102", "1"}, []string{"102", "1"}, []string{"10.01", "0.01"}},
		"ACorrectionFirst":   {[]string{"-3", "5", "2"}, []string{"-3", "5", "2"}, []string{"10", "0", "0"}},
		"ACorrectionLast":    {[]string{"104", "-2", "0"}, []string{"104", "-2"}, []string{"10.02", "-0.01"}},
		"AllIsTakenBack":     {[]string{"104", "-104", "0"}, []string{"104", "-104"}, []string{"10.02", "-10.02"}},
		"AllIsTakenBackLate": {[]string{"104", "-104", "2"}, []string{"104", "-104", "2"}, []string{"10.02", "-10.02", "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := byWindow(metering.Day, knownOf(period.End.Add(-time.Hour), subscribed(period)), period)
			f = atBasic(f)
			var total metering.Decimal
			for day, used := range c.used {
				f.Hours = append(f.Hours, usedAt(period, period.Start.AddDate(0, 0, day), used))
				total = total.Add(metering.MustDecimal(used))
			}
			f.Usage = []billing.Usage{used(period, total.String())}
			var quantities, amounts []string
			for _, r := range billing.NewBooks(f).Plan().Reports {
				quantities, amounts = append(quantities, r.Quantity.String()), append(amounts, r.Lines[0].Amount.String())
			}
			require.Equal(t, c.quantities, quantities)
			require.Equal(t, c.amounts, amounts)
		})
	}
}

// Units that were reported to another destination are not reported in windows again, and their amount is not charged
// again.
func TestWindowsExcludeUnitsReportedToOtherDestination(t *testing.T) {
	t.Parallel()
	period := metering.Range{Start: january.Start, End: january.Start.AddDate(0, 0, 2)}
	f := byWindow(metering.Day, knownOf(period.End.Add(-time.Hour), subscribed(period)), period)
	f.Hours = []billing.HourUsage{usedAt(period, period.Start, "5"), usedAt(period, period.Start.AddDate(0, 0, 1), "3")}
	f.Usage = []billing.Usage{used(period, "8")}
	before := counted(period, "4")
	before.Target, before.Standing.Amount, before.Standing.Currency = "mtr_0", metering.Whole(400), "USD"
	f.Reported = []billing.Reported{before}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 2)
	require.Equal(t, "1", reports[0].Quantity.String())
	require.Equal(t, "100", reports[0].Lines[0].Amount.String())
	require.Equal(t, "3", reports[1].Quantity.String())
	require.Equal(t, "300", reports[1].Lines[0].Amount.String())
}

// Usage in a window that has not begun is reported after the window begins. Until then, ReplanAt is at most one hour
// ahead.
func TestUsageOfFutureWindowIsReportedAfterWindowBegins(t *testing.T) {
	t.Parallel()
	period := metering.Range{Start: january.Start, End: january.Start.AddDate(0, 0, 3)}
	f := byWindow(metering.Hour, knownOf(period.Start.Add(90*time.Minute), subscribed(period)), period)
	f.Hours = []billing.HourUsage{usedAt(period, period.Start, "5"), usedAt(period, period.Start.Add(2*time.Hour), "3")}
	f.Usage = []billing.Usage{used(period, "8")}
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, f.Now.Add(time.Hour), plan.ReplanAt)
	require.Equal(t, "5", plan.Reports[0].Quantity.String())

	f.Hours, f.Usage = f.Hours[:1], []billing.Usage{used(period, "5")}
	require.Equal(t, period.End, billing.NewBooks(f).Plan().ReplanAt)
}

func TestWindowedMeters(t *testing.T) {
	t.Parallel()
	require.Empty(t, billing.WindowedMeters(billing.Facts{}))
	f := billing.Facts{Side: &billing.Side{Destinations: []billing.Destination{{MeterID: 1}, {MeterID: 2, Window: metering.Day}, {MeterID: 3, Window: metering.Hour}}}}
	require.Equal(t, []metering.MeterID{2, 3}, billing.WindowedMeters(f))
}

// A period that was shortened has fewer windows. The removed windows are set to zero, because their usage is now in
// the last window.
func TestRemovedWindowsOfShortenedPeriodAreSetToZero(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time { return instant(t, "2026-01-"+text+"Z") }
	period := metering.Range{Start: at("01T00:00:00"), End: at("02T08:00:00")}
	f := byWindow(metering.Day, knownOf(at("02T12:00:00"), subscribed(period)), january)
	f.Usage = []billing.Usage{used(period, "7")}
	f.Hours = []billing.HourUsage{usedAt(period, at("01T00:00:00"), "3"), usedAt(period, at("02T01:00:00"), "4")}
	second := counted(period, "4")
	second.Counting, second.Window = billing.Replaces, metering.Range{Start: at("02T00:00:00"), End: at("03T00:00:00")}
	f.Reported = []billing.Reported{second}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, second.Window, plan.Reports[0].Window)
	require.True(t, plan.Reports[0].Quantity.IsZero() && plan.Reports[0].Lines[0].Quantity.IsZero() && plan.Reports[0].Lines[0].Amount.IsZero())
	require.True(t, plan.More, "the last window follows")

	second.Taken.Value, second.Standing.Value = metering.Whole(0), metering.Whole(0)
	f.Reported = []billing.Reported{second}
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "7", plan.Reports[0].Quantity.String())
	require.False(t, plan.More)
}

// While a window has a surplus, other windows are raised only as far as the provider has at most the usage of the
// period in total. It would have more while the window with the surplus is being lowered, or for ever if it refuses
// that.
func TestAWindowIsLoweredBeforeAnotherIsRaised(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	period := metering.Range{Start: day(1), End: day(4)}
	has := func(n int, units string, state billing.State) billing.Reported {
		s := counted(period, units)
		s.Counting, s.Window, s.State, s.Last = billing.Replaces, metering.Range{Start: day(n), End: day(n + 1)}, state, uuid.UUID{byte(n)}
		return s
	}
	lowered := has(1, "5", billing.Sending)
	lowered.Outstanding, lowered.Standing.Value = true, metering.Whole(3)
	for name, c := range map[string]struct {
		used []string // by day
		has  []billing.Reported
		want []string // quantities of the planned reports
		more bool
	}{
		"LoweredFirst":           {[]string{"3", "4", "0"}, []billing.Reported{has(1, "5", billing.Accepted)}, []string{"3"}, true},
		"WhileItIsRefused":       {[]string{"3", "4", "0"}, []billing.Reported{has(1, "5", billing.Rejected)}, []string{"3"}, true},
		"WhileItIsLowered":       {[]string{"3", "4", "0"}, []billing.Reported{lowered}, nil, true},
		"Lowered":                {[]string{"3", "4", "0"}, []billing.Reported{has(1, "3", billing.Accepted)}, []string{"4"}, false},
		"OneWindowLags":          {[]string{"3", "4", "20"}, []billing.Reported{has(1, "5", billing.Rejected)}, []string{"3", "4"}, true},
		"ItLagsUntilThereIsRoom": {[]string{"3", "4", "2"}, []billing.Reported{has(1, "5", billing.Rejected), has(2, "2", billing.Accepted)}, []string{"3", "4"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := byWindow(metering.Day, knownOf(day(3).Add(time.Hour), subscribed(period)), january)
			var total metering.Decimal
			for n, used := range c.used {
				f.Hours = append(f.Hours, usedAt(period, day(n+1), used))
				total = total.Add(metering.MustDecimal(used))
			}
			f.Usage, f.Reported = []billing.Usage{used(period, total.String())}, c.has
			plan := billing.NewBooks(f).Plan()
			var quantities []string
			for _, r := range plan.Reports {
				quantities = append(quantities, r.Quantity.String())
			}
			require.Equal(t, c.want, quantities)
			require.Equal(t, c.more, plan.More)
		})
	}
}

// No other window of a meter is reported while an outstanding report may have set a window above the window's usage.
// The excess is usage that another window has now.
func TestOutstandingExcessInWindowDefersOtherWindows(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time { return instant(t, "2026-01-"+text+"Z") }
	first := metering.Range{Start: at("01T00:00:00"), End: at("02T00:00:00")}
	second := metering.Range{Start: at("02T00:00:00"), End: at("03T00:00:00")}
	for name, c := range map[string]struct {
		window metering.Range
		end    string // end of the period
		state  billing.State
		may    string // quantity of the window if the report arrived
		want   int    // number of planned reports
	}{
		"OfAWindowThatIsGone":         {second, "02T08:00:00", billing.Sending, "4", 0},
		"InDoubt":                     {second, "02T08:00:00", billing.InDoubt, "4", 0},
		"OfAWindowThatHasMore":        {first, "03T00:00:00", billing.Sending, "7", 0},
		"OfAWindowThatHasAsMuch":      {first, "03T00:00:00", billing.Sending, "3", 1},
		"OfAWindowThatHasLess":        {first, "03T00:00:00", billing.Sending, "2", 1},
		"TakingBackFromOneThatIsGone": {second, "02T08:00:00", billing.Sending, "0", 1},
	} {
		period := metering.Range{Start: at("01T00:00:00"), End: at(c.end)}
		f := byWindow(metering.Day, knownOf(at("02T12:00:00"), subscribed(period)), january)
		f.Usage = []billing.Usage{used(period, "7")}
		f.Hours = []billing.HourUsage{usedAt(period, at("01T00:00:00"), "3"), usedAt(period, at("02T01:00:00"), "4")}
		sent := counted(period, c.may)
		sent.Counting, sent.Window, sent.Outstanding, sent.State, sent.Last = billing.Replaces, c.window, true, c.state, uuid.UUID{1}
		sent.Taken = billing.Sums{}
		f.Reported = []billing.Reported{sent}
		require.Len(t, billing.NewBooks(f).Plan().Reports, c.want, name)
	}
}

// A closed period is reported by windows only while the hours' usage adds up to the usage that the period closed
// with.
func TestClosedPeriodUsesWindowsOnlyIfHoursMatchItsUsage(t *testing.T) {
	t.Parallel()
	for hour, want := range map[string]int{"10": 1, "9": 0} {
		f := byWindow(metering.Day, knownOf(february.Start.AddDate(0, 0, 5), pendingAt(january, "10", "1000"), subscribed(february)), february)
		f.Connection.Invoices = true
		f.Hours = []billing.HourUsage{usedAt(january, january.Start, hour)}
		reports := billing.NewBooks(f).Plan().Reports
		require.Len(t, reports, want, hour)
		if want > 0 {
			require.Equal(t, "10", reports[0].Quantity.String())
		}
	}
}

// If no window of the provider ends in a period, the period's invoice cannot bill its usage. The next period bills
// the usage.
func TestPeriodInWhichNoWindowEndsIsNotReported(t *testing.T) {
	t.Parallel()
	period := metering.Range{Start: january.Start.Add(8 * time.Hour), End: january.Start.Add(20 * time.Hour)}
	for window, want := range map[metering.Granularity]billing.ExclusionCode{metering.Day: billing.ExcludedNoWindow, metering.Hour: ""} {
		f := byWindow(window, knownOf(period.Start.Add(time.Hour), subscribed(period)), period)
		f.Hours, f.Usage = []billing.HourUsage{usedAt(period, period.Start, "3")}, []billing.Usage{used(period, "3")}
		plan := billing.NewBooks(f).Plan()
		require.Equal(t, want == "", len(plan.Reports) == 1)
		if want != "" {
			require.Equal(t, want, plan.Excluded[0].Code)
		}
	}
}
