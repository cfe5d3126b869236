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

// closes returns the plan of f with MayClose set, so that the plan can close periods.
func closes(f billing.Facts) billing.ReportPlan {
	f.MayClose = true
	return billing.NewBooks(f).Plan()
}

// A period closes once its end and grace have passed, for any invoices and responses of the provider. Periods close in
// their order, and not while the first backfill of a meter runs.
func TestPeriodClosesAfterItsEndAndGrace(t *testing.T) {
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
	require.Empty(t, billing.NewBooks(f).Plan().Closings, "usage may still come meanwhile")

	f.Meters[0].Version.Status = metering.Backfilling
	plan = closes(f)
	require.Empty(t, plan.Closings)
	require.True(t, plan.Waiting)

	f = atMeters(february, knownOf(january.End.Add(time.Hour), invoiced(january), subscribed(february)))
	require.Empty(t, closes(f).Closings, "its invoice is final")
	f.Now, f.Side = january.End.Add(grace), nil
	plan = closes(f)
	require.Len(t, plan.Closings, 1, "nobody has read what the customer is there")
	require.True(t, plan.Closings[0].Lines[0].Billed)
	require.True(t, plan.Unreported)
}

// A period closes even if no statement was accepted for the period. After the close, the period is stated again unless
// an accepted statement contains all of its usage. An outstanding statement is resumed instead.
func TestClosedPeriodIsStatedUntilAllUsageIsAccepted(t *testing.T) {
	t.Parallel()
	ready := func() billing.Facts {
		f := withStatementReceiver(first, knownOf(january.End.Add(grace), billing.Period{Range: january}, billing.Period{Range: february}))
		f.Usage = []billing.Usage{used(january, "3")}
		return f
	}
	lines := billing.NewBooks(ready()).Plan().Reports[0].Lines
	sent := func(number int64, state billing.State, lines []billing.Line) billing.Sent {
		return billing.Sent{ID: uuid.UUID{1}, Period: january.Start, Number: number, State: state, Lines: lines}
	}
	other := []billing.Line{lines[0]}
	other[0].Usage, other[0].Quantity, other[0].Amount = metering.Whole(2), metering.Whole(2), metering.Whole(200)
	all, some := []billing.Reported{stated(first, january, "3", "300")}, []billing.Reported{stated(first, january, "2", "200")}
	underWay := func(kind billing.Kind, at metering.ConnectionID, state billing.State) []billing.Open {
		return []billing.Open{{ID: uuid.UUID{2}, Kind: kind, Connection: at, State: state}}
	}
	for name, c := range map[string]struct {
		sent     []billing.Sent
		reported []billing.Reported
		open     []billing.Open
		stated   string // with the next statement; "": there is none
		complete bool
	}{
		"None":                 {nil, nil, nil, "3", false},
		"Taken":                {[]billing.Sent{sent(1, billing.Accepted, lines)}, all, nil, "", true},
		"TakenWithOtherLines":  {[]billing.Sent{sent(1, billing.Accepted, other)}, some, nil, "3", false},
		"Refused":              {[]billing.Sent{sent(1, billing.Rejected, lines)}, nil, nil, "3", false},
		"TakenAndRefusedSince": {[]billing.Sent{sent(1, billing.Accepted, lines), sent(2, billing.Rejected, other)}, all, nil, "", true},
		"TakenAgain":           {[]billing.Sent{sent(1, billing.Accepted, other), sent(2, billing.Accepted, lines)}, all, nil, "", true},
		"OneIsOnItsWay":        {nil, nil, underWay(billing.StatementReport, first, billing.Sending), "", false},
		"OneIsNeverSentToAFormerConnection": {
			[]billing.Sent{sent(1, billing.Accepted, lines)}, all, underWay(billing.StatementReport, second, billing.Planned), "", true,
		},
		"OneIsInDoubtAtAFormerConnection": {
			[]billing.Sent{sent(1, billing.Accepted, lines)}, all, underWay(billing.QuantityReport, second, billing.InDoubt), "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready()
			f.Statements, f.Reported, f.Open = c.sent, c.reported, c.open
			plan := closes(f)
			require.False(t, plan.Waiting)
			require.Len(t, plan.Closings, 1)
			require.Equal(t, "300", plan.Closings[0].Lines[0].Charge.String())
			require.True(t, plan.Closings[0].Lines[0].Billed)
			require.Equal(t, name == "OneIsNeverSentToAFormerConnection", len(plan.Withdraw) == 1)
			require.Equal(t, c.complete, len(plan.Complete) == 1)
			require.Equal(t, c.stated != "" || name == "OneIsOnItsWay", plan.Unreported)

			f.Stored, f.Open = plan.Periods, nil
			require.Empty(t, billing.NewBooks(f).Adjustments(), "it is stated as its own")
			next := billing.NewBooks(f).Plan()
			if name == "OneIsOnItsWay" {
				f.Open = c.open
				next = billing.NewBooks(f).Plan()
				require.Equal(t, []uuid.UUID{{2}}, next.Resume)
			}
			if c.stated == "" {
				require.False(t, slices.ContainsFunc(next.Reports, func(r billing.Report) bool { return r.Period.Equal(january.Start) }))
				return
			}
			require.Len(t, next.Reports, 1)
			require.Equal(t, january.Start, next.Reports[0].Period)
			require.Equal(t, c.stated, next.Reports[0].Lines[0].Quantity.String())
		})
	}

	f := ready()
	f.Meters, f.Usage = nil, nil
	require.Len(t, closes(f).Closings, 1, "there is nothing to state")
}

