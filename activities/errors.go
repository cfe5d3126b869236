package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// retried contains the codes of errors that Temporal retries. An error with any other code is not
// retried, because an operator has to act first.
var retried = map[metering.Code]bool{
	metering.CodeOverloaded:   true,
	metering.CodeUnavailable:  true,
	metering.CodeBackfilling:  true,
	metering.CodeProviderDown: true,
	metering.CodeInternal:     true,
}

// Failure converts err for Temporal: the code becomes the failure's type, the message contains
// neither secrets nor names, and the failure may contain a retry delay. Causes are only logged.
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
		NextRetryDelay: retryDelayOf(err),
		Category:       categoryOf(code),
	})
}

// errEndedEarly is the failure of an attempt that ended although its run was not canceled: the
// worker stopped, or Temporal did not answer a heartbeat.
var errEndedEarly = metering.Errorf(metering.CodeUnavailable, "the attempt ended before its work was done; the next attempt continues it")

// UnlessCanceled returns err, the error of an activity that ran in ctx. If ctx was canceled
// although the run was not, it returns errEndedEarly, because Temporal starts another attempt.
func UnlessCanceled(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && !temporal.IsCanceledError(context.Cause(ctx)) {
		return errEndedEarly
	}
	return err
}

// retryDelayOf returns the time after which Temporal retries the activity: until the lease of another attempt ends, or
// the delay that the provider requested. 0 means that the retry policy decides.
func retryDelayOf(err error) time.Duration {
	var busy ledger.Busy
	if errors.As(err, &busy) {
		return busy.Wait
	}
	var asked providers.RetryLater
	errors.As(err, &asked)
	return asked.Wait
}

// categoryOf returns the category of a failure. The category Benign excludes expected errors from
// Temporal's error metrics.
func categoryOf(code metering.Code) temporal.ApplicationErrorCategory {
	switch code {
	case metering.CodeProviderDown, metering.CodeProviderRefuse, metering.CodeOverloaded, metering.CodeConflict:
		return temporal.ApplicationErrorCategoryBenign
	}
	return temporal.ApplicationErrorCategoryUnspecified
}

// isOwnRefusal reports whether the provider refused one customer or object only, and not the API key.
func isOwnRefusal(err error) bool { return errors.As(err, new(providers.OwnRefusal)) }

// failureText returns the text of a failure to send that is stored and shown to tenants. It
// contains no text from a provider.
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
