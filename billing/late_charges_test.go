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

// lateCharge returns a charge of January's late usage to the subscription, with February as the target period.
func lateCharge(f billing.Facts, amount string, number int64) billing.Reported {
	r := adjusted(first, january, february, "0", amount)
	r.Kind, r.Customer, r.Target, r.Counting = billing.ChargeReport, "cus_1", "sub_1", billing.Adds
	r.Taken.Added, r.State, r.Number, r.Last = r.Taken.Amount, billing.Accepted, number, uuid.UUID{9}
	r.Standing = r.Taken
	return r
}

// ofLateUsage returns the facts of a customer with late usage for January, which closed at 10 units and 1000 USD.
func ofLateUsage(total, late string) billing.Facts {
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), subscribed(february)))
	return withLate(f, january, total, late)
}

// Late usage is charged as it arrives: each charge is the difference to the charges before. Without a subscription,
// nothing is charged. The deadline of a charge is the end of the target period's grace.
func TestLateUsageChargeIsDifferenceToEarlierCharges(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	plan := billing.NewBooks(f).Plan()
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
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "300", plan.Reports[0].Quantity.String(), "400 were charged before")

	f.Reported = []billing.Reported{lateCharge(f, "700", 1)}
	plan = billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, []uuid.UUID{{9}}, plan.UpToDate)

	f = withLate(f, january, "15", "5")
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "-200", plan.Reports[0].Quantity.String(), "2 of it were taken back")

	f.Excluded = []metering.MeterID{1}
	require.Empty(t, billing.NewBooks(f).Plan().Reports)

	f = ofLateUsage("17", "7")
	f.Side.Subscription = ""
	require.Empty(t, billing.NewBooks(f).Plan().Reports)
}

// TestCustomerIsOutOfSyncWhileLateChargeIsBeingSent sends a credit for late usage to another subscription. If the
// provider accepts the credit, late usage that arrived since must be charged.
func TestCustomerIsOutOfSyncWhileLateChargeIsBeingSent(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 2, Units: metering.Whole(17), Charge: metering.Whole(1700)}}
	credit := lateCharge(f, "-100", 2)
	credit.Target = "sub_2"
	f.Reported = []billing.Reported{lateCharge(f, "700", 1), credit}
	sent := &f.Reported[1]
	for _, state := range []billing.State{billing.Planned, billing.Sending} {
		sent.Taken, sent.Outstanding, sent.State = billing.Sums{}, true, state
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, plan.Reports, state)
		require.Empty(t, plan.Reported, state)
	}
	sent.Taken, sent.Outstanding, sent.State = sent.Standing, false, billing.Accepted
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "100", plan.Reports[0].Quantity.String())
}

// A target period closes even if its late usage was not charged. The next target period then charges it.
func TestUnchargedLateUsageDoesNotDelayClosing(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	f.Now, f.Stored, f.Side.Period = february.End.Add(grace), append(f.Stored, subscribed(march)), march
	for name, c := range map[string]struct {
		reported []billing.Reported
		next     int // charges
	}{"Taken": {[]billing.Reported{lateCharge(f, "700", 1)}, 0}, "NotMade": {nil, 1}} {
		f.Reported = c.reported
		plan := closes(f)
		require.False(t, plan.Waiting, name)
		require.Len(t, plan.Closings, 1, name)
		after := f
		after.Stored = plan.Periods
		charges := billing.NewBooks(after).Plan().Reports
		require.Len(t, charges, c.next, name)
		if c.next > 0 {
			require.Equal(t, march, charges[0].Window)
			require.Equal(t, "700", charges[0].Quantity.String())
		}
	}
}

