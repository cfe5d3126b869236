package worker

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// failures intercepts all activities. It logs the error of an activity with its causes, and converts the
// error into a failure that Temporal may store.
type failures struct {
	interceptor.WorkerInterceptorBase
	log   *slog.Logger
	clock metering.ClockOffset
}

func (f *failures) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	inbound := &failingActivity{log: f.log, clock: f.clock}
	inbound.Next = next
	return inbound
}

type failingActivity struct {
	interceptor.ActivityInboundInterceptorBase
	log   *slog.Logger
	clock metering.ClockOffset
}

func (a *failingActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	result, err := a.execute(ctx, in)
	if err == nil {
		return result, nil
	}
	info := activity.GetInfo(ctx)
	a.log.WarnContext(ctx, "activity failed", "activity", info.ActivityType.Name, "workflow_id", info.WorkflowExecution.ID,
		"run_id", info.WorkflowExecution.RunID, "attempt", info.Attempt, "error", err)
	return result, activities.Failure(activities.UnlessCancelled(ctx, err))
}

// execute runs the activity, unless this worker's clock is wrong. Activities use the clock to close periods,
// to delete events, and to date and sign messages.
func (a *failingActivity) execute(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if err := a.clock.Check(metering.ClockLimit); err != nil {
		return nil, err
	}
	return a.Next.ExecuteActivity(ctx, in)
}
