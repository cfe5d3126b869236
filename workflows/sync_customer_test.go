package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

var (
	do    *activities.Activities
	quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
)

// world mocks the activities of a SyncCustomer run: a customer with a total, a provider, and requests. The
// clock of the test environment skips waiting times.
type world struct {
	*testsuite.TestWorkflowEnvironment
	requests []uuid.UUID // open requests
	total    int         // usage
	reported int         // usage that the provider has accepted
	number   int64
	deadline time.Time
	reads    bool // the provider has a state to read; otherwise it takes statements

	older       int   // number of older periods, with statements that are sent first
	ours        int64 // number of the last report with the total
	refused     bool
	outstanding *passes.Report
	carries     int // usage in the outstanding report
	completed   []activities.SendReportResult
	planned     []activities.PlanReportsInput
	finished    []activities.FinishSyncInput
	unresolved  []activities.Unresolved
	recorded    *[]activities.RecordUpdateInput

	unknownMeter bool // the tenant has no meter 9
	attempts     int
	names        []string // names of the started activities, in order

	deliver func(attempt int) error // the provider's answer to an attempt
	plan    func() error
}

// newWorld returns a world without usage and requests. Its provider takes statements.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	w.OnActivity(do.PlanReports, mock.Anything, mock.Anything).Return(w.planReports).Maybe()
	w.OnActivity(do.SendReport, mock.Anything, mock.Anything).Return(w.sendReport).Maybe()
	return w
}

// emptyWorld returns a world without mocks of PlanReports and SendReport.
func emptyWorld(t *testing.T) *world {
	t.Helper()
	w := &world{TestWorkflowEnvironment: newEnvironment()}
	w.deadline = w.Now().Add(72 * time.Hour)
	w.deliver = func(int) error { return nil }
	w.plan = func() error { return nil }
	w.RegisterWorkflow(workflows.SyncCustomer)
	w.RegisterActivity(do)
	w.OnActivity(do.RecordUpdate, mock.Anything, mock.MatchedBy(func(in activities.RecordUpdateInput) bool { return w.unknownMeter && in.MeterID == 9 })).
		Return(activities.Failure(metering.Errorf(metering.CodeNotFound, "meter_id must be a meter of the tenant; it has no meter mtr_9"))).Maybe()
	w.recorded = recorded(w.TestWorkflowEnvironment)
	w.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		w.names = append(w.names, info.ActivityType.Name)
	})
	w.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe()
	w.OnActivity(do.BeginSync, mock.Anything, activities.CustomerInput{TenantID: 1, CustomerID: 2}).Return(w.beginSync).Maybe()
	w.OnActivity(do.FinishSync, mock.Anything, mock.Anything).Return(w.finishSync).Maybe()
	return w
}

// beginSync mocks the activity BeginSync: it takes all open requests.
func (w *world) beginSync(context.Context, activities.CustomerInput) (activities.BeginSyncResult, error) {
	taken := w.requests
	w.requests, w.refused = nil, false
	return activities.BeginSyncResult{PassID: uuid.New(), Requests: len(taken), After: w.number, Reads: w.reads}, nil
}

// planReports plans one statement at a time, as if each period waits for the previous one.
func (w *world) planReports(_ context.Context, in activities.PlanReportsInput) (passes.Plan, error) {
	w.planned = append(w.planned, in)
	if err := w.plan(); err != nil {
		return passes.Plan{}, activities.Failure(err)
	}
	if w.outstanding == nil && (w.reported == w.total || w.refused || w.older == 0 && w.ours > in.After) {
		return passes.Plan{UpToDate: []uuid.UUID{{1}}}, nil
	}
	more := w.outstanding != nil || w.older > 0
	if w.outstanding == nil {
		w.number++
		w.carries = w.total
		w.ours = w.number
		if w.older > 0 {
			w.older--
			w.carries, w.ours = w.reported, 0
		}
		w.outstanding = &passes.Report{ID: uuid.New(), Number: w.number, Kind: billing.StatementReport, Deadline: w.deadline}
	}
	return passes.Plan{Send: []passes.Report{*w.outstanding}, More: more}, nil
}

