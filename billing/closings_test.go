package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// closes is what the plan of who may close periods does.
func closes(f billing.Facts) billing.Plan {
	f.MayClose = true
	return f.Plan()
}

// A period closes when its end and grace are over, or its invoice is final, and
// never before the one before it.
func TestWhenAPeriodCloses(t *testing.T) {
	t.Parallel()
	f := knownOf(january.End.Add(grace-time.Microsecond), billing.Period{Range: january}, billing.Period{Range: february})
	plan := closes(f)
	require.Empty(t, plan.Closings)
	require.False(t, plan.Waiting, "none is due")
	require.True(t, plan.Empty())

	f.Now = january.End.Add(grace)
	f.Usage = []billing.Usage{used(january, "3")}
	plan = closes(f)
	require.False(t, plan.Empty())
	require.Len(t, plan.Closings, 1)
	require.Equal(t, january, plan.Closings[0].Period.Range)
	line := plan.Closings[0].Lines[0]
	require.Equal(t, "3", line.Usage.String())
	require.Equal(t, "300", line.Charge.String())
	require.False(t, line.Billed, "nobody does")
	require.Equal(t, f.Now, *plan.Periods[0].ClosedAt)
	require.Nil(t, plan.Periods[1].ClosedAt)

	f.Now = february.End.Add(grace)
	require.Len(t, closes(f).Closings, 2)
	require.Empty(t, f.Plan().Closings, "usage may still come meanwhile")

	f.Meters[0].Version.Status = metering.Backfilling
	plan = closes(f)
	require.Empty(t, plan.Closings)
	require.True(t, plan.Waiting)

	f = atMeters(february, knownOf(january.End.Add(time.Hour), invoiced(january), subscribed(february)))
	require.Len(t, closes(f).Closings, 1, "nothing more can be on its invoice")
	f.Side = nil
	plan = closes(f)
	require.Empty(t, plan.Closings, "what the customer is there has to be read")
	require.True(t, plan.Waiting)
}

// Where statements are sent, a period closes with the last one that was taken,
// if that says what it comes to.
func TestAPeriodClosesWithItsLastStatement(t *testing.T) {
	t.Parallel()
	ready := func() billing.Facts {
		f := atReceiver(first, knownOf(january.End.Add(grace), billing.Period{Range: january}, billing.Period{Range: february}))
		f.Usage = []billing.Usage{used(january, "3")}
		return f
	}
	lines := ready().Plan().Reports[0].Lines
	sent := func(number int64, state billing.State, lines []billing.Line) billing.Sent {
		return billing.Sent{ID: uuid.UUID{1}, Period: january.Start, Number: number, State: state, Lines: lines}
	}
	other := []billing.Line{lines[0]}
	other[0].Usage = metering.Whole(2)
	for name, c := range map[string]struct {
		sent   []billing.Sent
		open   []billing.Open
		closes bool
	}{
		"None":                 {nil, nil, false},
		"Taken":                {[]billing.Sent{sent(1, billing.Accepted, lines)}, nil, true},
		"TakenWithOtherLines":  {[]billing.Sent{sent(1, billing.Accepted, other)}, nil, false},
		"Refused":              {[]billing.Sent{sent(1, billing.Rejected, lines)}, nil, false},
		"TakenAndRefusedSince": {[]billing.Sent{sent(1, billing.Accepted, lines), sent(2, billing.Rejected, other)}, nil, false},
		"TakenAgain":           {[]billing.Sent{sent(1, billing.Accepted, other), sent(2, billing.Accepted, lines)}, nil, true},
		"AnotherIsOnItsWay":    {[]billing.Sent{sent(1, billing.Accepted, lines)}, []billing.Open{{ID: uuid.UUID{2}, Kind: billing.StatementReport, Connection: first, State: billing.Sending}}, false},
		"AQuantityIsOnItsWay":  {[]billing.Sent{sent(1, billing.Accepted, lines)}, []billing.Open{{ID: uuid.UUID{2}, Kind: billing.QuantityReport, Connection: first, State: billing.Sending}}, true},
		"OneIsNeverSentToAFormerConnection": {
			[]billing.Sent{sent(1, billing.Accepted, lines)}, []billing.Open{{ID: uuid.UUID{2}, Kind: billing.StatementReport, Connection: second, State: billing.Planned}}, true,
		},
		"OneMayHaveArrivedAtAFormerConnection": {
			[]billing.Sent{sent(1, billing.Accepted, lines)}, []billing.Open{{ID: uuid.UUID{2}, Kind: billing.QuantityReport, Connection: second, State: billing.Sending}}, false,
		},
		"OneIsInDoubtAtAFormerConnection": {
			[]billing.Sent{sent(1, billing.Accepted, lines)}, []billing.Open{{ID: uuid.UUID{2}, Kind: billing.QuantityReport, Connection: second, State: billing.InDoubt}}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready()
			f.Statements, f.Open = c.sent, c.open
			plan := closes(f)
			require.Equal(t, c.closes, len(plan.Closings) == 1)
			require.Equal(t, !c.closes, plan.Waiting)
			if !c.closes {
				return
			}
			require.Equal(t, "300", plan.Closings[0].Lines[0].Charge.String())
			require.True(t, plan.Closings[0].Lines[0].Billed)
			require.Equal(t, name == "OneIsNeverSentToAFormerConnection", len(plan.Withdraw) == 1)
		})
	}

	f := ready()
	f.Meters, f.Usage = nil, nil
	require.Len(t, closes(f).Closings, 1, "there is nothing to state")
}

