package activities_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func TestErrorCodeDecidesWhetherTemporalRetries(t *testing.T) {
	t.Parallel()
	for code, again := range map[metering.Code]bool{
		metering.CodeInvalid: false, metering.CodeNotFound: false, metering.CodeConflict: false,
		metering.CodeNoProvider: false, metering.CodeProviderRefuse: false,
		metering.CodeOverloaded: true, metering.CodeUnavailable: true, metering.CodeProviderDown: true,
		metering.CodeBackfilling: true,
	} {
		var failure *temporal.ApplicationError
		err := activities.Failure(fmt.Errorf("do it: %w", metering.Errorf(code, "what happened")))
		require.ErrorAs(t, err, &failure)
		require.Equal(t, string(code), failure.Type())
		require.Equal(t, "what happened", failure.Message())
		require.Equal(t, !again, failure.NonRetryable(), code)
	}
}

func TestFailureHidesInternalErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("canary"),
		metering.Errorf(metering.CodeInternal, "canary"),
		metering.Errorf(metering.CodeProviderDown, "the webhook did not answer").Because(errors.New("canary")),
	} {
		require.NotContains(t, activities.Failure(err).Error(), "canary")
	}
	var failure *temporal.ApplicationError
	require.ErrorAs(t, activities.Failure(errors.New("canary")), &failure)
	require.False(t, failure.NonRetryable())
}

func TestRetryDelayIsTheWaitForTheLease(t *testing.T) {
	t.Parallel()
	var failure *temporal.ApplicationError
	err := metering.Errorf(metering.CodeOverloaded, "it is being sent").Because(ledger.Busy{Wait: 7 * time.Second})
	require.ErrorAs(t, activities.Failure(fmt.Errorf("mark: %w", err)), &failure)
	require.Equal(t, 7*time.Second, failure.NextRetryDelay())
}

func TestFailureKeepsContextCanceled(t *testing.T) {
	t.Parallel()
	require.NoError(t, activities.Failure(nil))
	require.ErrorIs(t, activities.Failure(context.Canceled), context.Canceled)
	stopped := metering.Errorf(metering.CodeUnavailable, "the database is not available").Because(fmt.Errorf("canary: %w", context.Canceled))
	require.ErrorIs(t, activities.Failure(stopped), context.Canceled)
	require.NotContains(t, activities.Failure(stopped).Error(), "canary", "a worker that stops leaves it in a history")
}

func TestUnlessCanceledTreatsMissedHeartbeatAsUnavailable(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("plan reports: %w", context.Canceled)
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(temporal.NewCanceledError())
	require.Equal(t, err, activities.UnlessCanceled(canceled, err))

	unanswered, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded) // of a heartbeat
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(activities.UnlessCanceled(unanswered, err)))
	require.NoError(t, activities.UnlessCanceled(unanswered, nil))
}
