package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Units that were accepted before a meter moved to another subscription are billed by the previous subscription's
// invoice or by none. A line on the later subscription's invoice does not bill them.
func TestOnlyPreviousInvoiceBillsUnitsAcceptedBeforeMeterMoved(t *testing.T) {
	t.Parallel()
	later := ofAnother(renewal("0"))
	later.Period = metering.Range{Start: january.Start.AddDate(0, 0, 14), End: january.Start.AddDate(0, 0, 19)}
	for name, c := range map[string]struct {
		former billing.Invoice
		want   string
	}{
		"it has no line of it any more": {without(renewal("10")), "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000"},
		"it has one":                    {renewal("10"), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
	} {
		for _, invoices := range [][]billing.Invoice{{c.former, later}, {later, c.former}} {
			f := closedWith("10")
			f.Invoices = invoices
			require.Equal(t, c.want, reconciledAs(f), name)
		}
	}
}

// A period does not wait for an invoice of a subscription that was cut short when the period's own subscription began.
func TestPeriodDoesNotWaitForInvoiceOfShortenedSubscription(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	december := metering.Range{Start: january.Start.AddDate(0, 0, -10), End: january.Start}
	f.Stored = append([]billing.Period{{
		ID: 9, Range: december, ClosedAt: &january.End, Complete: true,
		Subscription: billing.Subscription{ID: "sub_0", Range: metering.Range{Start: december.Start, End: january.Start.AddDate(0, 0, 20)}, Connection: first},
	}}, f.Stored...)
	f.Invoices = []billing.Invoice{without(renewal("10"))}
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000", reconciledAs(f))
}

// An invoice line is ignored if its meter belonged to another billing schedule all the time. Exception: usage of the
// meter was reported to the invoice's subscription.
func TestInvoiceLineOfOtherSchedulesMeterIsIgnored(t *testing.T) {
	t.Parallel()
	to := billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	for name, c := range map[string]struct {
		from time.Time
		to   billing.InvoicedBy
		want string
	}{
		"what it used before was reported": {january.Start, to, "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0"},
		"it fed another":                   {january.Start, billing.InvoicedBy{}, "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000"},
		"it fed both":                      {january.End.Add(-time.Hour), to, "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0"},
	} {
		f := closedWith("10")
		f.Feeds = []billing.Feed{{MeterID: 1, Stream: 1, From: c.from}}
		f.Reported[0].To = c.to
		f.Invoices = []billing.Invoice{renewal("41")}
		require.Equal(t, c.want, reconciledAs(f), name)
	}
}

// An invoice of another subscription does not bill units that were reported to this subscription for the same time.
// Exception: both subscription periods begin at the same instant.
func TestInvoiceDoesNotBillUnitsReportedToOtherSubscription(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	f := atMeters(january, knownOf(day(20), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "100")}
	f.Reported = []billing.Reported{counted(january, "100")}
	f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	f.Invoices = []billing.Invoice{ofAnother(renewal("13"))}
	f.Invoices[0].Period = metering.Range{Start: day(-20), End: day(10)}
	require.Nil(t, billing.NewBooks(f).Reported[0].Invoiced)
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "87 would be billed twice")

	f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_0", Start: day(-20)}
	require.Equal(t, "13", billing.NewBooks(f).Reported[0].Invoiced.String(), "it was reported to one with the same periods")
}

// Subscriptions with different billing schedules have separate invoices, even if both begin at the same instant. The
// invoice of one does not bill units that were reported to the other.
func TestSubscriptionsOfTwoSchedulesHaveSeparateInvoices(t *testing.T) {
	t.Parallel()
	beside := counted(january, "13")
	beside.To, beside.Number = billing.InvoicedBy{Subscription: "sub_2", Start: january.Start}, 1
	for stream, followed := range []string{"sub_2", "sub_1"} {
		f := closedWith("10")
		f.Stream, f.Followed = stream, []billing.Followed{{Connection: first, Subscription: followed, Stream: 1}}
		f.Feeds = []billing.Feed{{MeterID: 1, Stream: stream, From: january.Start}}
		f.Reported[0].To, f.Reported[0].Number = billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}, 2
		f.Beside, f.Invoices = []billing.Reported{beside}, []billing.Invoice{renewal("10")}
		require.Equal(t, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0", reconciledAs(f), followed)
		require.Nil(t, billing.NewBooks(f).Beside[0].Invoiced)
	}
}

