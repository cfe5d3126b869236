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

// restored returns facts after a restore one day ago. The ledger has 4 of January's 12 units as reported to the current
// connection, and 3 as reported to another one. The provider's totals were not read since the restore.
func restored() billing.Facts {
	f := atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Epoch, f.Unread = f.Now.AddDate(0, 0, -1).Unix(), true
	f.Usage = []billing.Usage{used(january, "12")}
	elsewhere := counted(january, "3")
	elsewhere.Connection = second
	f.Reported = []billing.Reported{counted(january, "4"), elsewhere}
	return f
}

func TestAddedUpTotalsAreReadAfterRestore(t *testing.T) {
	t.Parallel()
	places := []billing.AddedUp{{MeterID: 1, Series: counted(january, "4").Series}}
	subscribedAt := func(c metering.ConnectionID) func(*billing.Facts) { // January lies in a previous subscription at c
		return func(f *billing.Facts) {
			f.Stored[0].Subscription, f.Side.Period = billing.Subscription{ID: "sub_0", Range: january, Connection: c}, february
		}
	}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		want   []billing.AddedUp
	}{
		"Unread":          {func(*billing.Facts) {}, places},
		"Read":            {func(f *billing.Facts) { f.Unread = false }, nil},
		"OfNobody":        {func(f *billing.Facts) { f.Side = nil }, nil},
		"WhatIsReplaced":  {func(f *billing.Facts) { f.Side.Destinations[0].Counting = billing.Replaces }, nil},
		"LeadingNowhere":  {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, nil},
		"OfASubscription": {func(f *billing.Facts) { f.Stored[0] = billing.Period{Range: january}; f.Side.Subscription = "" }, nil},
		"Closed":          {func(f *billing.Facts) { f.Stored[0] = closedAt(january, "12", "1200") }, nil},
		"InAmounts":       {func(f *billing.Facts) { f.Stored[0].Bills = metering.BillsAmounts }, nil},
		"OfAFormerOne":    {subscribedAt(first), places},
		"OfOneElsewhere":  {subscribedAt(second), nil},
	} {
		f := restored()
		c.change(&f)
		require.Equal(t, c.want, billing.NewBooks(f).AddedUp(), name)
	}
	plan := billing.NewBooks(restored()).Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, []billing.Exclusion{{MeterID: 1, MeterSlug: "calls", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedRestored}}}, plan.Excluded)
	require.Equal(t, restored().Now.Add(time.Hour), plan.ReplanAt)
}

// If the provider's total exceeds the ledger's, Odometer reported the difference after the backup was made. Lost
// returns the difference as one report.
func TestLostReturnsUnitsSinceBackupAsOneReport(t *testing.T) {
	t.Parallel()
	f := restored()
	at := billing.NewBooks(f).AddedUp()[0]
	other := at
	other.Target = "mtr_2"
	for _, counted := range []billing.Found{{AddedUp: at, Counted: metering.Whole(4)}, {AddedUp: at, Counted: metering.Whole(3)}, {AddedUp: other, Counted: metering.Whole(10)}} {
		require.Empty(t, billing.NewBooks(f).Lost([]billing.Found{counted}), "%s of %s", counted.Counted, counted.Target)
	}
	reports := billing.NewBooks(f).Lost([]billing.Found{{AddedUp: other, Counted: metering.Whole(9)}, {AddedUp: at, Counted: metering.Whole(10)}})
	require.Len(t, reports, 1)
	r := reports[0]
	require.Equal(t, at.Series, r.Series)
	require.Equal(t, "6", r.Quantity.String())
	require.Equal(t, "13", r.Lines[0].Usage.String())
	require.Equal(t, "10", r.Lines[0].Quantity.String())
	require.Equal(t, january.End.Add(grace), r.Deadline)

	later := f.Reported[0]
	later.Window.Start = later.Window.Start.AddDate(0, 0, 1)
	f.Reported = append(f.Reported, later)
	require.Empty(t, billing.NewBooks(f).Lost([]billing.Found{{AddedUp: at, Counted: metering.Whole(8)}}), "what was reported for another part of the period is there too")
}

