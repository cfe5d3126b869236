package workflows_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func TestPassRunsOneActivityPerStep(t *testing.T) {
	l := newLedger(t, 7, 8, 9)
	l.request(0)
	_, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, []string{"BeginSync", "ReadProvider", "PlanReports", "SendReport", "SendReport", "SendReport", "ReadProvider", "FinishSync"}, l.names)
	require.Equal(t, [2]int{1, 1}, [2]int{l.sides, l.counts})

	l = newLedger(t, 7)
	l.decided[7] = []activities.SendReportResult{accepted}
	l.request(0)
	_, err = l.run(t)
	require.NoError(t, err)
	require.Equal(t, []string{"BeginSync", "ReadProvider", "PlanReports", "FinishSync"}, l.names, "nothing is new")
	require.Zero(t, l.counts)

	l = newLedger(t, 7)
	l.send = func(metering.MeterID, int) (activities.SendReportResult, error) {
		return activities.SendReportResult{State: billing.InDoubt, Response: "look at Stripe"}, nil
	}
	l.request(0)
	_, err = l.run(t)
	require.ErrorContains(t, err, "look at Stripe")
	require.Equal(t, []string{"BeginSync", "ReadProvider", "PlanReports", "SendReport", "FinishSync"}, l.names, "nothing was accepted")
}

// TestUsageTooLateForInvoiceIsPlannedAgain checks that usage that is too late for its invoice is charged by another
// report in the same pass. Therefore, a successful sync has reported all usage.
func TestUsageTooLateForInvoiceIsPlannedAgain(t *testing.T) {
	l := newLedger(t, 7)
	l.send = func(meter metering.MeterID, _ int) (activities.SendReportResult, error) {
		if meter == 7 {
			l.add(8)
			return tooLate, nil
		}
		return accepted, nil
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, []metering.MeterID{7, 8}, l.sent)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 1, Sent: 1}, result)
}

func TestCustomerStateIsReadAgainAfterFiveMinutesOrRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		away  time.Duration
		first activities.SendReportResult
		sides int
	}{
		"at once":                    {0, accepted, 1},
		"a send of four minutes":     {4 * time.Minute, accepted, 1}, // tried after 2, 6, … 126 and 254 seconds
		"a send of eight minutes":    {5 * time.Minute, accepted, 2}, // also tried after 510 seconds
		"a refusal":                  {0, refusal("correct the item"), 2},
		"one that has come too late": {0, tooLate, 2},
		"one in doubt":               {0, activities.SendReportResult{State: billing.InDoubt, Response: "look at Stripe"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.more = true
			back := l.Now().Add(c.away)
			l.send = func(meter metering.MeterID, _ int) (activities.SendReportResult, error) {
				if meter != 7 {
					return accepted, nil
				}
				if l.Now().Before(back) {
					return activities.SendReportResult{}, down()
				}
				return c.first, nil
			}
			l.request(0)
			_, _ = l.run(t)
			require.Len(t, l.planned, 2)
			require.Equal(t, c.sides, l.sides)
			require.Equal(t, 1, l.counts)
		})
	}
}

// TestAPassEndsWhileEventsAndRequestsKeepComing checks that each pass reports each meter once, even if events and
// requests keep arriving during the pass.
func TestAPassEndsWhileEventsAndRequestsKeepComing(t *testing.T) {
	l := newLedger(t)
	l.more = true
	l.decided[7], l.decided[9] = []activities.SendReportResult{accepted}, []activities.SendReportResult{accepted}
	// Every meter has new usage. A meter that this pass has reported is not planned again.
	l.plan = func() (bool, error) {
		before := l.planned[len(l.planned)-1].After
		for i, r := range l.reports {
			if len(l.decided[r.MeterID]) > 0 && r.Number <= before {
				l.number++
				l.reports[i].ID, l.reports[i].Number = uuid.New(), l.number
				delete(l.decided, r.MeterID)
			}
		}
		return false, nil
	}
	requests := 6
	l.send = func(metering.MeterID, int) (activities.SendReportResult, error) {
		if requests--; requests >= 0 {
			l.requests = append(l.requests, uuid.New())
			l.SignalWorkflow("sync-requested", nil)
		}
		return accepted, nil
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 4, Sent: 8}, result)
	require.Equal(t, []metering.MeterID{7, 9, 7, 9, 7, 9, 7, 9}, l.sent)
	for _, pass := range l.finished {
		require.Len(t, pass.Reports, 2)
	}
}

func TestChangedCustomerStateIsReadAgainAtMostThreeTimes(t *testing.T) {
	const changing = "the customer's subscriptions at the provider changed during the sync; sync again"
	for changes, c := range map[int]struct {
		sides   int
		failure string
	}{0: {1, ""}, 1: {2, ""}, 3: {4, ""}, 4: {4, changing}, 1000: {4, changing}} {
		l := newLedger(t)
		left := changes
		l.plan = func() (readFirst bool, err error) {
			left--
			return left >= 0, nil
		}
		l.request(0)
		_, err := l.run(t)
		require.Equal(t, c.sides, l.sides)
		require.Equal(t, c.failure, l.finished[0].Error)
		if c.failure != "" {
			require.ErrorContains(t, err, changing)
			require.Empty(t, l.sent)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []metering.MeterID{7, 9}, l.sent)
	}
	l := newLedger(t)
	l.plan = func() (bool, error) {
		return false, metering.Errorf(metering.CodeNoProvider, "no billing provider is configured")
	}
	l.request(0)
	_, err := l.run(t)
	require.ErrorContains(t, err, "no billing provider is configured")
	require.Equal(t, 1, l.sides)
}

// TestFirstPassReadsStripeAfterReceiverIsReplaced checks the first pass after Stripe has replaced a receiver of
// statements. The pass reads the customer's state at Stripe before it plans reports.
func TestFirstPassReadsStripeAfterReceiverIsReplaced(t *testing.T) {
	l := newLedger(t, 7)
	l.reads = false
	l.plan = func() (bool, error) { return l.sides == 0, nil }
	l.request(0)
	_, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, []string{"BeginSync", "PlanReports", "ReadProvider", "PlanReports", "SendReport", "ReadProvider", "FinishSync"}, l.names)
}
