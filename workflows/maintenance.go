package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// startedAtOnce bounds how many of each kind an hour's maintenance starts.
const startedAtOnce = 200

// MaintainResult is what an hour's maintenance started.
type MaintainResult struct {
	Syncs     int `json:"syncs"`
	Backfills int `json:"backfills"`
	Closing   int `json:"closing"`
	Events    int `json:"events,omitempty"`    // of providers'
	Rotations int `json:"rotations,omitempty"` // of HMAC secrets
	Dropped   int `json:"dropped"`             // chunks of events
}

// Maintain is the hourly maintenance. What one part fails at does not keep the
// others from being done.
func Maintain(ctx workflow.Context) (MaintainResult, error) {
	var result MaintainResult
	var dropped activities.DropEventsResult
	err := errors.Join(
		workflow.ExecuteActivity(maintenance(storing(ctx, "make the chunks of the coming weeks")), do.MakeChunks).Get(ctx, nil),
		workflow.ExecuteActivity(maintenance(storing(ctx, "forget expired request ids")), do.SweepRequestIDs).Get(ctx, nil),
		workflow.ExecuteActivity(maintenance(storing(ctx, "forget old messages to webhooks")), do.SweepMessages).Get(ctx, nil),
		startUnfinished(ctx, &result),
		workflow.ExecuteActivity(maintenance(counting(ctx, "refresh the independent count, compress old events")), do.RefreshDaily).Get(ctx, nil),
		workflow.ExecuteActivity(maintenance(counting(ctx, "drop events that need not be kept")), do.DropEvents).Get(ctx, &dropped),
	)
	result.Dropped = dropped.Chunks
	return result, err
}

// maintenance is for a step that the next hour would do as well.
func maintenance(ctx workflow.Context) workflow.Context {
	options := workflow.GetActivityOptions(ctx)
	options.RetryPolicy.MaximumAttempts = 10
	return workflow.WithActivityOptions(ctx, options)
}

func startUnfinished(ctx workflow.Context, result *MaintainResult) error {
	var open activities.UnfinishedResult
	err := workflow.ExecuteActivity(maintenance(storing(ctx, "find what nobody is working on")), do.Unfinished, startedAtOnce).Get(ctx, &open)
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
	for _, event := range open.Events {
		if err := startHandling(ctx, event); err != nil {
			return err
		}
	}
	for _, secret := range open.Secrets {
		if err := startRotation(ctx, secret); err != nil {
			return err
		}
	}
	result.Syncs, result.Backfills, result.Closing = len(open.Syncs), len(open.Backfills), len(open.Closing)
	result.Events, result.Rotations = len(open.Events), len(open.Secrets)
	return nil
}

func startBackfill(ctx workflow.Context, b activities.BackfillInput) error {
	return startChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:        BackfillMeterID(b.TenantID, b.MeterVersionID),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     fmt.Sprintf("Count the past of a meter of %s", b.TenantID),
		Priority:          temporal.Priority{PriorityKey: background, FairnessKey: b.TenantID.String()},
	}, BackfillMeter, BackfillMeterInput{TenantID: b.TenantID, MeterVersionID: b.MeterVersionID})
}

func startHandling(ctx workflow.Context, event activities.ProviderEventInput) error {
	return startChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:        HandleProviderEventID(event.TenantID, event.RowID),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     eventSummary(event.TenantID),
		StaticDetails:     eventDetails,
		Priority:          temporal.Priority{PriorityKey: background, FairnessKey: event.TenantID.String()},
	}, HandleProviderEvent, HandleProviderEventInput{TenantID: event.TenantID, RowID: event.RowID, Unindexed: true})
}

func startRotation(ctx workflow.Context, secret activities.ReplacedSecretInput) error {
	return startChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:        RotateHMACSecretID(secret.TenantID, secret.SecretID),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     rotateHMACSummary(secret.TenantID),
		StaticDetails:     rotateHMACDetails,
		Priority:          temporal.Priority{PriorityKey: background, FairnessKey: secret.TenantID.String()},
	}, RotateHMACSecret, RotateHMACSecretInput(secret))
}
