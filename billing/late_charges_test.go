package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// lateCharge is what the subscription was charged of January's late usage, in
// the charges of February.
func lateCharge(f billing.Facts, amount string, number int64) billing.Reported {
	r := adjusted(first, january, february, "0", amount)
	r.Kind, r.Customer, r.Target, r.Counting = billing.ChargeReport, "cus_1", "sub_1", billing.Adds
	r.Taken.Added, r.State, r.Number, r.Last = r.Taken.Amount, billing.Accepted, number, uuid.UUID{9}
	r.Standing = r.Taken
	return r
}

// ofLateUsage is a customer whose January closed with 10 of its units, at 1000
// USD, before more came.
func ofLateUsage(total, late string) billing.Facts {
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), subscribed(february)))
	return withLate(f, january, total, late)
}

// Each charge for late usage is for what came since the last one, as late usage
// in the customer's running subscription, until its invoice can still take it.
func TestLateUsageIsChargedOnceAsItComes(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	plan := f.Plan()
	require.Len(t, plan.Reports, 1)
	r := plan.Reports[0]
	require.Equal(t, "700", r.Quantity.String())
	require.Equal(t, "USD", r.Currency)
	require.Equal(t, january, r.Of)
	require.Equal(t, february.End.Add(grace), r.Deadline)
	require.Equal(t, "17", r.Lines[0].Usage.String())
	require.Equal(t, "7", r.Lines[0].Quantity.String())
	require.EqualValues(t, 2, r.Lines[0].Events)

	f.Reported = []billing.Reported{lateCharge(f, "400", 1)}
	plan = f.Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "300", plan.Reports[0].Quantity.String(), "400 were charged before")

	f.Reported = []billing.Reported{lateCharge(f, "700", 1)}
	plan = f.Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, []uuid.UUID{{9}}, plan.UpToDate)

	f = withLate(f, january, "15", "5")
	plan = f.Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "-200", plan.Reports[0].Quantity.String(), "2 of it were taken back")

	f.Excluded = []metering.MeterID{1}
	require.Empty(t, f.Plan().Reports)

	f = ofLateUsage("17", "7")
	f.Side.Subscription = ""
	require.Empty(t, f.Plan().Reports)
}

// A charge that was answered is there: its period closes without having seen it
// counted anywhere.
func TestAChargeThatWasTakenHoldsUpNoClosing(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	f.Now, f.MayClose = february.End.Add(grace), true
	require.True(t, f.Plan().Waiting)

	f.Reported = []billing.Reported{lateCharge(f, "700", 1)}
	plan := f.Plan()
	require.False(t, plan.Waiting)
	require.Len(t, plan.Closings, 1)
}

// A closed period is adjusted as long as its late usage is stored or counted,
// wherever the month that it came for touches the period.
func TestWhatIsLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		month metering.Range
		want  int
	}{
		"InTheMonthItself":      {january, 1},
		"InAMonthThatTouchesIt": {metering.Range{Start: january.End.Add(-time.Hour), End: march.End}, 1},
		"InTheNextMonth":        {february, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ofLateUsage("17", "7")
			f.LateMonths = []metering.Range{c.month}
			require.Len(t, f.Plan().Reports, c.want)
			require.Len(t, billing.UsageRanges(f), 1+c.want)
		})
	}

	t.Run("WhoseEventsAreGone", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("0", "0")
		usage, events := metering.Whole(7), int64(1)
		f.LateMonths, f.Usage = nil, nil
		f.Stored[0].Closed[0].LateUsage, f.Stored[0].Closed[0].LateEvents = &usage, &events
		plan := f.Plan()
		require.Len(t, plan.Reports, 1)
		require.Equal(t, "700", plan.Reports[0].Quantity.String())

		events = 0
		require.Empty(t, f.Plan().Reports)

		events, f.Stored[0].Closed[0].Billed = 1, false
		require.Empty(t, f.Plan().Reports, "the period was billed to nobody")
	})

	t.Run("OfAPeriodThatWasBilledToNobody", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("17", "7")
		f.Stored[0].Closed[0].Billed = false
		require.Empty(t, f.Plan().Reports)
	})

	t.Run("WhileTheMeterIsBackfilled", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("17", "7")
		f.Meters[0].Version.Status = metering.Backfilling
		require.Empty(t, f.Plan().Reports)
	})
}

