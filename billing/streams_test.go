package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// If the customer's subscription changes or ends, the open period can end sooner and never later.
func TestSubscriptionChangeCanOnlyShortenOpenPeriod(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	now := day(20)
	between := func(from, to int) metering.Range { return metering.Range{Start: day(from), End: day(to)} }
	reported := func(state billing.State, change func(*billing.Reported)) []billing.Reported {
		r := counted(january, "1")
		r.State = state
		change(&r)
		return []billing.Reported{r}
	}
	taken := reported(billing.Counted, func(*billing.Reported) {})
	of := func(subscription string, in metering.Range) billing.Period {
		return billing.Period{Range: january, Subscription: billing.Subscription{ID: subscription, Range: in}}
	}
	closing := day(25)
	for name, c := range map[string]struct {
		stored   billing.Period
		current  metering.Range // the subscription's current period; empty: the customer has no subscription
		reported []billing.Reported
		want     time.Time
	}{
		"NothingChanged":                       {stored: billing.Period{Range: january}, want: january.End},
		"TheSubscriptionEndsSooner":            {stored: billing.Period{Range: january}, current: between(1, 25), want: day(25)},
		"TheSubscriptionEndsLater":             {stored: billing.Period{Range: january}, current: between(1, 40), want: january.End},
		"TheSubscriptionEndsWithIt":            {stored: billing.Period{Range: january}, current: between(1, 32), want: january.End},
		"ItBeganWithin":                        {stored: billing.Period{Range: january}, current: between(10, 40), want: day(10)},
		"ItBeginsLater":                        {stored: billing.Period{Range: january}, current: between(25, 40), want: day(25)},
		"ItBeganWithinWhatWasReported":         {stored: billing.Period{Range: january}, current: between(10, 40), reported: taken, want: january.End},
		"ItBeganWithinAndEndsSooner":           {stored: billing.Period{Range: january}, current: between(10, 25), reported: taken, want: day(25)},
		"ItBeginsLaterThanWhatWasReported":     {stored: billing.Period{Range: january}, current: between(25, 40), reported: taken, want: day(25)},
		"ItBeganWithinWhatIsItsOwn":            {stored: of("sub_1", between(10, 40)), current: between(10, 40), want: january.End},
		"AnotherBeganAtTheSameTime":            {stored: of("sub_0", between(10, 40)), current: between(10, 40), want: day(10)},
		"ItBeginsNow":                          {stored: billing.Period{Range: january}, current: between(20, 40), reported: taken, want: january.End},
		"ItEndsNow":                            {stored: billing.Period{Range: january}, current: between(1, 20), reported: taken, want: day(20)},
		"ItIsOver":                             {stored: billing.Period{Range: january}, current: between(1, 15), want: day(15)},
		"ItIsOverAndWasReported":               {stored: billing.Period{Range: january}, current: between(1, 15), reported: taken, want: january.End},
		"ItWasOverBefore":                      {stored: billing.Period{Range: between(5, 32)}, current: between(1, 5), want: january.End},
		"WithoutASubscriptionItIsTheMonth":     {stored: billing.Period{Range: between(10, 40)}, want: january.End},
		"AShorterOneStaysSo":                   {stored: billing.Period{Range: between(10, 25)}, want: day(25)},
		"OneThatIsClosedStays":                 {stored: billing.Period{Range: january, ClosedAt: &closing}, current: between(1, 25), want: january.End},
		"OneThatIsOverStays":                   {stored: billing.Period{Range: between(1, 20)}, current: between(10, 40), want: day(20)},
		"OneThatLiesAheadStays":                {stored: billing.Period{Range: between(21, 40)}, current: between(25, 30), want: day(40)},
		"OneThatBeginsNow":                     {stored: billing.Period{Range: between(20, 40)}, current: between(10, 30), want: day(30)},
		"WhatWasRefusedDoesNotCount":           {billing.Period{Range: january}, between(10, 40), reported(billing.Rejected, func(r *billing.Reported) { r.Standing, r.Taken = billing.Sums{}, billing.Sums{} }), day(10)},
		"WhatIsOnItsWayCounts":                 {billing.Period{Range: january}, between(10, 40), reported(billing.Sending, func(r *billing.Reported) { r.Taken = billing.Sums{} }), january.End},
		"WhatWasReportedOfAnotherDoesNotCount": {billing.Period{Range: january}, between(10, 40), reported(billing.Counted, func(r *billing.Reported) { r.Period = february.Start }), day(10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(c.current, knownOf(now, c.stored))
			if c.current.Empty() {
				f.Side.Subscription = ""
			}
			f.Reported = c.reported
			require.Equal(t, c.want, billing.Periods(f)[0].End)
		})
	}
}

