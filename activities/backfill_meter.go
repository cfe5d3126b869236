package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
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
	days, err := a.store.Backfills.Plan(ctx, in.TenantID, in.MeterVersionID)
	return PlanBackfillResult{days}, err
}

// CountDaysInput is a chunk of a backfill's days. Resumed: an operator has resumed the
// paused backfill.
type CountDaysInput struct {
	BackfillInput
	Days    []time.Time `json:"days"`
	Resumed bool        `json:"resumed,omitempty"`
}

// CountDaysResult is the usage that a chunk added. Paused: workers were killed again and
// again while they counted the day after the Done ones.
type CountDaysResult struct {
	Done   int   `json:"done"` // days
	Events int64 `json:"events"`
	Paused bool  `json:"paused,omitempty"`
}

// countFor is how long days are counted before the run goes on with the rest.
const countFor = time.Minute

// CountDays adds the events of each day to the meter version's usage, each day in the
// tenant's turn. A repeat goes on after the last day that was reported, and counts no day
// twice.
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
		stop := alive(ctx, progress)
		events, state, err := a.countDay(ctx, in.BackfillInput, in.Days[progress.Done])
		stop()
		if err != nil {
			return CountDaysResult{}, err
		}
		switch state {
		case db.BackfillPaused:
			progress.Paused = true
			return progress, nil
		case db.BackfillEnded:
			progress.Done = len(in.Days)
			return progress, nil
		case db.BackfillRuns:
		}
		progress.Done++
		progress.Events += events
		activity.RecordHeartbeat(ctx, progress)
	}
	return progress, nil
}

// countDay counts one day, if the backfill goes on.
func (a *Activities) countDay(ctx context.Context, in BackfillInput, day time.Time) (events int64, state db.BackfillState, err error) {
	err = a.inTurn(ctx, in.TenantID, func() error {
		state, err = a.store.Backfills.Begin(ctx, in.TenantID, in.MeterVersionID)
		if err != nil || state != db.BackfillRuns {
			return err
		}
		events, err = a.store.Backfills.CountDay(ctx, in.TenantID, in.MeterVersionID, day)
		return errors.Join(err, a.store.Backfills.Answered(context.WithoutCancel(ctx), in.TenantID, in.MeterVersionID))
	})
	return events, state, err
}

// CompleteMeterVersion makes reads and billing use the meter version.
func (a *Activities) CompleteMeterVersion(ctx context.Context, in BackfillInput) error {
	defer alive(ctx)()
	return a.store.Backfills.Complete(ctx, in.TenantID, in.MeterVersionID)
}