// Late usage is priced in whole units where a provider was reported those.
func TestLateUsageIsRoundedLikeTheRest(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("12.4", "2.4")
	reported := metering.Whole(10)
	f.Stored[0].Closed[0].Reported = &reported
	require.Equal(t, "200", f.Plan().Reports[0].Quantity.String())

	reported = metering.Whole(9)
	require.Equal(t, "3", f.Plan().Reports[0].Lines[0].Quantity.String(), "one that it was not reported before is among them")
}

// What a provider was reported in whole units is all of it, whatever was used
// beyond them: there is nothing to adjust.
func TestAFractionThatWasNotReportedIsNothingLate(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("12.4", "0")
	reported := metering.Whole(12)
	f.LateMonths, f.Stored[0].Closed[0].Usage, f.Stored[0].Closed[0].Reported = nil, metering.MustDecimal("12.4"), &reported
	require.Equal(t, []metering.Range{february}, billing.UsageRanges(f))

	reported = metering.Whole(11)
	require.Equal(t, []metering.Range{january, february}, billing.UsageRanges(f))

	f.Stored[0].Closed[0].Billed = false
	require.Equal(t, []metering.Range{february}, billing.UsageRanges(f))
}

func TestTheDescriptionOfLateUsage(t *testing.T) {
	t.Parallel()
	kathmandu := location(t, "Asia/Kathmandu")
	month := billing.CalendarPeriod(instant(t, "2026-01-10T00:00:00Z"), kathmandu)
	require.Equal(t, "calls: usage from 2026-01-01 to 2026-01-31 that was reported late",
		billing.Description(metering.Meter{Slug: "calls"}, month, kathmandu))
	require.Equal(t, "API calls: usage from 2026-01-01 to 2026-01-31 that was reported late",
		billing.Description(metering.Meter{Slug: "calls", Name: "API calls"}, january, time.UTC))
}

// Of two open periods the older one carries what late usage adjusts.
func TestTheStatementThatCarriesLateUsage(t *testing.T) {
	t.Parallel()
	f := atReceiver(first, knownOf(march.Start.AddDate(0, 0, 1),
		closedAt(january, "10", "1000"), billing.Period{Range: february}, billing.Period{Range: march}))
	f = withLate(f, january, "17", "7")
	require.Equal(t, "700", billing.StatementOf(f, f.Stored[1]).Lines[0].Amount.String())
	require.Equal(t, "0", billing.StatementOf(f, f.Stored[2]).Lines[0].Amount.String())
}

// A receiver has half a call of January, which counters of whole calls would
// never have had: February took it back, and March does not do so again.
func TestWhatATargetPeriodTookBackIsNotTakenBackAgain(t *testing.T) {
	t.Parallel()
	half := metering.MustDecimal("0.5")
	closed := closedAt(january, "0.5", "0")
	closed.Closed[0].Reported = &half
	f := atReceiver(first, knownOf(march.Start.AddDate(0, 0, 5), closed, closedAt(february, "0", "0"), billing.Period{Range: march}))
	f.Usage = []billing.Usage{used(january, "0.5")}
	require.Equal(t, "-0.5", billing.Adjustments(f)[0].Quantity.String())
	f.Reported = []billing.Reported{adjusted(first, january, february, "-0.5", "0")}
	require.Empty(t, billing.Adjustments(f))

	f.Reported = []billing.Reported{adjusted(first, january, february, "-0.25", "0")}
	require.Equal(t, "-0.25", billing.Adjustments(f)[0].Quantity.String())
	adjustment := of(billing.StatementOf(f, billing.Periods(f)[2]).Lines[0].Working, billing.StepAdjustment)
	require.Equal(t, "-0.25", of(adjustment.Of, billing.StepOtherUnits).Amount.String(), "its working says the same")
	require.Equal(t, "-0.25", of(adjustment.Of, billing.StepQuantity).Amount.String())
}