// For each meter, closed period and target period, LostCharges returns one report of the charges that the ledger
// lacks. The line's amount includes the charges that the ledger has.
func TestLostChargesReturnsOneReportPerMeterAndTargetPeriod(t *testing.T) {
	t.Parallel()
	f := ofLateUsage("17", "7")
	f.Stored = append(f.Stored, subscribed(march))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats"})
	f.Reported = []billing.Reported{lateCharge(f, "50", 1)}
	charge := func(id byte, amount int64, change func(*billing.FoundCharge)) billing.FoundCharge {
		c := billing.FoundCharge{
			ReportID: uuid.UUID{id}, MeterID: 1, Subscription: "sub_1", Closed: january.Start, Target: february.Start,
			Units: metering.Whole(amount / 100), Amount: metering.Whole(amount), Currency: "USD",
		}
		change(&c)
		return c
	}
	same := func(*billing.FoundCharge) {}
	seats := func(c *billing.FoundCharge) { c.MeterID = 2 }
	reports := billing.NewBooks(f).LostCharges([]billing.FoundCharge{
		charge(3, 400, same), charge(1, 100, same), charge(2, 200, same), charge(4, 1600, seats), charge(5, 3200, seats),
		charge(6, 6400, func(c *billing.FoundCharge) { c.Target = march.Start }),
		charge(7, 12800, func(c *billing.FoundCharge) { c.Target = march.End }),
		charge(8, 25600, func(c *billing.FoundCharge) { c.MeterID = 3 }),
		charge(9, 51200, func(c *billing.FoundCharge) { c.Closed = january.Start.Add(time.Second) }),
	})
	type made struct {
		meter            metering.MeterID
		target           time.Time
		quantity, amount string
	}
	var all []made
	for _, r := range reports {
		require.Equal(t, january, r.Of)
		require.Equal(t, r.Window.End.Add(grace), r.Deadline)
		all = append(all, made{r.Lines[0].MeterID, r.Window.Start, r.Quantity.String(), r.Lines[0].Amount.String()})
	}
	require.Equal(t, []made{
		{1, february.Start, "13500", "13550"}, {2, february.Start, "4800", "4800"}, {1, march.Start, "6400", "6400"},
	}, all, "what has no target period any more is the first open one's")
}

// A statement from before a restore is the last one that its receiver has, if the period was closed before the
// restore. Otherwise the period is stated once more.
func TestStatementOfPeriodClosedBeforeRestoreIsNotRepeated(t *testing.T) {
	t.Parallel()
	for restored, want := range map[time.Duration]int{-time.Second: 1, 0: 1, time.Second: 0} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "3", "300"), billing.Period{Range: february}))
		f.Stored[0].Complete = false
		lines := billing.NewBooks(f).Plan().Reports[0].Lines
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: lines}}
		f.Epoch = january.End.Add(grace).Add(restored).Unix()
		f.Epochs = []int64{f.Epoch}
		again := func() (n int) {
			for _, r := range billing.NewBooks(f).Plan().Reports {
				if r.Period.Equal(january.Start) {
					n++
				}
			}
			return n
		}
		require.Equal(t, want, again(), restored)
		f.Statements[0].Epoch = f.Epoch
		require.Len(t, billing.NewBooks(f).Plan().Complete, 1, "it was made since")
		f.Statements[0].Epoch = 0
		f.Epoch = f.Now.Unix()
		f.Epochs = append(f.Epochs, f.Epoch)
		require.Equal(t, want, again(), "restored once more: %s", restored)
	}
}

