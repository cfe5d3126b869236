package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// Names of the updates with which operators control an open run.
const (
	pauseUpdate        = "pause"         // start no new step and stop waiting for the provider
	resumeUpdate       = "resume"        // end the pause
	retryNowUpdate     = "retry-now"     // end the pause and the wait for the next attempt
	excludeMeterUpdate = "exclude-meter" // SyncCustomer only: send no more reports of the meter in this run
)

// stateQuery is the name of the query that returns a RunState.
const stateQuery = "state"

// RunState is the state of a run that only the run itself knows.
type RunState struct {
	Paused bool `json:"paused"`
}

// operators holds the effects of the updates that operators have sent to a run.
type operators struct {
	paused   bool
	atOnce   bool // DeliverWebhooks: the next activity also sends messages that are not due yet
	excluded []metering.MeterID
	asked    workflow.Channel // receives a value for each update
}

// registerUpdateHandlers registers the handlers of the updates pause, resume and retry-now, and of the state query.
func (o *operators) registerUpdateHandlers(ctx workflow.Context, tenant metering.TenantID) error {
	o.asked = workflow.NewNamedBufferedChannel(ctx, "asked", 100)
	set := func(name string, change func()) error {
		return registerUpdate(ctx, name, func(ctx workflow.Context, in metering.Asked) error {
			change()
			o.asked.SendAsync(nil)
			return recordUpdate(ctx, tenant, name, in, 0)
		})
	}
	return errors.Join(
		set(pauseUpdate, func() { o.paused = true }),
		set(resumeUpdate, func() { o.paused = false }),
		set(retryNowUpdate, func() { o.paused, o.atOnce = false, true }),
		workflow.SetQueryHandler(ctx, stateQuery, func() (RunState, error) { return RunState{o.paused}, nil }),
	)
}

// registerUpdate registers an update handler that calls do with a valid input. The history does not contain updates
// with an invalid input, because the validator rejects them.
func registerUpdate[In interface{ Validate() error }](ctx workflow.Context, name string, do func(workflow.Context, In) error) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, name, do, workflow.UpdateHandlerOptions{Validator: func(in In) error { return in.Validate() }})
}

// recordUpdate stores an update in the audit log, even if the run is canceled meanwhile. The meter is 0 if the update
// names none.
func recordUpdate(ctx workflow.Context, tenant metering.TenantID, name string, in metering.Asked, meter metering.MeterID) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	run := workflow.GetInfo(ctx).WorkflowExecution
	return workflow.ExecuteActivity(shortStep(ctx, "record in the audit log who requested "+name), do.RecordUpdate, activities.RecordUpdateInput{
		Asked: in, TenantID: tenant, Workflow: run.ID, Run: run.RunID, Update: workflow.GetCurrentUpdateInfo(ctx).ID, Name: name, MeterID: meter,
	}).Get(ctx, nil)
}

// awaitUpdateHandlers waits until all update handlers have finished, and then returns err. A run calls it before it
// ends, so that each update gets its response and its audit log entry. If err is nil, awaitUpdateHandlers returns the
// error of the wait.
func awaitUpdateHandlers(ctx workflow.Context, err error) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	waited := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	if err == nil {
		return waited
	}
	return err
}

// ExcludeMeterInput names a meter by its id.
type ExcludeMeterInput struct {
	metering.Asked
	MeterID metering.MeterID `json:"meter_id"`
}

// Validate returns an error if the meter id is not positive, or if the operator or the reason is
// missing or invalid.
func (in ExcludeMeterInput) Validate() error {
	if in.MeterID <= 0 {
		return errors.New("meter_id must be a positive number")
	}
	return in.Asked.Validate()
}

// UnmarshalJSON accepts the meter id as a number, such as 137, and as the API writes it, such as
// "mtr_137".
func (in *ExcludeMeterInput) UnmarshalJSON(text []byte) error {
	var sent struct {
		metering.Asked
		MeterID json.RawMessage `json:"meter_id"`
	}
	if err := json.Unmarshal(text, &sent); err != nil {
		return err
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(strings.Trim(string(sent.MeterID), `"`), "mtr_"), 10, 64)
	if err != nil {
		return errors.New(`meter_id must be a meter's id, such as "mtr_137" or 137`)
	}
	in.Asked, in.MeterID = sent.Asked, metering.MeterID(id)
	return nil
}

// registerExclusionHandler registers the handler of the update exclude-meter.
func (o *operators) registerExclusionHandler(ctx workflow.Context, tenant metering.TenantID) error {
	return registerUpdate(ctx, excludeMeterUpdate, func(ctx workflow.Context, in ExcludeMeterInput) error {
		if err := recordUpdate(ctx, tenant, excludeMeterUpdate, in.Asked, in.MeterID); err != nil {
			return asRunFailure(err)
		}
		if !slices.Contains(o.excluded, in.MeterID) {
			o.excluded = append(o.excluded, in.MeterID)
		}
		o.asked.SendAsync(nil)
		return nil
	})
}

// asRunFailure converts a non-retryable activity failure, which an operator has to resolve, into the failure of the run
// or of the update. It returns any other error unchanged.
func asRunFailure(err error) error {
	if code, message, ok := failureOf(err); ok {
		return temporal.NewNonRetryableApplicationError(message, code, nil)
	}
	return err
}

// errLongHistory ends a run because its history is long. The workflow continues as a new run.
var errLongHistory = errors.New("the history has become long")

// longHistory reports whether Temporal suggests that the workflow continues as a new run.
func longHistory(ctx workflow.Context) bool { return workflow.GetInfo(ctx).GetContinueAsNewSuggested() }

// awaitResume waits until the run is not paused. It returns errLongHistory if the history becomes
// too long during the pause.
func (o *operators) awaitResume(ctx workflow.Context) error {
	err := workflow.Await(ctx, func() bool { return !o.paused || longHistory(ctx) })
	if err == nil && o.paused {
		return errLongHistory
	}
	return err
}

// discardUpdates discards the values in asked, because the run has already taken these updates into account.
func (o *operators) discardUpdates() { drain(o.asked) }

// drain discards all values that the channel has received.
func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
	}
}
