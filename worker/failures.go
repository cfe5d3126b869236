package worker

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/odometer-metering/odometer/activities"
)

// failures intercepts all activities. It logs the error of an activity with its causes, and converts the
// error into a failure that Temporal may store.
type failures struct {
	interceptor.WorkerInterceptorBase
	log *slog.Logger
}

func (f *failures) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	inbound := &failingActivity{log: f.log}
	inbound.Next = next
	return inbound
}

type failingActivity struct {
	interceptor.ActivityInboundInterceptorBase
	log *slog.Logger
}

func (a *failingActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	result, err := a.Next.ExecuteActivity(ctx, in)
	if err == nil {
		return result, nil
	}
	info := activity.GetInfo(ctx)
	a.log.WarnContext(ctx, "activity failed", "activity", info.ActivityType.Name, "workflow_id", info.WorkflowExecution.ID,
		"run_id", info.WorkflowExecution.RunID, "attempt", info.Attempt, "error", err)
	return result, activities.Failure(activities.UnlessCanceled(ctx, err))
}
