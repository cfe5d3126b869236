package pg

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

type yieldKey struct{}

// WithYield returns a context with a function that lets other requests read first. A read of all customers calls the
// function between its batches of customers. If the function fails, the read fails.
func WithYield(ctx context.Context, letOthersRead func(context.Context) error) context.Context {
	return context.WithValue(ctx, yieldKey{}, letOthersRead)
}

// longestYield bounds the wait for other requests, because PostgreSQL ends a transaction that is idle for
// idleTxTimeout.
const longestYield = idleTxTimeout / 2

var errYielded = metering.Errorf(metering.CodeOverloaded, "other requests that read all customers are in progress; try again")

// Yield calls the function that WithYield has stored in ctx, if there is one.
func Yield(ctx context.Context) error {
	letOthersRead, set := ctx.Value(yieldKey{}).(func(context.Context) error)
	if !set {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, longestYield)
	defer cancel()
	if err := letOthersRead(waiting); err != nil {
		return errYielded.Because(err)
	}
	return nil
}
