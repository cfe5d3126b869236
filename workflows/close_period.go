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

// ClosePeriodInput names the tenant, and contains the state that a previous run passes on.
type ClosePeriodInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    BulkSyncResult      `json:"so_far"`
	Paused   bool                `json:"paused,omitempty"`
}

// ClosePeriod closes a tenant's billing periods after their grace periods. It does not wait for the
// provider: another run reports the remaining usage. A period that waits for the backfill of a
// meter stays due.
func ClosePeriod(ctx workflow.Context, in ClosePeriodInput) (BulkSyncResult, error) {
	b := &bulkSync{tenant: in.TenantID, after: in.After, result: in.SoFar}
	b.paused = in.Paused
	more, err := b.forEachPage(ctx, do.DuePeriods, "find periods to close", b.close)
	if more {
		in.After, in.SoFar, in.Paused = b.after, b.result, b.paused
		return b.result, workflow.NewContinueAsNewError(ctx, ClosePeriod, in)
	}
	if err != nil {
		return b.result, err
	}
	return b.result, awaitUpdateHandlers(ctx, b.startReporting(ctx))
}

// close closes the due periods of a page of customers.
func (b *bulkSync) close(ctx workflow.Context, customers []metering.CustomerID) error {
	for few := range slices.Chunk(customers, customersPerBatch) {
		var closed activities.CloseBatchResult
		err := workflow.ExecuteActivity(shortStep(ctx, fmt.Sprintf("close %s to %s", few[0], few[len(few)-1])), do.CloseBatch,
			activities.BatchInput{TenantID: b.tenant, Customers: few}).Get(ctx, &closed)
		if err != nil {
			return err
		}
		b.result.Closed += closed.Closed
		b.result.Open += len(closed.Open)
	}
	b.show(ctx)
	return nil
}

// startReporting starts a run that reports the remaining usage of closed periods, if there is any.
// That run may wait for the provider.
func (b *bulkSync) startReporting(ctx workflow.Context) error {
	var lacking activities.CustomerPageResult
	err := workflow.ExecuteActivity(shortStep(ctx, "check for closed periods to report"), do.FindOutOfSync,
		activities.CustomerPageInput{TenantID: b.tenant, Limit: 1, Closed: true}).Get(ctx, &lacking)
	if code, _, ok := failureOf(err); ok && code == string(metering.CodeNoProvider) {
		return nil // without a provider, usage is not reported
	}
	if err != nil || len(lacking.Customers) == 0 {
		return err
	}
	return reportClosedStart(b.tenant).startIndependent(ctx)
}

// reportClosedStart returns the start of a sync of all customers with unreported usage in a closed
// period. The sync also runs for tenants without auto-sync.
func reportClosedStart(tenant metering.TenantID) start {
	return start{
		workflow: AutoSync,
		input:    AutoSyncInput{TenantID: tenant, Closed: true},
		id:       fmt.Sprintf("report-closed/%d", tenant),
		summary:  fmt.Sprintf("Report the closed billing periods of %s", tenant),
		details:  "Reports the unreported usage of closed billing periods to the billing provider.",
		tenant:   tenant,
		priority: background,
	}
}

// ClosePeriodID returns the workflow ID of the run that closes a tenant's periods.
func ClosePeriodID(tenant metering.TenantID) string { return fmt.Sprintf("close-period/%d", tenant) }

// closePeriodStart returns the start of a run that closes the tenant's due periods.
func closePeriodStart(tenant metering.TenantID) start {
	return start{
		workflow: ClosePeriod,
		input:    ClosePeriodInput{TenantID: tenant},
		id:       ClosePeriodID(tenant),
		summary:  fmt.Sprintf("Close the billing periods of %s", tenant),
		details:  "Closes the billing periods whose grace period is over. Another run reports their unreported usage to the billing provider.",
		tenant:   tenant,
		priority: background,
	}
}

// StartClosePeriod starts a run that closes the tenant's due periods, unless one is open.
func StartClosePeriod(ctx context.Context, c client.Client, tenant metering.TenantID) error {
	return closePeriodStart(tenant).startOrJoin(ctx, c)
}