// FollowSubscription returns periods without gaps: calendar months, cut where the subscription's period begins, and
// then that period.
func TestFollowSubscriptionReturnsPeriodsWithoutGaps(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	between := func(from, to int) metering.Range { return metering.Range{Start: day(from), End: day(to)} }
	for name, c := range map[string]struct {
		start, now int
		current    metering.Range
		want       []metering.Range
	}{
		"FromItsStart":             {10, 20, between(10, 40), []metering.Range{between(10, 40)}},
		"FromWithin":               {15, 20, between(10, 40), []metering.Range{between(15, 40)}},
		"FromNow":                  {20, 20, between(10, 40), []metering.Range{between(20, 40)}},
		"FromAfterNow":             {21, 20, between(10, 40), nil},
		"FromItsEnd":               {20, 20, between(1, 20), nil},
		"FromBefore":               {5, 20, between(10, 40), []metering.Range{between(5, 10), between(10, 40)}},
		"FromTheMonthBefore":       {5, 45, between(40, 60), []metering.Range{between(5, 32), between(32, 40), between(40, 60)}},
		"WhereItBeginsWithAMonth":  {5, 45, between(32, 60), []metering.Range{between(5, 32), between(32, 60)}},
		"WhereItDoesNotBeginByNow": {5, 20, between(25, 40), []metering.Range{between(5, 25)}},
	} {
		require.Equal(t, c.want, billing.FollowSubscription(day(c.start), day(c.now), c.current, time.UTC), name)
	}
}

// The first period of a customer is the subscription's period if the customer was created in it, unless an operator
// set BillingStartsAt.
func TestFirstPeriodIsSubscriptionPeriodIfCustomerCreatedInIt(t *testing.T) {
	t.Parallel()
	current := metering.Range{Start: january.Start.AddDate(0, 0, 1), End: january.End}
	f := atMeters(current, knownOf(january.Start.AddDate(0, 0, 5)))
	f.Customer.CreatedAt = current.Start
	require.Equal(t, current, billing.Periods(f)[0].Range)

	f.Customer.CreatedAt = current.Start.Add(-time.Microsecond)
	require.Equal(t, metering.Range{Start: january.Start, End: current.Start}, billing.Periods(f)[0].Range)

	f.Customer.CreatedAt, f.Customer.BillingStartsAt = current.Start, &january.Start
	require.Equal(t, metering.Range{Start: january.Start, End: current.Start}, billing.Periods(f)[0].Range)
}

// A subscription or an operator decides the start of the first period at once. Otherwise the customer's early events
// decide it at HeadOpenUntil: the start of the month in which the customer was created, plus the grace and the maximum
// delay of ingest.
func TestFirstPeriodStartIsSetBySubscriptionOperatorOrEvents(t *testing.T) {
	t.Parallel()
	decided := january.Start.Add(grace + metering.MaxIngestDelay)
	early := []billing.EarlyEvents{{At: january.Start.Add(-time.Hour), IngestedAt: january.Start.Add(25 * time.Hour)}}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		begins time.Time
		open   bool
	}{
		"TheInstant":       {func(f *billing.Facts) { f.Now = decided }, january.Start.AddDate(0, -1, 0), false},
		"NobodyYet":        {func(*billing.Facts) {}, january.Start, true},
		"ASubscription":    {func(f *billing.Facts) { *f = atMeters(january, *f) }, january.Start, false},
		"AnOperator":       {func(f *billing.Facts) { f.Customer.BillingStartsAt = &march.Start; f.Now = march.End }, march.Start, false},
		"AfterASubscriber": {func(f *billing.Facts) { *f = atMeters(january, *f); f.Now = decided }, january.Start, false},
	} {
		for _, stored := range [][]billing.Period{nil, {{Range: january}}} {
			f := knownOf(decided.Add(-time.Microsecond), stored...)
			f.Customer.EarlyEvents = early
			if c.change(&f); name == "AnOperator" {
				f.Stored = nil
			} else if f.Stored != nil {
				f.Customer.HeadOpenUntil = &decided
			}
			plan := billing.NewBooks(f).Plan()
			require.Equal(t, c.begins, plan.Periods[0].Start, name)
			require.Equal(t, c.open, plan.HeadOpenUntil != nil, name)
		}
	}
}