// A closed period is adjusted if a month with late events touches it, or if its closed line stores the late usage of
// deleted events. The period must have been billed, and the meter must not be backfilled.
func TestOnlyBilledClosedPeriodWithLateUsageIsAdjusted(t *testing.T) {
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
			require.Len(t, billing.NewBooks(f).Plan().Reports, c.want)
			require.Len(t, billing.NewBooks(f).UsageRanges(), 1+c.want)
		})
	}

	t.Run("WhoseEventsAreGone", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("0", "0")
		usage, events := metering.Whole(7), int64(1)
		f.LateMonths, f.Usage = nil, nil
		f.Stored[0].Closed[0].LateUsage, f.Stored[0].Closed[0].LateEvents = &usage, &events
		plan := billing.NewBooks(f).Plan()
		require.Len(t, plan.Reports, 1)
		require.Equal(t, "700", plan.Reports[0].Quantity.String())

		events = 0
		require.Empty(t, billing.NewBooks(f).Plan().Reports)

		events, f.Stored[0].Closed[0].Billed = 1, false
		require.Empty(t, billing.NewBooks(f).Plan().Reports, "the period was billed to nobody")
	})

	t.Run("OfAPeriodThatWasBilledToNobody", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("17", "7")
		f.Stored[0].Closed[0].Billed = false
		require.Empty(t, billing.NewBooks(f).Plan().Reports)
	})

	t.Run("WhileTheMeterIsBackfilled", func(t *testing.T) {
		t.Parallel()
		f := ofLateUsage("17", "7")
		f.Meters[0].Version.Status = metering.Backfilling
		require.Empty(t, billing.NewBooks(f).Plan().Reports)
	})
}

// Late usage is charged in whole units if the provider was reported whole units.
func TestLateUsageIsRoundedLikeReportedUnits(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("12.4", "2.4")
	billedWith(&f.Stored[0], "10")
	require.Equal(t, "200", billing.NewBooks(f).Plan().Reports[0].Quantity.String())

	billedWith(&f.Stored[0], "9")
	require.Equal(t, "3", billing.NewBooks(f).Plan().Reports[0].Lines[0].Quantity.String(), "one that it was not reported before is among them")
}

// A fraction of a unit that was rounded off needs no adjustment: the reported whole units are complete.
func TestUnreportedFractionNeedsNoAdjustment(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("12.4", "0")
	f.LateMonths, f.Stored[0].Closed[0].Usage = nil, metering.MustDecimal("12.4")
	billedWith(&f.Stored[0], "12")
	require.Equal(t, []metering.Range{february}, billing.NewBooks(f).UsageRanges())

	billedWith(&f.Stored[0], "11")
	require.Equal(t, []metering.Range{january, february}, billing.NewBooks(f).UsageRanges())

	f.Stored[0].Closed[0].Billed = false
	require.Equal(t, []metering.Range{february}, billing.NewBooks(f).UsageRanges())
}

func TestLateUsageDescriptionNamesMeterAndDays(t *testing.T) {
	t.Parallel()
	kathmandu := location(t, "Asia/Kathmandu")
	month := billing.CalendarPeriod(instant(t, "2026-01-10T00:00:00Z"), kathmandu)
	require.Equal(t, "calls: usage from 2026-01-01 to 2026-01-31 that was reported late",
		billing.Description(metering.Meter{Slug: "calls"}, month, kathmandu, true))
	require.Equal(t, "API calls: usage from 2026-01-01 to 2026-01-31 that was reported late",
		billing.Description(metering.Meter{Slug: "calls", Name: "API calls"}, january, time.UTC, true))
}

// The older of two open periods bills the late usage.
func TestOldestOpenPeriodBillsLateUsage(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(march.Start.AddDate(0, 0, 1),
		closedAt(january, "10", "1000"), billing.Period{Range: february}, billing.Period{Range: march}))
	f = withLate(f, january, "17", "7")
	require.Equal(t, "700", billing.NewBooks(f).StatementOf(f.Stored[1]).Lines[0].Amount.String())
	require.Equal(t, "0", billing.NewBooks(f).StatementOf(f.Stored[2]).Lines[0].Amount.String())
}

// January is billed with half a call, although its usage rounds to 0 whole calls. February credits the half call, and
// March does not credit it again.
func TestCreditOfTargetPeriodIsNotRepeated(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "0.5", "0")
	billedWith(&closed, "0.5")
	f := withStatementReceiver(first, knownOf(march.Start.AddDate(0, 0, 5), closed, closedAt(february, "0", "0"), billing.Period{Range: march}))
	f.Usage = []billing.Usage{used(january, "0.5")}
	require.Equal(t, "-0.5", billing.NewBooks(f).Adjustments()[0].Quantity.String())
	f.Reported = []billing.Reported{adjusted(first, january, february, "-0.5", "-50")}
	require.Empty(t, billing.NewBooks(f).Adjustments())

	f.Reported = []billing.Reported{adjusted(first, january, february, "-0.25", "-25")}
	require.Equal(t, "-0.25", billing.NewBooks(f).Adjustments()[0].Quantity.String())
	adjustment := stepNamed(billing.NewBooks(f).StatementOf(billing.Periods(f)[2]).Lines[0].Working, billing.StepAdjustment)
	require.Equal(t, "-0.25", stepNamed(adjustment.Of, billing.StepOtherUnits).Amount.String(), "its working says the same")
	require.Equal(t, "-0.25", stepNamed(adjustment.Of, billing.StepQuantity).Amount.String())
}

