package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// waiting is a workflow run that waits for Stripe.
type waiting struct {
	id, run  string
	activity string
	attempt  int32
	failure  string
}

// open returns the tenant's runs of SyncCustomer and AutoSync that have not ended.
func (o *outage) open() (runs []waiting) {
	o.Helper()
	listed, err := o.temporal.ListWorkflow(o.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("OdometerTenant = %q and ExecutionStatus = 'Running' and WorkflowType in ('SyncCustomer', 'AutoSync')", o.TenantID),
	})
	require.NoError(o, err)
	for _, e := range listed.GetExecutions() {
		runs = append(runs, waiting{id: e.GetExecution().GetWorkflowId(), run: e.GetExecution().GetRunId()})
	}
	return runs
}

// waiting returns the open runs with an activity that has failed and is retried.
func (o *outage) waiting() (tried []waiting) {
	o.Helper()
	for _, r := range o.open() {
		described, err := o.temporal.DescribeWorkflowExecution(o.Context(), r.id, r.run)
		require.NoError(o, err)
		for _, a := range described.GetPendingActivities() {
			if a.GetLastFailure() == nil {
				continue
			}
			r.activity, r.attempt, r.failure = a.GetActivityType().GetName(), a.GetAttempt(), a.GetLastFailure().GetMessage()
			tried = append(tried, r)
			break
		}
	}
	return tried
}

// showWaiting waits until the runs of all customers and of Auto-Sync are retrying, and prints them.
func (o *outage) showWaiting() {
	o.Helper()
	var runs []waiting
	dbtest.Within(o, o.timeLimit, func() error {
		if runs = o.waiting(); len(runs) <= len(o.customers) {
			return fmt.Errorf("%d runs wait", len(runs))
		}
		return nil
	})
	slices.SortFunc(runs, func(a, b waiting) int { return strings.Compare(a.id, b.id) })
	for _, r := range runs {
		o.Printf("      %-32s %-12s attempt %d, %q", r.id, r.activity, r.attempt, r.failure)
	}
	o.Printf("\n   One of them in the Temporal UI: %s", o.linkTo(runs[len(runs)-1]))
}

// linkTo returns the address of a run in the Temporal UI.
func (o *outage) linkTo(r waiting) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s/%s", o.TemporalUIURL, temporal.DefaultNamespace, url.PathEscape(r.id), r.run)
}

// retryNow sends the update retry-now to every open run, as an operator does when Stripe is available
// again.
func (o *outage) retryNow() (sent int) {
	o.Helper()
	for _, r := range o.open() {
		_, err := o.temporal.UpdateWorkflow(o.Context(), temporal.UpdateWorkflowOptions{
			WorkflowID: r.id, RunID: r.run, UpdateName: "retry-now",
			Args: []any{metering.Asked{By: "outage", Reason: "Stripe is back"}}, WaitForStage: temporal.WorkflowUpdateStageCompleted,
		})
		if ended := (*serviceerror.NotFound)(nil); errors.As(err, &ended) {
			continue
		}
		require.NoError(o, err, "retry %s now", r.id)
		sent++
	}
	return sent
}

// settle waits until no run is open.
func (o *outage) settle() {
	o.Helper()
	dbtest.Within(o, o.timeLimit, func() error {
		var ids []string
		for _, r := range o.open() {
			ids = append(ids, r.id)
		}
		if len(ids) > 0 {
			return fmt.Errorf("still open: %s", strings.Join(ids, ", "))
		}
		return nil
	})
	o.Printf("   Everything has settled.\n")
}
