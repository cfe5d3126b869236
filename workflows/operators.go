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

// Updates with which operators steer a run that is open.
const (
	pauseUpdate        = "pause"         // start nothing more; what waits for the provider stops waiting
	resumeUpdate       = "resume"        // go on
	retryNowUpdate     = "retry-now"     // do not wait any longer for the provider: try again at once
	excludeMeterUpdate = "exclude-meter" // SyncCustomer: leave the meter as it was reported
)

// stateQuery asks a run for what nobody else knows.
const stateQuery = "state"

// RunState is what a run says of itself.
type RunState struct {
	Paused bool `json:"paused"`
}

// operators is what operators have asked of a run.
type operators struct {
	paused   bool
	atOnce   bool // DeliverWebhooks: not to wait for what is not due
	excluded []metering.MeterID
	asked    workflow.Channel // gets something whenever they ask
}

// heed makes the run listen.
func (o *operators) heed(ctx workflow.Context, tenant metering.TenantID) error {
	o.asked = workflow.NewNamedBufferedChannel(ctx, "asked", 100)
	set := func(name string, change func()) error {
		return listen(ctx, name, func(ctx workflow.Context, in metering.Asked) error {
			change()
			o.asked.SendAsync(nil)
			return record(ctx, tenant, name, in, 0)
		})
	}
	return errors.Join(
		set(pauseUpdate, func() { o.paused = true }),
		set(resumeUpdate, func() { o.paused = false }),
		set(retryNowUpdate, func() { o.paused, o.atOnce = false, true }),
		workflow.SetQueryHandler(ctx, stateQuery, func() (RunState, error) { return RunState{o.paused}, nil }),
	)
}

// listen has a run do something where an operator says who asks for it and why.
// What is refused leaves no trace in the history.
func listen[In interface{ Validate() error }](ctx workflow.Context, name string, do func(workflow.Context, In) error) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, name, do, workflow.UpdateHandlerOptions{Validator: func(in In) error { return in.Validate() }})
}

// record has the audit log keep who has asked for what, whether or not the run
// is cancelled meanwhile. meter is the one that is named; 0: none is.
func record(ctx workflow.Context, tenant metering.TenantID, name string, in metering.Asked, meter metering.MeterID) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	run := workflow.GetInfo(ctx).WorkflowExecution
	return workflow.ExecuteActivity(storing(ctx, "record in the audit log who requested "+name), do.RecordUpdate, activities.RecordUpdateInput{
		Asked: in, TenantID: tenant, Workflow: run.ID, Run: run.RunID, Update: workflow.GetCurrentUpdateInfo(ctx).ID, Name: name, MeterID: meter,
	}).Get(ctx, nil)
}

// answered is how a run, or a part of it, ends, once nobody waits for the answer
// to an update: what was asked is written down before.
func answered(ctx workflow.Context, err error) error {
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

// Validate refuses what names no meter, or does not say who asks and why.
func (in ExcludeMeterInput) Validate() error {
	if in.MeterID <= 0 {
		return errors.New("meter_id must be a positive number")
	}
	return in.Asked.Validate()
}

// UnmarshalJSON reads the id also as the API shows it, and says how it looks.
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

// heedExclusions lets operators name meters that the run leaves as they are.
func (o *operators) heedExclusions(ctx workflow.Context, tenant metering.TenantID) error {
	return listen(ctx, excludeMeterUpdate, func(ctx workflow.Context, in ExcludeMeterInput) error {
		if err := record(ctx, tenant, excludeMeterUpdate, in.Asked, in.MeterID); err != nil {
			return forOperators(err)
		}
		if !slices.Contains(o.excluded, in.MeterID) {
			o.excluded = append(o.excluded, in.MeterID)
		}
		o.asked.SendAsync(nil)
		return nil
	})
}

// forOperators makes what somebody has to act on the run's, or the update's, own failure.
func forOperators(err error) error {
	if code, message, ok := failureOf(err); ok {
		return temporal.NewNonRetryableApplicationError(message, code, nil)
	}
	return err
}

// errLongHistory ends a run before its work is done: the next run goes on.
var errLongHistory = errors.New("the history has become long")

func longHistory(ctx workflow.Context) bool { return workflow.GetInfo(ctx).GetContinueAsNewSuggested() }

// awaitResume returns at once unless the run is paused, and errLongHistory
// where it has to wait on in another run.
func (o *operators) awaitResume(ctx workflow.Context) error {
	err := workflow.Await(ctx, func() bool { return !o.paused || longHistory(ctx) })
	if err == nil && o.paused {
		return errLongHistory
	}
	return err
}

// forget drops what was asked before now.
func (o *operators) forget() { drain(o.asked) }

// drain drops what has been received before now.
func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
	}
}