// excluded returns the meters that the last plan excluded.
func (w *world) excluded() []metering.MeterID { return w.planned[len(w.planned)-1].Excluded }

// sendReport mocks the activity SendReport, with the result of deliver.
func (w *world) sendReport(context.Context, activities.SendReportInput) (activities.SendReportResult, error) {
	w.attempts++
	result, err := answerOf(w.deliver(w.attempts))
	if err != nil {
		return result, activities.Failure(err)
	}
	w.completed = append(w.completed, result)
	w.refused = result.Refused && w.older == 0 && w.carries == w.total
	if !result.Refused {
		w.reported = w.carries
	}
	w.outstanding = nil
	return result, nil
}

// answerOf returns the result of SendReport for the provider's answer.
func answerOf(err error) (activities.SendReportResult, error) {
	var refusal *metering.Error
	if metering.CodeOf(err) == metering.CodeProviderRefuse && errors.As(err, &refusal) {
		return activities.SendReportResult{State: billing.Rejected, Response: refusal.Message, Refused: true}, nil
	}
	return activities.SendReportResult{State: billing.Accepted, Response: "the webhook answered 204"}, err
}

// finishSync mocks the activity FinishSync.
func (w *world) finishSync(_ context.Context, in activities.FinishSyncInput) (activities.FinishSyncResult, error) {
	w.finished = append(w.finished, in)
	return activities.FinishSyncResult{More: len(w.requests) > 0, Unresolved: w.unresolved}, nil
}

// request adds a request and signals the run, after the given time.
func (w *world) request(after time.Duration) {
	w.RegisterDelayedCallback(func() {
		w.requests = append(w.requests, uuid.New())
		w.SignalWorkflow("sync-requested", nil)
	}, after)
}

// run runs SyncCustomer to its end, and requires that no request is open.
func (w *world) run(t *testing.T) (workflows.SyncCustomerResult, error) {
	t.Helper()
	w.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
	require.True(t, w.IsWorkflowCompleted())
	require.Empty(t, w.requests, "no request is left unanswered")
	var result workflows.SyncCustomerResult
	if err := w.GetWorkflowError(); err != nil {
		return result, err
	}
	return result, w.GetWorkflowResult(&result)
}

// downForAnHour is an outage: the first attempt fails with a retry delay of an hour.
func downForAnHour(attempt int) error {
	if attempt == 1 {
		return metering.Errorf(metering.CodeProviderDown, "come back in an hour").Because(ledger.Busy{Wait: time.Hour})
	}
	return nil
}

// down returns the error of an unavailable provider.
func down() error { return metering.Errorf(metering.CodeProviderDown, "the webhook answered 503") }

func TestSyncCustomerWithNothingToSendReturnsCurrentReport(t *testing.T) {
	w := newWorld(t)
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 1}, result)
	require.Len(t, w.finished, 1)
	require.Empty(t, w.finished[0].Error)
	require.Equal(t, []uuid.UUID{{1}}, w.finished[0].Reports)
	require.Equal(t, w.finished[0].PassID, w.planned[0].PassID, "which meters are left out is noted for its requests")
	require.Equal(t, []string{"BeginSync", "PlanReports", "FinishSync"}, w.names)
	require.Zero(t, w.attempts)
}

func TestSyncCustomerWithoutARequestDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{}, result)
	require.Empty(t, w.finished)
}

func TestSyncCustomerSendsNewUsage(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.request(0)
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
	require.Equal(t, 5, w.reported)
	require.Len(t, w.completed, 1)
	require.Len(t, w.finished, 1)
	require.Empty(t, w.requests)
	require.Len(t, w.finished[0].Reports, 1)
	require.Equal(t, []string{"BeginSync", "PlanReports", "SendReport", "FinishSync"}, w.names)
	details := detailsOf(t, w.TestWorkflowEnvironment)
	require.Contains(t, details, "| statement 1 |")
	require.Contains(t, details, "accepted: the webhook answered 204 |")
}

