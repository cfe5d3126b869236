package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// startedAtOnce bounds how many of each kind an hour's upkeep starts.
const startedAtOnce = 200

// MaintainResult is what an hour's upkeep started.
type MaintainResult struct {
	Syncs     int `json:"syncs"`
	Backfills int `json:"backfills"`
	Closing   int `json:"closing"`
}

// Maintain is the hourly upkeep. What one part fails at does not keep the
// others from being done.
func Maintain(ctx workflow.Context) (MaintainResult, error) {
	var result MaintainResult
	err := errors.Join(
		workflow.ExecuteActivity(upkeep(ctx, "make the chunks of the coming weeks"), do.MakeChunks).Get(ctx, nil),
		workflow.ExecuteActivity(upkeep(ctx, "forget expired request ids"), do.SweepRequestIDs).Get(ctx, nil),
		workflow.ExecuteActivity(counting(ctx, "refresh the second count, compress old events"), do.RefreshDaily).Get(ctx, nil),
		startUnfinished(ctx, &result),
	)
	return result, err
}

// upkeep is for a step that the next hour would do as well.
func upkeep(ctx workflow.Context, summary string) workflow.Context {
	ctx = storing(ctx, summary)
	options := workflow.GetActivityOptions(ctx)
	options.RetryPolicy.MaximumAttempts = 10
	return workflow.WithActivityOptions(ctx, options)
}

func startUnfinished(ctx workflow.Context, result *MaintainResult) error {
	var open activities.UnfinishedResult
	err := workflow.ExecuteActivity(upkeep(ctx, "find what nobody is working on"), do.Unfinished, startedAtOnce).Get(ctx, &open)
	if err != nil {
		return err
	}
	for _, sync := range open.Syncs {
		m := mass{tenant: sync.TenantID, unindexed: true}
		if err := m.startSync(ctx, sync.CustomerID); err != nil {
			return err
		}
	}
	for _, b := range open.Backfills {
		if err := startBackfill(ctx, b); err != nil {
			return err
		}
	}
	for _, tenant := range open.Closing {
		if err := startClosing(ctx, tenant); err != nil {
			return err
		}
	}
	*result = MaintainResult{len(open.Syncs), len(open.Backfills), len(open.Closing)}
	return nil
}

func startBackfill(ctx workflow.Context, b activities.BackfillInput) error {
	return startChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:        BackfillMeterID(b.TenantID, b.GenerationID),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     fmt.Sprintf("Count the past of a meter of %s", b.TenantID),
		Priority:          temporal.Priority{PriorityKey: background, FairnessKey: b.TenantID.String()},
	}, BackfillMeter, BackfillMeterInput{TenantID: b.TenantID, GenerationID: b.GenerationID})
}
