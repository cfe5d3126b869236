package billing_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// An accepted statement bills only 1 of the 3 units of a closed line. If the statement repeats the closed line's usage,
// events, price, charge and currency, an adjustment bills the missing units. Otherwise the period is stated again.
func TestPeriodIsStatedAgainIfStatementDiffersFromClosedLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*billing.Line)
		stated int
	}{
		"TheSame":        {func(*billing.Line) {}, 0},
		"OtherUsage":     {func(l *billing.Line) { l.Usage = metering.Whole(4) }, 1},
		"OtherEvents":    {func(l *billing.Line) { l.Events = 2 }, 1},
		"AnotherPrice":   {func(l *billing.Line) { l.PriceVersion = 2 }, 1},
		"AnotherCharge":  {func(l *billing.Line) { l.Charge = metering.Whole(400) }, 1},
		"OtherCurrency":  {func(l *billing.Line) { l.Currency = "EUR" }, 1},
		"AnotherMeter":   {func(l *billing.Line) { l.MeterID = 2 }, 1},
		"AnotherPeriods": {func(l *billing.Line) { l.Closed = january.Start.AddDate(0, -1, 0) }, 1},
	} {
		f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february}))
		f.Stored[0].Complete = false
		line := billing.Line{
			MeterID: 1, Usage: metering.Whole(3), Events: 1, PriceVersion: 1, Charge: metering.Whole(300), Currency: "USD",
			Quantity: metering.Whole(1), Amount: metering.Whole(100),
		}
		c.change(&line)
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{line}}}
		f.Reported = []billing.Reported{stated(second, january, "1", "100")}
		require.Len(t, reportsOf(billing.NewBooks(f).Plan(), january), c.stated, name)
		require.Len(t, billing.NewBooks(f).Adjustments(), 1-c.stated, name)
	}
}

// TestCreditOfPreviousConnectionIsNotRepeated connects a receiver after two connections: the first one billed 3 units of
// a period that closed at 1 unit, and the second one credited the difference.
func TestCreditOfPreviousConnectionIsNotRepeated(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(9, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "1", "100"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	credit := adjusted(second, january, february, "-2", "-200")
	credit.Kind, credit.Customer, credit.Target, credit.Counting = billing.ChargeReport, "cus_1", "sub_1", billing.Adds
	credit.Taken.Added = credit.Taken.Amount
	credit.Standing = credit.Taken
	f.Reported = []billing.Reported{stated(first, january, "3", "300"), credit}
	lines := reportsOf(billing.NewBooks(f).Plan(), january)[0].Lines
	require.Len(t, lines, 1)
	require.Equal(t, []string{"1", "100", "0", "0"}, []string{lines[0].Usage.String(), lines[0].Charge.String(), lines[0].Quantity.String(), lines[0].Amount.String()})
}

// reportsOf returns the planned reports of a period.
func reportsOf(p billing.ReportPlan, period metering.Range) []billing.Report {
	return slices.DeleteFunc(slices.Clone(p.Reports), func(r billing.Report) bool { return !r.Period.Equal(period.Start) })
}

// The adjustment of a closed period is its charge minus the amount on the accepted statement, not the price of the
// missing units.
func TestAdjustmentDeductsAmountOfAcceptedStatement(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{{
		MeterID: 1, Usage: metering.Whole(3), Events: 1, PriceVersion: 1, Charge: metering.Whole(300), Currency: "USD",
		Quantity: metering.Whole(1), Amount: metering.Whole(150),
	}}}}
	late := billing.NewBooks(f).Adjustments()
	require.Len(t, late, 1)
	require.Equal(t, [2]string{"2", "150"}, [2]string{late[0].Quantity.String(), late[0].Amount.String()})
}

// An adjustment line in a statement does not count as billed for the statement's own period.
func TestAdjustmentLineDoesNotCountForStatementsOwnPeriod(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february}))
	f.Stored[0].Complete = false
	own := billing.NewBooks(f).Plan().Reports[0].Lines
	december := billing.Line{MeterID: 1, Closed: january.Start.AddDate(0, -1, 0), Quantity: metering.Whole(1), Amount: metering.Whole(100), Currency: "USD"}
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: append(own, december)}}
	require.Empty(t, billing.NewBooks(f).Adjustments())
	require.Len(t, billing.NewBooks(f).Plan().Complete, 1)
}

