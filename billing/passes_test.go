package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// TestPassReplacesOnlyStatementsFromBeforeItsStart checks that a pass replaces a statement from before the pass if
// usage has grown since. A statement that the pass itself made is not replaced before the next pass.
func TestPassReplacesOnlyStatementsFromBeforeItsStart(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "10")}
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	f.Usage = []billing.Usage{used(january, "12")}
	for name, c := range map[string]struct {
		number           int64
		state            billing.State
		reports, holding int
	}{
		"TakenBefore":             {100, billing.Accepted, 1, 0},
		"TakenInThisPass":         {101, billing.Accepted, 0, 1},
		"RefusedBefore":           {100, billing.Rejected, 1, 0},
		"RefusedInThisPass":       {101, billing.Rejected, 0, 0},
		"SeenCountedBefore":       {100, billing.Counted, 1, 0},
		"SeenCountedInThisPass":   {101, billing.Counted, 0, 1},
		"StillOnItsWayFromBefore": {100, billing.Planned, 1, 0},
	} {
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: c.number, State: c.state, Lines: lines}}
		plan := billing.NewBooks(f).Plan()
		require.Len(t, plan.Reports, c.reports, name)
		require.Len(t, plan.UpToDate, c.holding, name)
	}
}

// TestStatementWithHighestNumberIsTheLast checks that the statement with the higher number is the last one, in any
// order in which the statements are read.
func TestStatementWithHighestNumberIsTheLast(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), billing.Period{Range: january}, billing.Period{Range: february}))
	f.Usage = []billing.Usage{used(january, "10"), used(february, "1")}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1, "the oldest period first")
	require.Equal(t, january.Start, plan.Reports[0].Period)
	require.True(t, plan.More)
	now := plan.Reports[0].Lines
	before := []billing.Line{now[0]}
	before[0].Usage = metering.Whole(9)
	f.Statements = []billing.Sent{
		{ID: uuid.UUID{2}, Period: january.Start, Number: 2, State: billing.Accepted, Lines: now},
		{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: before},
	}
	plan = billing.NewBooks(f).Plan()
	require.Equal(t, []uuid.UUID{{2}}, plan.UpToDate)
	require.Len(t, plan.Reports, 1)
	require.Equal(t, february.Start, plan.Reports[0].Period)
	require.False(t, plan.More, "it is the newest one")
}

// TestStatementIsOutOfDateIfLineChanged checks that a statement is out of date if the meter, the closed
// period, a number or the currency of a line changed. A changed meter slug does not make it out of date.
func TestStatementIsOutOfDateIfLineChanged(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "10")}
	line := billing.NewBooks(f).Plan().Reports[0].Lines[0]
	for name, change := range map[string]func(*billing.Line){
		"events":  func(l *billing.Line) { l.Events++ },
		"version": func(l *billing.Line) { l.PriceVersion++ },
		"in what": func(l *billing.Line) { l.Currency = "EUR" },
		"usage":   func(l *billing.Line) { l.Usage = metering.Whole(3) },
		"units":   func(l *billing.Line) { l.Quantity = metering.Whole(3) },
		"price":   func(l *billing.Line) { l.UnitPrice = metering.Whole(3) },
		"charge":  func(l *billing.Line) { l.Charge = metering.Whole(3) },
		"amount":  func(l *billing.Line) { l.Amount = metering.Whole(3) },
		"meter":   func(l *billing.Line) { l.MeterID = 2 },
		"period":  func(l *billing.Line) { l.Closed = january.Start },
		"nothing": func(l *billing.Line) { l.MeterSlug = "renamed" },
	} {
		stated := line
		change(&stated)
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{stated}}}
		require.Equal(t, name == "nothing", len(billing.NewBooks(f).Plan().Reports) == 0, name)
	}
}

