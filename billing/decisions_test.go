package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

func TestADecisionChangesOnlyADiscrepancyAndOnlyOnce(t *testing.T) {
	t.Parallel()
	const waive, rebill, writeOff = billing.Waive, billing.Rebill, billing.WriteOff
	for state, decisions := range map[billing.ReconciliationState][]billing.Decision{
		billing.ReconciliationOpen:       nil,
		billing.ReconciliationAgreed:     nil,
		billing.ReconciliationCarried:    {waive, writeOff},
		billing.ReconciliationWaived:     {rebill, writeOff},
		billing.ReconciliationDisputed:   {waive, rebill, writeOff},
		billing.ReconciliationWrittenOff: {waive, rebill},
	} {
		r := billing.Reconciliation{
			Units: metering.Whole(10), Reported: metering.Whole(9), Invoiced: metering.Whole(7), Billed: metering.Whole(10),
			State: state, Reason: billing.ReasonVoid,
		}
		if state == billing.ReconciliationCarried {
			r.Billed = r.Invoiced
		}
		require.Equal(t, decisions, r.Decisions(), state)
		for _, d := range decisions {
			after := r.Decide(d)
			require.NotEqual(t, state, after.State)
			require.NotContains(t, after.Decisions(), d, "once is enough")
			billed := map[billing.Decision]int64{waive: 10, rebill: 7, writeOff: 10}[d]
			require.Equal(t, metering.Whole(billed), after.Billed)
			after.State, after.Billed = r.State, r.Billed
			require.Equal(t, r, after, "the rest stays")
		}
	}
}

func TestOperatorCanWaiveRestOfPartlyWaivedLine(t *testing.T) {
	t.Parallel()
	r := billing.Reconciliation{Units: metering.Whole(10), Billed: metering.Whole(7), State: billing.ReconciliationWaived, Reason: billing.ReasonVoid}
	require.Equal(t, billing.Decision("").Values(), r.Decisions())
	require.Equal(t, metering.Whole(10), r.Decide(billing.Waive).Billed)
}

// After Rebill, the billed units are the invoiced ones minus the unexplained ones, plus those billed without an
// invoice. Unexplained units are units on an invoice that Odometer did not report.
func TestRebillCountsOnlyExplainedUnitsAsBilled(t *testing.T) {
	t.Parallel()
	r := billing.Reconciliation{
		Units: metering.Whole(20), Elsewhere: metering.Whole(2), Invoiced: metering.Whole(7), Unexplained: metering.Whole(3), Billed: metering.Whole(20),
		State: billing.ReconciliationDisputed, Reason: billing.ReasonBilledMore,
	}
	require.Equal(t, metering.Whole(6), r.Decide(billing.Rebill).Billed)
}
