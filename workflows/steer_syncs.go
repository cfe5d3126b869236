package workflows

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
)

// stateTimeout bounds how long a caller waits for what only Temporal knows.
const stateTimeout = time.Second

// SyncState is what only Temporal knows of a customer's run. Of one that is not
// open it is zero.
type SyncState struct {
	Paused      bool
	Attempts    int       // of the step that is being tried
	LastError   string    // of that step
	NextAttempt time.Time // zero: it is being tried now, or nothing is
}

// DescribeSyncCustomer says how the customer's run stands. What it found out
// before an error holds: without a worker only Paused is not known.
func DescribeSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) (SyncState, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	id := SyncCustomerID(tenant, customer)
	described, err := c.DescribeWorkflowExecution(ctx, id, "")
	if missing(err) {
		return SyncState{}, nil
	}
	if err != nil {
		return SyncState{}, unreachable(id, err)
	}
	if described.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return SyncState{}, nil
	}
	state := triedBy(described.GetPendingActivities())
	state.Paused, err = isPaused(ctx, c, id)
	return state, err
}

// triedBy is how a run's pending step stands: SyncCustomer takes one at a time.
func triedBy(pending []*workflowpb.PendingActivityInfo) (state SyncState) {
	for _, step := range pending {
		switch step.GetState() {
		case enumspb.PENDING_ACTIVITY_STATE_STARTED:
			return SyncState{Attempts: int(step.GetAttempt()), LastError: shownOf(step.GetLastFailure())}
		case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
			state = SyncState{Attempts: int(step.GetAttempt()) - 1, LastError: shownOf(step.GetLastFailure())}
			if next := step.GetNextAttemptScheduleTime(); next != nil && state.Attempts > 0 {
				state.NextAttempt = next.AsTime()
			}
		}
	}
	return state
}

// shownOf is what tenants may see of a failure: the words of our own codes only.
func shownOf(failure *failurepb.Failure) string {
	if failure == nil {
		return ""
	}
	switch metering.Code(failure.GetApplicationFailureInfo().GetType()) {
	case metering.CodeProviderDown, metering.CodeProviderRefuse, metering.CodeOverloaded, metering.CodeUnavailable, metering.CodeBackfilling:
		return failure.GetMessage()
	}
	return "the attempt failed and is retried"
}

func isPaused(ctx context.Context, c client.Client, id string) (bool, error) {
	answer, err := c.QueryWorkflow(ctx, id, "", stateQuery)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, unreachable(id, err)
	}
	var said RunState
	if err := answer.Get(&said); err != nil {
		return false, unreachable(id, err)
	}
	return said.Paused, nil
}

// RetrySyncCustomer has the customer's run try the provider at once. Where no run
// is open for the requests, it begins one.
func RetrySyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, by metering.Asked) error {
	return steerSync(ctx, c, tenant, customer, retryNowUpdate, by)
}

// ResumeSyncCustomer has the customer's run go on, which was paused in the
// Temporal UI. CodeConflict where it is not paused.
func ResumeSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, by metering.Asked) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := SyncCustomerID(tenant, customer)
	waits, err := isPaused(ctx, c, id)
	if err != nil {
		return err
	}
	if !waits {
		return metering.Errorf(metering.CodeConflict, "the sync is not paused; to try it again at once, use retry")
	}
	return askRun(ctx, c, id, resumeUpdate, by)
}

// CancelSyncCustomer ends the customer's run, if one is open.
func CancelSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := SyncCustomerID(tenant, customer)
	if err := c.CancelWorkflow(ctx, id, ""); err != nil && !missing(err) {
		return unreachable(id, err)
	}
	return nil
}

// steerSync asks the customer's run for an update. One that is closed has left
// the request to another, which begins here.
func steerSync(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, update string, by metering.Asked) error {
	if err := RestartSyncCustomer(ctx, c, tenant, customer); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return askRun(ctx, c, SyncCustomerID(tenant, customer), update, by)
}

// askRun returns once the run has taken the update. CodeUnavailable when nobody
// answers; it may take it all the same.
func askRun(ctx context.Context, c client.Client, id, update string, by metering.Asked) error {
	asked, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: update, Args: []any{by}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = asked.Get(ctx, nil)
	}
	if missing(err) {
		return metering.Errorf(metering.CodeConflict, "the sync ended in the meantime; read it again")
	}
	if err != nil {
		return unreachable(id, err)
	}
	return nil
}
