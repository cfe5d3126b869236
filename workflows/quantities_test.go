package workflows_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// quantityLedger is a world with Stripe as the provider, in which each meter has five units to report.
type quantityLedger struct {
	*world
	reports []passes.Report
	decided map[metering.MeterID][]activities.SendReportResult
	sent    []metering.MeterID
	sides   int // number of reads of the customer's state at the provider
	counts  int // number of reads of only the provider's counts

	more  bool // each plan sets passes.Plan.More
	read  func() error
	plan  func() (readFirst bool, err error)
	send  func(meter metering.MeterID, attempt int) (activities.SendReportResult, error)
	count func() (activities.ReadProviderResult, error)
}

var accepted = activities.SendReportResult{State: billing.Accepted, Response: "taken"}

// newLedger returns a ledger with the given meters; by default it has two.
func newLedger(t *testing.T, meters ...metering.MeterID) *quantityLedger {
	t.Helper()
	if len(meters) == 0 {
		meters = []metering.MeterID{7, 9}
	}
	l := &quantityLedger{world: emptyWorld(t), decided: map[metering.MeterID][]activities.SendReportResult{}}
	for _, meter := range meters {
		l.add(meter)
	}
	l.read, l.plan = func() error { return nil }, func() (bool, error) { return false, nil }
	l.send = func(metering.MeterID, int) (activities.SendReportResult, error) { return accepted, nil }
	l.count = func() (activities.ReadProviderResult, error) {
		return activities.ReadProviderResult{Counted: len(l.decided)}, nil
	}
	l.reads = true
	l.OnActivity(do.ReadProvider, mock.Anything, mock.Anything).Return(l.readProvider).Maybe()
	l.OnActivity(do.PlanReports, mock.Anything, mock.Anything).Return(l.planReports).Maybe()
	l.OnActivity(do.SendReport, mock.Anything, mock.Anything).Return(l.sendReport).Maybe()
	return l
}

// add adds a report of five units of a meter to the reports that the next plan contains.
func (l *quantityLedger) add(meter metering.MeterID) {
	l.number++
	five := metering.MustDecimal("5")
	l.reports = append(l.reports, passes.Report{ID: uuid.New(), Number: l.number, Kind: billing.QuantityReport, MeterID: meter, Method: "usage_record",
		Quantity: &five, PeriodStart: l.Now(), PeriodEnd: l.Now().AddDate(0, 0, 31), Deadline: l.deadline})
}

// readProvider mocks the activity ReadProvider.
func (l *quantityLedger) readProvider(_ context.Context, in activities.ReadProviderInput) (activities.ReadProviderResult, error) {
	if in.Counts {
		l.counts++
		counted, err := l.count()
		return counted, activities.Failure(err)
	}
	l.sides++
	return activities.ReadProviderResult{}, activities.Failure(l.read())
}

// meterOf returns the meter of a report.
func (l *quantityLedger) meterOf(report uuid.UUID) metering.MeterID {
	i := slices.IndexFunc(l.reports, func(r passes.Report) bool { return r.ID == report })
	return l.reports[i].MeterID
}

// planReports returns the undecided reports.
func (l *quantityLedger) planReports(_ context.Context, in activities.PlanReportsInput) (passes.Plan, error) {
	l.planned = append(l.planned, in)
	result := passes.Plan{More: l.more}
	var err error
	if result.ReadFirst, err = l.plan(); err != nil || result.ReadFirst {
		return result, activities.Failure(err)
	}
	for _, r := range l.reports {
		if len(l.decided[r.MeterID]) == 0 {
			result.Send = append(result.Send, r)
		}
	}
	return result, nil
}

// sendReport mocks the activity SendReport, and records the meter and the decision.
func (l *quantityLedger) sendReport(_ context.Context, in activities.SendReportInput) (activities.SendReportResult, error) {
	meter, attempt := l.meterOf(in.ReportID), 1
	for _, m := range l.sent {
		if m == meter {
			attempt++
		}
	}
	l.sent = append(l.sent, meter)
	result, err := l.send(meter, attempt)
	if err == nil {
		l.decided[meter] = append(l.decided[meter], result)
	}
	return result, activities.Failure(err)
}

var tooLate = activities.SendReportResult{State: billing.Rejected, Response: "the invoice is final; the next period bills the report's usage"}

