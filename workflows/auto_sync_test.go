package workflows_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// fleet is a tenant with many customers that are out of sync.
type fleet struct {
	*testsuite.TestWorkflowEnvironment
	mu              sync.Mutex // batches run concurrently
	outOfSync       []metering.CustomerID
	failing         map[metering.CustomerID]bool
	synced          []metering.CustomerID
	customersClosed []metering.CustomerID
	children        []string
	closed          int
	sync            func() error // the provider's answer to a batch
	events          func() (activities.ListEventsResult, error)
	invoices        func() (activities.ListInvoicesResult, error)
	open            int // number of batches in which a customer's period stays open
	closing         func() error
	periods         func(context.Context, activities.CustomerPageInput) (activities.CustomerPageResult, error)
	askedForClosed  bool
	lacking         error // error of the activity FindOutOfSync
}

// newFleet returns a fleet with customers 1 to the given number. Its provider answers every call.
func newFleet(t *testing.T, customers int) *fleet {
	t.Helper()
	f := &fleet{TestWorkflowEnvironment: newEnvironment(), failing: map[metering.CustomerID]bool{}}
	f.sync = func() error { return nil }
	f.events = func() (activities.ListEventsResult, error) { return activities.ListEventsResult{}, nil }
	f.invoices = func() (activities.ListInvoicesResult, error) { return activities.ListInvoicesResult{}, nil }
	for i := range customers {
		f.outOfSync = append(f.outOfSync, metering.CustomerID(i+1))
	}
	for _, w := range workflows.All() {
		f.RegisterWorkflow(w)
	}
	f.RegisterActivity(do)
	recorded(f.TestWorkflowEnvironment)
	f.OnActivity(do.ListEvents, mock.Anything, mock.Anything).Return(func(context.Context, activities.TenantInput) (activities.ListEventsResult, error) {
		return f.events()
	}).Maybe()
	f.OnActivity(do.ListInvoices, mock.Anything, mock.Anything).Return(func(context.Context, activities.TenantInput) (activities.ListInvoicesResult, error) {
		return f.invoices()
	}).Maybe()
	f.OnActivity(do.FindOutOfSync, mock.Anything, mock.Anything).Return(f.findOutOfSync).Maybe()
	f.periods, f.closing = f.page, func() error { return nil }
	f.OnActivity(do.DuePeriods, mock.Anything, mock.Anything).Return(func(ctx context.Context, in activities.CustomerPageInput) (activities.CustomerPageResult, error) {
		return f.periods(ctx, in)
	}).Maybe()
	f.OnActivity(do.SyncBatch, mock.Anything, mock.Anything).Return(f.syncBatch).Maybe()
	f.OnActivity(do.CloseBatch, mock.Anything, mock.Anything).Return(f.closeBatch).Maybe()
	f.OnWorkflow(workflows.SyncCustomer, mock.Anything, mock.Anything).Return(func(ctx workflow.Context, _ workflows.SyncCustomerInput) (workflows.SyncCustomerResult, error) {
		f.children = append(f.children, workflow.GetInfo(ctx).WorkflowExecution.ID)
		return workflows.SyncCustomerResult{}, nil
	}).Maybe()
	return f
}

// closeElsewhere mocks the runs that close periods, and counts them.
func (f *fleet) closeElsewhere() {
	f.OnWorkflow(workflows.ClosePeriod, mock.Anything, mock.Anything).Return(func(workflow.Context, workflows.ClosePeriodInput) (workflows.BulkSyncResult, error) {
		f.closed++
		return workflows.BulkSyncResult{}, nil
	}).Maybe()
}

// reportElsewhere mocks the runs that report closed periods, and records their workflow IDs.
func (f *fleet) reportElsewhere() {
	f.OnWorkflow(workflows.AutoSync, mock.Anything, mock.Anything).Return(func(ctx workflow.Context, _ workflows.AutoSyncInput) (workflows.BulkSyncResult, error) {
		f.children = append(f.children, workflow.GetInfo(ctx).WorkflowExecution.ID)
		return workflows.BulkSyncResult{}, nil
	}).Maybe()
}

// findOutOfSync mocks the activity FindOutOfSync.
func (f *fleet) findOutOfSync(ctx context.Context, in activities.CustomerPageInput) (activities.CustomerPageResult, error) {
	f.askedForClosed = in.Closed
	if f.lacking != nil {
		return activities.CustomerPageResult{}, activities.Failure(f.lacking)
	}
	return f.page(ctx, in)
}