// A statement to a new connection contains the units of a closed period that the previous connection cannot have. If a
// report of unknown outcome turns out to be lost, a target period bills its units. The closed period is not stated
// again.
func TestNewReceiverIsStatedUnitsThatPreviousReceiverLacks(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	inDoubt := stated(first, january, "2", "200")
	inDoubt.Taken, inDoubt.Outstanding, inDoubt.State = billing.Sums{}, true, billing.InDoubt
	f.Reported = []billing.Reported{inDoubt}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, january.Start, reports[0].Period)
	require.Equal(t, "1", reports[0].Lines[0].Quantity.String())
	require.Equal(t, "100", reports[0].Lines[0].Amount.String())

	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: reports[0].Lines}}
	f.Reported = []billing.Reported{inDoubt, stated(second, january, "1", "100")}
	require.Empty(t, billing.NewBooks(f).Adjustments())
	require.Empty(t, billing.NewBooks(f).Plan().Complete, "nobody knows about the 2")

	f.Reported = f.Reported[1:]
	late := billing.NewBooks(f).Adjustments()
	require.Len(t, late, 1)
	require.Equal(t, "2", late[0].Quantity.String())
	require.Equal(t, "200", late[0].Amount.String())
	reports = billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, february.Start, reports[0].Period)
}

// A period closes at its usage and charge, independent of the reports. A meter that could never be reported closes as
// not billed.
func TestClosedChargeDoesNotDependOnReports(t *testing.T) {
	t.Parallel()
	elsewhere := counted(january, "4")
	elsewhere.Target = "mtr_0"
	for name, c := range map[string]struct {
		change       func(*billing.Facts)
		billed       bool
		billedUnits, // with the period, once its invoice is final
		carried string
	}{
		"Some":                      {func(f *billing.Facts) { f.Reported = []billing.Reported{counted(january, "10")} }, true, "10", "200"},
		"None":                      {func(*billing.Facts) {}, true, "0", "1200"},
		"HereAndElsewhere":          {func(f *billing.Facts) { f.Reported = []billing.Reported{counted(january, "8"), elsewhere} }, true, "12", "0"},
		"FromBeforeTheSubscription": {func(f *billing.Facts) { f.Stored[0].Subscription = billing.Subscription{} }, false, "12", "0"},
		"ElsewhereBeforeTheSubscription": {func(f *billing.Facts) {
			f.Stored[0].Subscription = billing.Subscription{}
			f.Reported = []billing.Reported{elsewhere}
		}, true, "4", "800"},
		"WhereNothingLeads": {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, false, "12", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(february, knownOf(january.End.Add(grace), invoiced(january), subscribed(february)))
			f.Connection.Invoices = true
			f.Usage = []billing.Usage{used(january, "12")}
			c.change(&f)
			plan := closes(f)
			require.Len(t, plan.Closings, 1)
			line := plan.Closings[0].Lines[0]
			require.Equal(t, c.billed, line.Billed)
			require.Equal(t, "1200", line.Charge.String(), "what it came to")
			require.Equal(t, c.billed, line.Scale != nil)
			require.Equal(t, c.carried != "0", plan.Unreported)

			f.Stored = plan.Periods
			carried := metering.Decimal{}
			for _, l := range billing.NewBooks(f).Adjustments() {
				carried = carried.Add(l.Amount)
			}
			require.Equal(t, c.carried, carried.String())
			statement := billing.NewBooks(f).StatementOf(f.Stored[0])
			require.Equal(t, c.billedUnits, last(statement.Lines[0].Working, c.billedUnits))
		})
	}
}