// refusal returns the result of a report that the provider refused.
func refusal(response string) activities.SendReportResult {
	return activities.SendReportResult{State: billing.Rejected, Response: response, Refused: true}
}

// away is the answer of an unavailable provider to any report.
func away(metering.MeterID, int) (activities.SendReportResult, error) {
	return activities.SendReportResult{}, down()
}

func TestEachMeterIsReportedOnceAndComparedWithProviderCount(t *testing.T) {
	l := newLedger(t)
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 1, Sent: 2}, result)
	require.Equal(t, []metering.MeterID{7, 9}, l.sent)
	require.Equal(t, []activities.SendReportResult{accepted}, l.decided[9])
	require.Equal(t, []uuid.UUID{l.reports[0].ID, l.reports[1].ID}, l.finished[0].Reports)
	require.Empty(t, l.finished[0].Error)
	details := detailsOf(t, l.TestWorkflowEnvironment)
	require.Contains(t, details, "| quantity 1: 5 through usage_record for mtr_7 |")
	require.Contains(t, details, "accepted: taken |")
	require.Contains(t, details, "2 reports counted, 0 not yet counted |")
}

func TestFailedReportOfOneMeterDoesNotBlockOtherMeters(t *testing.T) {
	inDoubt := activities.SendReportResult{State: billing.InDoubt, Response: "look at Stripe"}
	for name, c := range map[string]struct {
		answer  activities.SendReportResult
		err     error
		failure string
		decided []activities.SendReportResult // of the meter
	}{
		"refused":         {refusal("correct the item"), nil, "correct the item", []activities.SendReportResult{refusal("correct the item")}},
		"in doubt":        {inDoubt, nil, "look at Stripe", []activities.SendReportResult{inDoubt}},
		"not sent at all": {activities.SendReportResult{}, metering.Errorf(metering.CodeNoProvider, "no billing provider is configured"), "no billing provider is configured", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.more = true
			l.send = func(meter metering.MeterID, _ int) (activities.SendReportResult, error) {
				if meter == 7 {
					return c.answer, c.err
				}
				return accepted, nil
			}
			l.request(0)
			_, err := l.run(t)
			require.ErrorContains(t, err, c.failure)
			require.Equal(t, []metering.MeterID{7, 9}, l.sent, "once in a pass")
			require.Equal(t, c.failure, l.finished[0].Error)
			require.Equal(t, []uuid.UUID{l.reports[0].ID, l.reports[1].ID}, l.finished[0].Reports)
			require.Equal(t, c.decided, l.decided[7])
			require.Equal(t, []activities.SendReportResult{accepted}, l.decided[9])
			require.Contains(t, detailsOf(t, l.TestWorkflowEnvironment), c.failure)
		})
	}
}

func TestAllMetersWaitDuringStripeOutage(t *testing.T) {
	l := newLedger(t)
	back := l.Now().Add(10 * time.Minute)
	l.send = func(metering.MeterID, int) (activities.SendReportResult, error) {
		if l.Now().Before(back) {
			return activities.SendReportResult{}, down()
		}
		return accepted, nil
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Sent)
	require.Equal(t, metering.MeterID(9), l.sent[len(l.sent)-1])
	require.NotContains(t, l.sent[:len(l.sent)-1], metering.MeterID(9))

	l = newLedger(t)
	l.send = away
	l.request(0)
	_, err = l.run(t)
	require.ErrorContains(t, err, "did not answer before the period's deadline")
	require.NotContains(t, l.sent, metering.MeterID(9))
	require.Empty(t, l.decided, "nobody knows whether it was taken")
	require.Equal(t, []uuid.UUID{l.reports[0].ID}, l.finished[0].Reports)
	require.Zero(t, l.counts)
}

