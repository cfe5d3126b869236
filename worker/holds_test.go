package worker_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

// holding returns a system with a tenant that holds draft invoices. The tenant's grace is 0.
func holding(t testing.TB) *stripeSystem {
	t.Helper()
	s := newStripe(t)
	s.meters("delta")
	on, grace := true, time.Duration(0)
	_, _, err := s.store.Tenants.Update(t.Context(), s.tenant, metering.Operator, db.TenantChange{Grace: &grace, InvoiceHold: &on})
	require.NoError(t, err)
	return s
}

// held returns the last hold.
func (s *stripeSystem) held() ledger.Hold {
	s.Helper()
	holds, err := dbtest.Items(s.store.Holds.List(s.Context(), s.tenant, ledger.HoldFilter{}, 1))
	require.NoError(s, err)
	require.NotEmpty(s, holds)
	return holds[0]
}

// awaitHold waits until the last hold is in the state, and returns the hold.
func (s *stripeSystem) awaitHold(state billing.HoldState) (h ledger.Hold) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		holds, err := dbtest.Items(s.store.Holds.List(s.Context(), s.tenant, ledger.HoldFilter{}, 1))
		if err != nil || len(holds) == 0 {
			return fmt.Errorf("no hold: %w", err)
		}
		if h = holds[0]; h.State != state {
			return fmt.Errorf("the invoice is %s: %+v", h.State, h.Reasons)
		}
		return nil
	})
	return h
}

// actions returns the accepted calls that changed an invoice, such as to hold or release it.
func (s *stripeSystem) actions() (calls []string) {
	for _, r := range s.writes() {
		if strings.HasPrefix(r.Path, "/v1/invoices/") && r.Status == http.StatusOK {
			calls = append(calls, strings.TrimPrefix(r.Path, "/v1/invoices/"))
		}
	}
	return calls
}

func TestHeldInvoiceIsReleasedOnceItsUsageIsCounted(t *testing.T) {
	t.Parallel()
	s := holding(t)
	s.work()
	invoice := s.drafted()
	require.Equal(t, "the period's last usage was sent; meters excluded: 1", s.happened("invoice.created", invoice, "cus_soon"))
	hold := s.awaitHold(billing.HoldReleased)
	require.NoError(t, s.awaitClosed(workflows.HoldInvoiceID(s.tenant, hold.ID)))
	require.Equal(t, []string{invoice, invoice + "/finalize"}, s.actions())
	require.Equal(t, "open", s.lastInvoice().Status)
	require.Equal(t, "6", s.lastInvoice().Total.String(), "20 at 0.3 cents")
	require.Equal(t, hold.Period.End.Add(48*time.Hour), hold.Deadline)
	require.Equal(t, billing.Accepted, hold.Hold.State)
	require.Equal(t, billing.Accepted, hold.Release.State)
	require.NotNil(t, hold.EndedAt)
	require.Empty(t, hold.Reasons)

	s.happens("invoice.finalized", invoice, "cus_soon")
	require.Len(t, s.actions(), 2, "nothing is left to do")
}

// TestHeldInvoiceLineIsSetToAllUsageBeforeRelease requires that the line of a held draft invoice is set to the amount
// of all usage before the release.
func TestHeldInvoiceLineIsSetToAllUsageBeforeRelease(t *testing.T) {
	t.Parallel()
	s := holding(t)
	s.price("delta", billing.Price{Terms: billing.Terms{OverageRate: metering.MustDecimal("0.05"), Currency: "USD"}})
	s.chargeAmounts()
	s.work()
	invoice := s.drafted()
	require.Equal(t, "the period's last usage was sent", s.happened("invoice.created", invoice, "cus_soon"))
	hold := s.awaitHold(billing.HoldReleased)
	require.NoError(t, s.awaitClosed(workflows.HoldInvoiceID(s.tenant, hold.ID)))
	require.Equal(t, []string{invoice, invoice + "/finalize"}, s.actions())
	require.Equal(t, "99", s.lastInvoice().Total.String(), "19.75 at 5 cents")
	require.Equal(t, "0", s.pending("cus_soon"))
}

