package workflows

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

const (
	customersPerChunk = 50
	// customersPerPage are synced at once, in chunks side by side.
	customersPerPage = 4 * customersPerChunk
	// pagesPerRun bounds a run's history.
	pagesPerRun = 100
)

// MassResult is what a run over many customers did.
type MassResult struct {
	Customers int `json:"customers"`
	Sent      int `json:"sent"`   // snapshots
	Busy      int `json:"busy"`   // customers that somebody else was syncing
	Failed    int `json:"failed"` // customers that have a run of their own now
	Closed    int `json:"closed"` // periods
	Open      int `json:"open"`   // customers with a due period that has to wait
}

// mass syncs many customers of one tenant. The customers who fail on their own
// get runs of their own; where the provider fails, the mass waits.
type mass struct {
	operators
	tenant    metering.TenantID
	unindexed bool
	after     metering.CustomerID // the last one of the pages that are done
	result    MassResult
}

// pages has act work on one page of customers after the other, as find lists
// them. more says that the run has to be continued as new.
func (m *mass) pages(ctx workflow.Context, find any, summary string, act func(workflow.Context, []metering.CustomerID) error) (more bool, err error) {
	if err := m.heed(ctx); err != nil {
		return false, err
	}
	for pages := 0; pages < pagesPerRun && !longHistory(ctx); pages++ {
		page, err := m.page(ctx, find, summary)
		if err == nil {
			err = act(ctx, page.Customers)
		}
		switch {
		case errors.Is(err, errLongHistory):
			return true, nil
		case err != nil:
			return false, forOperators(err)
		case !page.More:
			return false, nil
		}
		m.after = page.Last
	}
	return true, nil
}

// page is the next one, once the run is not paused.
func (m *mass) page(ctx workflow.Context, find any, summary string) (page activities.DuePageResult, err error) {
	if err := m.hold(ctx); err != nil {
		return page, err
	}
	err = workflow.ExecuteActivity(storing(ctx, summary), find,
		activities.DuePageInput{TenantID: m.tenant, After: m.after, Limit: customersPerPage}).Get(ctx, &page)
	return page, err
}

// forOperators makes what somebody has to act on the run's own failure.
func forOperators(err error) error {
	if code, message, ok := problemOf(err); ok {
		return temporal.NewNonRetryableApplicationError(message, code, nil)
	}
	return err
}

// hold is awaitResume, visibly.
func (m *mass) hold(ctx workflow.Context) error {
	if !m.paused {
		return nil
	}
	m.report(ctx)
	err := m.awaitResume(ctx)
	m.report(ctx)
	return err
}

// sync brings a page of customers up to date. Its error says what an operator
// has to do before anybody can be synced.
func (m *mass) sync(ctx workflow.Context, customers []metering.CustomerID) error {
	left := slices.Collect(slices.Chunk(customers, customersPerChunk))
	for len(left) > 0 {
		if err := m.hold(ctx); err != nil {
			return err
		}
		undone, err := m.try(ctx, left)
		if err != nil {
			return err
		}
		left = undone
	}
	return nil
}

// try syncs chunks side by side until all are done or an operator asks for
// something; then it returns those that are not.
func (m *mass) try(ctx workflow.Context, chunks [][]metering.CustomerID) (undone [][]metering.CustomerID, err error) {
	m.forget()
	trying, stop := workflow.WithCancel(ctx)
	defer stop()
	futures := make([]workflow.Future, len(chunks))
	asked := false
	waiting := workflow.NewSelector(ctx).AddReceive(m.asked, func(c workflow.ReceiveChannel, _ bool) {
		c.Receive(ctx, nil)
		asked = true
	})
	for i, customers := range chunks {
		summary := fmt.Sprintf("sync %s to %s", customers[0], customers[len(customers)-1])
		futures[i] = workflow.ExecuteActivity(chunking(trying, summary), do.SyncChunk,
			activities.SyncChunkInput{TenantID: m.tenant, Customers: customers})
		waiting.AddFuture(futures[i], func(workflow.Future) {})
	}
	done := func(f workflow.Future) bool { return f.IsReady() }
	for !asked && !slices.ContainsFunc(futures, failedFuture(ctx)) && !all(futures, done) {
		waiting.Select(ctx)
	}
	for i, f := range futures {
		if !f.IsReady() {
			undone = append(undone, chunks[i])
			continue
		}
		var chunk activities.SyncChunkResult
		if err := f.Get(ctx, &chunk); err != nil {
			return nil, err
		}
		if err := m.add(ctx, chunk); err != nil {
			return nil, err
		}
	}
	return undone, nil
}

func all[T any](items []T, is func(T) bool) bool {
	return !slices.ContainsFunc(items, func(item T) bool { return !is(item) })
}

func failedFuture(ctx workflow.Context) func(workflow.Future) bool {
	return func(f workflow.Future) bool { return f.IsReady() && f.Get(ctx, nil) != nil }
}

// add counts what a chunk did, and gives each customer that failed a run of
// its own, where operators see what is wrong.
func (m *mass) add(ctx workflow.Context, chunk activities.SyncChunkResult) error {
	m.result.Customers += chunk.Customers
	m.result.Sent += chunk.Sent
	m.result.Busy += chunk.Busy
	m.result.Failed += len(chunk.Failed)
	for _, customer := range chunk.Failed {
		if err := m.startSync(ctx, customer); err != nil {
			return err
		}
	}
	m.report(ctx)
	return nil
}

func (m *mass) startSync(ctx workflow.Context, customer metering.CustomerID) error {
	return syncCustomerStart(m.tenant, customer, metering.Scheduled).withoutAttributes(m.unindexed).apart(ctx)
}

func (m *mass) report(ctx workflow.Context) {
	r := m.result
	state := ""
	if m.paused {
		state = "Paused.\n\n"
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("%s| customers | snapshots sent | busy elsewhere | failed | periods closed | still open |\n"+
		"|---|---|---|---|---|---|\n| %d | %d | %d | %d | %d | %d |\n", state, r.Customers, r.Sent, r.Busy, r.Failed, r.Closed, r.Open))
}