// A closed line that was billed in amounts is fully billed once its charge is billed. A receiver of statements must
// also have all units, because statements contain units.
func TestLineBilledInAmountsIsStatedUntilReceiverHasAllUnits(t *testing.T) {
	t.Parallel()
	for units, stated := range map[string]int{"10": 0, "9": 1} {
		f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "10", "1000"), billing.Period{Range: february}))
		f.Stored[0].Complete, f.Stored[0].Closed[0].Bills = false, metering.BillsAmounts
		charged := lateCharge(f, "1000", 1)
		charged.Late, charged.Window, charged.Taken.Value = false, january, metering.MustDecimal(units)
		charged.Standing = charged.Taken
		f.Reported = []billing.Reported{charged}
		require.Len(t, reportsOf(billing.NewBooks(f).Plan(), january), stated, units)
		f.Connection = nil
		l, known := billing.NewBooks(f).StatementOf(f.Stored[0]).Line(1)
		require.True(t, known)
		require.Equal(t, "1000", l.Amount.String(), units)
	}
}

// The next statement of a closed period contains the lines without a reconciliation. It repeats the lines with a
// reconciliation, and the adjustments, that the last accepted statement has.
func TestLastStatementHasUnreconciledLinesAndAdjustments(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "3", "300")
	closed.Complete, closed.Closed = false, append(closed.Closed, closed.Closed[0])
	billedWith(&closed, "3")
	closed.Closed[1].MeterID = 2
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closed, billing.Period{Range: february}))
	f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
	december := billing.Line{MeterID: 2, Closed: january.Start.AddDate(0, -1, 0), Quantity: metering.Whole(1), Amount: metering.Whole(5), Currency: "USD"}
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{
		{MeterID: 2, Usage: metering.Whole(2), Quantity: metering.Whole(2), Amount: metering.Whole(200), Currency: "USD"}, december,
	}}}
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Len(t, reports[0].Lines, 2)
	require.Equal(t, [2]string{"3", "300"}, [2]string{reports[0].Lines[0].Quantity.String(), reports[0].Lines[0].Amount.String()})
	require.EqualValues(t, 2, reports[0].Lines[0].MeterID)
	require.Equal(t, december, reports[0].Lines[1])

	compared := billing.Line{MeterID: 1, Usage: metering.Whole(3), Quantity: metering.Whole(1), Amount: metering.Whole(100), Currency: "USD"}
	f.Statements[0].Lines = append(f.Statements[0].Lines, compared)
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 3)
	require.Equal(t, compared, lines[0], "the receiver would otherwise no longer bill it")
}

// The last statement of a closed period excludes units and amounts that another connection billed with a later period.
// Amounts for late usage are not subtracted: a target period bills them.
func TestLastStatementExcludesChargesBilledByOtherConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		carried []billing.Reported
		late    string
		own     [2]string
		policy  metering.LatePolicy
	}{
		"Nothing":              {nil, "0", [2]string{"3", "300"}, metering.AdjustLate},
		"All":                  {[]billing.Reported{adjusted(first, january, february, "3", "300")}, "0", [2]string{"0", "0"}, metering.AdjustLate},
		"APart":                {[]billing.Reported{adjusted(first, january, february, "2", "200")}, "0", [2]string{"1", "100"}, metering.AdjustLate},
		"TheBasePriceAlone":    {[]billing.Reported{adjusted(first, january, february, "0", "50")}, "0", [2]string{"3", "250"}, metering.AdjustLate},
		"InTwoPeriods":         {[]billing.Reported{adjusted(first, january, february, "2", "200"), adjusted(first, january, march, "-1", "-100")}, "0", [2]string{"2", "200"}, metering.AdjustLate},
		"WhatCameLate":         {[]billing.Reported{adjusted(first, january, february, "2", "200")}, "2", [2]string{"3", "300"}, metering.AdjustLate},
		"MoreThanWhatCameLate": {[]billing.Reported{adjusted(first, january, february, "3", "300")}, "2", [2]string{"2", "200"}, metering.AdjustLate},
		"WhatWasTakenBack":     {[]billing.Reported{adjusted(first, january, february, "-1", "-100")}, "-1", [2]string{"3", "300"}, metering.AdjustLate},
		"NothingOfATakingBack": {nil, "-1", [2]string{"3", "300"}, metering.AdjustLate},
		"Here":                 {[]billing.Reported{adjusted(second, january, february, "1", "100")}, "0", [2]string{"3", "300"}, metering.AdjustLate},
		"OfAnotherMeter":       {[]billing.Reported{ofMeter(2, adjusted(first, january, february, "1", "100"))}, "0", [2]string{"3", "300"}, metering.AdjustLate},
		"WhatIsOnlyReported":   {[]billing.Reported{adjusted(first, january, february, "3", "300")}, "2", [2]string{"0", "0"}, metering.ReportLate},
	} {
		f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february}))
		f.Stored[0].Complete, f.Reported, f.Settings.LatePolicy = false, c.carried, c.policy
		f.Meters = append(f.Meters, metering.Meter{ID: 2, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
		if late := metering.MustDecimal(c.late); !late.IsZero() {
			f = withLate(f, january, late.Add(metering.Whole(3)).String(), c.late)
		}
		l := reportsOf(billing.NewBooks(f).Plan(), january)[0].Lines[0]
		stated := [2]string{l.Quantity.String(), l.Amount.String()}
		require.Equal(t, c.own, stated, name)
		require.Equal(t, "300", l.Charge.String(), name)
	}
}