// TestPassReportsSeriesOnceIfItsQuantityChanged checks that a series is reported again if its quantity changed. It is
// not reported while a report of the series is outstanding, nor twice in one pass.
func TestPassReportsSeriesOnceIfItsQuantityChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		used               string // the usage now; 10 were reported
		number             int64
		state              billing.State
		outstanding        bool
		reported, upToDate string
	}{
		"Grown":                 {used: "12", number: 100, state: billing.Accepted, reported: "2"},
		"GrownInThisPass":       {used: "12", number: 101, state: billing.Accepted, upToDate: "yes"},
		"Shrunk":                {used: "7", number: 100, state: billing.Counted, reported: "-3"},
		"TheSame":               {used: "10", number: 100, state: billing.Counted, upToDate: "yes"},
		"TheSameInThisPass":     {used: "10", number: 101, state: billing.Counted, upToDate: "yes"},
		"RefusedBefore":         {used: "12", number: 100, state: billing.Rejected, reported: "2"},
		"RefusedInThisPass":     {used: "12", number: 101, state: billing.Rejected},
		"RefusedAndTakenBefore": {used: "10", number: 100, state: billing.Rejected},
		"OnItsWay":              {used: "12", number: 100, state: billing.Sending, outstanding: true},
	} {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
		f.Usage = []billing.Usage{used(january, c.used)}
		r := counted(january, "10")
		r.Number, r.State, r.Outstanding = c.number, c.state, c.outstanding
		f.Reported = []billing.Reported{r}
		plan := billing.NewBooks(f).Plan()
		require.Equal(t, c.reported != "", len(plan.Reports) == 1, name)
		if c.reported != "" {
			require.Equal(t, c.reported, plan.Reports[0].Quantity.String(), name)
		}
		require.Equal(t, c.upToDate != "", len(plan.UpToDate) == 1, name)
	}
}

// TestPlanHasAtMost200Reports checks that a plan has at most 200 reports, including the resumed ones.
func TestPlanHasAtMost200Reports(t *testing.T) {
	t.Parallel()
	const reportsAtOnce = 200
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Meters, f.Side.Destinations = nil, nil
	for id := range metering.MeterID(reportsAtOnce) {
		f.Meters = append(f.Meters, metering.Meter{ID: id + 1, Version: metering.MeterVersion{Status: metering.Complete}})
		f.Side.Destinations = append(f.Side.Destinations, billing.Destination{MeterID: id + 1, Target: id.String(), Counting: billing.Adds})
		f.Usage = append(f.Usage, billing.Usage{Period: january.Start, MeterID: id + 1, Total: metering.Whole(1)})
	}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, reportsAtOnce)
	require.False(t, plan.More)

	f.Open = []billing.Open{{ID: uuid.UUID{1}, Kind: billing.QuantityReport, Connection: first, State: billing.Sending}}
	plan = billing.NewBooks(f).Plan()
	require.Equal(t, []uuid.UUID{{1}}, plan.Resume)
	require.Len(t, plan.Reports, reportsAtOnce-1)
	require.True(t, plan.More)
}