func TestSyncCustomerWaitsUntilTheProviderIsBack(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	back := w.Now().Add(10 * time.Minute)
	w.deliver = func(int) error {
		if w.Now().Before(back) {
			return down()
		}
		return nil
	}
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
	require.Equal(t, 5, w.reported)
	require.Equal(t, 10, w.attempts, "after 2, 4, 8 … 256 and 300 seconds")
	require.Empty(t, w.finished[0].Error)
}

// TestSyncCustomerGivesUpAtTheDeadlineAndKeepsTheReport checks the end of the retries. The test environment stops after
// ten attempts, whereas the Temporal server retries until the deadline.
func TestSyncCustomerGivesUpAtTheDeadlineAndKeepsTheReport(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "did not answer before the period's deadline")
	require.Contains(t, w.finished[0].Error, "sync again once it answers")
	require.Empty(t, w.completed, "nobody knows whether it arrived")
	require.Len(t, w.finished[0].Reports, 1)
}

// TestSyncCustomerTriesUntilTheDeadlineAndForAnHourAtLeast checks the time limit of the retries.
func TestSyncCustomerTriesUntilTheDeadlineAndForAnHourAtLeast(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		100 * time.Hour: 100 * time.Hour, time.Minute: time.Hour, -1000 * time.Hour: time.Hour,
	} {
		w := newWorld(t)
		w.total = 5
		w.deadline = w.Now().Add(left)
		var tried time.Duration
		w.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			if info.ActivityType.Name == "SendReport" {
				tried = info.ScheduleToCloseTimeout
			}
		})
		w.request(0)
		_, err := w.run(t)
		require.NoError(t, err)
		require.InDelta(t, want, tried, float64(time.Minute))
	}
}

func TestSyncCustomerStopsAtRefusalWithNextStep(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return metering.Errorf(metering.CodeProviderRefuse, "save another URL") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "save another URL")
	require.Equal(t, 1, w.attempts)
	require.Equal(t, activities.SendReportResult{State: billing.Rejected, Response: "save another URL", Refused: true}, w.completed[0])
	require.Len(t, w.finished[0].Reports, 2, "the refused one and what is up to date")
	require.Equal(t, "save another URL", w.finished[0].Error)
	require.Zero(t, w.reported)
}

// TestSyncCustomerCompletesReportsOnlyOnProviderDecision checks that an error that is not a decision of the provider
// leaves the report unchanged.
func TestSyncCustomerCompletesReportsOnlyOnProviderDecision(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return metering.Errorf(metering.CodeNotFound, "there is no such report") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "there is no such report")
	require.Empty(t, w.completed)
	require.Contains(t, detailsOf(t, w.TestWorkflowEnvironment), "there is no such report |")
}

func TestSyncCustomerSendsOtherPeriodsIfOneIsRefused(t *testing.T) {
	w := newWorld(t)
	w.total, w.older = 5, 1
	w.deliver = func(attempt int) error {
		if attempt == 1 {
			return metering.Errorf(metering.CodeProviderRefuse, "that month is closed")
		}
		return nil
	}
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "that month is closed")
	require.Equal(t, 5, w.reported)
	require.Equal(t, "that month is closed", w.finished[0].Error)
	require.Len(t, w.finished[0].Reports, 2, "the refused one and what was accepted")
	require.Equal(t, []string{"BeginSync", "PlanReports", "SendReport", "PlanReports", "SendReport", "FinishSync"}, w.names)
}

func TestSyncCustomerRunsSecondPassForRequestDuringPass(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt > 1 {
			return nil
		}
		w.total = 8
		w.request(0) // while the attempt is under way
		return down()
	}
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 2, Sent: 2}, result)
	require.Equal(t, 8, w.reported)
	require.Len(t, w.finished, 2)
}