// A report of unknown outcome to another connection causes neither a charge nor a credit. An adjustment bills or
// credits only the difference between the closed line and the nearest possible total.
func TestReportOfUnknownOutcomeIsNeitherChargedNorCredited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken, sent, closed string
		carried             string
	}{
		"BetweenBoth":          {"3", "5", "4", ""},
		"BetweenBothTheOther":  {"5", "3", "4", ""},
		"MoreThanBoth":         {"3", "5", "6", "100"},
		"LessThanBoth":         {"3", "5", "1", "-200"},
		"LessThanBothTheOther": {"5", "3", "2", "-100"},
		"NothingTaken":         {"", "5", "2", ""},
		"NothingTakenAndMore":  {"", "5", "6", "100"},
	} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closedAt(january, c.closed, c.closed+"00"), subscribed(february)))
		f.Stored[0].Complete = false
		r := stated(second, january, c.sent, c.sent+"00")
		if r.Outstanding, r.State, r.Taken = true, billing.InDoubt, (billing.Sums{}); c.taken != "" {
			r.Taken = stated(second, january, c.taken, c.taken+"00").Taken
		}
		f.Reported = []billing.Reported{r}
		late := billing.NewBooks(f).Adjustments()
		if c.carried == "" {
			require.Empty(t, late, name)
			continue
		}
		require.Len(t, late, 1, name)
		require.Equal(t, c.carried, late[0].Amount.String(), name)
	}
}

// ofMeter returns the series as one of the given meter.
func ofMeter(id metering.MeterID, r billing.Reported) billing.Reported {
	r.MeterID = id
	return r
}