// A statement without an outcome in the backup may have been followed by another one. Once its outcome is known, the
// closed period is stated once more.
func TestAClosedPeriodWithAStatementOutstandingAtARestoreIsStatedOnceMore(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "3", "300"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	f.Epoch = f.Stored[0].ClosedAt.Add(time.Second).Unix()
	before := f
	lines := billing.NewBooks(before).Plan().Reports[0].Lines
	f.Epochs = []int64{f.Epoch}
	taken := billing.Sent{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: lines, DecidedAt: *f.Stored[0].ClosedAt}
	known, since := taken, taken
	known.ID, known.Number = uuid.UUID{2}, 2
	since.ID, since.Number, since.DecidedAt = uuid.UUID{2}, 2, time.Unix(f.Epoch, 0)
	rejected := since
	rejected.State = billing.Rejected
	isStated := func(sent ...billing.Sent) bool {
		f.Statements = sent
		plan := billing.NewBooks(f).Plan()
		stated := slices.ContainsFunc(plan.Reports, func(r billing.Report) bool { return r.Period.Equal(january.Start) })
		require.Equal(t, stated, len(plan.Complete) == 0)
		return stated
	}
	require.False(t, isStated(taken))
	require.False(t, isStated(taken, known))
	require.True(t, isStated(taken, since))
	require.True(t, isStated(taken, rejected))
	ofFebruary, former := rejected, rejected
	ofFebruary.Period, former.Number = february.Start, 0
	require.False(t, isStated(taken, ofFebruary))
	require.False(t, isStated(taken, former))
	again := billing.Sent{ID: uuid.UUID{3}, Period: january.Start, Number: f.Epoch * 1_000_000, Epoch: f.Epoch, State: billing.Accepted, Lines: lines}
	require.False(t, isStated(since, again))
	require.False(t, isStated(taken, rejected, again))
}

// After a restore, the statements that a receiver got since the backup are unknown. A period that began before the
// restore and closes after it is stated once more, even if another connection has billed all of it.
func TestAPeriodThatClosesAfterARestoreIsStatedOnceMore(t *testing.T) {
	t.Parallel()
	closing := january.End.Add(grace)
	for restored, want := range map[time.Time]bool{
		january.Start: false, january.Start.Add(time.Second): true, // no statement exists of a period that had not begun
		closing.Add(-time.Second): true, closing: true, closing.Add(time.Second): false,
	} {
		closed := closedAt(january, "3", "300")
		closed.Closed[0].Scale = new(int32)
		f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 9), closed, billing.Period{Range: february}))
		f.Stored[0].Complete = false
		f.Reported = []billing.Reported{counted(january, "3")}
		f.Epoch = restored.Unix()
		f.Epochs = []int64{f.Epoch}
		plan := billing.NewBooks(f).Plan()
		require.Equal(t, want, len(plan.Complete) == 0, restored)
		require.Equal(t, want, slices.ContainsFunc(plan.Reports, func(r billing.Report) bool { return r.Period.Equal(january.Start) }), restored)
	}
}

// A period that was closed before a restore is also stated once more if its only statement was outstanding in the
// backup, and is rejected now.
func TestPeriodWithOnlyRejectedStatementIsStatedAgainAfterRestore(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "3", "300")
	closed.Closed[0].Scale = new(int32)
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 9), closed, billing.Period{Range: february}))
	f.Stored[0].Complete = false
	f.Reported = []billing.Reported{counted(january, "3")}
	f.Epoch = january.End.Add(grace).Add(time.Second).Unix()
	f.Epochs = []int64{f.Epoch}
	isStated := func(sent ...billing.Sent) bool {
		f.Statements = sent
		plan := billing.NewBooks(f).Plan()
		stated := slices.ContainsFunc(plan.Reports, func(r billing.Report) bool { return r.Period.Equal(january.Start) })
		require.Equal(t, stated, len(plan.Complete) == 0)
		return stated
	}
	require.False(t, isStated())
	rejected := billing.Sent{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Rejected}
	require.True(t, isStated(rejected), "another one may have followed it")
	again := billing.Sent{ID: uuid.UUID{2}, Period: january.Start, Number: f.Epoch * 1_000_000, Epoch: f.Epoch, State: billing.Accepted}
	require.False(t, isStated(rejected, again))
	refused := again
	refused.State = billing.Rejected
	require.False(t, isStated(refused), "the receiver has refused it")
}

// After a restore, no period closes until the tenant's grace has passed, so that clients can send lost events again
// in time.
func TestNoPeriodClosesUntilTheGraceAfterARestoreIsOver(t *testing.T) {
	t.Parallel()
	f := knownOf(march.Start, billing.Period{Range: january}, billing.Period{Range: february})
	f.Epoch = march.Start.Add(-grace).Unix()
	require.Len(t, closes(f).Closings, 1)
	f.Now = march.Start.Add(-time.Microsecond)
	plan := closes(f)
	require.Empty(t, plan.Closings)
	require.True(t, plan.Waiting)
}

