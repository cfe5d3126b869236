package workflows

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

const (
	customersPerBatch = 50
	// customersPerPage is the size of a page of customers. The batches of a page run concurrently. Each batch syncs up to
	// the provider's AtOnce customers at a time.
	customersPerPage = 4 * customersPerBatch
	// pagesPerRun bounds a run's history.
	pagesPerRun = 100
)

// BulkSyncResult counts the work of a run over many customers.
type BulkSyncResult struct {
	Customers int `json:"customers"`
	Sent      int `json:"sent"`           // accepted reports
	Busy      int `json:"busy"`           // customers that another run was syncing
	Failed    int `json:"failed"`         // customers that now have their own runs
	Left      int `json:"left,omitempty"` // customers of batches that did not finish within batchLimit
	Closed    int `json:"closed"`         // closed periods
	Open      int `json:"open"`           // customers with a due period that waits for a backfill or failed to close
	Missed    int `json:"missed"`         // provider events that had not arrived
	Listed    int `json:"listed"`         // customers for which the provider's invoices were listed
}

// bulkSync syncs many customers of one tenant. A customer that fails alone gets its own run. While
// the provider fails for all customers, each batch retries for up to batchLimit.
type bulkSync struct {
	operators
	tenant metering.TenantID
	closed bool                // only customers with an incomplete closed period
	after  metering.CustomerID // last customer of the finished pages
	result BulkSyncResult
}

// forEachPage lists the customers page by page with the activity find, and calls act with each page. It also registers
// the handlers of updates. more reports whether the workflow has to continue as a new run.
func (b *bulkSync) forEachPage(ctx workflow.Context, find any, summary string, act func(workflow.Context, []metering.CustomerID) error) (more bool, err error) {
	if err := b.registerUpdateHandlers(ctx, b.tenant); err != nil {
		return false, err
	}
	defer func() { err = awaitUpdateHandlers(ctx, err) }()
	for pages := 0; pages < pagesPerRun && !longHistory(ctx); pages++ {
		page, err := b.nextPage(ctx, find, summary)
		if err == nil {
			err = act(ctx, page.Customers)
		}
		switch {
		case errors.Is(err, errLongHistory):
			return true, nil
		case err != nil:
			return false, asRunFailure(err)
		case !page.More:
			return false, nil
		}
		b.after = page.Last
	}
	return true, nil
}

// nextPage returns the next page of customers, and waits first if the run is paused.
func (b *bulkSync) nextPage(ctx workflow.Context, find any, summary string) (page activities.CustomerPageResult, err error) {
	if err := b.waitIfPaused(ctx); err != nil {
		return page, err
	}
	err = workflow.ExecuteActivity(shortStep(ctx, summary), find,
		activities.CustomerPageInput{TenantID: b.tenant, After: b.after, Limit: customersPerPage, Closed: b.closed}).Get(ctx, &page)
	return page, err
}

// waitIfPaused calls awaitResume if the run is paused, and shows the pause to operators.
func (b *bulkSync) waitIfPaused(ctx workflow.Context) error {
	if !b.paused {
		return nil
	}
	b.show(ctx)
	err := b.awaitResume(ctx)
	b.show(ctx)
	return err
}

// sync reports the usage of a page of customers. Its error tells an operator how to fix the problem
// that affects all customers.
func (b *bulkSync) sync(ctx workflow.Context, customers []metering.CustomerID) error {
	left := slices.Collect(slices.Chunk(customers, customersPerBatch))
	for len(left) > 0 {
		if err := b.waitIfPaused(ctx); err != nil {
			return err
		}
		undone, err := b.syncBatches(ctx, left)
		if err != nil {
			return err
		}
		left = undone
	}
	return nil
}

// syncBatches syncs batches concurrently. It stops when an operator sends an update, and returns the unfinished batches.
// If a batch exceeds batchLimit, its customers are added to Left. Any other error of a batch is returned.
func (b *bulkSync) syncBatches(ctx workflow.Context, batches [][]metering.CustomerID) (undone [][]metering.CustomerID, err error) {
	b.discardUpdates()
	trying, stop := workflow.WithCancel(ctx)
	defer stop()
	futures := make([]workflow.Future, len(batches))
	asked := false
	waiting := workflow.NewSelector(ctx).AddReceive(b.asked, func(c workflow.ReceiveChannel, _ bool) {
		c.Receive(ctx, nil)
		asked = true
	})
	for i, customers := range batches {
		summary := fmt.Sprintf("sync %s to %s", customers[0], customers[len(customers)-1])
		futures[i] = workflow.ExecuteActivity(batchStep(trying, summary), do.SyncBatch,
			activities.BatchInput{TenantID: b.tenant, Customers: customers})
		waiting.AddFuture(futures[i], func(workflow.Future) {})
	}
	done := func(f workflow.Future) bool { return f.IsReady() }
	for !asked && !slices.ContainsFunc(futures, failedFuture(ctx)) && !all(futures, done) {
		waiting.Select(ctx)
	}
	for i, f := range futures {
		if !f.IsReady() {
			undone = append(undone, batches[i])
			continue
		}
		var batch activities.SyncBatchResult
		err := f.Get(ctx, &batch)
		if retriesExpired(err) {
			b.result.Left += len(batches[i])
			b.show(ctx)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := b.add(ctx, batch); err != nil {
			return nil, err
		}
	}
	return undone, nil
}

// all reports whether is returns true for every item.
func all[T any](items []T, is func(T) bool) bool {
	return !slices.ContainsFunc(items, func(item T) bool { return !is(item) })
}

// failedFuture returns a function that reports whether a future has failed, except because its retries took too long.
func failedFuture(ctx workflow.Context) func(workflow.Future) bool {
	return func(f workflow.Future) bool {
		if !f.IsReady() {
			return false
		}
		err := f.Get(ctx, nil)
		return err != nil && !retriesExpired(err)
	}
}

// add adds the result of a batch, and starts a run for each failed customer. That run shows
// operators the reason for the failure.
func (b *bulkSync) add(ctx workflow.Context, batch activities.SyncBatchResult) error {
	b.result.Customers += batch.Customers
	b.result.Sent += batch.Sent
	b.result.Busy += batch.Busy
	b.result.Failed += len(batch.Failed)
	for _, customer := range batch.Failed {
		if err := b.startSync(ctx, customer); err != nil {
			return err
		}
	}
	b.show(ctx)
	return nil
}

// startSync starts a run for one customer, unless one is open.
func (b *bulkSync) startSync(ctx workflow.Context, customer metering.CustomerID) error {
	return syncCustomerStart(b.tenant, customer, metering.Scheduled).startIndependent(ctx)
}

// show shows the counts of the run to operators.
func (b *bulkSync) show(ctx workflow.Context) {
	r := b.result
	state := ""
	if b.paused {
		state = "Paused.\n\n"
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("%s| customers | reports sent | synced by another run | failed | not reached | periods closed | customers with open periods |\n"+
		"|---|---|---|---|---|---|---|\n| %d | %d | %d | %d | %d | %d | %d |\n", state, r.Customers, r.Sent, r.Busy, r.Failed, r.Left, r.Closed, r.Open))
}