// An open period is assigned to the current subscription if it overlaps the subscription's period.
func TestOpenPeriodIsAssignedToOverlappingSubscription(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	between := func(from, to int) metering.Range { return metering.Range{Start: day(from), End: day(to)} }
	former := billing.Subscription{ID: "sub_0", Range: between(1, 10)}
	at := day(15)
	for name, c := range map[string]struct {
		period  billing.Period
		current metering.Range
		want    string
	}{
		"ItsPeriod":          {billing.Period{Range: between(1, 10), Subscription: former}, between(1, 10), "sub_1"},
		"ItGoesOnWithIt":     {billing.Period{Range: between(1, 10), Subscription: billing.Subscription{ID: "sub_1", Range: between(1, 5)}}, between(1, 12), "sub_1"},
		"OneThatTouchesIt":   {billing.Period{Range: between(1, 10), Subscription: former}, between(9, 20), "sub_1"},
		"OneThatEndsWithin":  {billing.Period{Range: between(9, 20), Subscription: former}, between(1, 10), "sub_1"},
		"OneThatBeginsAfter": {billing.Period{Range: between(1, 10), Subscription: former}, between(10, 20), "sub_0"},
		"OneThatEndsBefore":  {billing.Period{Range: between(10, 20), Subscription: former}, between(1, 10), "sub_0"},
		"OneThatIsClosed":    {billing.Period{Range: between(1, 10), Subscription: former, ClosedAt: &at}, between(1, 10), "sub_0"},
	} {
		f := atMeters(c.current, knownOf(day(19), c.period))
		p := billing.Periods(f)[0]
		require.Equal(t, c.want, p.Subscription.ID, name)
		want := former.Range
		if c.want == "sub_1" {
			want = c.current
		}
		require.Equal(t, want, p.Subscription.Range, name)
	}

	f := atMeters(between(1, 20), knownOf(day(19), billing.Period{Range: between(1, 10), Subscription: former}))
	f.Side.Subscription = ""
	require.Equal(t, former, billing.Periods(f)[0].Subscription, "nobody is subscribed now")
	f.Side = nil
	require.Equal(t, former, billing.Periods(f)[0].Subscription, "it was not read")

	f = atMeters(between(1, 20), knownOf(day(19), billing.Period{Range: between(1, 10), Subscription: billing.Subscription{
		ID: "sub_1", Range: between(1, 20), Invoiced: true,
	}}))
	require.True(t, billing.Periods(f)[0].Subscription.Invoiced, "it is the same one")
}

func TestMessagePeriodFromReturnsPeriodByStart(t *testing.T) {
	t.Parallel()
	m := billing.Message{Periods: []metering.Range{january, february}}
	require.Equal(t, february, m.PeriodFrom(february.Start))
	require.Equal(t, january, m.PeriodFrom(january.Start))
}

func TestPlanAt(t *testing.T) {
	t.Parallel()
	assignments := []billing.Assignment{
		{PlanID: 1, EffectiveFrom: february.Start}, {PlanID: 2, EffectiveFrom: january.Start},
		{PlanID: 3, EffectiveFrom: march.Start}, {PlanID: 4, EffectiveFrom: march.Start},
	}
	for at, want := range map[time.Time]metering.PlanID{
		january.Start.Add(-time.Microsecond): 0, january.Start: 2, february.Start.Add(-time.Microsecond): 2, february.Start: 1,
		march.Start: 4, march.End: 4,
	} {
		require.Equal(t, want, billing.PlanAt(assignments, at), at)
	}
}