// A trial costs nothing: neither its 10 reported units, nor 2 units that were not reported in time, nor 3 late units.
func TestLateUsageOfATrialIsNotCharged(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(january.End.Add(2*time.Hour), invoiced(january), subscribed(february)))
	f.Stored[0].Subscription.Trial = true
	f.Usage = []billing.Usage{used(january, "12")}
	f.Reported = []billing.Reported{counted(january, "10")}
	f, line := afterClosing(t, f)
	require.True(t, line.Trial)
	require.Equal(t, "0", line.Charge.String(), "as the invoice says")
	f = withLate(f, january, "15", "3")
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Len(t, plan.Bookings, 1)
	b := plan.Bookings[0]
	require.Equal(t, []string{"12", "15", "0", "0"}, []string{b.UnitsBefore.String(), b.Units.String(), b.ChargeBefore.String(), b.Charge.String()})
	late, known := billing.NewBooks(f).StatementOf(f.Stored[0]).Line(1)
	require.True(t, known)
	require.Equal(t, "0", late.LateCharge.String())
	require.Equal(t, "1500", stepNamed(late.LateWorking, billing.StepTrial).Amount.String())
	require.Equal(t, "5", stepNamed(late.LateWorking, billing.StepQuantity).Amount.String())

	f.Stored[0].Closed[0].Trial = false
	f.Stored[0].Closed[0].Charge = metering.Whole(1000)
	require.Equal(t, "500", billing.NewBooks(f).Plan().Reports[0].Quantity.String(), "had it not been a trial")
}

// A period is in trial if the provider last said so while the period ran. The state of a past period does not change.
func TestPeriodKeepsTrialStateThatProviderLastReported(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "12")}
	f.Side.Trial = true
	f.Stored = billing.Periods(f)
	require.True(t, f.Stored[0].Subscription.Trial)
	line, known := billing.NewBooks(f).StatementOf(f.Stored[0]).Line(1)
	require.True(t, known)
	require.Equal(t, "0", line.Amount.String())
	require.Equal(t, "0", billing.NewBooks(f).Preview()[0].Amount.String())
	require.Equal(t, "0", billing.OpenCharges(f, f.Stored[0])[0].Charge.String())

	f.Now, f.Side.Period, f.Side.Trial = february.Start.Add(time.Hour), february, false
	periods := billing.Periods(f)
	require.True(t, periods[0].Subscription.Trial)
	require.False(t, periods[1].Subscription.Trial)

	f.Now, f.Side.Period = january.End.Add(-time.Hour), january
	require.False(t, billing.Periods(f)[0].Subscription.Trial, "the provider says something else")
}

// inDollars returns the facts of a customer with one late unit for January, which closed in USD.
func inDollars(t *testing.T) billing.Facts {
	f := atMeters(february, knownOf(january.End.Add(2*time.Hour), invoiced(january), subscribed(february)))
	f.Usage = []billing.Usage{used(january, "10")}
	f.Reported = []billing.Reported{counted(january, "10")}
	f, _ = afterClosing(t, f)
	return withLate(f, january, "11", "1")
}

// Usage is reported to an ended subscription, because its last invoice bills the usage. Amounts are not charged to the
// subscription, because it has no next invoice.
func TestUsageButNoChargeIsReportedToEndedSubscription(t *testing.T) {
	t.Parallel()
	f := inDollars(t)
	f.Usage = append(f.Usage, used(february, "5"))
	kinds := func() (kinds []billing.Kind) {
		for _, r := range billing.NewBooks(f).Plan().Reports {
			kinds = append(kinds, r.Kind)
		}
		return kinds
	}
	require.ElementsMatch(t, []billing.Kind{billing.QuantityReport, billing.ChargeReport}, kinds())
	f.Side.Ended = true
	require.Equal(t, []billing.Kind{billing.QuantityReport}, kinds())
	f.Now = february.End.Add(time.Minute)
	require.Equal(t, []billing.Kind{billing.QuantityReport}, kinds(), "while the last invoice is a draft")
}