// An open report from before a restore may be included in the provider's total. The report is not resumed until the
// total is read, unless the report's series overwrites the quantity.
func TestReportOpenAtRestoreIsNotResumedBeforeTotalIsRead(t *testing.T) {
	t.Parallel()
	f := restored()
	of := []uuid.UUID{{7}}
	f.Open = []billing.Open{{ID: of[0], Kind: billing.QuantityReport, Connection: first, State: billing.Planned, Epoch: f.Epoch - 1, Unread: true}}
	require.Empty(t, billing.NewBooks(f).Plan().Resume)
	f.Reported[0].Last, f.Reported[0].Counting = of[0], billing.Replaces
	require.Equal(t, of, billing.NewBooks(f).Plan().Resume, "what overwrites may be sent again")
	f.Reported[0].Counting, f.Reported[1].Counting = billing.Adds, billing.Replaces
	require.Empty(t, billing.NewBooks(f).Plan().Resume, "another series overwrites")
	f.Open[0].Epoch = f.Epoch
	require.Equal(t, of, billing.NewBooks(f).Plan().Resume)
	f.Open[0].Epoch, f.Unread = f.Epoch-1, false
	require.Empty(t, billing.NewBooks(f).Plan().Resume, "only the totals of the customer's present link were read")
	f.Open[0].Unread = false
	require.Equal(t, of, billing.NewBooks(f).Plan().Resume)
}

// After a restore, a series that overwrites a quantity (Replaces, Latest) is reported again, which corrects the
// provider's quantity. A series that adds up (Adds) is not reported again.
func TestOverwritingSeriesIsReportedAgainAfterRestore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		counting billing.Counting
		epoch    int64 // of the last accepted report, relative to the ledger's
		want     int
	}{{billing.Replaces, -1, 1}, {billing.Replaces, 0, 0}, {billing.Latest, -1, 1}, {billing.Adds, -1, 0}} {
		f := restored()
		f.Unread, f.Side.Destinations[0].Counting = false, c.counting
		r := counted(january, "12")
		r.Counting, r.Epoch = c.counting, f.Epoch+c.epoch
		f.Reported = []billing.Reported{r}
		require.Len(t, billing.NewBooks(f).Plan().Reports, c.want, "%s %d", c.counting, c.epoch)
	}
}

// Forgotten returns the open reports to each target with a total that was read, because the total includes any report
// that arrived. Reports to other targets stay open.
func TestForgottenReturnsOpenReportsOfTargetsThatWereRead(t *testing.T) {
	t.Parallel()
	f := restored()
	there, former := uuid.UUID{1}, uuid.UUID{2}
	onItsWay := func(of billing.Reported, id uuid.UUID) billing.Reported {
		of.Last, of.State, of.Outstanding, of.Taken = id, billing.InDoubt, true, billing.Sums{}
		f.Open = append(f.Open, billing.Open{ID: id, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt})
		return of
	}
	elsewhere := onItsWay(counted(january, "5"), former)
	elsewhere.Target = "mtr_2"
	f.Reported = []billing.Reported{elsewhere, onItsWay(counted(january, "4"), there)}
	found := []billing.Found{{AddedUp: billing.NewBooks(f).AddedUp()[0], Counted: metering.Whole(4)}}
	require.Equal(t, []uuid.UUID{there}, billing.NewBooks(f).Forgotten(found))
	require.Empty(t, billing.NewBooks(f).Forgotten(nil), "its place was not read")
	f.Reported = append(f.Reported, counted(january, "4"))
	require.Equal(t, []uuid.UUID{there}, billing.NewBooks(f).Forgotten(found), "nothing of it arrived")
	f.Reported[2] = counted(january, "5")
	require.Empty(t, billing.NewBooks(f).Forgotten(found), "less was found than was taken")
	f.Reported = f.Reported[:2]
	f.Open[1].Epoch = f.Epoch
	require.Empty(t, billing.NewBooks(f).Forgotten(found), "it was made since")
	f.Open[1].Epoch, f.Unread = 0, false
	require.Empty(t, billing.NewBooks(f).Forgotten(found))
}