// A period can close before the customer was read at the provider. A meter without a known price and without reports
// closes as not billed, and is not reported later at a new price of the subscription. If a statement contained some of
// the units, the meter is billed, but the rest is not reported at such a price.
func TestMeterWithoutKnownPriceClosesAsNotBilled(t *testing.T) {
	t.Parallel()
	priced := func(f *billing.Facts) { f.Prices = knownOf(f.Now).Prices }
	told := func(f *billing.Facts) { f.Reported = []billing.Reported{stated(second, january, "10", "0")} }
	for name, c := range map[string]struct {
		change           func(*billing.Facts)
		billed, reported bool
	}{
		"nobody knows one":     {func(*billing.Facts) {}, false, false},
		"there is one of ours": {priced, true, true},
		"the subscription had one": {func(f *billing.Facts) {
			f.Stored[0].Subscription.Prices = map[metering.MeterID]billing.ProviderPrice{1: &tariff{"price_1", "USD", tariffOf(1, 1, 0)}}
		}, true, true},
		"some was reported":                                             {func(f *billing.Facts) { f.Reported = []billing.Reported{counted(january, "10")} }, true, true},
		"a receiver was told some":                                      {told, true, false},
		"it was told some, and there is one of ours":                    {func(f *billing.Facts) { told(f); priced(f) }, true, true},
		"it was told some, and no invoices are read":                    {func(f *billing.Facts) { told(f); f.Connection.Invoices = false }, true, true},
		"it was told some, and the provider does not say what it costs": {func(f *billing.Facts) { told(f); f.Side.Destinations[0].Price = nil }, true, true},
		"no invoices are read there":                                    {func(f *billing.Facts) { f.Connection.Invoices = false }, true, true},
		"it lies in no subscription's": {func(f *billing.Facts) {
			f.Stored[0].Subscription, f.Connection.Invoices = billing.Subscription{}, false
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := atMeters(february, knownOf(january.End.Add(grace), subscribed(january), subscribed(february)))
			f.Connection.Invoices, f.Prices = true, nil
			f.Usage = []billing.Usage{used(january, "12")}
			f.Side.Period, f.Side.Destinations[0].Price = january, &tariff{"price_1", "USD", tariffOf(1, 1, 0)}
			c.change(&f)
			unread := f
			unread.Side = nil
			plan := closes(unread)
			require.Equal(t, c.billed, plan.Closings[0].Lines[0].Billed)

			f.Stored = plan.Periods
			reported := slices.ContainsFunc(billing.NewBooks(f).Plan().Reports, func(r billing.Report) bool { return r.Period.Equal(january.Start) })
			require.Equal(t, c.reported, reported)
		})
	}
}

// last returns the amount of the breakdown's quantity step. Without such a step, all units are billed, and last returns
// its second argument.
func last(working []billing.Step, otherwise string) string {
	for _, s := range working {
		if s.Name == billing.StepQuantity {
			return s.Amount.String()
		}
	}
	return otherwise
}