// Late usage with a currency that differs from the subscription's is booked and not charged. Such late usage keeps no
// period open.
func TestLateUsageInOtherCurrencyIsBookedButNotCharged(t *testing.T) {
	t.Parallel()
	f := inDollars(t)
	f.Side.Currency = "EUR"
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, []billing.Exclusion{{MeterID: 1, MeterSlug: "calls", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedLateCurrency}}}, plan.Excluded)
	require.Len(t, plan.Bookings, 1)
	require.Equal(t, "1100", plan.Bookings[0].Charge.String())
	require.True(t, plan.Bookings[0].Billed)
	require.Equal(t, february.Start, plan.Reported[0].Start, "the provider knows all of February")
	require.Empty(t, billing.NewBooks(f).StatementOf(f.Stored[1]).Adjustments)
	preview := billing.NewBooks(f).Preview()
	require.Empty(t, preview[0].Excluded)
	require.Equal(t, billing.ExcludedLateCurrency, preview[1].Excluded.Code)

	f.Usage = append(f.Usage, used(february, "5"))
	require.Equal(t, "5", billing.NewBooks(f).Plan().Reports[0].Quantity.String(), "its quantities are reported as ever")
	f.Usage = f.Usage[:1]

	closing := f
	closing.Now, closing.MayClose = february.End.Add(grace), true
	require.Len(t, billing.NewBooks(closing).Plan().Closings, 1)

	f.Side.Subscription, f.Side.Currency = "sub_2", "USD"
	plan = billing.NewBooks(f).Plan()
	require.Equal(t, "100", plan.Reports[0].Quantity.String())
	require.Empty(t, plan.Excluded)
}

// A rejected charge is planned again by each later sync, and in the next target period after the close.
func TestRejectedChargeIsPlannedAgainForNextTargetPeriod(t *testing.T) {
	t.Parallel()
	f := inDollars(t)
	f.Stored = append(f.Stored, subscribed(march))
	f.Side.Period = march
	refused := billing.NewBooks(f).Plan().Reports
	require.Len(t, refused, 1)
	f.Reported = append(f.Reported, billing.Reported{
		Series: refused[0].Series, MeterID: 1, Last: uuid.UUID{2}, Number: 2, State: billing.Rejected, // "cannot combine currencies"
	})
	f.Now = february.End.Add(grace)
	again := billing.NewBooks(f).Plan().Reports
	require.Len(t, again, 1)
	require.Equal(t, "100", again[0].Quantity.String())

	f.Stored[2].Watermark = billing.Watermark{Configuration: "all is known of March"}
	f.MayClose = true
	plan := billing.NewBooks(f).Plan()
	require.False(t, plan.Waiting)
	require.Len(t, plan.Closings, 1)
	require.Equal(t, []billing.PeriodWatermark{{Start: march.Start}}, plan.Reported, "somebody has to look at March")

	f.MayClose, f.Stored = false, plan.Periods
	next := billing.NewBooks(f).Plan().Reports
	require.Len(t, next, 1)
	require.Equal(t, march, next[0].Window)
	require.Equal(t, "100", next[0].Quantity.String())
}

// UsageRanges includes a closed period if a later period was charged for it. Charges of other periods, rejected charges
// and the period's own reports do not count.
func TestUsageRangesIncludeClosedPeriodChargedToLaterPeriod(t *testing.T) {
	t.Parallel()
	refused := adjusted(first, january, february, "5", "500")
	refused.Taken, refused.Standing = billing.Sums{}, billing.Sums{}
	for name, c := range map[string]struct {
		reported billing.Reported
		want     []metering.Range
	}{
		"Carried": {adjusted(first, january, february, "5", "500"), []metering.Range{january, march}},
		"Refused": {refused, []metering.Range{march}},
		"ItsOwn":  {stated(first, january, "10", "1000"), []metering.Range{march}},
	} {
		f := withStatementReceiver(first, knownOf(march.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), closedAt(february, "10", "1000"), billing.Period{Range: march}))
		f.Reported = []billing.Reported{c.reported}
		require.Equal(t, c.want, billing.NewBooks(f).UsageRanges(), name)
	}
}

// A report of booked usage has the number of events of the booking, even if fewer events are counted now.
func TestBookedUsageKeepsItsNumberOfEvents(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("10", "0")
	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 4, Units: metering.Whole(17), Charge: metering.Whole(1700)}}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, "17", reports[0].Lines[0].Usage.String())
	require.EqualValues(t, 4, reports[0].Lines[0].Events)
}

