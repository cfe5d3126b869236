package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// daysPerStep is the maximum number of days that one activity counts. It is small enough to show progress, and large
// enough to keep the history of a backfill of five years short.
const daysPerStep = 30

// BackfillMeterInput names the meter version to backfill.
type BackfillMeterInput struct {
	TenantID       metering.TenantID       `json:"tenant_id"`
	MeterVersionID metering.MeterVersionID `json:"meter_version_id"`
	Paused         bool                    `json:"paused,omitempty"` // the previous run was paused
}

// BackfillMeterResult counts the work of a run.
type BackfillMeterResult struct {
	Days   int   `json:"days"`
	Events int64 `json:"events"`
}

// BackfillMeter counts the events that arrived before a meter version was published, day by day,
// and then makes reads and billing use the version. If workers are killed repeatedly while they
// count the same day, the backfill is paused until an operator resumes it. Archiving the meter or
// changing how it counts ends the backfill.
func BackfillMeter(ctx workflow.Context, in BackfillMeterInput) (BackfillMeterResult, error) {
	b := backfillMeter{version: activities.BackfillInput{TenantID: in.TenantID, MeterVersionID: in.MeterVersionID}}
	b.paused = in.Paused
	if err := b.registerUpdateHandlers(ctx, in.TenantID); err != nil {
		return b.result, err
	}
	err := b.run(ctx)
	err = awaitUpdateHandlers(ctx, err)
	if errors.Is(err, errLongHistory) {
		in.Paused = b.paused
		return b.result, workflow.NewContinueAsNewError(ctx, BackfillMeter, in)
	}
	return b.result, err
}

// backfillMeter is the state of a BackfillMeter run.
type backfillMeter struct {
	operators
	version activities.BackfillInput
	total   int // days
	result  BackfillMeterResult
}

// run counts the remaining days in steps, and then makes reads and billing use the version.
func (b *backfillMeter) run(ctx workflow.Context) error {
	var plan activities.PlanBackfillResult
	err := workflow.ExecuteActivity(shortStep(ctx, "list the days to count"), do.PlanBackfill, b.version).Get(ctx, &plan)
	if err != nil {
		return err
	}
	b.total = len(plan.Days)
	for interrupted := false; len(plan.Days) > 0; {
		resumed, err := b.waitIfPaused(ctx, interrupted)
		if err != nil {
			return err
		}
		counted, err := b.count(ctx, plan.Days[:min(daysPerStep, len(plan.Days))], resumed)
		if err != nil {
			return err
		}
		plan.Days, interrupted = plan.Days[counted.Done:], counted.Paused
	}
	return workflow.ExecuteActivity(shortStep(ctx, "make reads and billing use the new version"), do.CompleteMeterVersion, b.version).Get(ctx, nil)
}

// count counts some days, and shows the progress to operators.
func (b *backfillMeter) count(ctx workflow.Context, days []time.Time, resumed bool) (counted activities.CountDaysResult, err error) {
	summary := fmt.Sprintf("count %s to %s", days[0].Format(time.DateOnly), days[len(days)-1].Format(time.DateOnly))
	err = workflow.ExecuteActivity(heavyStep(ctx, summary), do.CountDays,
		activities.CountDaysInput{BackfillInput: b.version, Days: days, Resumed: resumed}).Get(ctx, &counted)
	b.result.Days += counted.Done
	b.result.Events += counted.Events
	b.show(ctx, "")
	return counted, err
}

// waitIfPaused waits while the backfill is paused, and reports whether it was paused and then resumed. If interrupted
// is true, workers were killed repeatedly while they counted the next day, and waitIfPaused first pauses the backfill.
func (b *backfillMeter) waitIfPaused(ctx workflow.Context, interrupted bool) (resumed bool, err error) {
	if longHistory(ctx) {
		return false, errLongHistory
	}
	b.paused = b.paused || interrupted
	switch {
	case interrupted:
		b.show(ctx, "Paused: several workers were killed while they counted the next day. "+
			"Give the workers more memory and resume the backfill, archive the meter, or change how the meter counts.")
	case b.paused:
		b.show(ctx, "Paused by an operator.")
	}
	resumed = b.paused
	return resumed, b.awaitResume(ctx)
}

// show shows the progress and the state to operators.
func (b *backfillMeter) show(ctx workflow.Context, state string) {
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d of %d days counted, %d events. %s", b.result.Days, b.total, b.result.Events, state))
}

// BackfillMeterID returns the workflow ID of a meter version's backfill.
func BackfillMeterID(tenant metering.TenantID, version metering.MeterVersionID) string {
	return fmt.Sprintf("backfill-meter/%d/%d", tenant, version)
}

// backfillMeterStart returns the start of a meter version's backfill.
func backfillMeterStart(tenant metering.TenantID, version metering.MeterVersionID) start {
	return start{
		workflow: BackfillMeter,
		input:    BackfillMeterInput{TenantID: tenant, MeterVersionID: version},
		id:       BackfillMeterID(tenant, version),
		summary:  fmt.Sprintf("Backfill a meter of %s", tenant),
		details: fmt.Sprintf("Counts the events that were ingested before meter version %d of %s was published. "+
			"Until the first backfill of a meter ends, requests for its usage return 503 and billing skips the meter.", version, tenant),
		tenant:   tenant,
		priority: background,
	}
}

// StartBackfillMeter starts a run that backfills the meter version, unless one is open.
func StartBackfillMeter(ctx context.Context, c client.Client, tenant metering.TenantID, version metering.MeterVersionID) error {
	return backfillMeterStart(tenant, version).startOrJoin(ctx, c)
}