// If a subscription ends without an invoice, a target period bills the units that were reported to the subscription.
// The period's current subscription does not matter.
func TestUnitsReportedToEndedSubscriptionAreBilledByTargetPeriod(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	f.Invoices = []billing.Invoice{ofAnother(ended(january)), without(renewal("0"))}
	f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	f.Invoices = f.Invoices[:1]
	require.Equal(t, "open; carried 0", reconciledAs(f))

	f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_2", Start: january.Start}
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000", reconciledAs(f))
}

// The test checks which billing schedule owns the units of an invoice. A subscription with its own schedule bills for
// that schedule. If usage of two schedules was reported to one subscription, each schedule owns its part of the
// invoice.
func TestInvoicedUnitsAreAssignedToBillingSchedules(t *testing.T) {
	t.Parallel()
	to := billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	beside := counted(january, "5")
	beside.Period, beside.To, beside.Number = january.Start.AddDate(0, 0, 9), to, 2
	since := func(subscription string, from time.Time) func(*billing.Facts) {
		return func(f *billing.Facts) {
			f.Feeds, f.Followed = []billing.Feed{{MeterID: 1, Stream: 1, From: from}}, []billing.Followed{{Connection: first, Subscription: subscription, Stream: 1}}
		}
	}
	for name, c := range map[string]struct {
		invoices []billing.Invoice
		beside   []billing.Reported
		streams  func(*billing.Facts)
		want     string
	}{
		"another stream's subscription":        {[]billing.Invoice{ofAnother(renewal("31")), renewal("10")}, nil, since("sub_2", january.End.Add(-time.Hour)), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"both":                                 {[]billing.Invoice{renewal("15")}, []billing.Reported{beside}, since("sub_2", january.End.Add(-time.Hour)), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"both, and less":                       {[]billing.Invoice{renewal("12")}, []billing.Reported{beside}, since("sub_2", january.End.Add(-time.Hour)), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"more, of one that another stream has": {[]billing.Invoice{renewal("41")}, nil, since("sub_1", january.End.Add(-time.Hour)), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"more, of one that a stream has which the meter never fed": {[]billing.Invoice{renewal("41")}, nil, func(f *billing.Facts) {
			f.Feeds, f.Followed = []billing.Feed{{MeterID: 2, Stream: 1, From: january.Start}}, []billing.Followed{{Connection: first, Subscription: "sub_1", Stream: 1}}
		}, "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0"},
		"one that another stream has since then, and that nobody noted": {[]billing.Invoice{renewal("10")}, nil, func(f *billing.Facts) {
			since("sub_1", january.End)(f)
			f.Reported[0].To = billing.InvoicedBy{}
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"one that another stream has since then, and the period has another": {[]billing.Invoice{renewal("10")}, nil, func(f *billing.Facts) {
			since("sub_1", january.End)(f)
			f.Stored[0].Subscription.ID = "sub_0"
		}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
		"more, of one that another stream has since then": {[]billing.Invoice{renewal("41")}, nil, since("sub_1", january.End), "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0"},
	} {
		f := closedWith("10")
		f.Reported[0].To, f.Beside, f.Invoices = to, c.beside, c.invoices
		c.streams(&f)
		require.Equal(t, c.want, reconciledAs(f), name)
	}
}

// Unexplained units on an invoice, which Odometer did not report, belong to one period: the last one that the invoice
// is about and in which the meter belongs to the schedule.
func TestUnexplainedUnitsBelongToLastPeriodOfInvoice(t *testing.T) {
	t.Parallel()
	border := january.Start.AddDate(0, 0, 14)
	for name, c := range map[string]struct {
		invoices []billing.Invoice
		feeds    []billing.Feed
	}{
		"the subscription has ended":   {[]billing.Invoice{cut("41"), ended(january)}, nil},
		"the meter feeds another then": {[]billing.Invoice{renewal("41")}, []billing.Feed{{MeterID: 1, Stream: 1, From: border}}},
	} {
		f := closedWith("10")
		f.Stored[0].End, f.Stored[1].Start = border, border
		f.Stored[1].Subscription = billing.Subscription{ID: "sub_2", Range: metering.Range{Start: border, End: february.End}}
		f.Invoices, f.Feeds = c.invoices, c.feeds
		f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
		require.Equal(t, "disputed 41 invoiced, 31 unexplained, 10 billed: billed_more; carried 0", reconciledAs(f), name)
	}
}

// Units that were reported to a subscription are not billed if its final invoice has no line for them. The
// reconciliation does not wait for the invoice of a parallel subscription.
func TestReconciliationDoesNotWaitForParallelSubscription(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	f.Stored[1].Subscription = billing.Subscription{ID: "sub_2", Range: metering.Range{Start: january.Start.AddDate(0, 0, 20), End: february.End}, Connection: first}
	f.Reported[0].To = billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	f.Invoices = []billing.Invoice{without(renewal("10"))}
	f.Invoices[0].Period.End = february.Start.AddDate(0, 0, 10)
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: not_billed; carried 1000", reconciledAs(f))
}

// A plan that gives a stored period another subscription is followed by another plan at once, with and without reports
// of the period: an invoice of the new subscription may bill the period, and one of the previous subscription no longer
// does.
func TestChangeOfPeriodsSubscriptionCausesImmediateReplan(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return january.Start.AddDate(0, 0, n-1) }
	next := metering.Range{Start: day(10), End: february.End}
	sent := day(12)
	in := func(r metering.Range) billing.Period {
		return billing.Period{Range: r, Subscription: billing.Subscription{ID: "sub_2", Range: next, Connection: first}}
	}
	renewed := in(january)
	renewed.Subscription.Start = day(3)
	closed := closedAt(january, "10", "100")
	closed.Subscription = subscribed(january).Subscription
	reported := counted(january, "10")
	reported.Timestamp, reported.To = &sent, billing.InvoicedBy{Subscription: "sub_1", Start: january.Start}
	for name, c := range map[string]struct {
		stored   []billing.Period
		reported []billing.Reported
		again    bool
	}{
		"another subscription":                    {[]billing.Period{subscribed(january)}, []billing.Reported{reported}, true},
		"another subscription, nothing reported":  {[]billing.Period{subscribed(january)}, nil, true},
		"another period of the same subscription": {[]billing.Period{renewed}, []billing.Reported{reported}, true},
		"stored already":                          {[]billing.Period{in(january)}, []billing.Reported{reported}, false},
		"stored already of the next period only":  {[]billing.Period{subscribed(january), in(february)}, []billing.Reported{reported}, true},
		"a closed period keeps its subscription":  {[]billing.Period{closed, in(february)}, nil, false},
		"a new period gets its first one":         {[]billing.Period{in(january)}, nil, false},
	} {
		f := atMeters(next, knownOf(february.Start.AddDate(0, 0, 1), c.stored...))
		f.Side.Subscription = "sub_2"
		f.Usage, f.Reported = []billing.Usage{used(january, "10")}, c.reported
		require.Equal(t, c.again, billing.NewBooks(f).Plan().ReplanAt.Equal(f.Now), name)
	}
}

// If one connection's invoice bills more units than that connection accepted, the surplus does not count as billing of
// units that another connection accepted but did not invoice.
func TestSurplusDoesNotBillUnitsOfOtherConnection(t *testing.T) {
	t.Parallel()
	elsewhere := ofAnother(renewal("41"))
	elsewhere.Connection, elsewhere.Period = second, metering.Range{Start: january.Start.AddDate(0, 0, 19), End: february.End}
	part := counted(january, "4")
	part.Connection, part.Window.Start = second, elsewhere.Period.Start
	refused := part
	refused.Taken, refused.Standing, refused.State = billing.Sums{}, billing.Sums{}, billing.Rejected
	for name, c := range map[string]struct {
		dropped string // units that the first connection accepted
		there   []billing.Reported
		want    string
	}{
		"nothing was reported there": {"10", nil, "carried 0 invoiced, 0 unexplained, 0 billed: subscription_ended; carried 1000"},
		"a part was":                 {"6", []billing.Reported{part}, "carried 4 invoiced, 0 unexplained, 4 billed: subscription_ended; carried 600"},
		"a part was refused":         {"6", []billing.Reported{refused}, "carried 4 invoiced, 0 unexplained, 4 billed: subscription_ended; carried 600"},
		"all was refused":            {"0", []billing.Reported{refused}, "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closedWith(c.dropped)
			f.Reported = append(f.Reported, c.there...)
			f.Connection = &billing.Connection{ID: second, Invoices: true}
			f.Invoices = []billing.Invoice{cut("0"), ended(january), elsewhere}
			require.Equal(t, c.want, reconciledAs(f))
		})
	}
}

// A final invoice without a line for a meter bills none of its units. Invoices of later periods, of other customers, or
// without such a line do not change this.
func TestFinalInvoiceWithoutLineOfMeterBillsNoUnits(t *testing.T) {
	t.Parallel()
	border := january.Start.AddDate(0, 0, 14)
	next := billing.Subscription{ID: "sub_2", Range: metering.Range{Start: border, End: border.AddDate(0, 1, 0)}, Connection: first}
	for name, change := range map[string]func(*billing.Invoice){
		"they are of a later time":           func(i *billing.Invoice) { i.Period = metering.Range{Start: january.End, End: next.End} },
		"they are of another customer there": func(i *billing.Invoice) { i.Customer = "cus_2" },
		"they have none either":              func(i *billing.Invoice) { i.Lines = nil },
	} {
		f := closedWith("0")
		f.Stored[0].End, f.Stored[1].Range, f.Reported = border, next.Range, nil
		other := ofAnother(renewal("4"))
		other.Period = next.Range
		change(&other)
		f.Stored[1].Subscription = next
		f.Stored[1].Subscription.Range = other.Period
		f.Invoices = []billing.Invoice{without(renewal("0")), other}
		require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: unreported; carried 1000", reconciledAs(f), name)
	}
}

// If two periods in one subscription period total less than zero, the final invoice bills zero. Odometer then plans
// neither a charge nor a credit.
func TestNegativeTotalIsNeitherChargedNorCredited(t *testing.T) {
	t.Parallel()
	of := metering.Range{Start: january.Start.AddDate(0, 0, 9), End: february.Start.AddDate(0, 0, 9)}
	rest := metering.Range{Start: february.Start, End: of.End}
	for _, units := range [][2]string{{"-10", "-2"}, {"-13", "10"}} {
		f := closedWith("0")
		before, after := closedAt(january, units[0], "0"), closedAt(rest, units[1], "0")
		if after.Closed[0].Usage.Cmp(metering.Decimal{}) > 0 {
			after.Closed[0].Charge = metering.Whole(100).Mul(after.Closed[0].Usage)
		}
		for _, p := range []*billing.Period{&before, &after} {
			p.Subscription = billing.Subscription{ID: "sub_1", Range: of, Connection: first, Invoiced: true}
			p.Closed[0].Scale = new(int32)
		}
		f.Stored = []billing.Period{before, after, subscribed(metering.Range{Start: of.End, End: of.End.AddDate(0, 1, 0)})}
		f.Side.Period, f.Now = f.Stored[2].Range, of.End.AddDate(0, 0, 8)
		first, last := counted(january, units[0]), counted(rest, units[1])
		first.Window.Start, last.Number = of.Start, 2
		f.Reported = []billing.Reported{first, last}
		f.Invoices = []billing.Invoice{renewal("0")}
		f.Invoices[0].Period = of
		require.Empty(t, billing.NewBooks(f).Plan().Reports, units)
	}
}