// A booking stands until more events are counted than it has, also if the same events have other units now. So each
// booking has more events than the previous one, as the key of stored bookings requires.
func TestABookingStandsUntilMoreEventsAreCounted(t *testing.T) {
	t.Parallel()
	ofBooked := func(scale *int32, usage, booked string) billing.Facts {
		f := ofLateUsage("0", "0")
		line := &f.Stored[0].Closed[0]
		line.Scale, line.Usage = scale, metering.MustDecimal(usage)
		units := metering.MustDecimal(booked)
		f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 3, Units: units, Charge: units.Mul(metering.Whole(100))}}
		return f
	}
	for name, c := range map[string]struct {
		scale         *int32
		usage, booked string
	}{
		"AllDecimals": {nil, "10", "17"},
		"WholeUnits":  {new(int32), "10.5", "17"}, // 10 units at the close; 10.5 + 17 − 10 would round to 18
	} {
		for events := range int64(3) {
			counted, stored := ofBooked(c.scale, c.usage, c.booked), ofBooked(c.scale, c.usage, c.booked)
			units := metering.Whole(2)
			counted = withLate(counted, january, "12", units.String())
			counted.Usage[0].LateEvents = events
			stored.LateMonths, stored.Usage = nil, nil
			stored.Stored[0].Closed[0].LateUsage, stored.Stored[0].Closed[0].LateEvents = &units, &events
			for _, f := range []billing.Facts{counted, stored} {
				if len(f.LateMonths) == 0 && events == 0 {
					continue // neither counted nor stored: the period is not adjustable
				}
				plan := billing.NewBooks(f).Plan()
				require.Empty(t, plan.Bookings, "%s: %d late events", name, events)
				require.Len(t, plan.Reports, 1, name)
				require.Equal(t, c.booked, plan.Reports[0].Lines[0].Usage.String(), name)
				require.EqualValues(t, 3, plan.Reports[0].Lines[0].Events, name)
			}
		}
		f := ofBooked(c.scale, c.usage, c.booked)
		f = withLate(f, january, "20", "9")
		f.Usage[0].LateEvents = 3
		bookings := billing.NewBooks(f).Plan().Bookings
		require.Len(t, bookings, 1, name)
		require.EqualValues(t, 4, bookings[0].Events, name)
	}
}

// Late usage is shown as it was counted, even if its booking was rounded to whole units.
func TestBookedLateUsageIsShownUnrounded(t *testing.T) {
	t.Parallel()
	f := withLate(ofLateUsage("0", "0"), january, "17.7", "7.2")
	f.Usage[0].LateEvents = 2
	line := &f.Stored[0].Closed[0]
	line.Scale, line.Usage = new(int32), metering.MustDecimal("10.5")
	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: line.Events + 2, Units: metering.Whole(18), Charge: metering.Whole(1800)}}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Bookings)
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "17.7", plan.Reports[0].Lines[0].Usage.String())
}

// Late usage that arrived before a change of the meter's definition keeps its units and events. Only late usage that
// arrives after the change is added.
func TestMeterChangeDoesNotAffectEarlierLateUsage(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	f.Stored[0].Closed[0].LateDifference = billing.Measured{Units: metering.Whole(5), Events: 2} // 7 units of 2 events, of which the meter now counts 2 units and no event
	f = withLate(f, january, "12", "2")
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "700", plan.Reports[0].Quantity.String())
	require.Len(t, plan.Bookings, 1)
	require.EqualValues(t, 4, plan.Bookings[0].Events)

	f.LateMonths, f.Usage = nil, nil // the meter now counts none of the events
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Bookings, 1)
	require.Equal(t, "15", plan.Bookings[0].Units.String())
	require.EqualValues(t, 3, plan.Bookings[0].Events)
}

// The breakdown shows units that are only reported, and not billed, even if the base price covers them.
func TestBreakdownShowsFreeUnitsThatAreOnlyReported(t *testing.T) {
	t.Parallel()
	f := atBasic(withStatementReceiver(first, knownOf(march.Start.AddDate(0, 0, 1), closedAt(january, "50", "10"), billing.Period{Range: march})))
	f = withLate(f, january, "60", "10")
	f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 1, Units: metering.Whole(54), Charge: metering.Whole(10), OnlyReported: metering.Whole(4)}}
	late := billing.NewBooks(f).Preview()[1]
	require.Equal(t, "6", late.Usage.String())
	require.Equal(t, "4", stepNamed(late.Working, billing.StepOnlyUnits).Amount.String())
	require.Equal(t, "0", stepNamed(late.Working, billing.StepOnly).Amount.String())
}