// TestPlanResumesOrWithdrawsOutstandingReports checks how a plan treats outstanding reports. Reports to the current
// connection are resumed. Reports to a previous connection are withdrawn if they were never sent; otherwise their
// outcome is unknown. If a worker is still sending such a report, the plan leaves it unchanged, and the customer is
// re-evaluated when the worker's lease ends.
func TestPlanResumesOrWithdrawsOutstandingReports(t *testing.T) {
	t.Parallel()
	now := january.Start.AddDate(0, 0, 20)
	ahead, over := now.Add(time.Microsecond), now
	ids := []uuid.UUID{{1}}
	for name, c := range map[string]struct {
		statements              bool
		open                    billing.Open
		withdraw, doubt, resume []uuid.UUID
		look                    time.Time
		reports                 int
	}{
		"Nothing":               {reports: 1, look: january.End},
		"Here":                  {open: billing.Open{Connection: first, State: billing.Planned}, resume: ids, reports: 1, look: january.End},
		"HereInDoubt":           {open: billing.Open{Connection: first, State: billing.InDoubt}, resume: ids, reports: 1, look: january.End},
		"HereWhereOneIsAtATime": {statements: true, open: billing.Open{Connection: first, State: billing.Sending}, resume: ids, look: january.End},
		"ThereNeverSent":        {open: billing.Open{Connection: second, State: billing.Planned}, withdraw: ids, reports: 1, look: january.End},
		"ThereSent":             {open: billing.Open{Connection: second, State: billing.Sending}, doubt: ids, reports: 1, look: january.End},
		"ThereSentForStatements": {
			statements: true, open: billing.Open{Connection: second, State: billing.Sending}, doubt: ids, reports: 1, look: january.End,
		},
		"ThereSentUntilNow":  {open: billing.Open{Connection: second, State: billing.Sending, LeaseUntil: &over}, doubt: ids, reports: 1, look: january.End},
		"ThereBeingSent":     {open: billing.Open{Connection: second, State: billing.Sending, LeaseUntil: &ahead}, reports: 1, look: ahead},
		"ThereInDoubt":       {open: billing.Open{Connection: second, State: billing.InDoubt}, reports: 1, look: january.End},
		"ThereInDoubtLeased": {open: billing.Open{Connection: second, State: billing.InDoubt, LeaseUntil: &ahead}, reports: 1, look: january.End},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(january, knownOf(now, subscribed(january)))
			f.Usage = []billing.Usage{used(january, "10")}
			f.Connection.Statements = c.statements
			if c.open.ID = ids[0]; name != "Nothing" {
				f.Open = []billing.Open{c.open}
			}
			plan := billing.NewBooks(f).Plan()
			require.Equal(t, c.withdraw, plan.Withdraw)
			require.Equal(t, c.doubt, plan.Doubt)
			require.Equal(t, c.resume, plan.Resume)
			require.Equal(t, c.look, plan.ReplanAt)
			require.Len(t, plan.Reports, c.reports)
			require.Equal(t, c.resume != nil, plan.More)
			require.False(t, plan.Empty())
		})
	}

	f := knownOf(now, billing.Period{Range: january})
	f.Open = []billing.Open{{ID: ids[0], Connection: second, State: billing.Planned}}
	require.True(t, billing.NewBooks(f).Plan().Empty(), "without a connection nothing is withdrawn")
}

// TestUnsentReportToPreviousSubscriptionIsWithdrawn checks that a quantity for a previous subscription is
// withdrawn if it was never sent. That subscription's last invoice may be final and bill the 10 units that
// were accepted before. The same plan reports the difference to the next subscription.
func TestUnsentReportToPreviousSubscriptionIsWithdrawn(t *testing.T) {
	t.Parallel()
	swapped := january.Start.AddDate(0, 0, 19)
	next := metering.Range{Start: swapped, End: swapped.AddDate(0, 1, 0)}
	ids := []uuid.UUID{{1}}
	to := func(subscription string) billing.InvoicedBy {
		return billing.InvoicedBy{Subscription: subscription, Start: january.Start}
	}
	for name, c := range map[string]struct {
		usage            string // the usage now, and when the report was made
		to               billing.InvoicedBy
		state            billing.State
		epoch            int64
		withdraw, resume []uuid.UUID
		rest             string
	}{
		"less":                          {usage: "4", to: to("sub_1"), state: billing.Planned, epoch: 7, withdraw: ids, rest: "-6"},
		"more":                          {usage: "14", to: to("sub_1"), state: billing.Planned, epoch: 7, withdraw: ids, rest: "4"},
		"it may have arrived":           {usage: "4", to: to("sub_1"), state: billing.Sending, epoch: 7, resume: ids, rest: "-6"},
		"it may have, before a restore": {usage: "4", to: to("sub_1"), state: billing.Planned, epoch: 3, resume: ids, rest: "-6"},
		"it was made for the next one":  {usage: "4", to: to("sub_2"), state: billing.Planned, epoch: 7, resume: ids, rest: "-6"},
		"nobody noted whose it was":     {usage: "4", state: billing.Planned, epoch: 7, resume: ids, rest: "-6"},
		"more, and it was for this one": {usage: "14", to: to("sub_2"), state: billing.Planned, epoch: 7, resume: ids},
		"more, and it may have arrived": {usage: "14", to: to("sub_1"), state: billing.Sending, epoch: 7, resume: ids},
		"more, and nobody noted whose":  {usage: "14", state: billing.Planned, epoch: 7, resume: ids},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metering.MustDecimal(c.usage)
			f := atMeters(next, knownOf(swapped.Add(time.Hour), billing.Period{
				Range:        metering.Range{Start: january.Start, End: next.End},
				Subscription: billing.Subscription{ID: "sub_2", Range: next, Connection: first},
			}))
			f.Side.Subscription, f.Epoch = "sub_2", 7
			f.Usage = []billing.Usage{{Period: january.Start, MeterID: 1, Total: now, Events: 1}}
			r := counted(january, "10")
			r.Last, r.State, r.Outstanding, r.To = ids[0], c.state, true, c.to
			r.Standing = billing.Sums{Any: true, Value: now, Added: now, Quantity: now.Sub(r.Taken.Added)}
			f.Reported = []billing.Reported{r}
			f.Open = []billing.Open{{ID: ids[0], Kind: billing.QuantityReport, Connection: first, State: c.state, Epoch: c.epoch}}
			plan := billing.NewBooks(f).Plan()
			require.Equal(t, c.withdraw, plan.Withdraw)
			require.Equal(t, c.resume, plan.Resume)
			if c.rest == "" {
				require.Empty(t, plan.Reports)
				return
			}
			require.Len(t, plan.Reports, 1)
			require.Equal(t, c.rest, plan.Reports[0].Quantity.String())
			require.Equal(t, "sub_2", plan.Reports[0].To.Subscription)
		})
	}
}