// The usage of a closed period is reported to the provider's meter until the last invoice is final. Late usage is
// charged as an amount, and so are units that the final invoice lacks.
func TestAClosedPeriodIsReportedUntilItsInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(january.End.Add(grace), subscribed(january), subscribed(february)))
	f.Connection.Invoices = true
	f.Usage = []billing.Usage{used(january, "12")}
	f.Reported = []billing.Reported{counted(january, "10")}
	plan := closes(f)
	require.True(t, plan.Unreported)
	require.Empty(t, plan.Complete)
	f.Stored = plan.Periods
	f = withLate(f, january, "19", "7")
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 2)
	require.Equal(t, billing.ChargeReport, reports[0].Kind)
	require.Equal(t, "700", reports[0].Quantity.String(), "what came late")
	require.Equal(t, billing.QuantityReport, reports[1].Kind)
	require.Equal(t, "2", reports[1].Quantity.String())
	require.Equal(t, january.Start, reports[1].Period)

	f.Stored[0].Subscription.Invoiced = true
	reports = billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, "900", reports[0].Quantity.String(), "and what the invoice lacks")
}

// The statement of a closed period has the usage and charge of the close, the breakdown of the charge, and the late
// usage since.
func TestClosedPeriodStatementShowsCloseAndLateUsage(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, "112.4", "10.06"), subscribed(february)))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "made later"})
	f = atBasic(f)
	f.Prices[1] = append(f.Prices[1], billing.Price{MeterID: 1, Version: 2, Terms: billing.Terms{OverageRate: metering.Whole(9), Currency: "USD"}, EffectiveFrom: january.Start})
	f = withLate(f, january, "152.4", "40")
	s := billing.NewBooks(f).StatementOf(f.Stored[0])
	require.Equal(t, january.End.Add(grace), s.ClosesAt)
	require.Len(t, s.Lines, 1)
	line := s.Lines[0]
	require.Equal(t, "112.4", line.Usage.String())
	require.EqualValues(t, 1, line.Events)
	require.Equal(t, "40", line.LateUsage.String())
	require.Equal(t, "0.2", line.LateCharge.String())
	require.EqualValues(t, 2, stepNamed(line.LateWorking, billing.StepTotal).Events)
	require.True(t, line.Billed)
	require.Equal(t, "10.06", line.Working[len(line.Working)-1].Amount.String())

	whole := int32(0)
	f.Stored[0].Closed[0].Scale = &whole
	line = billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0]
	require.Equal(t, "112", stepNamed(line.Working, billing.StepUnits).Amount.String(), "what the provider was reported")
}

// If all of January was accepted before, a rejected statement of January in this pass does not hold back February's
// watermark.
func TestRejectedRestatementDoesNotPreventNextWatermark(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "3", "300"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	refused := billing.Sent{ID: uuid.UUID{2}, Period: january.Start, Number: f.After + 1, State: billing.Rejected, Lines: lines}
	f.Statements = []billing.Sent{refused}
	require.Empty(t, billing.NewBooks(f).Plan().Reported, "somebody has to look at February")
	f.Statements = append(f.Statements, billing.Sent{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: lines})
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reported, 1)
	require.NotEmpty(t, plan.Reported[0].Configuration)
}

// After a restore, a period can close a second time. A meter closes as billed if its late usage was charged, even if
// the provider no longer has an item for it.
func TestMeterClosesAsBilledIfItsLateUsageWasCharged(t *testing.T) {
	t.Parallel()
	for _, bills := range []metering.Bills{metering.BillsQuantities, metering.BillsAmounts} {
		f := atMeters(february, knownOf(january.End.Add(grace), subscribed(january), subscribed(february)))
		f.Stored[0].Bills, f.Connection.Bills = bills, bills
		f.Usage = []billing.Usage{used(january, "12")}
		f.Side.Destinations[0].Excluded = billing.NoTarget("no item")
		f.Side.Charges = f.Side.Destinations
		require.False(t, closes(f).Closings[0].Lines[0].Billed, bills)

		f.Reported = []billing.Reported{lateCharge(f, "50", 1)}
		require.True(t, closes(f).Closings[0].Lines[0].Billed, bills)

		f.Reported[0].MeterID = 2
		require.False(t, closes(f).Closings[0].Lines[0].Billed, "of another meter: %s", bills)
		f.Reported[0].MeterID = 1

		f.InTest = []metering.ConnectionID{f.Reported[0].Connection}
		f.Reported[0].Connection = second
		require.False(t, closes(f).Closings[0].Lines[0].Billed, "in another mode: %s", bills)
	}
}
