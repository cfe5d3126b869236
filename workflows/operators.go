package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

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
func (o *operators) heed(ctx workflow.Context) error {
	o.asked = workflow.NewNamedBufferedChannel(ctx, "asked", 100)
	set := func(name string, change func()) error {
		return workflow.SetUpdateHandler(ctx, name, func(workflow.Context) error {
			change()
			o.asked.SendAsync(nil)
			return nil
		})
	}
	return errors.Join(
		set(pauseUpdate, func() { o.paused = true }),
		set(resumeUpdate, func() { o.paused = false }),
		set(retryNowUpdate, func() { o.paused, o.atOnce = false, true }),
		workflow.SetQueryHandler(ctx, stateQuery, func() (RunState, error) { return RunState{o.paused}, nil }),
	)
}

// ExcludeMeterInput names a meter by its id.
type ExcludeMeterInput struct {
	MeterID metering.MeterID `json:"meter_id"`
}

// UnmarshalJSON reads the id also as the API shows it, and says how it looks.
func (in *ExcludeMeterInput) UnmarshalJSON(text []byte) error {
	var sent struct {
		MeterID json.RawMessage `json:"meter_id"`
	}
	if err := json.Unmarshal(text, &sent); err != nil {
		return err
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(strings.Trim(string(sent.MeterID), `"`), "mtr_"), 10, 64)
	if err != nil {
		return errors.New(`meter_id must be a meter's id, such as "mtr_137" or 137`)
	}
	in.MeterID = metering.MeterID(id)
	return nil
}

// heedExclusions lets operators name meters that the run leaves as they are.
func (o *operators) heedExclusions(ctx workflow.Context) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, excludeMeterUpdate, func(_ workflow.Context, in ExcludeMeterInput) error {
		if !slices.Contains(o.excluded, in.MeterID) {
			o.excluded = append(o.excluded, in.MeterID)
		}
		o.asked.SendAsync(nil)
		return nil
	}, workflow.UpdateHandlerOptions{Validator: func(in ExcludeMeterInput) error {
		if in.MeterID <= 0 {
			return errors.New("meter_id must be a meter's number")
		}
		return nil
	}})
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
