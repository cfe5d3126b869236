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

// stateTimeout bounds the wait for the state of a run in Temporal.
const stateTimeout = time.Second

// SyncState is the part of the state of a customer's SyncCustomer run that the database does not
// contain. It is zero if no run is open.
type SyncState struct {
	Paused      bool
	Attempts    int       // of the pending step, including a running attempt
	LastError   string    // of the pending step
	NextAttempt time.Time // zero: an attempt is running, or no retry is scheduled
}

// DescribeSyncCustomer returns the state of the customer's run. If only the query for Paused fails,
// for example because no worker is running, the other fields are valid despite the error.
func DescribeSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) (SyncState, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	id := SyncCustomerID(tenant, customer)
	described, err := c.DescribeWorkflowExecution(ctx, id, "")
	if isNotFound(err) {
		return SyncState{}, nil
	}
	if err != nil {
		return SyncState{}, unreachable(id, err)
	}
	if described.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return SyncState{}, nil
	}
	state := pendingStepState(described.GetPendingActivities())
	state.Paused, err = isPaused(ctx, c, id)
	return state, err
}

// pendingStepState returns the state of a run's pending step. SyncCustomer has at most one pending step.
func pendingStepState(pending []*workflowpb.PendingActivityInfo) (state SyncState) {
	for _, step := range pending {
		switch step.GetState() {
		case enumspb.PENDING_ACTIVITY_STATE_STARTED:
			return SyncState{Attempts: int(step.GetAttempt()), LastError: failureText(step.GetLastFailure())}
		case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
			state = SyncState{Attempts: int(step.GetAttempt()) - 1, LastError: failureText(step.GetLastFailure())}
			if next := step.GetNextAttemptScheduleTime(); next != nil && state.Attempts > 0 {
				state.NextAttempt = next.AsTime()
			}
		}
	}
	return state
}

// failureText returns the part of a failure that tenants may see. It returns the message only for codes with messages
// that Odometer writes, and a general text for all others.
func failureText(failure *failurepb.Failure) string {
	if failure == nil {
		return ""
	}
	switch metering.Code(failure.GetApplicationFailureInfo().GetType()) {
	case metering.CodeProviderDown, metering.CodeProviderRefuse, metering.CodeOverloaded, metering.CodeUnavailable, metering.CodeBackfilling:
		return failure.GetMessage()
	}
	return "the attempt failed and is retried"
}

// isPaused asks the open run with the ID whether it is paused. It returns false if no run is open.
func isPaused(ctx context.Context, c client.Client, id string) (bool, error) {
	answer, err := c.QueryWorkflow(ctx, id, "", stateQuery)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, unreachable(id, err)
	}
	var state RunState
	if err := answer.Get(&state); err != nil {
		return false, unreachable(id, err)
	}
	return state.Paused, nil
}

// RetrySyncCustomer makes the customer's run call the provider at once, and resumes a paused run.
// If no run is open, it first starts one for the open requests.
func RetrySyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, by metering.Asked) error {
	return steerSync(ctx, c, tenant, customer, retryNowUpdate, by)
}

// ResumeSyncCustomer resumes a run of the customer that an operator paused in the Temporal UI. It
// returns CodeConflict if the run is not paused.
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
	return sendUpdate(ctx, c, id, resumeUpdate, by)
}

// CancelSyncCustomer requests the cancellation of the customer's run, if one is open.
func CancelSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := SyncCustomerID(tenant, customer)
	if err := c.CancelWorkflow(ctx, id, ""); err != nil && !isNotFound(err) {
		return unreachable(id, err)
	}
	return nil
}

// steerSync sends an update to the customer's run. If no run is open, it starts one for the open
// requests first.
func steerSync(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, update string, by metering.Asked) error {
	if err := RestartSyncCustomer(ctx, c, tenant, customer); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return sendUpdate(ctx, c, SyncCustomerID(tenant, customer), update, by)
}

// sendUpdate sends an update to a run and waits until the run has processed it. It returns CodeConflict if the run is
// not open. It returns CodeUnavailable for any other error; if no worker answered, the run may still process the update
// later.
func sendUpdate(ctx context.Context, c client.Client, id, update string, by metering.Asked) error {
	asked, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: update, Args: []any{by}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = asked.Get(ctx, nil)
	}
	if isNotFound(err) {
		return metering.Errorf(metering.CodeConflict, "the sync ended in the meantime; read it again")
	}
	if err != nil {
		return unreachable(id, err)
	}
	return nil
}
