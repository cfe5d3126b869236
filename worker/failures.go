package worker

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/odometer-metering/odometer/activities"
)

// logFailures returns a function that executes activities. It logs the error of an activity with its causes, and
// converts the error into a failure that Temporal may store.
func logFailures(log *slog.Logger) execute {
	return func(ctx context.Context, in *interceptor.ExecuteActivityInput, next interceptor.ActivityInboundInterceptor) (any, error) {
		result, err := next.ExecuteActivity(ctx, in)
		if err == nil {
			return result, nil
		}
		info := activity.GetInfo(ctx)
		log.WarnContext(ctx, "activity failed", "activity", info.ActivityType.Name, "workflow_id", info.WorkflowExecution.ID,
			"run_id", info.WorkflowExecution.RunID, "attempt", info.Attempt, "error", err)
		return result, activities.Failure(activities.UnlessCanceled(ctx, err))
	}
}