func TestSyncCustomerRetriesImmediatelyOnRequestDuringOutage(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = downForAnHour
	began := w.Now()
	w.request(0)
	w.request(10 * time.Second) // too early: the first attempt may still be under way
	w.request(5 * time.Minute)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, w.attempts)
	require.WithinDuration(t, began.Add(5*time.Minute), w.Now(), time.Minute)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 2, Sent: 1}, result)
}

func TestSyncCustomerContinuesAsNewWhileItWaits(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	w.RegisterDelayedCallback(func() {
		w.SetContinueAsNewSuggested(true)
		w.SignalWorkflow("sync-requested", nil)
	}, time.Minute)
	w.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
	require.True(t, workflow.IsContinueAsNewError(w.GetWorkflowError()), "%v", w.GetWorkflowError())
	require.Empty(t, w.finished, "the requests stay with the next run")
}

func TestSyncCustomerSucceedsIfPassAfterRefusalSucceeds(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt == 1 {
			w.requests = append(w.requests, uuid.New()) // a request with a lost signal
			return metering.Errorf(metering.CodeProviderRefuse, "save another URL")
		}
		return nil
	}
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Passes)
	require.Equal(t, "save another URL", w.finished[0].Error)
	require.Empty(t, w.finished[1].Error)
}

func TestSyncCustomerPlansAgainAfterProviderIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt == 1 {
			w.outstanding = nil
			return metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
		}
		return nil
	}
	w.request(0)
	w.plan = func() error {
		if w.attempts == 1 && w.outstanding == nil {
			w.ours = 0 // the abandoned report is not a report of this pass
		}
		return nil
	}
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, w.attempts)
	require.Equal(t, 5, w.reported)
}

func TestSyncCustomerFailsRequestsIfPlanningFails(t *testing.T) {
	w := newWorld(t)
	w.plan = func() error { return metering.Errorf(metering.CodeNoProvider, "no billing provider is configured") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "no billing provider is configured")
	require.Equal(t, "no billing provider is configured", w.finished[0].Error)
}

func TestSyncCustomerRetriesWhileDatabaseIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	failures := 9
	w.plan = func() error {
		if failures--; failures > 0 {
			return metering.Errorf(metering.CodeUnavailable, "the database is not available")
		}
		return nil
	}
	w.request(0)
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 5, w.reported)
}

func TestSyncCustomerFailsRequestsWhenCanceled(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	w.RegisterDelayedCallback(w.CancelWorkflow, 5*time.Minute)
	_, err := w.run(t)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Contains(t, w.finished[0].Error, "interrupted")
	require.NotNil(t, w.outstanding)
}

// TestSyncRequestedDuringCancellationIsLeftToNextRun checks that the next run handles a sync that is
// requested after the cancellation and before the run's end.
func TestSyncRequestedDuringCancellationIsLeftToNextRun(t *testing.T) {
	w := newWorld(t)
	w.request(0)
	w.RegisterDelayedCallback(w.CancelWorkflow, 5*time.Minute)
	w.request(5 * time.Minute)
	w.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2, Paused: true})
	require.True(t, w.IsWorkflowCompleted())
	require.Len(t, w.finished, 1)
	require.Contains(t, w.finished[0].Error, "interrupted")
	require.Len(t, w.requests, 1)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.GetWorkflowError(), &next)
	var in workflows.SyncCustomerInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2}, in, "what operators asked of the canceled run has ended with it")
}

func TestSyncCustomerContinuesAsNewIfRequestsKeepComing(t *testing.T) {
	w := newWorld(t)
	w.deliver = func(int) error { return nil }
	w.plan = func() error {
		w.total++
		w.SignalWorkflow("sync-requested", nil)
		w.requests = append(w.requests[:0], uuid.New())
		return nil
	}
	w.request(0)
	w.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
	require.True(t, w.IsWorkflowCompleted())
	require.True(t, workflow.IsContinueAsNewError(w.GetWorkflowError()), "%v", w.GetWorkflowError())
}
