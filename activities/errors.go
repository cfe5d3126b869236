package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// retried is the one table of what Temporal may try again. A code that is
// missing here is not tried again: somebody has to act first.
var retried = map[metering.Code]bool{
	metering.CodeOverloaded:   true,
	metering.CodeUnavailable:  true,
	metering.CodeBackfilling:  true,
	metering.CodeProviderDown: true,
	metering.CodeInternal:     true,
}

// Failure is what Temporal is told of err: the code as the failure's type, a
// text without secrets or names, and how long to wait. Causes are for the log.
func Failure(err error) error {
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	code, message := metering.CodeOf(err), "internal error; the worker's log contains the cause"
	var coded *metering.Error
	if errors.As(err, &coded) && code != metering.CodeInternal {
		message = coded.Message
	}
	return temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
		NonRetryable:   !retried[code],
		NextRetryDelay: waitOf(err),
		Category:       categoryOf(code),
	})
}

// errEndedEarly is the failure of an attempt that ended although its run was not cancelled: the
// worker stopped, or Temporal did not answer a heartbeat.
var errEndedEarly = metering.Errorf(metering.CodeUnavailable, "the attempt ended before its work was done; the next attempt continues it")

// UnlessCancelled returns err, the error of an activity that ran in ctx, unless ctx was cancelled
// and the run was not: another attempt follows then, and the error says so.
func UnlessCancelled(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && !temporal.IsCanceledError(context.Cause(ctx)) {
		return errEndedEarly
	}
	return err
}

func waitOf(err error) time.Duration {
	var busy db.Busy
	if errors.As(err, &busy) {
		return busy.Wait
	}
	var asked providers.RetryLater
	errors.As(err, &asked)
	return asked.Wait
}

// categoryOf keeps what is expected to happen out of the error metrics.
func categoryOf(code metering.Code) temporal.ApplicationErrorCategory {
	switch code {
	case metering.CodeProviderDown, metering.CodeProviderRefuse, metering.CodeOverloaded, metering.CodeConflict:
		return temporal.ApplicationErrorCategoryBenign
	}
	return temporal.ApplicationErrorCategoryUnspecified
}

// failureText is what tenants are shown of a failure to send, and what is kept
// of it: no word of a provider's.
func failureText(err error) string {
	if err == nil {
		return ""
	}
	var coded *metering.Error
	if errors.As(err, &coded) && coded.Code != metering.CodeInternal {
		return coded.Message
	}
	return "sending failed because of an internal error"
}