// If the customer has a subscription, early events do not move the start of the first period, even if the customer
// was created before the subscription's period.
func TestEarlyEventsDoNotMoveFirstPeriodOfSubscriber(t *testing.T) {
	t.Parallel()
	decided := january.Start.Add(grace + metering.MaxIngestDelay)
	f := atMeters(february, knownOf(february.Start, billing.Period{Range: january}))
	f.Customer.HeadOpenUntil = &decided
	f.Customer.EarlyEvents = []billing.EarlyEvents{{At: january.Start.Add(-time.Hour), IngestedAt: january.Start.Add(25 * time.Hour)}}
	require.Equal(t, january.Start, billing.Periods(f)[0].Start)
	f.Side = nil
	require.Equal(t, january.Start.AddDate(0, -1, 0), billing.Periods(f)[0].Start)
}

// An event that was received just before the end of the grace can be stored after it. The plan at the end of the grace
// does not know the event yet.
func TestEventReceivedInGraceButStoredLaterMovesFirstPeriod(t *testing.T) {
	t.Parallel()
	end := january.Start.Add(grace)
	f := knownOf(end)
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, january.Start, plan.Periods[0].Start)

	f.Stored, f.Customer.HeadOpenUntil = []billing.Period{{Range: january}}, plan.HeadOpenUntil
	f.Customer.EarlyEvents = []billing.EarlyEvents{{At: january.Start.Add(-time.Hour), IngestedAt: end.Add(-time.Microsecond)}}
	f.Now = end.Add(metering.MaxIngestDelay)
	require.Equal(t, january.Start.AddDate(0, -1, 0), billing.NewBooks(f).Plan().Periods[0].Start)
}

func TestDecidedFirstPeriodStartIsNotReopened(t *testing.T) {
	t.Parallel()
	f := knownOf(january.Start.AddDate(0, 0, 2), billing.Period{Range: january})
	require.Nil(t, billing.NewBooks(f).Plan().HeadOpenUntil)
	f.Stored = nil
	require.Equal(t, january.Start.Add(grace+metering.MaxIngestDelay), *billing.NewBooks(f).Plan().HeadOpenUntil)
}

// twoStreams returns the facts of a customer's billing schedule 0 and, if there are feeds, of schedule 1. Meter 1 is
// billed by the main subscription, sub_1. Meter 2 is billed by sub_2, with the period second.
func twoStreams(second metering.Range, now time.Time, feeds ...billing.Feed) []billing.Facts {
	f := atMeters(january, knownOf(now, subscribed(january)))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
	f.Side.Destinations = append(f.Side.Destinations, billing.Destination{MeterID: 2, Excluded: billing.NoTarget("it has other periods")})
	f.Side.Others = []billing.Side{{Customer: "cus_1", Subscription: "sub_2", Period: second, Destinations: []billing.Destination{
		{MeterID: 2, Target: "mtr_2", Method: "delta", Counting: billing.Adds},
	}}}
	f.Feeds = feeds
	if len(feeds) == 0 {
		return []billing.Facts{f}
	}
	f.Followed = []billing.Followed{{Connection: first, Subscription: "sub_2", Stream: 1}}
	other := f.OfStream(1)
	other.Stored = nil
	return []billing.Facts{f, other}
}