// page returns the next page of the customers that are out of sync.
func (f *fleet) page(_ context.Context, in activities.CustomerPageInput) (activities.CustomerPageResult, error) {
	var page activities.CustomerPageResult
	for _, c := range f.outOfSync {
		if c > in.After && len(page.Customers) < in.Limit {
			page.Customers = append(page.Customers, c)
			page.Last, page.More = c, true
		}
	}
	return page, nil
}

// syncBatch mocks the activity SyncBatch.
func (f *fleet) syncBatch(_ context.Context, in activities.BatchInput) (activities.SyncBatchResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.sync(); err != nil {
		return activities.SyncBatchResult{}, activities.Failure(err)
	}
	var result activities.SyncBatchResult
	for _, c := range in.Customers {
		f.synced = append(f.synced, c)
		result.Customers++
		if f.failing[c] {
			result.Failed = append(result.Failed, c)
			continue
		}
		result.Sent++
	}
	return result, nil
}

// closeBatch mocks the activity CloseBatch.
func (f *fleet) closeBatch(_ context.Context, in activities.BatchInput) (activities.CloseBatchResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.closing(); err != nil {
		return activities.CloseBatchResult{}, err
	}
	if f.open > 0 {
		f.open--
		return activities.CloseBatchResult{Closed: len(in.Customers) - 1, Open: in.Customers[:1]}, nil
	}
	f.customersClosed = append(f.customersClosed, in.Customers...)
	return activities.CloseBatchResult{Closed: len(in.Customers)}, nil
}

// autoSync runs AutoSync to its end, and returns the result or the error.
func (f *fleet) autoSync(t *testing.T) (result workflows.BulkSyncResult, err error) {
	t.Helper()
	f.closeElsewhere()
	f.ExecuteWorkflow(workflows.AutoSync, workflows.AutoSyncInput{TenantID: 1})
	require.True(t, f.IsWorkflowCompleted())
	if err := f.GetWorkflowError(); err != nil {
		return result, err
	}
	return result, f.GetWorkflowResult(&result)
}

func TestAutoSyncSyncsCustomersOnceAndStartsRunsForFailedCustomers(t *testing.T) {
	f := newFleet(t, 1030)
	f.failing[7], f.failing[1030] = true, true
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, workflows.BulkSyncResult{Customers: 1030, Sent: 1028, Failed: 2}, result)
	slices.Sort(f.synced)
	require.Equal(t, f.outOfSync, f.synced)
	require.ElementsMatch(t, []string{"sync-customer/1/7", "sync-customer/1/1030"}, f.children)
	require.Equal(t, 1, f.closed, "periods that are due are closed by a run of their own")
}

// TestAutoSyncStartsRunsForMissedProviderEvents checks that AutoSync starts a run for each provider event that did not
// arrive, and lists invoices. One run reads at most 20 pages of the list of events.
func TestAutoSyncStartsRunsForMissedProviderEvents(t *testing.T) {
	f := newFleet(t, 3)
	pages := 0
	f.events = func() (activities.ListEventsResult, error) {
		pages++
		return activities.ListEventsResult{Missed: []activities.MissedEvent{{RowID: metering.ProviderEventID(pages), CustomerID: 2}}, More: pages < 3}, nil
	}
	f.invoices = func() (activities.ListInvoicesResult, error) { return activities.ListInvoicesResult{Customers: 2}, nil }
	var begun []string
	f.OnWorkflow(workflows.HandleProviderEvent, mock.Anything, mock.Anything).Return(
		func(ctx workflow.Context, _ workflows.HandleProviderEventInput) (workflows.HandleProviderEventResult, error) {
			begun = append(begun, workflow.GetInfo(ctx).WorkflowExecution.ID)
			return workflows.HandleProviderEventResult{}, nil
		})
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, workflows.BulkSyncResult{Customers: 3, Sent: 3, Missed: 3, Listed: 2}, result)
	require.ElementsMatch(t, []string{"provider-event/1/1", "provider-event/1/2", "provider-event/1/3"}, begun)

	f = newFleet(t, 3)
	pages = 0
	f.events = func() (activities.ListEventsResult, error) {
		pages++
		return activities.ListEventsResult{More: true}, nil
	}
	_, err = f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, 20, pages, "the next run goes on")
}

func TestAutoSyncSyncsCustomersIfListingsFail(t *testing.T) {
	f := newFleet(t, 3)
	var asked atomic.Int64
	f.events = func() (activities.ListEventsResult, error) {
		asked.Add(1)
		return activities.ListEventsResult{}, activities.Failure(metering.Errorf(metering.CodeProviderRefuse, "the API key lacks a permission"))
	}
	f.invoices = func() (activities.ListInvoicesResult, error) {
		asked.Add(1)
		return activities.ListInvoicesResult{}, activities.Failure(down())
	}
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, workflows.BulkSyncResult{Customers: 3, Sent: 3}, result)
	require.EqualValues(t, 2, asked.Load())
}