// After a restore, 4 units are accepted and a report of 6 more has an unknown outcome. The final invoice does not
// show the outcome, because it bills neither 4 nor 10 units. After the report is forgotten, Lost finds the units that
// arrived beyond 4. The tenant's next connection does not bill the invoiced units again.
func TestLostFindsInvoicedUnitsOfForgottenReport(t *testing.T) {
	t.Parallel()
	for there, want := range map[string]string{"6": "2", "5": "1", "3": "", "0": ""} {
		f := restored()
		f.Stored[0], f.Connection.Invoices, f.Invoices = invoiced(january), true, []billing.Invoice{renewal(there)}
		inDoubt := counted(january, "10")
		inDoubt.Taken, inDoubt.Outstanding, inDoubt.State = counted(january, "4").Taken, true, billing.InDoubt
		f.Reported = []billing.Reported{inDoubt}
		f.Open = []billing.Open{{ID: inDoubt.Last, Kind: billing.QuantityReport, Connection: first, Period: january.Start, State: billing.InDoubt}}
		require.Empty(t, billing.NewBooks(f).Resolved, there)
		found := []billing.Found{{AddedUp: billing.NewBooks(f).AddedUp()[0], Counted: metering.MustDecimal(there)}}
		require.Equal(t, []uuid.UUID{inDoubt.Last}, billing.NewBooks(f).Forgotten(found), there)

		known := counted(january, "4")
		for _, lost := range billing.NewBooks(f).Lost(found) {
			require.Equal(t, want, lost.Quantity.String())
			require.Equal(t, there, lost.Lines[0].Quantity.String(), "all that is there")
			known, want = counted(january, there), ""
		}
		require.Empty(t, want, there)
		f.Open, f.Reported, f.Unread = nil, []billing.Reported{known}, false // as stored after Forgotten and Lost
		f = withStatementReceiver(second, f)
		require.Equal(t, metering.Whole(12).Sub(metering.MustDecimal(there)).String(), billing.NewBooks(f).Plan().Reports[0].Lines[0].Quantity.String(), there)
	}
}

// ReportsWithoutLine returns the open reports that set invoice lines, except reports that a line names. A line names
// the last report that set it.
func TestReportsWithoutLineExcludesReportsNamedByLine(t *testing.T) {
	t.Parallel()
	f := restored()
	f.Reported = nil
	onItsWay := func(id byte, change func(*billing.Reported)) uuid.UUID {
		r := counted(january, "4")
		r.Kind, r.Counting, r.Last, r.State, r.Outstanding = billing.ChargeReport, billing.Replaces, uuid.UUID{id}, billing.InDoubt, true
		change(&r)
		f.Reported = append(f.Reported, r)
		f.Open = append(f.Open, billing.Open{ID: r.Last, Kind: r.Kind, Connection: r.Connection, Period: january.Start, State: billing.InDoubt})
		return r.Last
	}
	there := onItsWay(1, func(*billing.Reported) {})
	replaced := onItsWay(2, func(r *billing.Reported) { r.MeterID = 2 })
	onItsWay(3, func(r *billing.Reported) { r.Counting = billing.Adds })
	onItsWay(4, func(r *billing.Reported) { r.Kind = billing.QuantityReport })
	onItsWay(5, func(r *billing.Reported) { r.Connection = second })
	onItsWay(6, func(r *billing.Reported) { r.Customer = "cus_2" })
	found := []billing.FoundCharge{{ReportID: there}}
	require.Equal(t, []uuid.UUID{replaced}, billing.NewBooks(f).ReportsWithoutLine(found))
	require.Equal(t, []uuid.UUID{there, replaced}, billing.NewBooks(f).ReportsWithoutLine(nil))
	f.Open[1].Epoch = f.Epoch
	require.Empty(t, billing.NewBooks(f).ReportsWithoutLine(found), "it was made since")
	f.Open[1].Epoch, f.Unread = 0, false
	require.Empty(t, billing.NewBooks(f).ReportsWithoutLine(found))
}