// TestWithdrawingReportClearsWatermarks checks that a plan that withdraws a report clears the watermarks of
// open periods. A planned report already sets the watermark of its connection, as if the provider had all
// usage. If the tenant returned to that connection before any other report, the withdrawn usage would not be
// reported until more usage arrived.
func TestWithdrawingReportClearsWatermarks(t *testing.T) {
	t.Parallel()
	marked := subscribed(january)
	marked.Watermark = billing.Watermark{Events: 1, Configuration: "of the former connection"}
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), marked))
	f.Usage = []billing.Usage{used(january, "10")}
	f.Open = []billing.Open{{ID: uuid.UUID{1}, Kind: billing.QuantityReport, Connection: second, State: billing.Planned}}
	cleared := billing.PeriodWatermark{Start: january.Start}

	reported := billing.NewBooks(f).Plan().Reported
	require.Len(t, reported, 2)
	require.Equal(t, cleared, reported[0])
	require.NotEmpty(t, reported[1].Configuration, "the present connection knows of all with this plan, which counts")

	f.MayClose, f.Side = true, nil
	require.Equal(t, []billing.PeriodWatermark{cleared}, billing.NewBooks(f).Plan().Reported, "a closing withdraws it, and reports nothing")

	f.Open[0].State = billing.Sending
	plan := billing.NewBooks(f).Plan()
	require.NotEmpty(t, plan.Doubt)
	require.Empty(t, plan.Reported, "what is in doubt has somebody look by itself")
	f.Open[0].Connection, f.Open[0].State = first, billing.Planned
	require.Empty(t, billing.NewBooks(f).Plan().Reported, "what goes to the present connection is sent")
}