// A period closes with what it came to, beside what the provider was reported of
// it. What was never reportable was billed to nobody.
func TestAPeriodClosesWithWhatWasReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*billing.Facts)
		billed   bool
		reported string
	}{
		"Some": {func(f *billing.Facts) { f.Reported = []billing.Reported{counted(january, "10")} }, true, "10"},
		"None": {func(*billing.Facts) {}, true, "0"},
		"HereAndElsewhere": {func(f *billing.Facts) {
			before := counted(january, "4")
			before.Target = "mtr_0"
			f.Reported = []billing.Reported{counted(january, "10"), before}
		}, true, "14"},
		"FromBeforeTheSubscription": {func(f *billing.Facts) { f.Stored[0].Subscription = billing.Subscription{} }, false, ""},
		"ElsewhereBeforeTheSubscription": {func(f *billing.Facts) {
			f.Stored[0].Subscription = billing.Subscription{}
			before := counted(january, "4")
			before.Target = "mtr_0"
			f.Reported = []billing.Reported{before}
		}, true, "4"},
		"WhereNothingLeads": {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = "no item" }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(february, knownOf(january.End.Add(grace), invoiced(january), subscribed(february)))
			f.Usage = []billing.Usage{used(january, "12")}
			c.change(&f)
			plan := closes(f)
			require.Len(t, plan.Closings, 1)
			line := plan.Closings[0].Lines[0]
			require.Equal(t, c.billed, line.Billed)
			require.Equal(t, "1200", line.Charge.String(), "what it came to")
			if !c.billed {
				require.Nil(t, line.Reported)
				return
			}
			require.Equal(t, c.reported, line.Reported.String())
		})
	}
}

// A statement of a closed period is what it closed at, with the working of its
// charge, and what came since.
func TestTheStatementOfAClosedPeriod(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "112.4", "10.06"), subscribed(february)))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "made later"})
	f = atBasic(f)
	f.Prices[1] = append(f.Prices[1], billing.Price{MeterID: 1, Version: 2, Terms: billing.Terms{OverageRate: metering.Whole(9), Currency: "USD"}, EffectiveFrom: january.Start})
	f = withLate(f, january, "152.4", "40")
	s := billing.StatementOf(f, f.Stored[0])
	require.Equal(t, january.End.Add(grace), s.ClosesAt)
	require.Len(t, s.Lines, 1)
	line := s.Lines[0]
	require.Equal(t, "112.4", line.Usage.String())
	require.EqualValues(t, 1, line.Events)
	require.Equal(t, "40", line.LateUsage.String())
	require.Equal(t, "0.2", line.LateCharge.String())
	require.EqualValues(t, 2, of(line.LateWorking, billing.StepTotal).Events)
	require.True(t, line.Billed)
	require.Equal(t, "10.06", line.Working[len(line.Working)-1].Amount.String())

	reported := metering.Whole(112)
	f.Stored[0].Closed[0].Reported = &reported
	line = billing.StatementOf(f, f.Stored[0]).Lines[0]
	require.Equal(t, "112", of(line.Working, billing.StepUnits).Amount.String(), "what the provider was reported")
}
