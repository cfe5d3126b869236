package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

var eventRow = activities.ProviderEventInput{TenantID: 1, RowID: 7}

// happening is an event of the provider about a customer with a draft invoice.
type happening struct {
	*testsuite.TestWorkflowEnvironment
	event   activities.ReadEventResult
	invoice func() (activities.ReadInvoiceResult, error)
	sync    func(ctx workflow.Context) error // mock of the SyncCustomer run
	answer  activities.ReadSyncResult
	closed  activities.CloseBatchResult

	holds           []workflows.HoldInvoiceInput // inputs of started HoldInvoice runs
	requests, looks int
	recorded        []string // stored outcomes
	ended           time.Time
	indexed         string // outcome in the search attribute
}

// newHappening returns an event about a draft invoice. The sync of its customer succeeds at once.
func newHappening(t *testing.T) *happening {
	t.Helper()
	h := &happening{TestWorkflowEnvironment: newEnvironment()}
	h.event = activities.ReadEventResult{CustomerID: 2, Invoice: true}
	drafted := h.Now()
	h.invoice = func() (activities.ReadInvoiceResult, error) {
		return activities.ReadInvoiceResult{Cycle: true, CreatedAt: drafted}, nil
	}
	h.sync = func(workflow.Context) error {
		h.answer.Status = metering.SyncSucceeded
		return nil
	}
	h.RegisterWorkflow(workflows.HandleProviderEvent)
	h.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.SyncCustomerInput) (workflows.SyncCustomerResult, error) {
		require.Equal(t, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2}, in)
		return workflows.SyncCustomerResult{}, h.sync(ctx)
	}, workflow.RegisterOptions{Name: "SyncCustomer"})
	h.RegisterWorkflowWithOptions(func(_ workflow.Context, in workflows.HoldInvoiceInput) (workflows.HoldInvoiceResult, error) {
		h.holds = append(h.holds, in)
		return workflows.HoldInvoiceResult{}, nil
	}, workflow.RegisterOptions{Name: "HoldInvoice"})
	h.RegisterActivity(do)
	h.OnActivity(do.ReadEvent, mock.Anything, eventRow).Return(func(context.Context, activities.ProviderEventInput) (activities.ReadEventResult, error) {
		return h.event, nil
	})
	h.OnActivity(do.ReadInvoice, mock.Anything, eventRow).Return(func(context.Context, activities.ProviderEventInput) (activities.ReadInvoiceResult, error) {
		invoice, err := h.invoice()
		return invoice, activities.Failure(err)
	}).Maybe()
	h.OnActivity(do.RequestSync, mock.Anything, eventRow).Return(func(context.Context, activities.ProviderEventInput) (activities.RequestSyncResult, error) {
		h.requests++
		h.answer.Status = metering.SyncRequested
		return activities.RequestSyncResult{SyncID: uuid.UUID{7}}, nil
	}).Maybe()
	h.OnActivity(do.ReadSync, mock.Anything, activities.ReadSyncInput{TenantID: 1, SyncID: uuid.UUID{7}}).Return(func(context.Context, activities.ReadSyncInput) (activities.ReadSyncResult, error) {
		h.looks++
		return h.answer, nil
	}).Maybe()
	h.OnActivity(do.CloseBatch, mock.Anything, activities.BatchInput{TenantID: 1, Customers: []metering.CustomerID{2}}).Return(
		func(context.Context, activities.BatchInput) (activities.CloseBatchResult, error) {
			return h.closed, nil
		}).Maybe()
	h.OnActivity(do.FinishEvent, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FinishEventInput) error {
		h.recorded, h.ended = append(h.recorded, in.Outcome), h.Now()
		return nil
	}).Maybe()
	h.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		h.indexed, _ = attributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword("OdometerOutcome"))
		return true
	})).Return(nil).Maybe()
	return h
}

// run executes the workflow, and returns its outcome and duration.
func (h *happening) run(t *testing.T) (outcome string, took time.Duration) {
	t.Helper()
	began := h.Now()
	h.ExecuteWorkflow(workflows.HandleProviderEvent, workflows.HandleProviderEventInput{TenantID: 1, RowID: 7})
	require.True(t, h.IsWorkflowCompleted())
	require.NoError(t, h.GetWorkflowError())
	var result workflows.HandleProviderEventResult
	require.NoError(t, h.GetWorkflowResult(&result))
	require.Equal(t, []string{result.Outcome}, h.recorded, "what the run returns is what the row says")
	return result.Outcome, h.ended.Sub(began).Round(time.Minute)
}