// A change of the customer's prices starts with the next period of the meter's billing schedule, or with the current
// period if the customer was created in it. A plan starts with the earliest of these periods.
func TestChangedPriceStartsWithNextPeriodByDefault(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	second := metering.Range{Start: day(10), End: day(25)}
	for name, c := range map[string]struct {
		created           int
		calls, seats, all int
	}{
		"Before":                {-5, 32, 25, 25},
		"InTheFirstSchedules":   {5, 1, 25, 1},
		"InThePeriodsOfBoth":    {12, 1, 10, 1},
		"AtTheStartOfTheSecond": {10, 1, 10, 1},
	} {
		schedules := twoStreams(second, day(20), billing.Feed{MeterID: 2, Stream: 1, From: day(10)})
		for i := range schedules {
			schedules[i].Customer.CreatedAt = day(c.created)
		}
		require.Equal(t, day(c.calls), billing.PriceStart(schedules, 1), name)
		require.Equal(t, day(c.seats), billing.PriceStart(schedules, 2), name)
		require.Equal(t, day(c.all), billing.PlanStart(schedules), name)
		one := twoStreams(second, day(20))
		one[0].Customer.CreatedAt = day(c.created)
		require.Equal(t, day(c.calls), billing.PlanStart(one), name)
	}
}

// A meter moves to the billing schedule of its subscription when the subscription's period begins. Closed and
// reported usage stays in the previous schedule.
func TestMeterMovesToOtherScheduleAtSubscriptionPeriodStart(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	second, closing, early := metering.Range{Start: day(10), End: day(50)}, day(36), day(15)
	reported := counted(january, "1")
	reported.MeterID = 2
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		want   time.Time
	}{
		"WithItsPeriod":              {func(*billing.Facts) {}, day(10)},
		"AfterWhatIsClosed":          {func(f *billing.Facts) { f.Stored[0].ClosedAt = &closing }, january.End},
		"AfterWhatWasReported":       {func(f *billing.Facts) { f.Reported = []billing.Reported{reported} }, january.End},
		"WhateverAnotherMeterWas":    {func(f *billing.Facts) { f.Reported = []billing.Reported{counted(january, "1")} }, day(10)},
		"WhenTheCustomerIsBilled":    {func(f *billing.Facts) { f.Customer.BillingStartsAt = &early }, day(15)},
		"WhenNothingIsStoredByThen":  {func(f *billing.Facts) { f.Stored = nil }, day(10)},
		"ClosedBeforeItsPeriodBegan": {func(f *billing.Facts) { f.Stored[0].ClosedAt, f.Stored[0].End = &early, day(8) }, day(10)},
		"WhereNothingLeadsForOthers": {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, day(10)},
		"WhereItIsTheOnlyOne":        {func(f *billing.Facts) { f.Side.Subscription, f.Side.Period = "", metering.Range{} }, day(10)},
	} {
		streams := twoStreams(second, day(37))
		c.change(&streams[0])
		change := billing.Regroup(streams)
		require.Equal(t, []billing.Followed{{Connection: first, Subscription: "sub_2", Stream: 1}}, change.Followed, name)
		require.Equal(t, []billing.Feed{{MeterID: 2, Stream: 1, From: c.want}}, change.Feeds, name)
		require.False(t, change.Empty(), name)
		require.True(t, billing.Regroup(twoStreams(second, day(37), change.Feeds...)).Empty(), name)
	}
	streams := twoStreams(second, day(17), billing.Feed{MeterID: 2, Stream: 1, From: day(20)})
	require.Equal(t, day(20), billing.NewBooks(streams[0]).Plan().ReplanAt, "it may be another stream's by then")
	streams = twoStreams(second, day(37))
	streams[0].Side.Others[0].Destinations[0].Excluded = billing.NoTarget("nobody can say what it costs")
	require.True(t, billing.Regroup(streams).Empty(), "nothing can be reported there")
	streams[0].Side = nil
	require.True(t, billing.Regroup(streams).Empty(), "nobody has looked")
}

