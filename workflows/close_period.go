package workflows

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// ClosePeriodInput names the tenant, and how far earlier parts of the run have come.
type ClosePeriodInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    BulkSyncResult      `json:"so_far"`
	Paused   bool                `json:"paused,omitempty"`
}

// ClosePeriod closes a tenant's billing periods whose end and grace are over:
// a last sync, and then the closing, which takes place only where the provider
// has accepted everything. What cannot be closed stays due.
func ClosePeriod(ctx workflow.Context, in ClosePeriodInput) (BulkSyncResult, error) {
	b := &bulkSync{tenant: in.TenantID, unindexed: true, after: in.After, result: in.SoFar}
	b.paused = in.Paused
	more, err := b.pages(ctx, do.DuePeriods, "find periods to close", b.close)
	if more {
		in.After, in.SoFar, in.Paused = b.after, b.result, b.paused
		return b.result, workflow.NewContinueAsNewError(ctx, ClosePeriod, in)
	}
	return b.result, err
}

// closeTries is how often usage may overtake the closing before the period is
// left to the next run.
const closeTries = 3

func (b *bulkSync) close(ctx workflow.Context, customers []metering.CustomerID) error {
	for try := 0; try < closeTries && len(customers) > 0; try++ {
		err := b.sync(ctx, customers)
		if code, _, ok := failureOf(err); err != nil && (!ok || code != string(metering.CodeNoProvider)) {
			return err // without a provider there is nobody to report to
		}
		var open []metering.CustomerID
		for few := range slices.Chunk(customers, customersPerBatch) {
			var closed activities.CloseBatchResult
			err := workflow.ExecuteActivity(storing(ctx, fmt.Sprintf("close %s to %s", few[0], few[len(few)-1])), do.CloseBatch,
				activities.BatchInput{TenantID: b.tenant, Customers: few}).Get(ctx, &closed)
			if err != nil {
				return err
			}
			b.result.Closed += closed.Closed
			open = append(open, closed.Open...)
		}
		customers = open
		b.report(ctx)
	}
	b.result.Open += len(customers)
	b.report(ctx)
	return nil
}

// ClosePeriodID is the workflow id of the closing of a tenant's periods.
func ClosePeriodID(tenant metering.TenantID) string { return fmt.Sprintf("close-period/%d", tenant) }

func closePeriodStart(tenant metering.TenantID) start {
	return start{
		workflow: ClosePeriod,
		input:    ClosePeriodInput{TenantID: tenant},
		id:       ClosePeriodID(tenant),
		summary:  fmt.Sprintf("Close the billing periods of %s", tenant),
		details:  "Reports to the provider the last usage of the periods whose grace is over, and then closes them.",
		tenant:   tenant,
		priority: background,
	}
}

// StartClosePeriod makes sure that a run closes the tenant's due periods.
func StartClosePeriod(ctx context.Context, c client.Client, tenant metering.TenantID) error {
	return closePeriodStart(tenant).by(ctx, c)
}
