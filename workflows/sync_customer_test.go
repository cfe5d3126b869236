package workflows_test

import (
	"context"
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
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

var (
	do    *activities.Activities
	quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
)

// world is what the activities of a SyncCustomer run would find: a customer
// with a total, a provider, and requests. Its clock skips what is waited for.
type world struct {
	*testsuite.TestWorkflowEnvironment
	requests   []uuid.UUID // open
	total      int         // what was used
	told       int         // what the provider acknowledged
	sequence   int64
	deadline   time.Time
	quantities bool // the provider takes them, else snapshots

	older     int   // further periods whose snapshots come first
	ours      int64 // the sequence that carried the total last
	refused   bool
	unsettled *activities.Snapshot
	carries   int // by the unsettled snapshot
	settled   []activities.SettleSnapshotInput
	finished  []activities.FinishSyncInput
	attempts  int

	deliver func(attempt int) error // how the provider answers
	held    []metering.MeterID
	prepare func() error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet)
	w := &world{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	w.SetWorkerOptions(worker.Options{})
	w.SetTestTimeout(time.Minute)
	w.deadline = w.Now().Add(72 * time.Hour)
	w.deliver = func(int) error { return nil }
	w.prepare = func() error { return nil }
	w.RegisterWorkflow(workflows.SyncCustomer)
	w.RegisterActivity(do)
	w.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe()
	w.OnActivity(do.BeginSync, mock.Anything, mock.Anything).Return(w.beginSync).Maybe()
	w.OnActivity(do.PrepareSnapshot, mock.Anything, mock.Anything).Return(w.prepareSnapshot).Maybe()
	w.OnActivity(do.DeliverSnapshot, mock.Anything, mock.Anything).Return(w.deliverSnapshot).Maybe()
	w.OnActivity(do.SettleSnapshot, mock.Anything, mock.Anything).Return(w.settleSnapshot).Maybe()
	w.OnActivity(do.FinishSync, mock.Anything, mock.Anything).Return(w.finishSync).Maybe()
	return w
}

func (w *world) beginSync(context.Context, activities.BeginSyncInput) (activities.BeginSyncResult, error) {
	taken := w.requests
	w.requests, w.refused = nil, false
	return activities.BeginSyncResult{Syncs: taken, After: w.sequence, Statements: !w.quantities}, nil
}

func (w *world) prepareSnapshot(_ context.Context, in activities.PrepareSnapshotInput) (activities.PrepareSnapshotResult, error) {
	w.held = in.Hold
	if err := w.prepare(); err != nil {
		return activities.PrepareSnapshotResult{}, activities.Failure(err)
	}
	if w.unsettled == nil && (w.told == w.total || w.refused || w.older == 0 && w.ours > in.After) {
		return activities.PrepareSnapshotResult{UpToDate: []uuid.UUID{{1}}, Skipped: []activities.Skipped{{MeterID: 9, Reason: "because"}}}, nil
	}
	if w.unsettled == nil {
		w.sequence++
		w.carries = w.total
		w.ours = w.sequence
		if w.older > 0 {
			w.older--
			w.carries, w.ours = w.told, 0
		}
		w.unsettled = &activities.Snapshot{ID: uuid.New(), Sequence: w.sequence, Deadline: w.deadline}
	}
	return activities.PrepareSnapshotResult{Send: w.unsettled}, nil
}

func (w *world) deliverSnapshot(context.Context, activities.DeliverSnapshotInput) (activities.DeliverSnapshotResult, error) {
	w.attempts++
	if err := w.deliver(w.attempts); err != nil {
		return activities.DeliverSnapshotResult{}, activities.Failure(err)
	}
	return activities.DeliverSnapshotResult{Answer: "the webhook answered 204"}, nil
}

func (w *world) settleSnapshot(_ context.Context, in activities.SettleSnapshotInput) error {
	w.settled = append(w.settled, in)
	w.refused = in.Refusal != "" && w.older == 0 && w.carries == w.total
	if in.Refusal == "" {
		w.told = w.carries
	}
	w.unsettled = nil
	return nil
}

func (w *world) finishSync(_ context.Context, in activities.FinishSyncInput) (activities.FinishSyncResult, error) {
	w.finished = append(w.finished, in)
	return activities.FinishSyncResult{More: len(w.requests) > 0}, nil
}

// request commits a row and tells the run of it after a while.
func (w *world) request(after time.Duration) {
	w.RegisterDelayedCallback(func() {
		w.requests = append(w.requests, uuid.New())
		w.SignalWorkflow("sync-requested", nil)
	}, after)
}

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

// downForAnHour is an outage in which the first attempt is told how long it lasts.
func downForAnHour(attempt int) error {
	if attempt == 1 {
		return metering.Errorf(metering.CodeProviderDown, "come back in an hour").Because(db.Busy{Wait: time.Hour})
	}
	return nil
}

func down() error { return metering.Errorf(metering.CodeProviderDown, "the webhook answered 503") }

func TestSyncCustomerWithNothingToSendFindsWhatHolds(t *testing.T) {
	w := newWorld(t)
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 1}, result)
	require.Len(t, w.finished, 1)
	require.Empty(t, w.finished[0].Problem)
	require.Len(t, w.finished[0].Syncs, 1)
	require.Len(t, w.finished[0].Snapshots, 1)
	require.Equal(t, []activities.Skipped{{MeterID: 9, Reason: "because"}}, w.finished[0].Skipped)
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

