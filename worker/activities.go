package worker

import (
	"context"

	"go.temporal.io/sdk/interceptor"
)

// execute executes an activity. It calls next.ExecuteActivity to run the activity's function.
type execute func(ctx context.Context, in *interceptor.ExecuteActivityInput, next interceptor.ActivityInboundInterceptor) (any, error)

// activityInterceptor executes all activities with a function.
type activityInterceptor struct {
	interceptor.WorkerInterceptorBase
	execute
}

func (i *activityInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	inbound := &inboundActivity{execute: i.execute}
	inbound.Next = next
	return inbound
}

type inboundActivity struct {
	interceptor.ActivityInboundInterceptorBase
	execute
}

func (a *inboundActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	return a.execute(ctx, in, a.Next)
}