func TestDraftInvoiceEventStartsHoldInvoiceRun(t *testing.T) {
	h := newHappening(t)
	drafted := h.Now()
	h.invoice = func() (activities.ReadInvoiceResult, error) {
		return activities.ReadInvoiceResult{Cycle: true, CreatedAt: drafted, Hold: 9}, nil
	}
	outcome, _ := h.run(t)
	require.Equal(t, "the period's last usage was sent", outcome)
	require.Equal(t, []workflows.HoldInvoiceInput{{TenantID: 1, HoldID: 9}}, h.holds)
}

func TestEventWithoutCustomerOrCycleInvoiceRequestsNoSync(t *testing.T) {
	h := newHappening(t)
	h.event = activities.ReadEventResult{Invoice: true}
	outcome, _ := h.run(t)
	require.Equal(t, "the event concerns no customer in Odometer", outcome)

	h = newHappening(t)
	h.invoice = func() (activities.ReadInvoiceResult, error) { return activities.ReadInvoiceResult{}, nil }
	outcome, _ = h.run(t)
	require.Equal(t, "the invoice was stored", outcome)
	require.Zero(t, h.requests)
}

func TestFinalInvoiceEventClosesPeriodIfPossible(t *testing.T) {
	for closed, want := range map[int]string{
		0: "the invoice was stored; its period is not closed yet", 1: "the invoice was stored and its period closed",
	} {
		h := newHappening(t)
		h.invoice = func() (activities.ReadInvoiceResult, error) {
			return activities.ReadInvoiceResult{Cycle: true, Final: true}, nil
		}
		h.closed.Closed = closed
		outcome, _ := h.run(t)
		require.Equal(t, want, outcome)
		require.Zero(t, h.requests)
	}
}

func TestDraftInvoiceEventEndsWhenItsSyncEnds(t *testing.T) {
	for _, c := range []struct {
		end     activities.ReadSyncResult
		want    string
		indexed string
	}{
		{activities.ReadSyncResult{Status: metering.SyncSucceeded}, "the period's last usage was sent", "succeeded"},
		{activities.ReadSyncResult{Status: metering.SyncSucceeded, Excluded: 2}, "the period's last usage was sent; meters excluded: 2", "succeeded"},
		{activities.ReadSyncResult{Status: metering.SyncFailed, Error: "save another key"}, "the period's last usage was not sent: save another key", "failed"},
	} {
		h := newHappening(t)
		h.sync = func(ctx workflow.Context) error {
			if err := workflow.Sleep(ctx, 40*time.Minute); err != nil {
				return err
			}
			h.answer = c.end
			if c.end.Status == metering.SyncFailed {
				return errors.New("the run has failed too")
			}
			return nil
		}
		h.RegisterDelayedCallback(func() {
			require.Contains(t, detailsOf(t, h.TestWorkflowEnvironment), "The sync is requested. The run waits for its end until ")
			require.Empty(t, h.recorded)
		}, 39*time.Minute)
		outcome, took := h.run(t)
		require.Equal(t, c.want, outcome)
		require.Equal(t, 40*time.Minute, took, "it is told as soon as it is known")
		require.Equal(t, c.indexed, h.indexed)
		require.Equal(t, 1, h.requests)
	}
}

// TestEventOfCustomerWithOpenSyncRunWaitsForItsSync checks an event about a customer with an open run. The event's run
// signals the open run, and polls the row of the requested sync. The open run may end in between, so that both the
// start and the signal fail.
func TestEventOfCustomerWithOpenSyncRunWaitsForItsSync(t *testing.T) {
	for name, c := range map[string]struct {
		taken, deaf   int // number of starts that find an open run, and number of signals that fail
		runs, signals int
	}{"told": {1, 0, 0, 1}, "it has ended": {1, 1, 1, 1}, "another has begun each time": {3, 3, 0, 3}} {
		t.Run(name, func(t *testing.T) {
			h := newHappening(t)
			setInterceptors(h.TestWorkflowEnvironment, (&taken{c.taken}).intercept)
			runs, signals := 0, 0
			h.sync = func(ctx workflow.Context) error {
				runs++
				return workflow.Sleep(ctx, 20*time.Minute)
			}
			h.OnSignalExternalWorkflow(mock.Anything, workflows.SyncCustomerID(1, 2), "", "sync-requested", mock.Anything).Return(
				func(string, string, string, string, any) error {
					if signals++; signals <= c.deaf {
						return errors.New("no such run")
					}
					return nil
				})
			h.RegisterDelayedCallback(func() { h.answer.Status = metering.SyncSucceeded }, 8*time.Minute)
			outcome, took := h.run(t)
			require.Equal(t, "the period's last usage was sent", outcome)
			require.InDelta(t, 8*time.Minute, took, float64(5*time.Minute))
			require.Equal(t, [2]int{c.runs, c.signals}, [2]int{runs, signals})
		})
	}
}

