package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

var (
	holdReport    = uuid.MustParse("01900000-0000-7000-8000-000000000001")
	releaseReport = uuid.MustParse("01900000-0000-7000-8000-000000000002")
)

// heldInvoice is a held invoice. The grace period of its billing period ends after three days, and
// its deadline is two days later.
type heldInvoice struct {
	*testsuite.TestWorkflowEnvironment
	began, grace, deadline time.Time

	agrees            func(sync int) bool // result of the comparison, by the number of requested syncs
	asked             bool                // an operator has requested the release
	changedAtProvider bool                // the invoice was changed at the provider
	look              func() error
	sendErr           func() error
	synced            []time.Time
	looks             []time.Time
	sent              map[uuid.UUID][]time.Time
	outcomes          []string
	page              string // the customer's URL in the API
}

// newHeldInvoice returns a held invoice that agrees with the usage. The provider accepts every call.
func newHeldInvoice(t *testing.T) *heldInvoice {
	t.Helper()
	h := &heldInvoice{TestWorkflowEnvironment: newEnvironment(), sent: map[uuid.UUID][]time.Time{}}
	h.began = h.Now()
	h.grace, h.deadline = h.began.Add(72*time.Hour), h.began.Add(120*time.Hour)
	h.agrees = func(int) bool { return true }
	h.look, h.sendErr = func() error { return nil }, func() error { return nil }
	h.RegisterWorkflow(workflows.HoldInvoice)
	h.RegisterWorkflowWithOptions(func(_ workflow.Context, in workflows.SyncCustomerInput) (workflows.SyncCustomerResult, error) {
		require.Equal(t, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2}, in)
		return workflows.SyncCustomerResult{}, nil
	}, workflow.RegisterOptions{Name: "SyncCustomer"})
	h.RegisterActivity(do)
	recorded(h.TestWorkflowEnvironment)
	h.OnActivity(do.LookAtHold, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.HoldInput) (activities.LookAtHoldResult, error) {
		h.looks = append(h.looks, h.Now())
		if err := h.look(); err != nil {
			return activities.LookAtHoldResult{}, activities.Failure(err)
		}
		return h.now(h.requested(in)), nil
	})
	h.OnActivity(do.SendReport, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SendReportInput) (activities.SendReportResult, error) {
		if err := h.sendErr(); err != nil {
			return activities.SendReportResult{}, activities.Failure(err)
		}
		h.sent[in.ReportID] = append(h.sent[in.ReportID], h.Now())
		return activities.SendReportResult{State: billing.Accepted, Response: "ok"}, nil
	}).Maybe()
	h.OnActivity(do.RequestSyncOfHold, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.HoldInput) (activities.RequestSyncResult, error) {
		require.Equal(t, len(h.synced), h.requested(in))
		h.synced = append(h.synced, h.Now())
		return activities.RequestSyncResult{SyncID: syncOfHold(len(h.synced))}, nil
	}).Maybe()
	h.OnActivity(do.AskRelease, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AskReleaseInput) error {
		require.Equal(t, asks.Reason, in.Reason)
		h.asked = true
		return nil
	}).Maybe()
	h.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		outcome, _ := attributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword("OdometerOutcome"))
		h.outcomes = append(h.outcomes, outcome)
		return true
	})).Return(nil).Maybe()
	return h
}

// syncOfHold returns the ID of the n-th requested sync.
func syncOfHold(number int) uuid.UUID { return uuid.UUID{1, byte(number)} }

// requested returns the number of syncs that were requested before the input was created.
func (h *heldInvoice) requested(in activities.HoldInput) int {
	if in.SyncID == nil {
		return 0
	}
	return int(in.SyncID[1])
}

// now returns the result of a comparison of the invoice.
func (h *heldInvoice) now(sync int) activities.LookAtHoldResult {
	found := activities.LookAtHoldResult{CustomerID: 2, Page: h.page, Deadline: h.deadline, Found: []string{}, State: billing.Held}
	switch {
	case len(h.sent[releaseReport]) > 0:
		found.State = billing.HoldReleased
	case h.changedAtProvider:
		found.State = billing.HoldTheirs
	case len(h.sent[holdReport]) == 0:
		found.State, found.Send = billing.HoldPlanned, &holdReport
	case !h.Now().Before(h.deadline):
		found.State = billing.HoldExpired
	case h.asked:
		found.State, found.Send = billing.HoldReleasing, &releaseReport
	case h.Now().Before(h.grace):
		found.Until = &h.grace
	case sync == 0:
		found.Sync = true
	case h.agrees(sync):
		found.State, found.Send = billing.HoldReleasing, &releaseReport
	default:
		found.State, found.Found = billing.HoldDisagrees, []string{"mtr_7: the provider has accepted 2 units and has counted 1"}
	}
	return found
}

// run runs HoldInvoice to its end, and returns the final state of the hold and the duration.
func (h *heldInvoice) run(t *testing.T) (state billing.HoldState, took time.Duration) {
	t.Helper()
	h.ExecuteWorkflow(workflows.HoldInvoice, workflows.HoldInvoiceInput{TenantID: 1, HoldID: 7})
	require.True(t, h.IsWorkflowCompleted())
	require.NoError(t, h.GetWorkflowError())
	var result workflows.HoldInvoiceResult
	require.NoError(t, h.GetWorkflowResult(&result))
	return result.State, h.Now().Sub(h.began).Round(time.Minute)
}

