package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// errForPeople is an error of an activity that Temporal does not retry, because an operator has to act.
var errForPeople = activities.Failure(metering.Errorf(metering.CodeConflict, "somebody has to look"))

func TestAuditUsageContinuesAsNewOrShowsProgressOnFailure(t *testing.T) {
	f := newFleet(t, 0)
	f.SetContinueAsNewSuggested(true)
	f.ExecuteWorkflow(workflows.AuditUsage, workflows.AuditUsageInput{After: 20, SoFar: workflows.AuditUsageResult{Tenants: 20, Discrepancies: 1}})
	require.True(t, workflow.IsContinueAsNewError(f.GetWorkflowError()), "%v", f.GetWorkflowError())

	f = newFleet(t, 0)
	f.OnActivity(do.AuditTenants, mock.Anything, activities.AuditTenantsInput{}).Return(activities.AuditTenantsResult{Tenants: 20, Discrepancies: 1, Last: 20}, nil)
	f.OnActivity(do.AuditTenants, mock.Anything, activities.AuditTenantsInput{After: 20}).Return(activities.AuditTenantsResult{}, errForPeople)
	f.ExecuteWorkflow(workflows.AuditUsage, workflows.AuditUsageInput{})
	require.ErrorContains(t, f.GetWorkflowError(), "somebody has to look")
	require.Equal(t, "20 tenants, 1 discrepancies", detailsOf(t, f.TestWorkflowEnvironment))
}

func TestRotateSecretsRetriesUntilWorkerHasKey(t *testing.T) {
	f := newFleet(t, 0)
	tries := 0
	f.OnActivity(do.RewrapSecrets, mock.Anything, activities.RewrapSecretsInput{KeyID: "new"}).Return(
		func(context.Context, activities.RewrapSecretsInput) (activities.RewrapSecretsResult, error) {
			if tries++; tries < 4 {
				return activities.RewrapSecretsResult{}, activities.Failure(metering.Errorf(metering.CodeUnavailable, "another key"))
			}
			return activities.RewrapSecretsResult{Sealed: 3, Unopened: 1}, nil
		})
	f.ExecuteWorkflow(workflows.RotateSecrets, workflows.RotateSecretsInput{KeyID: "new"})
	require.NoError(t, f.GetWorkflowError())
	var result workflows.RotateSecretsResult
	require.NoError(t, f.GetWorkflowResult(&result))
	require.Equal(t, workflows.RotateSecretsResult{Sealed: 3, Unopened: 1}, result)
}

// TestAutoSyncStartsNoRunForFailedCustomerWithOpenRun checks that AutoSync starts no run for a failed customer with an
// open run. The open run handles the request.
func TestAutoSyncStartsNoRunForFailedCustomerWithOpenRun(t *testing.T) {
	f := newFleet(t, 3)
	setInterceptors(f.TestWorkflowEnvironment, (&taken{1}).intercept)
	f.failing[1], f.failing[2] = true, true
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Failed)
	require.Equal(t, []string{"sync-customer/1/2"}, f.children)
}

func TestBulkSyncFailsWithErrorOfItsActivity(t *testing.T) {
	refuse := func(context.Context, activities.CustomerPageInput) (activities.CustomerPageResult, error) {
		return activities.CustomerPageResult{}, errForPeople
	}
	autoSync := func(f *fleet) { f.ExecuteWorkflow(workflows.AutoSync, workflows.AutoSyncInput{TenantID: 1}) }
	closePeriod := func(f *fleet) { f.ExecuteWorkflow(workflows.ClosePeriod, workflows.ClosePeriodInput{TenantID: 1}) }
	for name, c := range map[string]struct {
		run    func(f *fleet)
		breaks func(f *fleet)
		synced int // number of customers synced before the failure
	}{
		"AutoSync cannot look for periods":    {autoSync, func(f *fleet) { f.periods = refuse }, 3},
		"ClosePeriod cannot look for periods": {closePeriod, func(f *fleet) { f.periods = refuse }, 0},
		"ClosePeriod cannot close":            {closePeriod, func(f *fleet) { f.closing = func() error { return errForPeople } }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3)
			c.breaks(f)
			c.run(f)
			var failure *temporal.ApplicationError
			require.ErrorAs(t, f.GetWorkflowError(), &failure)
			require.Equal(t, "somebody has to look", failure.Message())
			require.Len(t, f.synced, c.synced)
		})
	}
}

func TestBackfillMeterFailsWithErrorOfFailedStep(t *testing.T) {
	for _, at := range []string{"plan", "count", "switch"} {
		t.Run(at, func(t *testing.T) {
			fail := func(step string) error {
				if step == at {
					return errForPeople
				}
				return nil
			}
			f := newFleet(t, 0)
			f.OnActivity(do.PlanBackfill, mock.Anything, mock.Anything).Return(activities.PlanBackfillResult{Days: []time.Time{f.Now()}}, fail("plan"))
			f.OnActivity(do.CountDays, mock.Anything, mock.Anything).Return(activities.CountDaysResult{Done: 1, Events: 3}, fail("count")).Maybe()
			f.OnActivity(do.CompleteMeterVersion, mock.Anything, mock.Anything).Return(fail("switch")).Maybe()
			f.ExecuteWorkflow(workflows.BackfillMeter, workflows.BackfillMeterInput{TenantID: 1, MeterVersionID: 3})
			require.ErrorContains(t, f.GetWorkflowError(), "somebody has to look")
		})
	}
}

func TestRunOfMissingRotationFails(t *testing.T) {
	f := newFleet(t, 0)
	f.OnActivity(do.ReadRotation, mock.Anything, mock.Anything).Return(activities.RotationResult{}, activities.Failure(metering.Errorf(metering.CodeNotFound, "there is no such rotation")))
	f.ExecuteWorkflow(workflows.RotateCredential, workflows.RotateCredentialInput{TenantID: 1, RotationID: 3})
	require.ErrorContains(t, f.GetWorkflowError(), "there is no such rotation")
}

func TestACanceledEventIsNotRecordedAsHandled(t *testing.T) {
	h := newHappening(t)
	h.sync = func(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Hour) }
	h.RegisterDelayedCallback(h.CancelWorkflow, 10*time.Minute)
	h.ExecuteWorkflow(workflows.HandleProviderEvent, workflows.HandleProviderEventInput{TenantID: 1, RowID: 7})
	require.True(t, temporal.IsCanceledError(h.GetWorkflowError()), "%v", h.GetWorkflowError())
	require.Empty(t, h.recorded)
}

func TestEventRunFailsOnUnexpectedErrorAndHidesItsText(t *testing.T) {
	h := newHappening(t)
	h.invoice = func() (activities.ReadInvoiceResult, error) {
		return activities.ReadInvoiceResult{}, errors.New("a bug")
	}
	h.ExecuteWorkflow(workflows.HandleProviderEvent, workflows.HandleProviderEventInput{TenantID: 1, RowID: 7})
	require.Error(t, h.GetWorkflowError())
	require.NotContains(t, h.GetWorkflowError().Error(), "a bug", "texts that nobody has written for operators stay in the log")
	require.Empty(t, h.recorded)
}
