package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func (w *world) ask(t *testing.T, after time.Duration, name string, args ...any) {
	w.RegisterDelayedCallback(func() { w.UpdateWorkflowNoRejection(name, name, t, args...) }, after)
}

func TestAnOperatorMakesSyncCustomerTryAgainAtOnce(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = downForAnHour
	began := w.Now()
	w.request(0)
	w.ask(t, 5*time.Minute, "retry-now")
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
	w.ask(t, time.Minute, "pause")
	w.ask(t, 40*time.Minute, "exclude-meter", workflows.ExcludeMeterInput{MeterID: 9})
	w.request(50 * time.Minute)
	w.RegisterDelayedCallback(func() { asked = true }, 59*time.Minute)
	w.ask(t, time.Hour, "resume")
	_, err := w.run(t)
	require.NoError(t, err)
	require.GreaterOrEqual(t, w.Now().Sub(began), time.Hour)
	require.Equal(t, 5, w.reported)
	require.Empty(t, w.planned[0].Excluded)
	require.Equal(t, []metering.MeterID{9}, w.excluded(), "from the next plan on")
}

// Paused runs take signals too; their histories must not grow without end.
func TestAPauseOfSyncCustomerSurvivesContinueAsNew(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.deliver = func(int) error { return down() }
	w.request(0)
	w.ask(t, time.Minute, "pause")
	w.ask(t, 2*time.Minute, "exclude-meter", workflows.ExcludeMeterInput{MeterID: 9})
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
	w.ask(t, 3*time.Hour, "resume")
	w.ExecuteWorkflow(workflows.SyncCustomer, input)
	require.NoError(t, w.GetWorkflowError())
	require.Equal(t, 5, w.reported)
	require.GreaterOrEqual(t, w.Now().Sub(began), 3*time.Hour)
}

func TestAMeterThatIsNoneIsNotExcluded(t *testing.T) {
	w := newWorld(t)
	w.total = 5
	w.request(0)
	rejected := ""
	w.RegisterDelayedCallback(func() {
		w.UpdateWorkflow("exclude-meter", "exclude", &testsuite.TestUpdateCallback{
			OnReject: func(err error) { rejected = err.Error() },
		}, workflows.ExcludeMeterInput{})
	}, 0)
	_, err := w.run(t)
	require.NoError(t, err)
	require.Equal(t, "meter_id must be a meter's number", rejected)
	require.Empty(t, w.excluded())
}
