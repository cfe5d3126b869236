package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/metering"
)

// BackfillInput names the meter version whose past is counted.
type BackfillInput struct {
	TenantID       metering.TenantID       `json:"tenant_id"`
	MeterVersionID metering.MeterVersionID `json:"meter_version_id"`
}

// PlanBackfillResult is the days that are left to count, oldest first.
type PlanBackfillResult struct {
	Days []time.Time `json:"days"`
}

// PlanBackfill finds the days that may hold events and are not counted yet.
func (a *Activities) PlanBackfill(ctx context.Context, in BackfillInput) (PlanBackfillResult, error) {
	defer alive(ctx)()
	days, err := a.store.Backfills.Days(ctx, in.TenantID, in.MeterVersionID)
	return PlanBackfillResult{days}, err
}

// CountDaysInput is a chunk of a backfill's days.
type CountDaysInput struct {
	BackfillInput
	Days []time.Time `json:"days"`
}

// CountDaysResult is what a chunk added.
type CountDaysResult struct {
	Events int64 `json:"events"`
}

// countProgress is the heartbeat of CountDays: where another attempt goes on.
type countProgress struct {
	Done   int   `json:"done"` // days
	Events int64 `json:"events"`
}

// CountDays adds the events of each day to the meter version's usage. A repeat
// goes on after the last day that was reported, and counts no day twice.
func (a *Activities) CountDays(ctx context.Context, in CountDaysInput) (CountDaysResult, error) {
	var progress countProgress
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &progress); err != nil {
			progress = countProgress{}
		}
	}
	for _, day := range in.Days[min(progress.Done, len(in.Days)):] {
		stop := alive(ctx, progress)
		events, err := a.store.Backfills.CountDay(ctx, in.TenantID, in.MeterVersionID, day)
		stop()
		if err != nil {
			return CountDaysResult{}, err
		}
		progress.Done++
		progress.Events += events
		activity.RecordHeartbeat(ctx, progress)
	}
	return CountDaysResult{progress.Events}, nil
}

// CompleteMeterVersion makes reads and billing use the meter version.
func (a *Activities) CompleteMeterVersion(ctx context.Context, in BackfillInput) error {
	defer alive(ctx)()
	return a.store.Backfills.Complete(ctx, in.TenantID, in.MeterVersionID)
}
