package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// asks is the operator's name and the reason in the updates of tests.
var asks = metering.Asked{By: "ada", Reason: "the receiver is being moved"}

// excluding returns the input of an update that excludes the meter.
func excluding(meter metering.MeterID) workflows.ExcludeMeterInput {
	return workflows.ExcludeMeterInput{Asked: asks, MeterID: meter}
}

// recorded returns the updates that runs record in the audit log.
func recorded(env *testsuite.TestWorkflowEnvironment) *[]activities.RecordUpdateInput {
	all := new([]activities.RecordUpdateInput)
	env.OnActivity(do.RecordUpdate, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordUpdateInput) error {
		*all = append(*all, in)
		return nil
	}).Maybe()
	return all
}

// ask sends an update to the run after the given time.
func (w *world) ask(t *testing.T, after time.Duration, name string, in any) {
	w.RegisterDelayedCallback(func() { w.UpdateWorkflowNoRejection(name, name, t, in) }, after)
}

func TestRetryNowMakesSyncCustomerRetryImmediately(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = downForAnHour
	began := w.Now()
	w.request(0)
	w.ask(t, 5*time.Minute, "retry-now", asks)
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, w.attempts)
	require.WithinDuration(t, began.Add(5*time.Minute), w.Now(), time.Minute)
}

func TestAnOperatorPausesSyncCustomerAndExcludesAMeter(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	asked := false
	w.deliver = func(int) error {
		if asked {
			return nil
		}
		return down()
	}
	began := w.Now()
	w.request(0)
	w.ask(t, 5*time.Minute, "pause", asks)
	w.ask(t, 40*time.Minute, "exclude-meter", excluding(9))
	w.request(50 * time.Minute)
	w.RegisterDelayedCallback(func() { asked = true }, 59*time.Minute)
	w.ask(t, time.Hour, "resume", asks)
	_, err := w.run(t)
	require.NoError(t, err)
	require.GreaterOrEqual(t, w.Now().Sub(began), time.Hour)
	require.Equal(t, 5, w.reported)
	require.Empty(t, w.planned[0].Excluded)
	require.Equal(t, []metering.MeterID{9}, w.excluded(), "from the next plan on")
}

// TestAPauseOfSyncCustomerSurvivesContinueAsNew checks that a paused run continues as new and stays paused. Paused runs
// also receive signals, and their histories must stay bounded.
func TestAPauseOfSyncCustomerSurvivesContinueAsNew(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	w.ask(t, time.Minute, "pause", asks)
	w.ask(t, 2*time.Minute, "exclude-meter", excluding(9))
	w.RegisterDelayedCallback(func() {
		require.Contains(t, detailsOf(t, w.TestWorkflowEnvironment), "paused by an operator")
		w.SetContinueAsNewSuggested(true)
	}, time.Hour)
	w.request(time.Hour + time.Minute)
	w.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.GetWorkflowError(), &next)
	var input workflows.SyncCustomerInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
	require.Equal(t, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2, Paused: true, Excluded: []metering.MeterID{9}}, input)
	require.Empty(t, w.finished, "the requests stay with the next run")

	w = newWorld(t)
	w.total = 5
	began := w.Now()
	w.request(0)
	w.RegisterDelayedCallback(func() {
		require.Zero(t, w.attempts)
		require.Contains(t, detailsOf(t, w.TestWorkflowEnvironment), "paused by an operator")
	}, 2*time.Hour)
	w.ask(t, 3*time.Hour, "resume", asks)
	w.ExecuteWorkflow(workflows.SyncCustomer, input)
	require.NoError(t, w.GetWorkflowError())
	require.Equal(t, 5, w.reported)
	require.GreaterOrEqual(t, w.Now().Sub(began), 3*time.Hour)
}

func TestExcludeMeterRejectsInvalidMeterID(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.request(0)
	rejected := ""
	w.RegisterDelayedCallback(func() {
		w.UpdateWorkflow("exclude-meter", "exclude", &testsuite.TestUpdateCallback{
			OnReject: func(err error) { rejected = err.Error() },
		}, excluding(0))
	}, 0)
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, "meter_id must be a positive number", rejected)
	require.Empty(t, w.excluded())
}

// TestEachUpdateIsRecordedWithActorAndReason checks that each update is recorded with its actor and reason, even if the
// run ends because of the update.
func TestEachUpdateIsRecordedWithActorAndReason(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = downForAnHour
	w.request(0)
	w.ask(t, time.Minute, "pause", asks)
	w.ask(t, 2*time.Minute, "exclude-meter", excluding(9))
	w.ask(t, 3*time.Minute, "retry-now", asks)
	var rejected []string
	for _, in := range []metering.Asked{{}, {By: "ada"}, {By: "ada", Reason: "sk_live_51ABCDEFGH is revoked"}} {
		w.RegisterDelayedCallback(func() {
			w.UpdateWorkflow("pause", in.Reason, &testsuite.TestUpdateCallback{
				OnReject: func(err error) { rejected = append(rejected, err.Error()) }, OnAccept: func() { require.Fail(t, "accepted", in) },
			}, in)
		}, time.Minute)
	}
	_, err := w.run(t)
	require.NoError(t, err)
	require.Len(t, rejected, 3)
	require.NotContains(t, rejected[2], "sk_live")
	var names []string
	for _, in := range *w.recorded {
		require.Equal(t, asks, in.Asked)
		require.NotEmpty(t, in.Run)
		require.Equal(t, in.Name, in.Update, "the id")
		names = append(names, in.Name)
	}
	require.Equal(t, []string{"pause", "exclude-meter", "retry-now"}, names)
	require.EqualValues(t, 9, (*w.recorded)[1].MeterID)
}

func TestExcludeMeterFailsForUnknownMeter(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = downForAnHour
	w.request(0)
	w.unknownMeter = true
	var failure error
	w.RegisterDelayedCallback(func() {
		w.UpdateWorkflow("exclude-meter", "exclude", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { failure = err }, OnComplete: func(_ any, err error) { failure = err },
		}, excluding(9))
	}, time.Minute)
	_, err := w.run(t)
	require.NoError(t, err)
	require.ErrorContains(t, failure, "it has no meter mtr_9")
	require.Empty(t, w.excluded())
}
