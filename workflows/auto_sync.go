package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// AutoSyncInput names the tenant, and how far earlier parts of the run have come.
type AutoSyncInput struct {
	TenantID  metering.TenantID   `json:"tenant_id"`
	After     metering.CustomerID `json:"after"`
	SoFar     MassResult          `json:"so_far"`
	Unindexed bool                `json:"unindexed"`
}

// AutoSync brings every customer whose usage the provider does not know of up
// to date, and then closes the periods that are due.
func AutoSync(ctx workflow.Context, in AutoSyncInput) (MassResult, error) {
	m := &mass{tenant: in.TenantID, unindexed: in.Unindexed, result: in.SoFar}
	if err := m.heed(ctx); err != nil {
		return m.result, err
	}
	for pages := 0; ; pages++ {
		if err := m.awaitResume(ctx); err != nil {
			return m.result, err
		}
		if pages == pagesPerRun || longHistory(ctx) {
			in.SoFar = m.result
			return m.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
		}
		var due activities.DuePageResult
		err := workflow.ExecuteActivity(storing(ctx, "find who is due"), do.DueCustomers,
			activities.DuePageInput{TenantID: in.TenantID, After: in.After, Limit: customersPerPage}).Get(ctx, &due)
		if err == nil {
			err = m.sync(ctx, due.Customers)
		}
		if err != nil {
			return m.result, forOperators(err)
		}
		if in.After = due.Last; !due.More {
			return m.result, m.startClosing(ctx)
		}
	}
}

// forOperators makes what somebody has to act on the run's own failure.
func forOperators(err error) error {
	if code, message, ok := problemOf(err); ok {
		return temporal.NewNonRetryableApplicationError(message, code, nil)
	}
	return err
}

// startClosing leaves the periods that are due to a run of their own.
func (m *mass) startClosing(ctx workflow.Context) error {
	var due activities.DuePageResult
	err := workflow.ExecuteActivity(storing(ctx, "look for periods to close"), do.DuePeriods,
		activities.DuePageInput{TenantID: m.tenant, Limit: 1}).Get(ctx, &due)
	if err != nil || !due.More {
		return err
	}
	return startClosing(ctx, m.tenant)
}
