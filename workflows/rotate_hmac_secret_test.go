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

// replacement is a secret that is valid beside its successor for a day.
type replacement struct {
	*testsuite.TestWorkflowEnvironment
	now    activities.OverlapResult
	ended  time.Time // when the old secret was revoked, or both were kept
	atOnce bool
}

var replaced = activities.ReplacedSecretInput{TenantID: 1, SecretID: 3}

func newReplacement(t *testing.T) *replacement {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet)
	r := &replacement{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	r.now = activities.OverlapResult{Status: metering.BothValid, SuccessorID: 4, Until: r.Now().Add(24 * time.Hour)}
	r.RegisterActivity(do)
	r.OnActivity(do.ReadOverlap, mock.Anything, replaced).Return(func(context.Context, activities.ReplacedSecretInput) (activities.OverlapResult, error) {
		return r.now, nil
	})
	r.OnActivity(do.RetireSecret, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RetireSecretInput) (activities.OverlapResult, error) {
		if in.AtOnce || !r.Now().Before(r.now.Until) {
			r.now.Status, r.ended, r.atOnce = metering.OldRevoked, r.Now(), in.AtOnce
		}
		return r.now, nil
	}).Maybe()
	r.OnActivity(do.KeepSecret, mock.Anything, replaced).Return(func(context.Context, activities.ReplacedSecretInput) (activities.OverlapResult, error) {
		r.now.Status, r.now.SuccessorID, r.ended = metering.BothKept, 0, r.Now()
		return r.now, nil
	}).Maybe()
	return r
}

// run returns what became of the old secret, how long after the start, and what
// operators see at the end.
func (r *replacement) run(t *testing.T) (status metering.OverlapStatus, after time.Duration, details string) {
	t.Helper()
	began := r.Now()
	r.ExecuteWorkflow(workflows.RotateHMACSecret, workflows.RotateHMACSecretInput{TenantID: 1, SecretID: 3})
	require.True(t, r.IsWorkflowCompleted())
	require.NoError(t, r.GetWorkflowError())
	var result workflows.RotateHMACSecretResult
	require.NoError(t, r.GetWorkflowResult(&result))
	return result.Status, r.ended.Sub(began).Round(time.Minute), r.details(t)
}

func (r *replacement) details(t *testing.T) string { return detailsOf(t, r.TestWorkflowEnvironment) }

func TestAReplacedSecretIsRevokedWhenItsOverlapEnds(t *testing.T) {
	r := newReplacement(t)
	until := r.now.Until.UTC().Format(time.RFC3339)
	r.RegisterDelayedCallback(func() {
		require.Equal(t, "sec_3 and sec_4 are both valid until "+until, r.details(t))
	}, 23*time.Hour)
	status, after, details := r.run(t)
	require.Equal(t, metering.OldRevoked, status)
	require.Equal(t, 24*time.Hour, after)
	require.False(t, r.atOnce)
	require.Equal(t, "sec_3 is revoked", details)
}

func TestFinishNowIsAnsweredOnceTheOldSecretIsRevoked(t *testing.T) {
	r := newReplacement(t)
	var answered metering.OverlapStatus
	r.RegisterDelayedCallback(func() {
		r.UpdateWorkflow("finish-now", "finish", &testsuite.TestUpdateCallback{OnComplete: func(_ any, err error) {
			require.NoError(t, err)
			answered = r.now.Status
		}})
	}, time.Hour)
	status, after, _ := r.run(t)
	require.Equal(t, metering.OldRevoked, status)
	require.Equal(t, metering.OldRevoked, answered)
	require.Equal(t, time.Hour, after)
	require.True(t, r.atOnce)
}

func TestCancellingARotationKeepsBothSecrets(t *testing.T) {
	r := newReplacement(t)
	r.RegisterDelayedCallback(r.CancelWorkflow, time.Hour)
	status, after, details := r.run(t)
	require.Equal(t, metering.BothKept, status)
	require.Equal(t, time.Hour, after)
	require.Equal(t, "sec_3 and its successor both stay valid", details)
}

// The row says how long both are valid: it may have changed, and the database's
// clock may be behind.
func TestARotationGoesByTheRow(t *testing.T) {
	r := newReplacement(t)
	r.RegisterDelayedCallback(func() {
		r.now.SuccessorID, r.now.Until = 5, r.Now().Add(time.Hour)
		r.SignalWorkflow("overlap-changed", nil)
	}, time.Hour)
	r.RegisterDelayedCallback(func() { r.now.Until = r.now.Until.Add(2 * time.Minute) }, 90*time.Minute)
	status, after, _ := r.run(t)
	require.Equal(t, metering.OldRevoked, status)
	require.Equal(t, 2*time.Hour+2*time.Minute, after)

	r = newReplacement(t)
	r.RegisterDelayedCallback(func() { r.now.Status = metering.OldRevoked }, time.Hour) // by hand
	status, _, _ = r.run(t)
	require.Equal(t, metering.OldRevoked, status)
	require.Zero(t, r.atOnce)
}
