package worker

import (
	"context"

	"go.temporal.io/sdk/interceptor"

	"github.com/odometer-metering/odometer/metering"
)

// clockCheck intercepts all activities. They fail while this worker's clock is wrong, because activities use
// the clock to close periods, to delete events, and to date and sign messages.
type clockCheck struct {
	interceptor.WorkerInterceptorBase
	offset metering.ClockOffset
}

func (c *clockCheck) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	inbound := &checkedActivity{offset: c.offset}
	inbound.Next = next
	return inbound
}

type checkedActivity struct {
	interceptor.ActivityInboundInterceptorBase
	offset metering.ClockOffset
}

func (a *checkedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if err := a.offset.Check(metering.ClockLimit); err != nil {
		return nil, err
	}
	return a.Next.ExecuteActivity(ctx, in)
}
