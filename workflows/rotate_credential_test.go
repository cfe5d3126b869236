package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// rotation is the rotation of a credential that is valid together with its successor for a day.
type rotation struct {
	*testsuite.TestWorkflowEnvironment
	now    activities.RotationResult
	used   *time.Time // last use of the old credential, late in the overlap; nil: none
	warned time.Time
	ended  time.Time // time at which the rotation ended
	atOnce bool
}

var rotating = activities.RotationInput{TenantID: 1, RotationID: 7}

// newRotation returns a rotation that ends in a day and warns after 18 hours.
func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{TestWorkflowEnvironment: newEnvironment()}
	r.now = activities.RotationResult{Old: "sec_3", New: "sec_4", Until: r.Now().Add(24 * time.Hour), WarnAt: r.Now().Add(18 * time.Hour)}
	r.RegisterActivity(do)
	recorded(r.TestWorkflowEnvironment)
	read := func(context.Context, activities.RotationInput) (activities.RotationResult, error) {
		return r.now, nil
	}
	r.OnActivity(do.ReadRotation, mock.Anything, rotating).Return(read)
	r.OnActivity(do.WarnOfUse, mock.Anything, rotating).Return(func(context.Context, activities.RotationInput) (activities.RotationResult, error) {
		r.warned, r.now.StillUsed = r.Now(), r.used
		return r.now, nil
	}).Maybe()
	r.OnActivity(do.EndRotation, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.EndRotationInput) (activities.RotationResult, error) {
		switch {
		case !r.Now().Before(r.now.Until):
			r.now.Outcome, r.ended = metering.RotationExpired, r.Now()
		case in.AtOnce:
			r.now.Outcome, r.ended, r.atOnce = metering.RotationFinished, r.Now(), true
		}
		return r.now, nil
	}).Maybe()
	r.OnActivity(do.KeepBoth, mock.Anything, rotating).Return(func(context.Context, activities.RotationInput) (activities.RotationResult, error) {
		r.now.Outcome, r.ended = metering.RotationKept, r.Now()
		return r.now, nil
	}).Maybe()
	return r
}

// run returns the outcome of the rotation, the time from the start to its end, and the details that operators see at
// the end.
func (r *rotation) run(t *testing.T) (outcome metering.RotationOutcome, after time.Duration, details string) {
	t.Helper()
	began := r.Now()
	r.ExecuteWorkflow(workflows.RotateCredential, workflows.RotateCredentialInput{TenantID: 1, RotationID: 7})
	require.True(t, r.IsWorkflowCompleted())
	require.NoError(t, r.GetWorkflowError())
	var result workflows.RotateCredentialResult
	require.NoError(t, r.GetWorkflowResult(&result))
	return result.Outcome, r.ended.Sub(began).Round(time.Minute), r.details(t)
}

// details returns the details of the run.
func (r *rotation) details(t *testing.T) string { return detailsOf(t, r.TestWorkflowEnvironment) }

func TestAnOldCredentialIsRevokedWhenItsOverlapEnds(t *testing.T) {
	r := newRotation(t)
	began := r.Now()
	until := r.now.Until.UTC().Format(time.RFC3339)
	r.RegisterDelayedCallback(func() {
		require.Equal(t, "sec_3 and sec_4 are both valid until "+until, r.details(t))
	}, 23*time.Hour)
	outcome, after, details := r.run(t)
	require.Equal(t, metering.RotationExpired, outcome)
	require.Equal(t, 24*time.Hour, after)
	require.False(t, r.atOnce)
	require.Equal(t, 18*time.Hour, r.warned.Sub(began).Round(time.Minute), "there was time to warn")
	require.Equal(t, "sec_3 is revoked", details)
}

func TestOperatorsSeeThatAnOldCredentialIsStillUsedNearItsEnd(t *testing.T) {
	r := newRotation(t)
	r.used = new(r.Now().Add(17 * time.Hour))
	r.RegisterDelayedCallback(func() { require.NotContains(t, r.details(t), "still used") }, 17*time.Hour)
	r.RegisterDelayedCallback(func() {
		require.Contains(t, r.details(t), "**sec_3 is still used**, most recently at "+r.used.UTC().Format(time.RFC3339))
	}, 19*time.Hour)
	outcome, after, _ := r.run(t)
	require.Equal(t, metering.RotationExpired, outcome, "it ends all the same")
	require.Equal(t, 24*time.Hour, after)
}