// chargeAmounts changes the tenant to billing in amounts, from the first period on.
func (s *stripeSystem) chargeAmounts() {
	s.Helper()
	require.NoError(s, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_canary", Key: stripeKey}, Products: []stripetest.Product{{ID: "prod_usage"}},
	}))
	active, err := s.store.Providers.Active(s.Context(), s.tenant)
	require.NoError(s, err)
	active.Bills, active.Text, active.ValidatedAt = metering.BillsAmounts, metering.InvoiceText{Product: "prod_usage"}, time.Now().AddDate(0, 0, -62)
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, active)
	require.NoError(s, err)
}

// disagreeing returns a hold of an invoice that disagrees, because the meter's price at Stripe differs from its
// price in Odometer. It also returns a function that stops the worker.
func disagreeing(t *testing.T) (s *stripeSystem, stop func(), hold ledger.Hold) {
	t.Helper()
	s = holding(t)
	s.price("delta", billing.Price{Terms: billing.Terms{OverageRate: metering.MustDecimal("0.05"), Currency: "USD"}})
	stop = s.work()
	invoice := s.drafted()
	require.Contains(t, s.happened("invoice.created", invoice, "cus_soon"), "the period's last usage was sent")
	return s, stop, s.awaitHold(billing.HoldDisagrees)
}

// release asks the run of the hold to release the invoice. On a busy machine, the answer can arrive too late. The
// run releases the invoice nevertheless.
func (s *stripeSystem) release(hold ledger.Hold) {
	s.Helper()
	err := workflows.ReleaseHeldInvoice(s.Context(), s.temporal, s.tenant, hold.CustomerID, hold.ID, asks)
	if metering.CodeOf(err) != metering.CodeUnavailable {
		require.NoError(s, err)
	}
}

func TestAnInvoiceThatDisagreesIsHeldUntilAnOperatorReleasesIt(t *testing.T) {
	t.Parallel()
	s, _, hold := disagreeing(t)
	run := workflows.HoldInvoiceID(s.tenant, hold.ID)
	s.awaitDetails(run, "| state | **disagrees** |")
	s.awaitDetails(run, "the provider charges 0.003 per unit, which is not the meter's price in Odometer")
	s.awaitDetails(run, "an operator releases the invoice and gives a reason, or the invoice becomes final at its deadline")
	require.ErrorContains(t, s.update(run, "release", map[string]any{"by": "ada"}), "reason must not be empty")
	require.NoError(t, s.update(run, "retry-now"))
	require.Equal(t, []string{hold.InvoiceID}, s.actions(), "it is not released by looking at it again")
	require.Equal(t, "draft", s.lastInvoice().Status)

	asked, err := s.store.Holds.AskRelease(t.Context(), s.tenant, "key_7", hold.ID, "agreed with the customer", time.Now())
	require.NoError(t, err)
	require.Equal(t, billing.HoldDisagrees, asked.State)
	s.release(hold)
	released := s.awaitHold(billing.HoldReleased)
	require.NoError(t, s.awaitClosed(run))
	require.Equal(t, metering.Actor("key_7"), released.Actor)
	require.Equal(t, []string{hold.InvoiceID, hold.InvoiceID + "/finalize"}, s.actions())
	require.Equal(t, "6", s.lastInvoice().Total.String(), "20 at 0.3 cents")
	require.Equal(t, []string{"operator run.release " + run, "key_7 hold.release " + hold.ID.String()}, s.lastAudits(2), "who asked the API, and what the run was asked")

	_, err = s.store.Holds.AskRelease(t.Context(), s.tenant, "key_7", hold.ID, "again", time.Now())
	require.ErrorContains(t, err, "the hold is released; only a hold that still keeps its invoice a draft can be released")
}

func TestHeldDraftChangedAtStripeIsNotReleased(t *testing.T) {
	t.Parallel()
	s, _, hold := disagreeing(t)
	run := workflows.HoldInvoiceID(s.tenant, hold.ID)
	s.human("/v1/invoices/"+hold.InvoiceID, "metadata[agreed]", "yes")
	_, err := s.store.Holds.AskRelease(t.Context(), s.tenant, "key_7", hold.ID, "too late", time.Now())
	require.NoError(t, err)
	s.release(hold)
	theirs := s.awaitHold(billing.HoldTheirs)
	require.NoError(t, s.awaitClosed(run))
	require.Equal(t, []billing.HoldReason{{Code: billing.HoldChanged}}, theirs.Reasons)
	require.Equal(t, "draft", s.lastInvoice().Status)
	s.fake.Advance(49 * time.Hour)
	require.Equal(t, "open", s.lastInvoice().Status, "Stripe lets it go")
	require.Equal(t, []string{hold.InvoiceID, hold.InvoiceID}, s.actions(), "the hold, and what the human did")
}