// Units that a closed period's invoices lack are billed later even if they cost nothing.
func TestMissingUnitsAreBilledLaterEvenIfFree(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "50", "10")
	billedWith(&closed, "40")
	lines := billing.NewBooks(atBasic(withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 5), closed, billing.Period{Range: february})))).Adjustments()
	require.Len(t, lines, 1)
	require.Equal(t, [2]string{"10", "0"}, [2]string{lines[0].Quantity.String(), lines[0].Amount.String()})
}

// A credit of unknown outcome at a previous subscription is not given again. Only the remaining credit is given.
func TestCreditOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		units, amount string // of unknown outcome
		want          []string
	}{
		"Nothing":      {"", "", []string{"-300 for -3"}},
		"All":          {"-3", "-300", nil},
		"APart":        {"-1", "-100", []string{"-200 for -2"}},
		"More":         {"-4", "-400", nil},
		"ACharge":      {"0.5", "50", []string{"-300 for -3"}},
		"InMoneyAlone": {"0", "-300", nil},
		"InUnitsAlone": {"-3", "0", []string{"-300 for 0"}},
	} {
		f := ofLateUsage("7", "-3")
		if c.units != "" {
			f.Reported = []billing.Reported{inDoubtElsewhere(f, c.units, c.amount)}
		}
		var charges []string
		for _, r := range billing.NewBooks(f).Plan().Reports {
			if r.Kind == billing.ChargeReport {
				charges = append(charges, r.Quantity.String()+" for "+r.Lines[0].Quantity.String())
			}
		}
		require.Equal(t, c.want, charges, name)
	}
}

// inDoubtElsewhere returns a charge of January's late usage to a previous subscription, with an unknown outcome.
func inDoubtElsewhere(f billing.Facts, units, amount string) billing.Reported {
	r := lateCharge(f, amount, 1)
	r.Target, r.State, r.Outstanding, r.Taken, r.Standing.Value = "sub_0", billing.InDoubt, true, billing.Sums{}, metering.MustDecimal(units)
	return r
}

// A charge of 7 late units to a previous subscription has an unknown outcome. The current subscription's charge then
// stays unchanged up to 7 units, and only units beyond 7 are credited.
func TestUnknownOutcomeLimitsCreditOfLateCharge(t *testing.T) {
	t.Parallel()
	for units, want := range map[string][]string{"4": nil, "7": nil, "9": {"-200", "700"}} { // the added amount, and the amount that a line is set to
		f := ofLateUsage("17", "7")
		charged := lateCharge(f, units+"00", 2)
		charged.Taken.Value = metering.MustDecimal(units)
		charged.Standing = charged.Taken
		f.Reported = []billing.Reported{charged, inDoubtElsewhere(f, "7", "700")}
		var made []string
		note := func() {
			for _, r := range billing.NewBooks(f).Plan().Reports {
				made = append(made, r.Quantity.String())
			}
		}
		note()
		f.Stored[1].Bills = metering.BillsAmounts
		f.Side.Charges = []billing.Destination{{MeterID: 1, Target: "sub_1", Method: "item", Counting: billing.Replaces}}
		charged.Counting, charged.Taken.Added = billing.Replaces, metering.Whole(1000) // the sum of all amounts that it was set to
		f.Reported[0] = charged
		note()
		require.Equal(t, want, made, units)
	}
}

// Plans read the usage of a complete period as long as its late usage was recounted, even if only the units or only the
// number of events differ.
func TestUsageOfRecountedPeriodIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		difference billing.Measured
		read       bool
	}{
		"units":      {billing.Measured{Units: metering.Whole(5)}, true},
		"events":     {billing.Measured{Events: 2}, true},
		"dimensions": {billing.Measured{Dimensions: []billing.DimensionUsage{byGroup("large", "2", 2)}}, true},
		"none":       {billing.Measured{}, false},
	} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "0", "0"), billing.Period{Range: february}))
		f.Stored[0].Closed[0].LateDifference = c.difference
		require.Equal(t, c.read, slices.Contains(billing.NewBooks(f).UsageRanges(), january), name)
	}
}
