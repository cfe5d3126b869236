package worker

import (
	"context"

	"go.temporal.io/sdk/interceptor"

	"github.com/odometer-metering/odometer/metering"
)

// checkClock returns a function that executes activities. They fail while this worker's clock is wrong, because
// activities use the clock to close periods, to delete events, and to date and sign messages.
func checkClock(offset metering.ClockOffset) execute {
	return func(ctx context.Context, in *interceptor.ExecuteActivityInput, next interceptor.ActivityInboundInterceptor) (any, error) {
		if err := offset.Check(metering.ClockLimit); err != nil {
			return nil, err
		}
		return next.ExecuteActivity(ctx, in)
	}
}
