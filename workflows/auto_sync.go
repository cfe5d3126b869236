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
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    BulkSyncResult      `json:"so_far"`
	Paused   bool                `json:"paused,omitempty"`
	Closed   bool                `json:"closed,omitempty"` // only customers with a closed period of which the provider does not know all
}

// AutoSync brings every customer whose usage the provider does not know of up
// to date, and then closes the periods that are due. Whom it had to leave it
// tries again, with everybody who is out of sync by then.
func AutoSync(ctx workflow.Context, in AutoSyncInput) (BulkSyncResult, error) {
	b := &bulkSync{tenant: in.TenantID, after: in.After, result: in.SoFar}
	b.paused, b.closed = in.Paused, in.Closed
	listing := func() error { return nil }
	if in.After == 0 && !in.Paused && !in.Closed {
		listing = b.listInvoices(ctx)
		if err := b.listEvents(ctx); err != nil {
			return b.result, err
		}
	}
	more, err := b.pages(ctx, do.FindOutOfSync, "find customers with unreported usage", b.sync)
	if more {
		in.After, in.SoFar, in.Paused = b.after, b.result, b.paused
		return b.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
	}
	if err == nil {
		err = listing()
	}
	if err == nil && !in.Closed {
		err = b.startClosing(ctx)
	}
	if err := answered(ctx, err); err != nil || in.Closed || b.result.Left == 0 {
		return b.result, err
	}
	b.result.Left = 0
	in.After, in.SoFar, in.Paused = 0, b.result, b.paused
	return b.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
}

// eventPagesPerRun bounds how much of the provider's list of events a run reads;
// the next one goes on.
const eventPagesPerRun = 20

// listEvents has the events acted on that the provider never sent, or that did
// not arrive. Where it cannot list them, nobody waits for it: the next run does.
func (b *bulkSync) listEvents(ctx workflow.Context) error {
	for range eventPagesPerRun {
		var page activities.ListEventsResult
		err := workflow.ExecuteActivity(looking(ctx, "list provider events that did not arrive"), do.ListEvents, activities.TenantInput{TenantID: b.tenant}).Get(ctx, &page)
		if temporal.IsCanceledError(err) {
			return err
		}
		for _, e := range page.Missed {
			if err := handleProviderEventStart(b.tenant, e.CustomerID, e.RowID).apart(ctx); err != nil {
				return err
			}
		}
		if b.result.Missed += len(page.Missed); err != nil || !page.More {
			return nil //nolint:nilerr // nobody waits for the list
		}
	}
	return nil
}

// listInvoices has the invoices of customers listed of which something is not
// known, beside everything else; await waits for it.
func (b *bulkSync) listInvoices(ctx workflow.Context) (await func() error) {
	listing := workflow.ExecuteActivity(listingOnce(ctx, "list invoices of open reconciliations"), do.ListInvoices, activities.TenantInput{TenantID: b.tenant})
	return func() error {
		var listed activities.ListInvoicesResult
		err := listing.Get(ctx, &listed)
		if b.result.Listed += listed.Customers; temporal.IsCanceledError(err) {
			return err
		}
		return nil // the next run goes on
	}
}

// startClosing leaves the periods that are due to a run of their own.
func (b *bulkSync) startClosing(ctx workflow.Context) error {
	var due activities.CustomerPageResult
	err := workflow.ExecuteActivity(storing(ctx, "check for periods to close"), do.DuePeriods,
		activities.CustomerPageInput{TenantID: b.tenant, Limit: 1}).Get(ctx, &due)
	if err != nil || !due.More {
		return err
	}
	return closePeriodStart(b.tenant).apart(ctx)
}

// AutoSyncID is the id of a tenant's schedule, and what the ids of its runs
// begin with.
func AutoSyncID(tenant metering.TenantID) string { return fmt.Sprintf("auto-sync/%d", tenant) }

func autoSyncStart(tenant metering.TenantID) start {
	return start{
		workflow:   AutoSync,
		input:      AutoSyncInput{TenantID: tenant},
		id:         AutoSyncID(tenant),
		summary:    fmt.Sprintf("Sync all customers of %s", tenant),
		details:    "Reports the unreported usage of every customer to the billing provider, then starts the closing of due billing periods.",
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{triggerAttribute.ValueSet(string(metering.Scheduled))},
		priority:   background,
	}
}
