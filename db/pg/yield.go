package pg

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

type yieldKey struct{}

// WithYield returns a context in which a read of all customers calls others between its batches of
// customers. If others fails, the read fails.
func WithYield(ctx context.Context, others func(context.Context) error) context.Context {
	return context.WithValue(ctx, yieldKey{}, others)
}

// longestYield bounds the wait for other callers, because PostgreSQL ends a transaction that is idle for
// idleTxTimeout.
const longestYield = idleTxTimeout / 2

var errYielded = metering.Errorf(metering.CodeOverloaded, "other requests that read all customers are in progress; try again")

// Yield calls the function of WithYield, if ctx has one.
func Yield(ctx context.Context) error {
	others, set := ctx.Value(yieldKey{}).(func(context.Context) error)
	if !set {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, longestYield)
	defer cancel()
	if err := others(waiting); err != nil {
		return errYielded.Because(err)
	}
	return nil
}
