package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"

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
func (o *outage) open(ctx context.Context) (runs []waiting, err error) {
	listed, err := o.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("OdometerTenant = %q and ExecutionStatus = 'Running' and WorkflowType in ('SyncCustomer', 'AutoSync')", o.TenantID),
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	for _, e := range listed.GetExecutions() {
		runs = append(runs, waiting{id: e.GetExecution().GetWorkflowId(), run: e.GetExecution().GetRunId()})
	}
	return runs, nil
}

// waiting returns the open runs with an activity that has failed and is retried.
func (o *outage) waiting(ctx context.Context) (tried []waiting, err error) {
	runs, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		described, err := o.temporal.DescribeWorkflowExecution(ctx, r.id, r.run)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", r.id, err)
		}
		for _, a := range described.GetPendingActivities() {
			if a.GetLastFailure() == nil {
				continue
			}
			r.activity, r.attempt, r.failure = a.GetActivityType().GetName(), a.GetAttempt(), a.GetLastFailure().GetMessage()
			tried = append(tried, r)
			break
		}
	}
	return tried, nil
}

// showWaiting waits until the runs of all customers and of Auto-Sync are retrying, and prints them.
func (o *outage) showWaiting(ctx context.Context) error {
	var runs []waiting
	err := eventually(ctx, o.timeLimit, func() (err error) {
		if runs, err = o.waiting(ctx); err == nil && len(runs) <= len(o.customers) {
			err = fmt.Errorf("%d runs wait", len(runs))
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b waiting) int { return strings.Compare(a.id, b.id) })
	for _, r := range runs {
		o.sayf("      %-32s %-12s attempt %d, %q", r.id, r.activity, r.attempt, r.failure)
	}
	o.sayf("\n   One of them in the Temporal UI: %s", o.linkTo(runs[len(runs)-1]))
	return nil
}

func (o *outage) linkTo(r waiting) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s/%s", o.TemporalUIURL, temporal.DefaultNamespace, url.PathEscape(r.id), r.run)
}

// retryNow sends the update retry-now to every open run, as an operator does when Stripe is available
// again.
func (o *outage) retryNow(ctx context.Context) (sent int, err error) {
	runs, err := o.open(ctx)
	if err != nil {
		return 0, err
	}
	for _, r := range runs {
		_, err := o.temporal.UpdateWorkflow(ctx, temporal.UpdateWorkflowOptions{
			WorkflowID: r.id, RunID: r.run, UpdateName: "retry-now",
			Args: []any{metering.Asked{By: "outage", Reason: "Stripe is back"}}, WaitForStage: temporal.WorkflowUpdateStageCompleted,
		})
		var ended *serviceerror.NotFound
		if errors.As(err, &ended) {
			continue
		}
		if err != nil {
			return sent, fmt.Errorf("retry %s now: %w", r.id, err)
		}
		sent++
	}
	return sent, nil
}

// settle waits until no run is open.
func (o *outage) settle(ctx context.Context) error {
	err := eventually(ctx, o.timeLimit, func() error {
		runs, err := o.open(ctx)
		if err != nil || len(runs) == 0 {
			return err
		}
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.id)
		}
		return fmt.Errorf("still open: %s", strings.Join(ids, ", "))
	})
	if err != nil {
		return err
	}
	o.sayf("   Everything has settled.\n")
	return nil
}
