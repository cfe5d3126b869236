package billing_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A plan that reports an open period in full gives the period a watermark with the number of events counted so far.
// The watermark holds once the reports are accepted. If the plan leaves something unreported, the watermark is empty.
func TestFullyReportedPeriodGetsWatermark(t *testing.T) {
	t.Parallel()
	before := billing.Watermark{Events: 1, Configuration: "before"}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		knows  []bool // January, February
	}{
		"AllThatIsReported": {func(*billing.Facts) {}, []bool{true, true}},
		"AllThatIsNotNew":   {func(f *billing.Facts) { f.Usage = nil }, []bool{true, true}},
		"NotWhatIsOnItsWay": {func(f *billing.Facts) { f.Reported[0].Outstanding = true }, []bool{false, true}},
		"NotWhatIsOnItsWayAndWasTakenBack": {func(f *billing.Facts) {
			f.Reported[0].Outstanding, f.Usage[0] = true, used(january, "6")
		}, []bool{false, true}},
		"NotWhatWasRefused":    {func(f *billing.Facts) { f.Reported[0].State, f.Reported[0].Number = billing.Rejected, 101 }, []bool{false, true}},
		"NotWhatGrewMeanwhile": {func(f *billing.Facts) { f.Reported[0].Number = 101 }, []bool{false, true}},
		"NotWithoutAMeter":     {func(f *billing.Facts) { f.Excluded = []metering.MeterID{1} }, []bool{false, false}},
		"NotWhereOnePeriodChangesAnother": {func(f *billing.Facts) {
			f.Side.Destinations[0].Counting = billing.Latest
		}, []bool{false, false}},
		"WhereThereIsNoOther": {func(f *billing.Facts) {
			f.Side.Destinations[0].Counting, f.Stored[0] = billing.Latest, closedAt(january, "10", "1000")
		}, []bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 1), subscribed(january), subscribed(february)))
			f.Stored[0].Watermark, f.Stored[1].Watermark = before, before
			f.Usage = []billing.Usage{used(january, "10"), used(february, "3")}
			f.Counted = []billing.EventCount{{Period: january.Start, Events: 4}, {Period: february.Start, Events: 7}}
			f.Reported = []billing.Reported{counted(january, "6")}
			c.change(&f)
			marks := make(map[int]billing.Watermark)
			for _, w := range billing.NewBooks(f).Plan().Reported {
				marks[int(w.Start.Month())] = w.Watermark
			}
			for i, events := range []int64{4, 7} {
				switch mark, noted := marks[i+1]; {
				case c.knows[i]:
					require.Equal(t, events, mark.Events)
					require.NotEmpty(t, mark.Configuration)
				case f.Stored[i].ClosedAt == nil:
					require.True(t, noted)
					require.Empty(t, mark)
				default:
					require.False(t, noted)
				}
			}
		})
	}
}

// A receiver gets one statement at a time. A plan sets the watermark of that statement's period, and none of later
// periods before the statement is accepted.
func TestStatementSetsWatermarkOfItsPeriodOnly(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 1), billing.Period{Range: january}, billing.Period{Range: february}))
	f.Usage = []billing.Usage{used(january, "10")}
	f.Counted = []billing.EventCount{{Period: february.Start, Events: 7}, {Period: january.Start, Events: 4}}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reported, 1)
	require.Equal(t, january.Start, plan.Reported[0].Start)
	require.EqualValues(t, 4, plan.Reported[0].Events)

	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: plan.Reports[0].Lines}}
	f.Stored[0].Watermark = plan.Reported[0].Watermark
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reported, 1, "what it knows already is not noted again")
	require.Equal(t, february.Start, plan.Reported[0].Start)

	f.Meters = nil
	require.Len(t, billing.NewBooks(f).Plan().Reported, 2, "there is nothing to report")
}