// A closed period is incomplete while its statement is outstanding at the current connection, or while an unreconciled
// line lacks units. Without a provider, each billed line must be reconciled.
func TestClosedPeriodIsIncompleteUntilStatedOrReconciled(t *testing.T) {
	t.Parallel()
	sending := counted(february, "1")
	sending.Outstanding, sending.State = true, billing.Sending
	open := func(kind billing.Kind, at metering.ConnectionID, period metering.Range) func(*billing.Facts) {
		return func(f *billing.Facts) {
			f.Open = []billing.Open{{ID: uuid.UUID{2}, Kind: kind, Connection: at, Period: period.Start, State: billing.Sending}}
		}
	}
	for name, c := range map[string]struct {
		change   func(*billing.Facts)
		complete int
	}{
		"Nothing":                 {func(*billing.Facts) {}, 1},
		"ItsStatement":            {open(billing.StatementReport, first, january), 0},
		"TheNextOnesStatement":    {open(billing.StatementReport, first, february), 1},
		"AFormerReceivers":        {open(billing.StatementReport, second, january), 1},
		"SomethingElse":           {open(billing.ActionReport, first, january), 1},
		"TheNextOnesQuantity":     {func(f *billing.Facts) { f.Reported = append(f.Reported, sending) }, 1},
		"ItHasNothingToBill":      {func(f *billing.Facts) { f.Stored[0].Closed[0].Billed, f.Reported = false, nil }, 1},
		"ItLacksSomething":        {func(f *billing.Facts) { f.Stored[0].Closed[0].Usage = metering.Whole(4) }, 0},
		"WhatItLacksWasCompared":  {func(f *billing.Facts) { billedWith(&f.Stored[0], "2") }, 1},
		"WithoutAProvider":        {func(f *billing.Facts) { f.Connection = nil }, 0},
		"WithoutAndCompared":      {func(f *billing.Facts) { f.Connection = nil; billedWith(&f.Stored[0], "2") }, 1},
		"WithoutAndNothingToBill": {func(f *billing.Facts) { f.Connection, f.Stored[0].Closed[0].Billed = nil, false }, 1},
	} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "3", "300"), billing.Period{Range: february}))
		f.Stored[0].Complete = false
		f.Reported = []billing.Reported{stated(first, january, "3", "300")}
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: 1, State: billing.Accepted, Lines: []billing.Line{{
			MeterID: 1, Usage: metering.Whole(3), Events: 1, PriceVersion: 1, Charge: metering.Whole(300), Currency: "USD",
			Quantity: metering.Whole(3), Amount: metering.Whole(300),
		}}}}
		c.change(&f)
		require.Len(t, billing.NewBooks(f).Plan().Complete, c.complete, name)
	}
}

// A pass states a closed period once. If the accepted statement differs from the closed line, the next pass states the
// period again, and the open period gets no watermark.
func TestOpenPeriodGetsNoWatermarkIfStatementDiffersFromClose(t *testing.T) {
	t.Parallel()
	for usage, known := range map[int64]int{3: 1, 2: 0} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), closedAt(january, "3", "300"), billing.Period{Range: february}))
		f.Stored[0].Complete = false
		lines := billing.NewBooks(f).Plan().Reports[0].Lines
		lines[0].Usage, lines[0].Quantity, lines[0].Amount = metering.Whole(usage), metering.Whole(usage), metering.Whole(100*usage)
		f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: january.Start, Number: f.After + 1, State: billing.Accepted, Lines: lines}}
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, reportsOf(plan, january), usage)
		require.Len(t, plan.Reported, known, usage)
	}
}

// No target period bills missing units of a closed period while a destination without invoices still accepts them.
func TestTargetPeriodBillsNoUnitsThatDestinationStillAccepts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*billing.Facts)
		carried int
	}{
		"ItTakesIt":           {func(*billing.Facts) {}, 0},
		"NothingLeadsThere":   {func(f *billing.Facts) { f.Side.Destinations[0].Excluded = billing.NoTarget("no item") }, 1},
		"ItTakesNothingLater": {func(f *billing.Facts) { f.Side.Destinations[0].OnlyWhileRun = true }, 1},
		"ItWasNotRead":        {func(f *billing.Facts) { f.Side = nil }, 0},
		"ItHasAll":            {func(f *billing.Facts) { f.Reported[0] = counted(january, "10") }, 0},
	} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), pendingAt(january, "10", "1000"), subscribed(february)))
		f.Reported = []billing.Reported{counted(january, "4")}
		c.change(&f)
		require.Len(t, billing.NewBooks(f).Adjustments(), c.carried, name)
	}
}

// pendingAt returns a closed period of the subscription. The period's invoice is not final.
func pendingAt(r metering.Range, usage, charge string) billing.Period {
	p := closedAt(r, usage, charge)
	p.Complete, p.Subscription, p.Closed[0].Scale = false, subscribed(r).Subscription, new(int32)
	return p
}

// The quantity of a closed period has the number of decimals of the close, unless the destination takes whole units.
func TestAClosedPeriodKeepsItsScale(t *testing.T) {
	t.Parallel()
	closed := pendingAt(january, "10.25", "1030")
	*closed.Closed[0].Scale = 1
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closed, subscribed(february)))
	require.Equal(t, "10.2", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
	f.Side.Destinations[0].WholeUnits = true
	require.Equal(t, "10", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
}

// The open period gets no watermark while a report of the closed period is outstanding.
func TestOutstandingClosedPeriodReportPreventsNextWatermark(t *testing.T) {
	t.Parallel()
	for quantity, known := range map[string]int{"10": 1, "4": 0} {
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), pendingAt(january, "10", "1000"), subscribed(february)))
		f.Connection.Invoices = true
		r := counted(january, quantity)
		r.Taken.Amount, r.Taken.Currency = metering.MustDecimal(quantity+"00"), "USD"
		r.Standing, r.Outstanding = r.Taken, quantity == "4"
		f.Reported = []billing.Reported{r}
		plan := billing.NewBooks(f).Plan()
		require.Empty(t, plan.Reports, quantity)
		require.Len(t, plan.Reported, known, quantity)
		require.Empty(t, plan.Complete, "its invoice is not final")
	}
}