// After a meter moves to another billing schedule, each instant of its usage lies in the periods of exactly one
// schedule.
func TestEachInstantOfUsageBelongsToOneSchedule(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	streams := twoStreams(metering.Range{Start: day(10), End: day(50)}, day(37), billing.Feed{MeterID: 2, Stream: 1, From: day(20)})
	require.Equal(t, day(20), *streams[1].Customer.BillingStartsAt)
	streams[1].Side = &streams[0].Side.Others[0]
	require.Equal(t, metering.Range{Start: day(20), End: day(50)}, billing.Periods(streams[1])[0].Range)
	require.Equal(t, 1, billing.Periods(streams[1])[0].Stream)
	january := []metering.Range{january}
	require.Equal(t, january, streams[0].FedIn(1, january))
	require.Equal(t, []metering.Range{{Start: day(1), End: day(20)}}, streams[0].FedIn(2, january))
	require.Equal(t, []metering.Range{{Start: day(20), End: day(32)}}, streams[1].FedIn(2, january))
	require.Empty(t, streams[1].FedIn(1, january))
	for until, shown := range map[int]bool{20: false, 21: true} {
		period := billing.Period{Range: metering.Range{Start: day(1), End: day(until)}}
		require.Equal(t, shown, streams[1].Shows(period), until)
		require.True(t, streams[0].Shows(period), until)
	}
}

// A billing schedule begins at its earliest Feed, of any meter. Feeds of other schedules have no effect.
func TestBillingScheduleBeginsAtItsEarliestFeed(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	feeds := []billing.Feed{{MeterID: 2, Stream: 1, From: day(5)}, {MeterID: 1, Stream: 1, From: day(12)}, {MeterID: 2, Stream: 2, From: day(20)}}
	f := twoStreams(february, day(37), feeds...)[0]
	require.Equal(t, day(5), *f.OfStream(1).Customer.BillingStartsAt)
	require.Equal(t, day(20), *f.OfStream(2).Customer.BillingStartsAt)
}

// A meter joins an existing billing schedule when the period of its subscription begins, and not before the
// schedule begins. Periods of the schedule that are closed, or that the meter fed before, are skipped.
func TestMeterJoinsScheduleAtSubscriptionPeriodStart(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	between := func(from, to int) metering.Range { return metering.Range{Start: day(from), End: day(to)} }
	closing, feed := day(36), billing.Feed{MeterID: 2, Stream: 1, From: day(5)}
	for name, c := range map[string]struct {
		stored []billing.Period
		feeds  []billing.Feed
		want   time.Time
	}{
		"WithItsPeriod":          {[]billing.Period{{Range: between(5, 50)}}, []billing.Feed{feed}, day(10)},
		"WhenTheStreamBegins":    {[]billing.Period{{Range: between(20, 50)}}, []billing.Feed{feed}, day(20)},
		"AfterWhatIsClosedThere": {[]billing.Period{{Range: between(5, 30), ClosedAt: &closing}, {Range: between(30, 50)}}, []billing.Feed{feed}, day(30)},
		"AfterWhatItHasFed": {[]billing.Period{{Range: between(5, 30)}, {Range: between(30, 50)}},
			[]billing.Feed{feed, {MeterID: 3, Stream: 1, From: day(12)}, {MeterID: 3, Stream: 0, From: day(15)}}, day(30)},
	} {
		streams := twoStreams(between(10, 50), day(37), c.feeds...)
		streams[1].Stored = c.stored
		there := billing.Destination{MeterID: 3, Target: "mtr_3", Method: "delta", Counting: billing.Adds}
		for n := range streams {
			streams[n].Meters = append(streams[n].Meters, metering.Meter{ID: 3, Slug: "bytes", Version: metering.MeterVersion{Status: metering.Complete}})
		}
		streams[0].Side.Destinations = append(streams[0].Side.Destinations, billing.Destination{MeterID: 3, Excluded: billing.NoTarget("it has other periods")})
		streams[1].Side.Destinations = append(streams[1].Side.Destinations, there)
		require.Equal(t, billing.Regrouped{Feeds: []billing.Feed{{MeterID: 3, Stream: 1, From: c.want}}}, billing.Regroup(streams), name)
	}
}

