package billing_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A receiver that moves to another URL keeps its connection, and each statement contains all that the receiver bills.
// On a new connection, statements exclude units that were reported to the previous connection.
func TestStatementRepeatsUnitsOfOwnConnectionOnly(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "1020")}
	f.Reported = []billing.Reported{stated(first, january, "1000", "100000")}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "1020", plan.Reports[0].Lines[0].Quantity.String())
	require.Equal(t, "102000", plan.Reports[0].Lines[0].Amount.String())

	f.Connection.ID = second
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "20", plan.Reports[0].Lines[0].Quantity.String())
	require.Equal(t, "2000", plan.Reports[0].Lines[0].Amount.String())
}

// The next statement of a target period repeats its earlier adjustments on the same connection. On a new connection,
// adjustments billed by the previous connection are excluded.
func TestStatementRepeatsAdjustmentsOfOwnConnectionOnly(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "100", "10000"), billing.Period{Range: february}))
	f = withLate(f, january, "105", "5")
	f.Usage = append(f.Usage, used(february, "1"))
	f.Reported = []billing.Reported{adjusted(first, january, february, "5", "500")}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Len(t, plan.Reports[0].Lines, 2, "February's own, and January's adjustment")
	lines := billing.NewBooks(f).Adjustments()
	require.Len(t, lines, 1)
	require.Equal(t, "500", lines[0].Amount.String())

	f.Connection.ID = second
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Len(t, plan.Reports[0].Lines, 1, "only February's own")
	require.Empty(t, billing.NewBooks(f).Adjustments())
}

// replaced returns the facts after a live connection replaced the first connection, which was in test mode.
func replaced(f billing.Facts) billing.Facts {
	f.Connection, f.InTest = &billing.Connection{ID: second}, append(f.InTest, first)
	return f
}

// The 10 units that were reported in test mode are all reported again live, because test mode bills no customer.
func TestUnitsReportedInTestModeAreBilledLive(t *testing.T) {
	t.Parallel()
	f := replaced(atMeters(january, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january))))
	f.Side.Customer, f.Side.Destinations[0].Target = "cus_live", "mtr_live"
	f.Usage = []billing.Usage{used(january, "10")}
	f.Reported = []billing.Reported{counted(january, "10")} // of cus_1 at mtr_1, which exist only in test mode
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "10", plan.Reports[0].Quantity.String())
	require.Equal(t, "1000", plan.Reports[0].Lines[0].Amount.String())

	f.InTest = nil
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "where the first connection was live, too")

	f.Connection.ID, f.InTest = first, nil
	f.Side.Customer, f.Side.Destinations[0].Target = "cus_1", "mtr_1"
	require.Empty(t, billing.NewBooks(f).Plan().Reports)
	f.Reported[0].Connection, f.InTest = second, append(f.InTest, first)
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1, "what is billed live is reported in test mode")
	require.Equal(t, "10", plan.Reports[0].Quantity.String())
}

// A live statement also contains units that were reported in test mode.
func TestLiveStatementContainsUnitsReportedInTestMode(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(january.Start.AddDate(0, 0, 20), subscribed(january)))
	f.Usage = []billing.Usage{used(january, "10")}
	f.Reported = []billing.Reported{counted(january, "7")}
	require.Equal(t, "3", billing.NewBooks(f).Plan().Reports[0].Lines[0].Quantity.String())
	f.InTest = append(f.InTest, first)
	require.Equal(t, "10", billing.NewBooks(f).Plan().Reports[0].Lines[0].Quantity.String())
	f.Connection = nil
	require.Equal(t, "1000", billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0].Amount.String(), "nor is it billed where nobody is")
}

// In live mode, a period that closed in test mode is treated as closed without a provider. Neither its usage nor its
// late usage is billed.
func TestAPeriodThatClosedInTestModeIsNotBilledLive(t *testing.T) {
	t.Parallel()
	f := atMeters(february, knownOf(january.End.AddDate(0, 0, 4), subscribed(january), subscribed(february)))
	f.InTest = append(f.InTest, first)
	f.Usage = []billing.Usage{used(january, "10")}
	f.Reported = []billing.Reported{counted(january, "10")}
	f, line := afterClosing(t, f)
	require.True(t, line.Billed)
	require.True(t, line.Test)

	f = withLate(f, january, "13", "3")
	require.Len(t, billing.NewBooks(f).Adjustments(), 1, "in test mode it is adjusted")
	require.True(t, billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0].Billed)

	f = replaced(f)
	require.Empty(t, billing.NewBooks(f).Adjustments())
	require.Empty(t, billing.NewBooks(f).Plan().Reports)
	shown := billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0]
	require.False(t, shown.Billed)
	require.Equal(t, "3", shown.LateUsage.String())
}

// Late usage of a period that closed live is not billed in test mode. The next live target period bills it.
func TestAPeriodThatClosedLiveIsNotAdjustedInTestMode(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "100", "10000"), billing.Period{Range: february}))
	f = withLate(f, january, "105", "5")
	require.Len(t, billing.NewBooks(f).Adjustments(), 1)
	f.Connection, f.InTest = &billing.Connection{ID: second, Statements: true}, append(f.InTest, second)
	require.Empty(t, billing.NewBooks(f).Adjustments())
}

// Units of unknown outcome at a previous connection count as billed after the close, if that connection was in the same
// mode.
func TestUnknownReportCountsAsBilledOnlyInItsOwnMode(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(january.End.AddDate(0, 0, 4), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "10")}
	inDoubt := stated(first, january, "10", "1000")
	inDoubt.Taken, inDoubt.Outstanding, inDoubt.State = billing.Sums{}, true, billing.InDoubt
	f.Reported = []billing.Reported{inDoubt}
	f.Open = []billing.Open{{ID: uuid.UUID{1}, Kind: billing.StatementReport, Connection: first, State: billing.InDoubt}}
	live, _ := afterClosing(t, f)
	plan := billing.NewBooks(live).Plan()
	require.Empty(t, plan.Complete, "nobody knows yet")
	require.Equal(t, february.Start, plan.Reports[0].Period, "there is nothing left of January")

	f.InTest = append(f.InTest, first)
	live, _ = afterClosing(t, f)
	require.Equal(t, january.Start, billing.NewBooks(live).Plan().Reports[0].Period)
	require.Equal(t, "10", billing.NewBooks(live).Plan().Reports[0].Lines[0].Quantity.String())
}

// A statement can contain credits, also in a period that a previous connection began to bill in amounts.
func TestStatementCanCreditInPeriodBilledInAmounts(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "3", "300"), billing.Period{Range: february, Bills: metering.BillsAmounts}))
	f = withLate(f, january, "1", "-2")
	late := billing.NewBooks(f).Adjustments()
	require.Len(t, late, 1)
	require.Equal(t, "-200", late[0].Amount.String())
}