func TestSyncCustomerSendsWhatIsNew(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.request(0)
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
	require.Equal(t, 5, w.told)
	require.Len(t, w.settled, 1)
	require.Equal(t, "the webhook answered 204", w.settled[0].Answer)
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
	require.Equal(t, 5, w.told)
	require.Equal(t, 10, w.attempts, "after 2, 4, 8 … 256 and 300 seconds")
	require.Empty(t, w.finished[0].Problem)
}

// The test environment tries ten times where the server tries until the time
// is over; the time itself is asserted below.
func TestSyncCustomerGivesUpAtTheDeadlineAndKeepsTheSnapshot(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "did not answer until the period's deadline")
	require.Contains(t, w.finished[0].Problem, "sync again once it does")
	require.Empty(t, w.settled, "nobody knows whether it arrived")
	require.Len(t, w.finished[0].Snapshots, 1)
}

func TestSyncCustomerTriesUntilTheDeadlineAndForAnHourAtLeast(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		100 * time.Hour: 100 * time.Hour, time.Minute: time.Hour, -1000 * time.Hour: time.Hour,
	} {
		w := newWorld(t)
		w.total = 5
		w.deadline = w.Now().Add(left)
		var tried time.Duration
		w.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			if info.ActivityType.Name == "DeliverSnapshot" {
				tried = info.ScheduleToCloseTimeout
			}
		})
		w.request(0)
		_, err := w.run(t)
		require.NoError(t, err)
		require.InDelta(t, want, tried, float64(time.Minute))
	}
}

func TestSyncCustomerStopsAtARefusalAndSaysWhatToDo(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return metering.Errorf(metering.CodeProviderRefuse, "save another URL") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "save another URL")
	require.Equal(t, 1, w.attempts)
	require.Equal(t, "save another URL", w.settled[0].Refusal)
	require.Equal(t, "save another URL", w.finished[0].Problem)
	require.Zero(t, w.told)
}

// What is no decision of the provider's leaves the snapshot as it is.
func TestSyncCustomerSettlesOnlyWhatTheProviderHasDecided(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return metering.Errorf(metering.CodeNotFound, "there is no such snapshot") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "there is no such snapshot")
	require.Empty(t, w.settled)
	require.Contains(t, detailsOf(t, w.TestWorkflowEnvironment), "there is no such snapshot |")
}

func TestSyncCustomerSendsTheOtherPeriodsWhereOneIsRefused(t *testing.T) {
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
	require.Equal(t, 5, w.told)
	require.Equal(t, "that month is closed", w.finished[0].Problem)
	require.Len(t, w.finished[0].Snapshots, 2, "the refused one and what holds")
}

func TestSyncCustomerReadsAgainForARequestThatComesMidPass(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt < 3 {
			return down()
		}
		return nil
	}
	w.RegisterDelayedCallback(func() { w.total = 8 }, time.Second)
	w.request(0)
	w.request(2 * time.Second)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 2, Sent: 2}, result)
	require.Equal(t, 8, w.told)
	require.Len(t, w.finished, 2)
}

func TestSyncCustomerTriesAgainAtOnceWhenAskedDuringAnOutage(t *testing.T) {
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

func TestSyncCustomerForgivesARefusalOnceALaterPassSucceeds(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt == 1 {
			w.requests = append(w.requests, uuid.New()) // a row whose signal was lost
			return metering.Errorf(metering.CodeProviderRefuse, "save another URL")
		}
		return nil
	}
	w.request(0)
	result, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Passes)
	require.Equal(t, "save another URL", w.finished[0].Problem)
	require.Empty(t, w.finished[1].Problem)
}

func TestSyncCustomerPreparesAgainWhereASnapshotWasOvertaken(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(attempt int) error {
		if attempt == 1 {
			w.unsettled = nil
			return metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
		}
		return nil
	}
	w.request(0)
	w.prepare = func() error {
		if w.attempts == 1 && w.unsettled == nil {
			w.ours = 0 // what was given up does not count as this pass's
		}
		return nil
	}
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, w.attempts)
	require.Equal(t, 5, w.told)
}

func TestSyncCustomerFailsTheRequestsWhereNothingCanBePrepared(t *testing.T) {
	w := newWorld(t)
	w.prepare = func() error { return metering.Errorf(metering.CodeNoProvider, "no billing provider is configured") }
	w.request(0)
	_, err := w.run(t)
	require.ErrorContains(t, err, "no billing provider is configured")
	require.Equal(t, "no billing provider is configured", w.finished[0].Problem)
}

func TestSyncCustomerOutlastsAFailingDatabase(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	failures := 9
	w.prepare = func() error {
		if failures--; failures > 0 {
			return metering.Errorf(metering.CodeUnavailable, "the database is not available")
		}
		return nil
	}
	w.request(0)
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 5, w.told)
}

func TestSyncCustomerAnswersTheRequestsWhenCancelled(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	w.RegisterDelayedCallback(w.CancelWorkflow, time.Minute)
	_, err := w.run(t)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Contains(t, w.finished[0].Problem, "interrupted")
	require.NotNil(t, w.unsettled)
}

func TestSyncCustomerContinuesAsNewWhereRequestsKeepComing(t *testing.T) {
	w := newWorld(t)
	w.deliver = func(int) error { return nil }
	w.prepare = func() error {
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