// After the subscription of a billing schedule has ended, its meter moves to a schedule that reports the meter. A new
// subscription with the same meter takes over the schedule instead.
func TestMeterLeavesScheduleOfEndedSubscription(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	feed := billing.Feed{MeterID: 2, Stream: 1, From: day(10)}
	ended := func() []billing.Facts {
		streams := twoStreams(metering.Range{Start: day(10), End: day(50)}, day(60), feed)
		streams[0].Side.Others = nil
		streams[1] = streams[0].OfStream(1)
		streams[1].Stored = []billing.Period{{ID: 2, Range: metering.Range{Start: day(10), End: day(50)}, ClosedAt: &feed.From}}
		return streams
	}
	require.True(t, billing.Regroup(ended()).Empty(), "nobody takes it")

	streams := ended()
	streams[0].Side.Destinations[1] = billing.Destination{MeterID: 2, Target: "mtr_2"}
	require.Equal(t, billing.Regrouped{Feeds: []billing.Feed{{MeterID: 2, Stream: 0, From: day(50)}}}, billing.Regroup(streams))

	for _, c := range []struct {
		from  time.Time
		moves bool
	}{{day(60).Add(-time.Microsecond), true}, {day(60), true}, {day(60).Add(time.Microsecond), false}} {
		streams = ended()
		streams[0].Side.Destinations[1] = billing.Destination{MeterID: 2, Target: "mtr_2"}
		streams[0].Feeds[0].From = c.from
		require.Equal(t, c.moves, len(billing.Regroup(streams).Feeds) == 1, "it is the stream's from %s on, on day 60", c.from)
	}

	streams = ended()
	streams[0].Side.Others = []billing.Side{{Subscription: "sub_3", Period: metering.Range{Start: day(40), End: day(70)}, Destinations: []billing.Destination{{MeterID: 2}}}}
	require.Equal(t, billing.Regrouped{Followed: []billing.Followed{{Connection: first, Subscription: "sub_3", Stream: 1}}}, billing.Regroup(streams))

	streams = ended()
	streams[0].Side.Others = []billing.Side{{Subscription: "sub_3", Period: metering.Range{Start: day(40), End: day(70)}, Destinations: []billing.Destination{{MeterID: 1}}}}
	require.Equal(t, []billing.Followed{{Connection: first, Subscription: "sub_3", Stream: 2}}, billing.Regroup(streams).Followed, "it has none of its meters")

	streams = ended()
	streams[0] = withStatementReceiver(first, streams[0])
	streams[0].Side = nil
	require.Equal(t, []billing.Feed{{MeterID: 2, Stream: 0, From: day(50)}}, billing.Regroup(streams).Feeds, "a receiver of statements is sent one stream")
}

// TestMeterLeavesScheduleAtEndOfItsShortenedPeriod ends a subscription within its period. Its schedule's period then ends
// with the calendar month, and the meter that it reported moves at that instant. Otherwise, no schedule could bill the
// usage from there to the stored end of the period.
func TestMeterLeavesScheduleAtEndOfItsShortenedPeriod(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	streams := twoStreams(metering.Range{Start: day(10), End: day(50)}, day(20), billing.Feed{MeterID: 2, Stream: 1, From: day(10)})
	streams[0].Side.Others, streams[0].Side.Destinations[1] = nil, billing.Destination{MeterID: 2, Target: "mtr_2"}
	streams[1] = streams[0].OfStream(1)
	streams[1].Stored = []billing.Period{{ID: 2, Range: metering.Range{Start: day(10), End: day(50)}}}
	reported := counted(streams[1].Stored[0].Range, "5")
	reported.MeterID = 2
	streams[1].Reported = []billing.Reported{reported}
	require.Equal(t, billing.Regrouped{Feeds: []billing.Feed{{MeterID: 2, Stream: 0, From: day(32)}}}, billing.Regroup(streams))
	require.Equal(t, day(32), billing.Periods(streams[1])[0].End)
}

// The late usage of a billing schedule is stated, even if no meter feeds the schedule any more.
func TestLateUsageOfScheduleWithoutMetersIsStated(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "100", "10"), billing.Period{Range: february}))
	f = withLate(atBasic(f), january, "1100", "1000")
	f.Feeds = []billing.Feed{{MeterID: 1, Stream: 1, From: february.Start}}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Len(t, reports[0].Lines, 1)
	require.Equal(t, january.Start, reports[0].Lines[0].Closed)
	require.Equal(t, "5", reports[0].Lines[0].Amount.String())
}
