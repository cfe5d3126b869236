package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// BackfillInput names the meter version to backfill.
type BackfillInput struct {
	TenantID       metering.TenantID       `json:"tenant_id"`
	MeterVersionID metering.MeterVersionID `json:"meter_version_id"`
}

// PlanBackfillResult contains the remaining days to count, oldest first.
type PlanBackfillResult struct {
	Days []time.Time `json:"days"`
}

// PlanBackfill returns the days that may contain events and are not counted yet.
func (a *Activities) PlanBackfill(ctx context.Context, in BackfillInput) (PlanBackfillResult, error) {
	defer sendHeartbeats(ctx)()
	days, err := a.store.Backfills.Plan(ctx, in.TenantID, in.MeterVersionID)
	return PlanBackfillResult{days}, err
}

// CountDaysInput contains a part of a backfill's days. Resumed is set after an operator has resumed
// the paused backfill.
type CountDaysInput struct {
	BackfillInput
	Days    []time.Time `json:"days"`
	Resumed bool        `json:"resumed,omitempty"`
}

// CountDaysResult counts the finished days and their events. Paused is set if workers were
// repeatedly killed while they counted the next day.
type CountDaysResult struct {
	Done   int   `json:"done"` // days
	Events int64 `json:"events"`
	Paused bool  `json:"paused,omitempty"`
}

// countFor is the time after which CountDays starts no other day, so that the run can show its
// progress.
const countFor = time.Minute

// CountDays adds the events of each day to the meter version's usage. Each day waits for the
// tenant's turn, see runInTurn. A retry continues after the last day in the heartbeat. No day is
// counted twice.
func (a *Activities) CountDays(ctx context.Context, in CountDaysInput) (CountDaysResult, error) {
	var progress CountDaysResult
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &progress); err != nil {
			progress = CountDaysResult{}
		}
	}
	if in.Resumed && progress.Done == 0 && activity.GetInfo(ctx).Attempt == 1 {
		if err := a.store.Backfills.Answered(ctx, in.TenantID, in.MeterVersionID); err != nil {
			return CountDaysResult{}, err
		}
	}
	for until := a.now().Add(countFor); progress.Done < len(in.Days) && (progress.Done == 0 || a.now().Before(until)); {
		stop := sendHeartbeats(ctx, progress)
		events, state, err := a.countDay(ctx, in.BackfillInput, in.Days[progress.Done])
		stop()
		if err != nil {
			return CountDaysResult{}, err
		}
		switch state {
		case usage.BackfillPaused:
			progress.Paused = true
			return progress, nil
		case usage.BackfillEnded:
			progress.Done = len(in.Days)
			return progress, nil
		case usage.BackfillRuns:
		}
		progress.Done++
		progress.Events += events
		activity.RecordHeartbeat(ctx, progress)
	}
	return progress, nil
}

// countDay counts one day, unless the backfill has ended or is paused.
func (a *Activities) countDay(ctx context.Context, in BackfillInput, day time.Time) (events int64, state usage.BackfillState, err error) {
	err = a.runInTurn(ctx, in.TenantID, func() error {
		state, err = a.store.Backfills.Begin(ctx, in.TenantID, in.MeterVersionID)
		if err != nil || state != usage.BackfillRuns {
			return err
		}
		events, err = a.store.Backfills.CountDay(ctx, in.TenantID, in.MeterVersionID, day)
		return errors.Join(err, a.store.Backfills.Answered(context.WithoutCancel(ctx), in.TenantID, in.MeterVersionID))
	})
	return events, state, err
}

// CompleteMeterVersion makes reads and billing use the meter version.
func (a *Activities) CompleteMeterVersion(ctx context.Context, in BackfillInput) error {
	defer sendHeartbeats(ctx)()
	return a.store.Backfills.Complete(ctx, in.TenantID, in.MeterVersionID)
}
