package workflows

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// daysPerStep is how many days one activity counts: few enough that progress
// shows, many enough that five years stay a short history.
const daysPerStep = 30

// BackfillMeterInput names the meter version whose past is to be counted.
type BackfillMeterInput struct {
	TenantID       metering.TenantID       `json:"tenant_id"`
	MeterVersionID metering.MeterVersionID `json:"meter_version_id"`
}

// BackfillMeterResult is what was counted.
type BackfillMeterResult struct {
	Days   int   `json:"days"`
	Events int64 `json:"events"`
}

// BackfillMeter counts the events that came before a meter version was published,
// day by day, and then makes reads and billing use it.
func BackfillMeter(ctx workflow.Context, in BackfillMeterInput) (BackfillMeterResult, error) {
	var result BackfillMeterResult
	version := activities.BackfillInput{TenantID: in.TenantID, MeterVersionID: in.MeterVersionID}
	var plan activities.PlanBackfillResult
	err := workflow.ExecuteActivity(storing(ctx, "find the days to count"), do.PlanBackfill, version).Get(ctx, &plan)
	if err != nil {
		return result, err
	}
	for total := len(plan.Days); len(plan.Days) > 0; {
		step := plan.Days[:min(daysPerStep, len(plan.Days))]
		plan.Days = plan.Days[len(step):]
		summary := fmt.Sprintf("count %s to %s", step[0].Format(time.DateOnly), step[len(step)-1].Format(time.DateOnly))
		var counted activities.CountDaysResult
		err := workflow.ExecuteActivity(counting(ctx, summary), do.CountDays,
			activities.CountDaysInput{BackfillInput: version, Days: step}).Get(ctx, &counted)
		if err != nil {
			return result, err
		}
		result.Days += len(step)
		result.Events += counted.Events
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d of %d days counted, %d events", result.Days, total, result.Events))
	}
	err = workflow.ExecuteActivity(storing(ctx, "switch reads and billing"), do.CompleteMeterVersion, version).Get(ctx, nil)
	return result, err
}

// BackfillMeterID is the workflow id of a meter version's backfill.
func BackfillMeterID(tenant metering.TenantID, version metering.MeterVersionID) string {
	return fmt.Sprintf("backfill-meter/%d/%d", tenant, version)
}

func backfillMeterStart(tenant metering.TenantID, version metering.MeterVersionID) start {
	return start{
		workflow: BackfillMeter,
		input:    BackfillMeterInput{TenantID: tenant, MeterVersionID: version},
		id:       BackfillMeterID(tenant, version),
		summary:  fmt.Sprintf("Count the past of a meter of %s", tenant),
		details: fmt.Sprintf("Counts what was ingested before meter version %d of %s was published. "+
			"Until the first backfill of a meter ends, its usage answers 503 and billing skips it.", version, tenant),
		tenant:   tenant,
		priority: background,
	}
}

// StartBackfillMeter makes sure that a run counts the meter version's past.
func StartBackfillMeter(ctx context.Context, c client.Client, tenant metering.TenantID, version metering.MeterVersionID) error {
	return backfillMeterStart(tenant, version).by(ctx, c)
}