// carriedWith returns the charge of sub_2, another subscription of the customer, for units that January lacks.
func carriedWith(f billing.Facts, units, amount string) billing.Reported {
	r := lateCharge(f, amount, 2)
	r.Target, r.Taken.Value = "sub_2", metering.MustDecimal(units)
	r.Standing = r.Taken
	return r
}

// cameLate returns a change of facts: 6 late units of January are booked, some of them only reported. sub_2 was charged
// the given units and amount of January.
func cameLate(onlyReported, onlyReportedCharge, units, amount string) func(*billing.Facts) {
	return func(f *billing.Facts) {
		*f = withLate(*f, january, "16", "6")
		f.Booked = []billing.Booked{{
			Period: january.Start, MeterID: 1, Events: 2, Units: metering.Whole(16), Charge: metering.Whole(1600),
			OnlyReported: metering.MustDecimal(onlyReported), OnlyReportedCharge: metering.MustDecimal(onlyReportedCharge),
		}}
		f.Reported = append(f.Reported, carriedWith(*f, units, amount))
	}
}

// Missing units of a closed period that were charged to another subscription are not also reported as the period's own
// units. The customer has the previous subscription again, with a draft as last invoice.
func TestUnitsChargedToOtherSubscriptionAreNotReportedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*billing.Facts)
		reported string // the closed period's own units; "": nothing
		carried  int
	}{
		"ItIsNot":      {func(*billing.Facts) {}, "6", 0},
		"ItIs":         {func(f *billing.Facts) { f.Reported = append(f.Reported, carriedWith(*f, "6", "600")) }, "", 0},
		"APartOfIt":    {func(f *billing.Facts) { f.Reported = append(f.Reported, carriedWith(*f, "2", "200")) }, "", 1},
		"InMoneyAlone": {func(f *billing.Facts) { f.Reported = append(f.Reported, carriedWith(*f, "0", "600")) }, "", 1},
		"InUnitsAlone": {func(f *billing.Facts) { f.Reported = append(f.Reported, carriedWith(*f, "6", "0")) }, "", 1},
		"ItIsGivenBack": {func(f *billing.Facts) {
			f.Reported = []billing.Reported{counted(january, "12"), carriedWith(*f, "-2", "-200")}
		}, "", 0},
		"ItWasRefused": {func(f *billing.Facts) {
			refused := carriedWith(*f, "6", "600")
			refused.State, refused.Taken, refused.Standing = billing.Rejected, billing.Sums{}, billing.Sums{}
			f.Reported = append(f.Reported, refused)
		}, "6", 0},
		"ItMayBe": {func(f *billing.Facts) {
			sending := carriedWith(*f, "6", "600")
			sending.State, sending.Outstanding, sending.Taken = billing.Sending, true, billing.Sums{}
			f.Reported = append(f.Reported, sending)
		}, "", 0},
		"WhatCameLateIs":             {cameLate("0", "0", "6", "600"), "6", 0},
		"LessThanCameLate":           {cameLate("0", "0", "-1", "-100"), "6", 1},
		"WhatCameLateIsOnlyReported": {cameLate("6", "600", "6", "600"), "", 0},
		"MoreUnitsThanCameLate":      {cameLate("0", "0", "7", "600"), "", 1},
		"MoreMoneyThanCameLate":      {cameLate("0", "0", "6", "700"), "", 1},
		"UnitsThatAreOnlyReported":   {cameLate("6", "0", "6", "600"), "", 1},
		"MoneyOfWhatIsOnlyReported":  {cameLate("0", "600", "6", "600"), "", 1},
	} {
		f := atMeters(january, knownOf(february.Start.AddDate(0, 0, 5), pendingAt(january, "10", "1000"), billing.Period{Range: february}))
		f.Connection.Invoices, f.Side.Ended = true, true
		f.Reported = []billing.Reported{counted(january, "4")}
		c.change(&f)
		reports := reportsOf(billing.NewBooks(f).Plan(), january)
		if c.reported == "" {
			require.Empty(t, reports, name)
		} else {
			require.Len(t, reports, 1, name)
			require.Equal(t, c.reported, reports[0].Quantity.String(), name)
		}
		require.Len(t, billing.NewBooks(f).Adjustments(), c.carried, name)
	}
}