func TestSyncPlansAgainIfReportOutcomeIsAlreadyKnown(t *testing.T) {
	l := newLedger(t)
	l.send = func(meter metering.MeterID, _ int) (activities.SendReportResult, error) {
		if meter != 7 {
			return accepted, nil
		}
		l.decided[7] = []activities.SendReportResult{accepted}
		return activities.SendReportResult{}, metering.Errorf(metering.CodeConflict, "the outcome of the report is already known")
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
	require.Len(t, l.planned, 2)
	require.Equal(t, 2, l.sides)
	require.Contains(t, detailsOf(t, l.TestWorkflowEnvironment), "no longer needed: the outcome of the report is already known")
}

func TestCustomerStateReadIsRetriedUntilStripeAnswersOrRefuses(t *testing.T) {
	l := newLedger(t)
	l.read = func() error {
		if l.sides < 4 {
			return down()
		}
		return nil
	}
	l.request(0)
	_, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 4, l.sides)

	for failure, answer := range map[string]error{
		"correct the customer": metering.Errorf(metering.CodeProviderRefuse, "correct the customer"),
		"the provider did not answer; sync again once it answers": down(),
	} {
		l = newLedger(t)
		l.read = func() error { return answer }
		l.request(0)
		_, err = l.run(t)
		require.ErrorContains(t, err, failure)
		require.Equal(t, failure, l.finished[0].Error)
		require.Empty(t, l.planned)
		require.Empty(t, l.sent)
	}
}

func TestAMeterThatOperatorsExcludeIsNotReported(t *testing.T) {
	l := newLedger(t)
	l.more = true
	back := l.Now().Add(time.Hour)
	l.send = func(metering.MeterID, int) (activities.SendReportResult, error) {
		if l.Now().Before(back) {
			return activities.SendReportResult{}, metering.Errorf(metering.CodeProviderDown, "away")
		}
		return accepted, nil
	}
	l.request(0)
	l.ask(t, time.Minute, "pause", asks)
	l.ask(t, 2*time.Minute, "exclude-meter", excluding(9)) // while the report of the first meter waits
	l.ask(t, time.Hour, "resume", asks)
	_, err := l.run(t)
	require.NoError(t, err)
	require.NotContains(t, l.sent, metering.MeterID(9))
	require.Equal(t, []metering.MeterID{9}, l.excluded())
	require.Contains(t, l.decided, metering.MeterID(7))
	require.Equal(t, []uuid.UUID{l.reports[0].ID}, l.finished[0].Reports)
}

func TestCanceledSyncFailsItsRequestsAtEveryStep(t *testing.T) {
	for name, stop := range map[string]func(l *quantityLedger, cancel func()){
		"reading the side": func(l *quantityLedger, cancel func()) {
			l.read = func() error {
				cancel()
				return down()
			}
		},
		"sending": func(l *quantityLedger, cancel func()) {
			l.send = func(meter metering.MeterID, attempt int) (activities.SendReportResult, error) {
				cancel()
				return away(meter, attempt)
			}
		},
		"planning": func(l *quantityLedger, cancel func()) {
			l.plan = func() (bool, error) {
				cancel()
				return false, metering.Errorf(metering.CodeUnavailable, "the database is not available")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			stop(l, sync.OnceFunc(func() { l.RegisterDelayedCallback(l.CancelWorkflow, 10*time.Second) }))
			l.request(0)
			_, err := l.run(t)
			require.True(t, temporal.IsCanceledError(err), "%v", err)
			require.Equal(t, "the sync was interrupted; sync again", l.finished[0].Error)
			require.Empty(t, l.decided)
		})
	}
}

func TestSyncContinuesAsNewWhileReadOrReportWaits(t *testing.T) {
	for name, wait := range map[string]func(l *quantityLedger){
		"reading the side": func(l *quantityLedger) { l.read = down },
		"sending":          func(l *quantityLedger) { l.send = away },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			wait(l)
			l.request(0)
			l.RegisterDelayedCallback(func() {
				l.SetContinueAsNewSuggested(true)
				l.SignalWorkflow("sync-requested", nil)
			}, 10*time.Second)
			l.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
			require.True(t, workflow.IsContinueAsNewError(l.GetWorkflowError()), "%v", l.GetWorkflowError())
			require.Empty(t, l.finished, "the requests stay with the next run")
		})
	}
}

// TestSyncSucceedsIfStripeSummariesCannotBeRead checks that a sync succeeds even if Stripe's summaries cannot be read.
func TestSyncSucceedsIfStripeSummariesCannotBeRead(t *testing.T) {
	l := newLedger(t)
	l.count = func() (activities.ReadProviderResult, error) { return activities.ReadProviderResult{}, down() }
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Sent)
	require.Equal(t, 1, l.counts, "it is not tried again")
	require.NotContains(t, detailsOf(t, l.TestWorkflowEnvironment), "summaries")
}