// human changes an object at Stripe, as people do in Stripe's dashboard.
func (s *stripeSystem) human(path string, fields ...string) {
	s.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.stripeBase+path, strings.NewReader(form.Encode()))
	require.NoError(s, err)
	request.Header.Set("Authorization", "Bearer "+stripeKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(s, err)
	defer answer.Body.Close()
	require.Equal(s, http.StatusOK, answer.StatusCode)
}

func TestDraftWithoutAutoAdvanceIsRecordedAndNotChanged(t *testing.T) {
	t.Parallel()
	s := holding(t)
	s.work()
	invoice := s.drafted()
	s.human("/v1/invoices/"+invoice, "auto_advance", "false")
	require.Contains(t, s.happened("invoice.created", invoice, "cus_soon"), "the period's last usage was sent")
	hold := s.held()
	require.Equal(t, billing.HoldTheirs, hold.State)
	require.Equal(t, []billing.HoldReason{{Code: billing.HoldNotAutomatic}}, hold.Reasons)
	require.NotNil(t, hold.EndedAt)
	require.Len(t, s.actions(), 1, "what the human did")
}

func TestInvoiceIsFinalizedOnScheduleIfStripeRefusesHold(t *testing.T) {
	t.Parallel()
	s := holding(t)
	s.work()
	invoice := s.drafted()
	s.older.Store(true)
	require.Contains(t, s.happened("invoice.created", invoice, "cus_soon"), "the period's last usage was sent")
	hold := s.awaitHold(billing.HoldRefused)
	require.Equal(t, []billing.HoldReason{{Code: billing.HoldNotTaken, Response: "Stripe refused the request: 400 parameter_unknown. Its request log shows the reason"}}, hold.Reasons)
	require.NoError(t, s.awaitClosed(workflows.HoldInvoiceID(s.tenant, hold.ID)))
	require.Empty(t, s.actions())
	s.fake.Advance(time.Hour)
	require.Equal(t, "open", s.lastInvoice().Status)
	require.Equal(t, "6", s.lastInvoice().Total.String())
}

// TestHeldInvoiceIsFinalizedAtDeadlineWithoutWorker runs no worker from the hold until days after the deadline.
// Stripe finalizes the invoice, and the next worker marks the hold as expired.
func TestHeldInvoiceIsFinalizedAtDeadlineWithoutWorker(t *testing.T) {
	t.Parallel()
	s, stop, hold := disagreeing(t)
	stop()
	s.fake.Advance(time.Until(hold.Deadline) - time.Hour)
	require.Equal(t, "draft", s.lastInvoice().Status)
	s.fake.Advance(4 * 24 * time.Hour)
	require.Equal(t, "open", s.lastInvoice().Status)
	require.Equal(t, billing.HoldDisagrees, s.held().State, "nobody has seen it")

	s.work()
	run := workflows.HoldInvoiceID(s.tenant, hold.ID)
	require.NoError(t, s.update(run, "retry-now"))
	left := s.awaitHold(billing.HoldExpired)
	require.NoError(t, s.awaitClosed(run))
	require.Equal(t, []billing.HoldReason{{Code: billing.HoldDeadlinePassed}}, left.Reasons)
	require.Equal(t, []string{hold.InvoiceID}, s.actions(), "Stripe has finalized it")
	require.Equal(t, "6", s.lastInvoice().Total.String(), "20 at 0.3 cents")
}

// TestHistoriesOfHolds checks the histories of the runs of held invoices.
func TestHistoriesOfHolds(t *testing.T) {
	t.Parallel()
	s, _, hold := disagreeing(t)
	run := workflows.HoldInvoiceID(s.tenant, hold.ID)
	require.NoError(t, s.update(run, "release"), "as the Temporal UI does")
	s.awaitHold(billing.HoldReleased)
	require.NoError(t, s.awaitClosed(run))
	created := workflows.HandleProviderEventID(s.tenant, 1)
	keepHistories(t, map[string]*historypb.History{
		"hold_invoice_released_by_an_operator": s.history(run), "handle_provider_event_invoice_held": s.history(created),
	})
}
