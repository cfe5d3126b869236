package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// detailsOf returns the details of a run that operators see.
func detailsOf(t *testing.T, env *testsuite.TestWorkflowEnvironment) string {
	t.Helper()
	answer, err := env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// TestTheDetailsOfARunBeginWithItsCustomer checks that the details of a run about one customer name it first, as a link
// if the worker knows the API's URL.
func TestTheDetailsOfARunBeginWithItsCustomer(t *testing.T) {
	const page = "https://usage.example.com/v1/customers/by-id?id=cus_2"
	for known, want := range map[string]string{"": "cus_2", page: "[cus_2](" + page + ")"} {
		h := newHeldInvoice(t)
		h.page = known
		h.run(t)
		require.Contains(t, detailsOf(t, h.TestWorkflowEnvironment), "| customer | "+want+" |\n")
		e := newHappening(t)
		e.event.Page = known
		e.run(t)
		require.Contains(t, detailsOf(t, e.TestWorkflowEnvironment), "Customer: "+want+".")
		require.Equal(t, []string{
			"Customer: cus_2. Next: replace the customer's group keys",
			"Customer: " + want + ". Next: erase the content of the customer's events",
			"Customer: " + want + ". Next: erase the customer's name from reports and messages",
			"Customer: " + want + ". Next: record that the erasure is complete",
			"Customer: " + want + ". The customer is erased.",
		}, detailsOfErasure(t, known))
	}
}

// detailsOfErasure returns the details of an EraseCustomer run at each of its steps and at the end.
func detailsOfErasure(t *testing.T, page string) (details []string) {
	t.Helper()
	env := newEnvironment()
	look := func(context.Context, activities.CustomerInput) error {
		details = append(details, detailsOf(t, env))
		return nil
	}
	env.RegisterActivity(do)
	env.OnActivity(do.EraseGroups, mock.Anything, mock.Anything).Return(func(ctx context.Context, in activities.CustomerInput) (activities.EraseGroupsResult, error) {
		return activities.EraseGroupsResult{Page: page}, look(ctx, in)
	})
	env.OnActivity(do.EraseEvents, mock.Anything, mock.Anything).Return(look)
	env.OnActivity(do.EraseMessages, mock.Anything, mock.Anything).Return(look)
	env.OnActivity(do.FinishErasure, mock.Anything, mock.Anything).Return(look)
	env.ExecuteWorkflow(workflows.EraseCustomer, workflows.EraseCustomerInput{TenantID: 1, CustomerID: 2})
	require.NoError(t, env.GetWorkflowError())
	return append(details, detailsOf(t, env))
}

func TestSyncDetailsShowUnresolvedReconciliations(t *testing.T) {
	w := newWorld(t)
	invoiced := metering.Whole(7)
	october := metering.Range{Start: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), End: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	w.unresolved = []activities.Unresolved{
		{MeterID: 5, PeriodStart: october.Start, PeriodEnd: october.End, State: billing.ReconciliationOpen, Units: metering.Whole(10)},
		{MeterID: 6, PeriodStart: october.Start, PeriodEnd: october.End, State: billing.ReconciliationCarried, Text: billing.Text{Message: "not billed", NextStep: "Wait."}, Units: metering.Whole(10), Invoiced: &invoiced},
	}
	w.request(0)
	_, err := w.run(t)
	require.NoError(t, err)
	details := detailsOf(t, w.TestWorkflowEnvironment)
	require.Contains(t, details, "| reconciliation of mtr_5 | 2026-10-01 to 2026-11-01 | open |\n")
	require.Contains(t, details, "| reconciliation of mtr_6 | 2026-10-01 to 2026-11-01 | carried: invoices bill 7 of 10; not billed. Wait. |\n")
}