func TestInvoiceIsHeldImmediatelyAndReleasedAfterGraceAndSync(t *testing.T) {
	h := newHeldInvoice(t)
	state, took := h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.Equal(t, 72*time.Hour, took)
	require.Len(t, h.sent[holdReport], 1)
	require.Less(t, h.sent[holdReport][0].Sub(h.began), time.Minute)
	require.Len(t, h.synced, 1)
	require.False(t, h.synced[0].Before(h.grace), "usage may come until then")
	require.Less(t, len(h.looks), 8, "nobody looks while the grace runs")
	require.Equal(t, []string{"succeeded"}, h.outcomes)
}

func TestDisagreeingInvoiceIsHeldUntilDeadlineOrOperatorRelease(t *testing.T) {
	h := newHeldInvoice(t)
	h.agrees = func(int) bool { return false }
	state, took := h.run(t)
	require.Equal(t, billing.HoldExpired, state)
	require.InDelta(t, 120, took.Hours(), 0.5)
	require.Less(t, len(h.looks), 130, "about two an hour")
	require.Contains(t, h.outcomes, "failed", "operators find it by its outcome")

	h = newHeldInvoice(t)
	h.agrees = func(int) bool { return false }
	h.RegisterDelayedCallback(func() {
		require.Equal(t, []string{"failed"}, h.outcomes)
		h.UpdateWorkflowNoRejection("release", "", t, asks)
	}, 100*time.Hour)
	state, took = h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.Equal(t, 100*time.Hour, took, "at once")
}

func TestHeldInvoiceIsReleasedOnceItAgrees(t *testing.T) {
	h := newHeldInvoice(t)
	h.agrees = func(int) bool { return h.Now().After(h.grace.Add(5 * time.Hour)) }
	state, took := h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.InDelta(t, 77, took.Hours(), 0.6)
	require.Len(t, h.synced, 1)
}

func TestReleaseOfHeldInvoiceRequiresReason(t *testing.T) {
	h := newHeldInvoice(t)
	refused := false
	h.RegisterDelayedCallback(func() {
		h.UpdateWorkflow("release", "", &updateAnswer{complete: func(_ any, err error) {
			require.ErrorContains(t, err, "reason must not be empty")
			refused = true
		}}, metering.Asked{By: "ada"})
	}, time.Hour)
	state, took := h.run(t)
	require.True(t, refused)
	require.Equal(t, billing.HoldReleased, state)
	require.Equal(t, 72*time.Hour, took, "only then")
}

// updateAnswer receives the result of an update.
type updateAnswer struct{ complete func(any, error) }

func (a *updateAnswer) Accept()                             {}
func (a *updateAnswer) Reject(err error)                    { a.complete(nil, err) }
func (a *updateAnswer) Complete(success any, failure error) { a.complete(success, failure) }

func TestSignalRechecksHeldInvoiceDuringGrace(t *testing.T) {
	h := newHeldInvoice(t)
	h.RegisterDelayedCallback(func() {
		h.changedAtProvider = true
		h.SignalWorkflow("hold-changed", nil)
	}, 10*time.Hour)
	state, took := h.run(t)
	require.Equal(t, billing.HoldTheirs, state)
	require.Equal(t, 10*time.Hour, took)
	require.Empty(t, h.sent[releaseReport])
}

func TestProviderOutageDelaysHoldAndReleaseOfInvoice(t *testing.T) {
	h := newHeldInvoice(t)
	down := metering.Errorf(metering.CodeProviderDown, "Stripe did not answer")
	outage := func(from, until time.Duration) func() error {
		return func() error {
			if now := h.Now().Sub(h.began); now >= from && now < until {
				return down
			}
			return nil
		}
	}
	h.sendErr = outage(0, 20*time.Minute)
	h.look = outage(71*time.Hour, 74*time.Hour)
	state, took := h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.InDelta(t, 74, took.Hours(), 0.2)
	require.Len(t, h.sent[holdReport], 1)
	require.Less(t, h.sent[holdReport][0].Sub(h.began), 26*time.Minute, "before the provider lets the invoice go")
}

// TestHoldInvoiceRetriesFailedFirstComparison checks that a run repeats its first comparison if that comparison
// fails, for example because the worker is killed. Until then, the run knows nothing about the invoice.
func TestHoldInvoiceRetriesFailedFirstComparison(t *testing.T) {
	h := newHeldInvoice(t)
	h.look = func() error {
		if len(h.looks) <= 3 {
			return metering.Errorf(metering.CodeProviderDown, "Stripe did not answer")
		}
		return nil
	}
	state, took := h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.Equal(t, 72*time.Hour, took)
	require.Equal(t, []string{"succeeded"}, h.outcomes)
}

// TestProviderRefusalKeepsInvoiceHeld checks that a run waits while the provider refuses its calls, and continues after
// an operator has fixed the cause.
func TestProviderRefusalKeepsInvoiceHeld(t *testing.T) {
	h := newHeldInvoice(t)
	h.look = func() error {
		if h.Now().Before(h.grace.Add(time.Hour)) && !h.Now().Before(h.grace) {
			return metering.Errorf(metering.CodeProviderRefuse, "Stripe rejected the API key; save another key with PUT /v1/billing/provider")
		}
		return nil
	}
	state, took := h.run(t)
	require.Equal(t, billing.HoldReleased, state)
	require.InDelta(t, 73, took.Hours(), 0.2)
}