// written returns the series with the report stored as planned and not yet sent.
func written(known billing.Reported, r billing.Report) billing.Reported {
	known.Series, known.MeterID, known.To = r.Series, r.Lines[0].MeterID, r.To
	known.Standing = billing.Sums{
		Any: true, Value: r.Lines[0].Quantity, Added: known.Taken.Added.Add(r.Quantity), Quantity: r.Quantity, Amount: r.Lines[0].Amount, Currency: r.Lines[0].Currency,
	}
	known.Outstanding, known.State, known.Last = true, billing.Planned, uuid.UUID{7}
	return known
}

// carriedOut returns the facts after the plan's reports were stored, one after the other, and then all accepted. After
// each stored report, a new plan must contain exactly the remaining reports.
func carriedOut(t *testing.T, f billing.Facts, name string) billing.Facts {
	t.Helper()
	f.Reported = slices.Clone(f.Reported)
	for left := billing.NewBooks(f).Plan().Reports; len(left) > 0; {
		i := slices.IndexFunc(f.Reported, func(r billing.Reported) bool { return r.Kind == left[0].Kind })
		f.Reported[i] = written(f.Reported[i], left[0])
		left = append([]billing.Report(nil), left[1:]...)
		require.Equal(t, left, billing.NewBooks(f).Plan().Reports, name)
	}
	for i := range f.Reported {
		r := &f.Reported[i]
		r.Taken, r.Outstanding, r.State, r.Epoch = r.Standing, false, billing.Accepted, f.Epoch
	}
	return f
}

// After one plan is carried out, no report is left for a closed period with missing units and late usage. The reported
// and charged units add up to the usage. The ledger was restored, so series that overwrite are reported once more.
func TestOnePlanReportsClosedPeriodCompletely(t *testing.T) {
	t.Parallel()
	few := []int64{-7, -4, -3, -2, 0, 1, 3, 4, 7}
	holds := func(counting billing.Counting, reported, carried, late int64) {
		name := fmt.Sprintf("%s: %d units of 10, and %d of %d late ones", counting, reported, carried, late)
		f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), pendingAt(january, "10", "1000"), subscribed(february)))
		f.Connection.Invoices, f.Side.Destinations[0].Counting, f.Epoch, f.After = true, counting, 1, 9
		f = withLate(f, january, fmt.Sprint(10+late), fmt.Sprint(late))
		f.Booked = []billing.Booked{{Period: january.Start, MeterID: 1, Events: 2, Units: metering.Whole(10 + late), Charge: metering.Whole(1000 + 100*late)}}
		own, charged := counted(january, fmt.Sprint(reported)), lateCharge(f, fmt.Sprint(100*carried), 2)
		own.Counting, charged.Taken.Value = counting, metering.Whole(carried)
		charged.Standing = charged.Taken
		f.Reported = []billing.Reported{own, charged}
		f = carriedOut(t, f, name)
		require.Empty(t, billing.NewBooks(f).Plan().Reports, name)
		own, charged = f.Reported[0], f.Reported[1]
		units := own.Taken.Value
		if counting == billing.Adds {
			units = own.Taken.Added
		}
		require.Equal(t, fmt.Sprint(10+late), units.Add(charged.Taken.Value).String(), name)
		require.Equal(t, charged.Taken.Value.Mul(metering.Whole(100)).String(), charged.Taken.Added.String(), name)
	}
	for _, counting := range []billing.Counting{billing.Adds, billing.Replaces, billing.Latest} {
		for _, reported := range []int64{7, 10, 13} {
			for _, carried := range few {
				for _, late := range few {
					holds(counting, reported, carried, late)
				}
			}
		}
	}
}