// TestReplanAtIsWhenPlanCanChangeNext checks ReplanAt, the time at which the customer is re-evaluated: when a period
// ends, when its grace period is over, and a day after a report was accepted if the provider has not counted
// it.
func TestReplanAtIsWhenPlanCanChangeNext(t *testing.T) {
	t.Parallel()
	taken := func(at time.Time, r billing.Reported) billing.Reported {
		r.TakenAt, r.State = at, billing.Accepted
		return r
	}
	first := january.Start.AddDate(0, 0, 3)
	own := taken(first, counted(january, "1"))
	elsewhere, charge, seen, ended := own, own, own, own
	elsewhere.Connection, charge.Kind, seen.TakenAt, ended.Window.Start = second, billing.ChargeReport, time.Time{}, january.Start.Add(-time.Hour)
	within, from := own, subscribed(january)
	within.Window.Start = january.Start.AddDate(0, 0, 4)
	from.Subscription.Range = metering.Range{Start: january.Start.AddDate(0, 0, 5), End: january.End}
	shortened := subscribed(january)
	shortened.Start = january.Start.AddDate(0, 0, 5)
	began := within
	began.Period = shortened.Start
	over := closedAt(january, "0", "0")
	over.Subscription = subscribed(january).Subscription
	border := january.Start.Add(24*time.Hour - time.Microsecond)
	for name, c := range map[string]struct {
		now      time.Time
		periods  []billing.Period
		reported []billing.Reported
		want     time.Time
	}{
		"WhenThePeriodEnds":            {border, []billing.Period{subscribed(january)}, nil, january.End},
		"WhenItsGraceIsOver":           {january.End, []billing.Period{subscribed(january), subscribed(february)}, nil, january.End.Add(grace)},
		"NotAtAClosedOnes":             {january.End, []billing.Period{closedAt(january, "0", "0"), subscribed(february)}, nil, february.End},
		"FromItsEndOn":                 {january.End, []billing.Period{subscribed(january)}, nil, january.End},
		"UntilWhatFollowsIsKnown":      {january.End.Add(time.Hour), []billing.Period{subscribed(january)}, nil, january.End.Add(time.Hour)},
		"AlsoOnceAllAreClosed":         {january.End.Add(grace), []billing.Period{over}, nil, january.End.Add(grace)},
		"ADayAfterItWasTaken":          {first, []billing.Period{subscribed(january)}, []billing.Reported{own}, first.Add(24 * time.Hour)},
		"AtOnceIfThatIsOver":           {first.AddDate(0, 0, 9), []billing.Period{subscribed(january)}, []billing.Reported{own}, first.Add(24 * time.Hour)},
		"ForTheFirstOfTwo":             {first, []billing.Period{subscribed(january)}, []billing.Reported{taken(first.Add(time.Hour), own), own}, first.Add(24 * time.Hour)},
		"NotAtAFormerConnection":       {first, []billing.Period{subscribed(january)}, []billing.Reported{elsewhere}, january.End},
		"NotForACharge":                {first, []billing.Period{subscribed(january)}, []billing.Reported{charge}, january.End},
		"NotOnceItWasSeen":             {first, []billing.Period{subscribed(january)}, []billing.Reported{seen}, january.End},
		"NotOfAnEndedSeries":           {first, []billing.Period{subscribed(january)}, []billing.Reported{ended}, january.End},
		"NotOfASubscriptionsThatEnded": {january.Start.AddDate(0, 0, 6), []billing.Period{from}, []billing.Reported{within}, january.End},
		"NotOfAPeriodBefore":           {january.Start.AddDate(0, 0, 6), []billing.Period{shortened}, []billing.Reported{began}, january.End},
		"NotOfAClosedPeriod":           {february.Start.Add(time.Hour), []billing.Period{closedAt(january, "1", "100"), subscribed(february)}, []billing.Reported{taken(january.End, own)}, february.End},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := c.periods[len(c.periods)-1].Subscription.Range
			f := atMeters(last, knownOf(c.now, c.periods...))
			f.Reported = c.reported
			require.Equal(t, c.want, billing.NewBooks(f).Plan().ReplanAt)
		})
	}

	f := knownOf(january.Start)
	f.Customer.BillingStartsAt = &march.Start
	require.Equal(t, march.Start, billing.NewBooks(f).Plan().ReplanAt, "when its first period begins")
}

// TestCustomerIsReadBeforeQuantitiesArePlanned checks that the customer's state at the provider is read before
// quantities are planned.
func TestCustomerIsReadBeforeQuantitiesArePlanned(t *testing.T) {
	t.Parallel()
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Side = nil
	require.True(t, billing.NewBooks(f).Plan().ReadFirst)
	f.Connection.Statements = true
	require.False(t, billing.NewBooks(f).Plan().ReadFirst)
	f.Connection = nil
	require.False(t, billing.NewBooks(f).Plan().ReadFirst)
}