func TestSubscriptionEventWaitsForItsSyncAtMostOneHour(t *testing.T) {
	h := newHappening(t)
	h.event.Invoice = false
	outcome, _ := h.run(t)
	require.Equal(t, "the customer was synced with its current subscription items", outcome)

	h = newHappening(t)
	h.event.Invoice = false
	h.sync = func(ctx workflow.Context) error { return workflow.Sleep(ctx, 100*time.Hour) }
	outcome, took := h.run(t)
	require.Equal(t, "the customer was not synced with its current subscription items in time; the sync continues", outcome)
	require.Equal(t, time.Hour, took)
	require.Equal(t, "failed", h.indexed)
	require.Less(t, h.looks, 30)
}

func TestInvoiceEventWaitsForSyncOnlyWhileInvoiceAcceptsUsage(t *testing.T) {
	looks := 0
	late := "the period's last usage was not sent in time; the sync continues"
	for name, c := range map[string]struct {
		invoice func(age time.Duration) (activities.ReadInvoiceResult, error)
		want    time.Duration
	}{
		"it is final after an hour": {func(age time.Duration) (activities.ReadInvoiceResult, error) {
			return activities.ReadInvoiceResult{Cycle: true, Final: age >= time.Hour}, nil
		}, time.Hour},
		"it is a draft for five hours": {func(age time.Duration) (activities.ReadInvoiceResult, error) {
			return activities.ReadInvoiceResult{Cycle: true, Final: age >= 5*time.Hour-time.Minute}, nil
		}, 5 * time.Hour},
		"it is a draft for ever": {func(time.Duration) (activities.ReadInvoiceResult, error) {
			return activities.ReadInvoiceResult{Cycle: true}, nil
		}, 73 * time.Hour},
		"nobody knows, because the provider is away": {func(age time.Duration) (activities.ReadInvoiceResult, error) {
			if age > time.Minute {
				return activities.ReadInvoiceResult{}, down()
			}
			return activities.ReadInvoiceResult{Cycle: true}, nil
		}, time.Hour},
		"it was known late": {func(time.Duration) (activities.ReadInvoiceResult, error) {
			looks++
			return activities.ReadInvoiceResult{Cycle: true, Final: looks > 1, CreatedAt: time.Unix(1, 0)}, nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHappening(t)
			drafted := h.Now()
			h.invoice = func() (activities.ReadInvoiceResult, error) {
				invoice, err := c.invoice(h.Now().Sub(drafted))
				if invoice.CreatedAt.IsZero() {
					invoice.CreatedAt = drafted
				}
				return invoice, err
			}
			h.sync = func(ctx workflow.Context) error { return workflow.Sleep(ctx, 1000*time.Hour) }
			outcome, took := h.run(t)
			require.Equal(t, late, outcome)
			require.InDelta(t, c.want, took, float64(6*time.Minute))
		})
	}
}

func TestEventRunReadsInvoiceAgainWhileKeyIsRefused(t *testing.T) {
	refused := activities.ReadInvoiceResult{Refused: "save another key"}
	reads := 0
	h := newHappening(t)
	h.invoice = func() (activities.ReadInvoiceResult, error) {
		if reads++; reads < 4 {
			return refused, nil
		}
		return activities.ReadInvoiceResult{Cycle: true, Final: true}, nil
	}
	outcome, took := h.run(t)
	require.Equal(t, "the invoice was stored; its period is not closed yet", outcome)
	require.Equal(t, 7*time.Minute, took)

	h = newHappening(t)
	h.invoice = func() (activities.ReadInvoiceResult, error) { return refused, nil }
	outcome, took = h.run(t)
	require.Equal(t, "the invoice was not read: save another key", outcome)
	require.InDelta(t, 72*time.Hour, took, float64(time.Hour))
}

func TestEventOutcomeShowsWhyProviderRefusedInvoiceRead(t *testing.T) {
	h := newHappening(t)
	h.invoice = func() (activities.ReadInvoiceResult, error) {
		return activities.ReadInvoiceResult{}, metering.Errorf(metering.CodeProviderRefuse, "save another key")
	}
	outcome, _ := h.run(t)
	require.Equal(t, "save another key", outcome)
}
