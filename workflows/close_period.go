package workflows

import (
	"fmt"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// ClosePeriodInput names the tenant, and how far earlier parts of the run have come.
type ClosePeriodInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    MassResult          `json:"so_far"`
}

// ClosePeriod closes a tenant's billing periods whose end and grace are over:
// a last sync, and then the freeze, which takes place only where the provider
// has acknowledged everything. What cannot be frozen stays due.
func ClosePeriod(ctx workflow.Context, in ClosePeriodInput) (MassResult, error) {
	m := &mass{tenant: in.TenantID, unindexed: true, result: in.SoFar}
	if err := m.heed(ctx); err != nil {
		return m.result, err
	}
	for pages := 0; ; pages++ {
		if err := m.awaitResume(ctx); err != nil {
			return m.result, err
		}
		if pages == pagesPerRun || longHistory(ctx) {
			in.SoFar = m.result
			return m.result, workflow.NewContinueAsNewError(ctx, ClosePeriod, in)
		}
		var due activities.DuePageResult
		err := workflow.ExecuteActivity(storing(ctx, "find periods to close"), do.DuePeriods,
			activities.DuePageInput{TenantID: in.TenantID, After: in.After, Limit: customersPerPage}).Get(ctx, &due)
		if err == nil {
			err = m.close(ctx, due.Customers)
		}
		if err != nil {
			return m.result, forOperators(err)
		}
		if in.After = due.Last; !due.More {
			return m.result, nil
		}
	}
}

// closeTries is how often usage may overtake the freeze before the period is
// left to the next run.
const closeTries = 3

func (m *mass) close(ctx workflow.Context, customers []metering.CustomerID) error {
	for try := 0; try < closeTries && len(customers) > 0; try++ {
		err := m.sync(ctx, customers)
		if code, _, ok := problemOf(err); err != nil && (!ok || code != string(metering.CodeNoProvider)) {
			return err // without a provider there is nobody to tell
		}
		var open []metering.CustomerID
		for few := range slices.Chunk(customers, customersPerChunk) {
			var frozen activities.FreezeChunkResult
			err := workflow.ExecuteActivity(storing(ctx, fmt.Sprintf("freeze %s to %s", few[0], few[len(few)-1])), do.FreezeChunk,
				activities.SyncChunkInput{TenantID: m.tenant, Customers: few}).Get(ctx, &frozen)
			if err != nil {
				return err
			}
			m.result.Frozen += frozen.Frozen
			open = append(open, frozen.Open...)
		}
		customers = open
		m.report(ctx)
	}
	m.result.Open += len(customers)
	m.report(ctx)
	return nil
}

// startClosing makes sure that a run closes the tenant's periods.
func startClosing(ctx workflow.Context, tenant metering.TenantID) error {
	return startChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:        ClosePeriodID(tenant),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     fmt.Sprintf("Close the billing periods of %s", tenant),
		StaticDetails:     "Tells the provider the last usage of the periods whose grace is over, and then freezes them.",
		Priority:          temporal.Priority{PriorityKey: background, FairnessKey: tenant.String()},
	}, ClosePeriod, ClosePeriodInput{TenantID: tenant})
}
