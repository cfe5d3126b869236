package workflows

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// MaintainResult counts the work of an hourly maintenance.
type MaintainResult struct {
	Dropped int `json:"dropped"` // chunks of events
}

// Maintain does the hourly maintenance. If a step fails, the others still run.
func Maintain(ctx workflow.Context) (MaintainResult, error) {
	var dropped activities.DropEventsResult
	err := errors.Join(
		workflow.ExecuteActivity(withFewRetries(shortStep(ctx, "create the chunks of the next weeks")), do.MakeChunks).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(shortStep(ctx, "delete expired request ids")), do.SweepRequestIDs).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(shortStep(ctx, "delete old webhook messages")), do.SweepMessages).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(shortStep(ctx, "delete old event statistics")), do.SweepEventCounts).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(shortStep(ctx, "report expiring credentials")), do.ReportExpiringCredentials).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(longStep(ctx, "refresh the independent daily count and compress old events")), do.RefreshDaily).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(longStep(ctx, "compute the digests of closed periods")), do.DigestPeriods).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(longStep(ctx, "delete the totals of replaced meter versions")), do.DropRetired).Get(ctx, nil),
		workflow.ExecuteActivity(withFewRetries(longStep(ctx, "delete events whose retention is over")), do.DropEvents).Get(ctx, &dropped),
	)
	return MaintainResult{dropped.Chunks}, err
}

// maintainStart returns the start of the hourly Maintain run.
func maintainStart() start {
	return start{workflow: Maintain, id: "maintain", summary: "Hourly maintenance", priority: background}
}