func TestAutoSyncWaitsInOneRunUntilTheProviderIsBack(t *testing.T) {
	f := newFleet(t, 60)
	back := f.Now().Add(10 * time.Minute)
	f.sync = func() error {
		if f.Now().Before(back) {
			return down()
		}
		return nil
	}
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, 60, result.Sent)
	require.Empty(t, f.children)
}

func TestAutoSyncFailsIfProviderRefusesEverySync(t *testing.T) {
	f := newFleet(t, 60)
	f.sync = func() error { return metering.Errorf(metering.CodeProviderRefuse, "save another URL") }
	_, err := f.autoSync(t)
	require.ErrorContains(t, err, "save another URL")
}

func TestAutoSyncContinuesAsNewWhenSuggested(t *testing.T) {
	f := newFleet(t, 300)
	f.SetContinueAsNewSuggested(true)
	f.ExecuteWorkflow(workflows.AutoSync, workflows.AutoSyncInput{TenantID: 1, After: 5})
	require.True(t, workflow.IsContinueAsNewError(f.GetWorkflowError()), "%v", f.GetWorkflowError())
	require.Empty(t, f.synced)
}

// ask sends an update to the run after the given time.
func (f *fleet) ask(t *testing.T, after time.Duration, name string) {
	f.RegisterDelayedCallback(func() {
		f.UpdateWorkflowNoRejection(name, name, t, asks)
	}, after)
}

func TestOperatorsPauseResumeAndRetryAutoSync(t *testing.T) {
	f := newFleet(t, 60)
	began, up := f.Now(), false
	f.sync = func() error {
		if up {
			return nil
		}
		return metering.Errorf(metering.CodeProviderDown, "away")
	}
	f.ask(t, time.Minute, "pause")
	f.RegisterDelayedCallback(func() { up = true }, 2*time.Minute)
	f.RegisterDelayedCallback(func() { require.False(t, f.IsWorkflowCompleted(), "paused means that it waits") }, 59*time.Minute)
	f.ask(t, time.Hour, "resume")
	result, err := f.autoSync(t)
	require.NoError(t, err)
	require.Equal(t, 60, result.Sent)
	require.GreaterOrEqual(t, f.Now().Sub(began), time.Hour)

	f = newFleet(t, 1)
	up = false
	began = f.Now()
	f.sync = func() error {
		if up {
			return nil
		}
		return metering.Errorf(metering.CodeProviderDown, "away")
	}
	f.RegisterDelayedCallback(func() { up = true }, 130*time.Second)
	f.ask(t, 131*time.Second, "retry-now") // without the update, the next attempt is at 254 seconds
	_, err = f.autoSync(t)
	require.NoError(t, err)
	require.Less(t, f.Now().Sub(began), 200*time.Second)
}

// TestAPauseOfABulkSyncSurvivesContinueAsNew checks that a run continues as new during a long pause, so that its
// history stays bounded. The new run stays paused until an operator resumes it.
func TestAPauseOfABulkSyncSurvivesContinueAsNew(t *testing.T) {
	for name, run := range map[string]struct {
		workflow any
		input    func(paused bool, after metering.CustomerID) any
	}{
		"AutoSync": {workflows.AutoSync, func(paused bool, after metering.CustomerID) any {
			return workflows.AutoSyncInput{TenantID: 1, Paused: paused, After: after}
		}},
		"ClosePeriod": {workflows.ClosePeriod, func(paused bool, after metering.CustomerID) any {
			return workflows.ClosePeriodInput{TenantID: 1, Paused: paused, After: after}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := func() *fleet {
				f := newFleet(t, 250) // two pages
				if name == "AutoSync" {
					f.closeElsewhere()
				} else {
					f.reportElsewhere()
				}
				return f
			}
			f := fresh()
			f.sync = down
			paused := name == "ClosePeriod" // ClosePeriod does not wait for the provider, so it has to start paused
			f.ask(t, time.Minute, "pause")
			f.RegisterDelayedCallback(func() {
				require.Contains(t, detailsOf(t, f.TestWorkflowEnvironment), "Paused.")
				f.SetContinueAsNewSuggested(true)
			}, time.Hour)
			f.ask(t, time.Hour+time.Minute, "pause")
			f.ExecuteWorkflow(run.workflow, run.input(paused, 20))
			var next *workflow.ContinueAsNewError
			require.ErrorAs(t, f.GetWorkflowError(), &next)
			var input struct {
				After  metering.CustomerID `json:"after"`
				Paused bool                `json:"paused"`
			}
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
			require.True(t, input.Paused)
			require.EqualValues(t, 20, input.After, "the page is done again")

			f = fresh()
			began := f.Now()
			f.RegisterDelayedCallback(func() {
				require.Empty(t, slices.Concat(f.synced, f.customersClosed))
				require.Contains(t, detailsOf(t, f.TestWorkflowEnvironment), "Paused.")
			}, 2*time.Hour)
			f.ask(t, 3*time.Hour, "resume")
			f.ExecuteWorkflow(run.workflow, run.input(true, 20))
			require.NoError(t, f.GetWorkflowError())
			require.Len(t, slices.Concat(f.synced, f.customersClosed), 230)
			require.GreaterOrEqual(t, f.Now().Sub(began), 3*time.Hour)
			require.NotContains(t, detailsOf(t, f.TestWorkflowEnvironment), "Paused.")
		})
	}
}