func TestRotationWithoutOverlapEndsImmediately(t *testing.T) {
	r := newRotation(t)
	r.now.Outcome = metering.RotationExpired
	outcome, _, details := r.run(t)
	require.Equal(t, metering.RotationExpired, outcome)
	require.Equal(t, "sec_3 is revoked", details)
	r.AssertNotCalled(t, "EndRotation", mock.Anything, mock.Anything)
}

func TestFinishNowIsAnsweredOnceTheOldCredentialIsRevoked(t *testing.T) {
	r := newRotation(t)
	var answered metering.RotationOutcome
	r.RegisterDelayedCallback(func() {
		r.UpdateWorkflow("finish-now", "finish", &testsuite.TestUpdateCallback{OnComplete: func(_ any, err error) {
			require.NoError(t, err)
			answered = r.now.Outcome
		}}, asks)
	}, time.Hour)
	outcome, after, _ := r.run(t)
	require.Equal(t, metering.RotationFinished, outcome)
	require.Equal(t, metering.RotationFinished, answered)
	require.Equal(t, time.Hour, after)
	require.True(t, r.atOnce)
}

func TestCancelingARotationKeepsBothCredentials(t *testing.T) {
	r := newRotation(t)
	r.RegisterDelayedCallback(r.CancelWorkflow, time.Hour)
	outcome, after, details := r.run(t)
	require.Equal(t, metering.RotationKept, outcome)
	require.Equal(t, time.Hour, after)
	require.Equal(t, "sec_3 and sec_4 both remain valid", details)
}

// TestRotationRunUsesTimesOfItsRow checks that the run uses the times in the rotation's row. The row may change, and
// the database's clock may be behind.
func TestRotationRunUsesTimesOfItsRow(t *testing.T) {
	r := newRotation(t)
	r.RegisterDelayedCallback(func() {
		r.now.Until, r.now.WarnAt = r.Now().Add(time.Hour), r.Now().Add(45*time.Minute)
		r.SignalWorkflow("rotation-changed", nil)
	}, time.Hour)
	r.RegisterDelayedCallback(func() { r.now.Until = r.now.Until.Add(2 * time.Minute) }, 110*time.Minute)
	outcome, after, _ := r.run(t)
	require.Equal(t, metering.RotationExpired, outcome)
	require.Equal(t, 2*time.Hour+2*time.Minute, after)

	for outcome, said := range map[metering.RotationOutcome]string{
		metering.RotationRevoked: "sec_3 is revoked", metering.RotationSuperseded: "sec_3 was rotated again; another run follows that rotation",
	} {
		r = newRotation(t)
		r.RegisterDelayedCallback(func() {
			r.now.Outcome = outcome
			r.SignalWorkflow("rotation-changed", nil)
		}, time.Hour)
		ended, _, details := r.run(t)
		require.Equal(t, outcome, ended)
		require.Equal(t, said, details)
		require.False(t, r.atOnce)
	}
}

func TestRotationRunRetriesWhileDatabaseIsUnavailable(t *testing.T) {
	env := newEnvironment()
	env.RegisterActivity(do)
	tries := 0
	env.OnActivity(do.ReadRotation, mock.Anything, rotating).Return(func(context.Context, activities.RotationInput) (activities.RotationResult, error) {
		if tries++; tries < 4 {
			return activities.RotationResult{}, activities.Failure(metering.Errorf(metering.CodeUnavailable, "away"))
		}
		return activities.RotationResult{Outcome: metering.RotationRevoked}, nil
	})
	env.ExecuteWorkflow(workflows.RotateCredential, workflows.RotateCredentialInput{TenantID: 1, RotationID: 7})
	require.NoError(t, env.GetWorkflowError())
}
