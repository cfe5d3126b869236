package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// AutoSyncInput names the tenant, and contains the state that a previous run passes on.
type AutoSyncInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    BulkSyncResult      `json:"so_far"`
	Paused   bool                `json:"paused,omitempty"`
	Closed   bool                `json:"closed,omitempty"` // only customers with an incomplete closed period
}

// AutoSync reports the unreported usage of every customer, and then starts the closing of due
// periods. If the provider failed for so long that some customers were skipped, AutoSync continues
// as a new run. That run syncs all customers that are out of sync by then.
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
	more, err := b.forEachPage(ctx, do.FindOutOfSync, "find customers with unreported usage", b.sync)
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
	if err := awaitUpdateHandlers(ctx, err); err != nil || in.Closed || b.result.Left == 0 {
		return b.result, err
	}
	b.result.Left = 0
	in.After, in.SoFar, in.Paused = 0, b.result, b.paused
	return b.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
}

// eventPagesPerRun bounds the pages of the provider's list of events that one run reads. The next
// run reads the following pages.
const eventPagesPerRun = 20

// listEvents reads the provider's list of events, and starts a run for each event that did not
// arrive. A failed read does not end the run, because the next run reads the list again.
func (b *bulkSync) listEvents(ctx workflow.Context) error {
	for range eventPagesPerRun {
		var page activities.ListEventsResult
		err := workflow.ExecuteActivity(providerCall(ctx, "list provider events that did not arrive"), do.ListEvents, activities.TenantInput{TenantID: b.tenant}).Get(ctx, &page)
		if temporal.IsCanceledError(err) {
			return err
		}
		for _, e := range page.Missed {
			if err := handleProviderEventStart(b.tenant, e.CustomerID, e.RowID).startIndependent(ctx); err != nil {
				return err
			}
		}
		if b.result.Missed += len(page.Missed); err != nil || !page.More {
			return nil //nolint:nilerr // the next run reads the list again
		}
	}
	return nil
}

// listInvoices starts the activity ListInvoices for the customers with open reconciliations. The
// activity runs concurrently with the other steps of the run. await waits until the activity ends,
// and returns an error only if the run is canceled.
func (b *bulkSync) listInvoices(ctx workflow.Context) (await func() error) {
	listing := workflow.ExecuteActivity(providerListing(ctx, "list invoices of open reconciliations"), do.ListInvoices, activities.TenantInput{TenantID: b.tenant})
	return func() error {
		var listed activities.ListInvoicesResult
		err := listing.Get(ctx, &listed)
		if b.result.Listed += listed.Customers; temporal.IsCanceledError(err) {
			return err
		}
		return nil // the next run lists the remaining customers
	}
}

// startClosing starts a run that closes due periods, if there are any.
func (b *bulkSync) startClosing(ctx workflow.Context) error {
	var due activities.CustomerPageResult
	err := workflow.ExecuteActivity(shortStep(ctx, "check for periods to close"), do.DuePeriods,
		activities.CustomerPageInput{TenantID: b.tenant, Limit: 1}).Get(ctx, &due)
	if err != nil || !due.More {
		return err
	}
	return closePeriodStart(b.tenant).startIndependent(ctx)
}

// AutoSyncID returns the ID of a tenant's schedule. It is also the prefix of the workflow IDs of
// its runs.
func AutoSyncID(tenant metering.TenantID) string { return fmt.Sprintf("auto-sync/%d", tenant) }

// autoSyncStart returns the start of a tenant's scheduled AutoSync run.
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