// TestClosePeriodDoesNotWaitForProvider checks that ClosePeriod neither calls the provider nor waits for it. Another
// run reports the remaining usage of closed periods.
func TestClosePeriodDoesNotWaitForProvider(t *testing.T) {
	f := newFleet(t, 70)
	f.sync = down
	f.reportElsewhere()
	f.ExecuteWorkflow(workflows.ClosePeriod, workflows.ClosePeriodInput{TenantID: 1})
	require.NoError(t, f.GetWorkflowError())
	var result workflows.BulkSyncResult
	require.NoError(t, f.GetWorkflowResult(&result))
	require.Equal(t, workflows.BulkSyncResult{Closed: 70}, result)
	require.Empty(t, f.synced)
	require.Equal(t, []string{"report-closed/1"}, f.children)
}

func TestClosePeriodCountsOpenPeriodsAndNeedsNoProvider(t *testing.T) {
	f := newFleet(t, 3)
	f.open = 1
	f.lacking = metering.Errorf(metering.CodeNoProvider, "no billing provider is configured")
	f.ExecuteWorkflow(workflows.ClosePeriod, workflows.ClosePeriodInput{TenantID: 1})
	require.NoError(t, f.GetWorkflowError())
	var result workflows.BulkSyncResult
	require.NoError(t, f.GetWorkflowResult(&result))
	require.Equal(t, workflows.BulkSyncResult{Closed: 2, Open: 1}, result)
	require.Empty(t, f.children)
}

// TestReportClosedRunSyncsWithoutClosing checks that the run that reports closed periods syncs only their customers,
// and starts no closing.
func TestReportClosedRunSyncsWithoutClosing(t *testing.T) {
	f := newFleet(t, 4)
	f.closeElsewhere()
	f.ExecuteWorkflow(workflows.AutoSync, workflows.AutoSyncInput{TenantID: 1, Closed: true})
	require.NoError(t, f.GetWorkflowError())
	require.Len(t, f.synced, 4)
	require.True(t, f.askedForClosed)
	require.Zero(t, f.closed)
}

func TestMaintainRunsOtherStepsAfterOneStepFails(t *testing.T) {
	f := newFleet(t, 0)
	f.OnActivity(do.MakeChunks, mock.Anything).Return(errForPeople)
	done := 0
	for _, step := range []any{do.SweepRequestIDs, do.SweepMessages, do.SweepEventCounts, do.RefreshDaily, do.DigestPeriods} {
		f.OnActivity(step, mock.Anything).Return(func(context.Context) error { done++; return nil })
	}
	f.OnActivity(do.DropEvents, mock.Anything).Return(activities.DropEventsResult{Chunks: 2}, nil)
	f.ExecuteWorkflow(workflows.Maintain)
	require.ErrorContains(t, f.GetWorkflowError(), "somebody has to look")
	require.Equal(t, 5, done)
	f.AssertExpectations(t)
}

func TestAuditUsageGoesThroughAllTenants(t *testing.T) {
	f := newFleet(t, 0)
	f.OnActivity(do.AuditTenants, mock.Anything, activities.AuditTenantsInput{}).Return(activities.AuditTenantsResult{Tenants: 20, Discrepancies: 1, Last: 20}, nil)
	f.OnActivity(do.AuditTenants, mock.Anything, activities.AuditTenantsInput{After: 20}).Return(activities.AuditTenantsResult{Tenants: 3, Discrepancies: 2}, nil)
	f.ExecuteWorkflow(workflows.AuditUsage, workflows.AuditUsageInput{})
	require.NoError(t, f.GetWorkflowError())
	var result workflows.AuditUsageResult
	require.NoError(t, f.GetWorkflowResult(&result))
	require.Equal(t, workflows.AuditUsageResult{Tenants: 23, Discrepancies: 3}, result)
}