func TestPlanIsEmptyOnlyWithoutActions(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{{1}}
	require.True(t, billing.ReportPlan{UpToDate: ids, Waiting: true}.Empty())
	parts := map[string]func(*billing.ReportPlan){
		"read":     func(p *billing.ReportPlan) { p.ReadFirst = true },
		"withdraw": func(p *billing.ReportPlan) { p.Withdraw = ids },
		"doubt":    func(p *billing.ReportPlan) { p.Doubt = ids },
		"resolve":  func(p *billing.ReportPlan) { p.Resolved = make([]billing.Resolved, 1) },
		"compare":  func(p *billing.ReportPlan) { p.Reconciled = make([]billing.Reconciliation, 1) },
		"resume":   func(p *billing.ReportPlan) { p.Resume = ids },
		"report":   func(p *billing.ReportPlan) { p.Reports = make([]billing.Report, 1) },
		"close":    func(p *billing.ReportPlan) { p.Closings = make([]billing.Closing, 1) },
	}
	for a, first := range parts {
		for b, second := range parts {
			var both billing.ReportPlan
			first(&both)
			second(&both)
			require.False(t, both.Empty(), "%s and %s", a, b)
		}
	}
}

func TestStateReportsOutstandingAndTaken(t *testing.T) {
	t.Parallel()
	for state, is := range map[billing.State]struct{ outstanding, taken bool }{
		billing.Planned: {true, false}, billing.Sending: {true, false}, billing.InDoubt: {true, false},
		billing.Accepted: {false, true}, billing.Counted: {false, true}, billing.Rejected: {false, false},
	} {
		require.Equal(t, is.outstanding, state.Outstanding(), state)
		require.Equal(t, is.taken, state.Taken(), state)
	}
}

// TestUnknownQuantityOfCompletePeriodIsNotResumed checks that a quantity of unknown outcome is not resumed
// once its period is complete. The period's invoice or an operator determines the outcome.
func TestUnknownQuantityOfCompletePeriodIsNotResumed(t *testing.T) {
	t.Parallel()
	id := uuid.UUID{1}
	for name, c := range map[string]struct {
		open   billing.Open
		resume int
	}{
		"InDoubt":          {billing.Open{Kind: billing.QuantityReport, State: billing.InDoubt, Period: january.Start}, 0},
		"BeingSent":        {billing.Open{Kind: billing.QuantityReport, State: billing.Sending, Period: january.Start}, 1},
		"AChargeInDoubt":   {billing.Open{Kind: billing.ChargeReport, State: billing.InDoubt, Period: january.Start}, 1},
		"OfTheOpenInDoubt": {billing.Open{Kind: billing.QuantityReport, State: billing.InDoubt, Period: february.Start}, 1},
		"AChargeBeingSent": {billing.Open{Kind: billing.ChargeReport, State: billing.Sending, Period: january.Start}, 1},
	} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "10", "1000"), subscribed(february)))
		c.open.ID, c.open.Connection = id, first
		f.Open = []billing.Open{c.open}
		require.Len(t, billing.NewBooks(f).Plan().Resume, c.resume, name)
	}
}

// TestOutstandingReportOfUsagePreventsWatermark checks that a period gets no watermark while another report
// of its usage to the current connection is outstanding. A report of unknown outcome does not prevent the
// watermark, because an operator may have to determine the outcome.
func TestOutstandingReportOfUsagePreventsWatermark(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Reported)
		known  int
	}{
		"OnItsWay":               {func(*billing.Reported) {}, 0},
		"InDoubt":                {func(r *billing.Reported) { r.State = billing.InDoubt }, 1},
		"ToAFormerConnection":    {func(r *billing.Reported) { r.Connection = second }, 1},
		"Refused":                {func(r *billing.Reported) { r.Outstanding, r.State = false, billing.Rejected }, 1},
		"OnItsWayToTheSamePlace": {func(r *billing.Reported) { r.Target = "mtr_1" }, 0},
	} {
		f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
		f.Usage = []billing.Usage{used(january, "10")}
		other := counted(january, "0")
		other.Target, other.Taken, other.Standing, other.Outstanding, other.State = "mtr_0", billing.Sums{}, billing.Sums{}, true, billing.Sending
		c.change(&other)
		f.Reported = []billing.Reported{counted(january, "10"), other}
		require.Len(t, billing.NewBooks(f).Plan().Reported, c.known, name)
	}
}
