package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// AutoSyncInput names the tenant, and how far earlier parts of the run have come.
type AutoSyncInput struct {
	TenantID  metering.TenantID   `json:"tenant_id"`
	After     metering.CustomerID `json:"after"`
	SoFar     BulkSyncResult      `json:"so_far"`
	Unindexed bool                `json:"unindexed"`
	Paused    bool                `json:"paused,omitempty"`
	Closed    bool                `json:"closed,omitempty"` // only customers with a closed period of which the provider does not know all
}

// AutoSync brings every customer whose usage the provider does not know of up
// to date, and then closes the periods that are due. Whom it had to leave it
// tries again, with everybody who is out of sync by then.
func AutoSync(ctx workflow.Context, in AutoSyncInput) (BulkSyncResult, error) {
	b := &bulkSync{tenant: in.TenantID, unindexed: in.Unindexed, after: in.After, result: in.SoFar}
	b.paused, b.closed = in.Paused, in.Closed
	more, err := b.pages(ctx, do.FindOutOfSync, "find who is out of sync", b.sync)
	if more {
		in.After, in.SoFar, in.Paused = b.after, b.result, b.paused
		return b.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
	}
	if err != nil || in.Closed {
		return b.result, err
	}
	if err := b.startClosing(ctx); err != nil || b.result.Left == 0 {
		return b.result, err
	}
	b.result.Left = 0
	in.After, in.SoFar, in.Paused = 0, b.result, b.paused
	return b.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
}

// startClosing leaves the periods that are due to a run of their own.
func (b *bulkSync) startClosing(ctx workflow.Context) error {
	var due activities.CustomerPageResult
	err := workflow.ExecuteActivity(storing(ctx, "look for periods to close"), do.DuePeriods,
		activities.CustomerPageInput{TenantID: b.tenant, Limit: 1}).Get(ctx, &due)
	if err != nil || !due.More {
		return err
	}
	return closePeriodStart(b.tenant).withoutAttributes(b.unindexed).apart(ctx)
}

// AutoSyncID is the id of a tenant's schedule, and what the ids of its runs
// begin with.
func AutoSyncID(tenant metering.TenantID) string { return fmt.Sprintf("auto-sync/%d", tenant) }

func autoSyncStart(tenant metering.TenantID) start {
	return start{
		workflow:   AutoSync,
		input:      AutoSyncInput{TenantID: tenant},
		id:         AutoSyncID(tenant),
		summary:    fmt.Sprintf("Auto-Sync of %s", tenant),
		details:    "Reports to the billing provider whatever is unreported, of every customer.",
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{triggerAttribute.ValueSet(string(metering.Scheduled))},
		priority:   background,
	}
}

func (in AutoSyncInput) unindexed() any { in.Unindexed = true; return in }
