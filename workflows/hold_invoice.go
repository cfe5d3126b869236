package workflows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

const (
	// releaseUpdate has the run release the invoice, whatever was found.
	releaseUpdate = "release"
	// holdChanged tells a HoldInvoice run that something has changed.
	holdChanged = "hold-changed"
)

// HoldInvoiceInput names the hold, and how far earlier parts of the run have come.
type HoldInvoiceInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	HoldID   metering.HoldID   `json:"hold_id"`
	SyncID   *uuid.UUID        `json:"sync_id,omitempty"` // that was requested last; nil: none was
}

// HoldInvoiceResult is how the invoice became final, or why it was left alone.
type HoldInvoiceResult struct {
	State billing.HoldState `json:"state"`
}

// HoldInvoice keeps a draft invoice from becoming final until its period takes
// no more usage, all of that is reported and counted, and what is on the invoice
// agrees. Then it has it become final. What disagrees waits for an operator, or
// for the deadline, which the provider keeps: nobody has to be alive for that.
//
// Each look finds out anew how things stand and writes down what is to be done
// before it is done, so that a run may end anywhere and another goes on.
func HoldInvoice(ctx workflow.Context, in HoldInvoiceInput) (HoldInvoiceResult, error) {
	h := holdInvoice{HoldInvoiceInput: in, changed: workflow.GetSignalChannel(ctx, holdChanged), outcome: running}
	if err := h.heed(ctx); err != nil {
		return HoldInvoiceResult{}, err
	}
	for pause := time.Second; ; pause = min(2*pause, h.longestPause()) {
		if err := h.step(ctx); err != nil {
			return HoldInvoiceResult{}, err
		}
		if h.found.State.Ended() {
			return h.finish(ctx)
		}
		if h.moved {
			pause = time.Second
		}
		asked, err := h.wait(ctx, pause)
		if err != nil {
			return HoldInvoiceResult{}, err
		}
		if asked {
			pause = time.Second / 2
		}
		if longHistory(ctx) && workflow.AllHandlersFinished(ctx) {
			return HoldInvoiceResult{}, workflow.NewContinueAsNewError(ctx, HoldInvoice, h.HoldInvoiceInput)
		}
	}
}

type holdInvoice struct {
	HoldInvoiceInput
	changed workflow.ReceiveChannel
	asked   bool // by an operator, for another look
	moved   bool // the last step has done something
	found   activities.LookAtHoldResult
	failure string          // of the last step; it is tried again
	outcome string          // as a search attribute
	syncing workflow.Future // the run that takes the sync that was asked for; nil: it is not a child of this one
}

// heed lets operators have the invoice released, whatever was found, and have
// it looked at again.
func (h *holdInvoice) heed(ctx workflow.Context) error {
	return errors.Join(
		listen(ctx, retryNowUpdate, func(ctx workflow.Context, in metering.Asked) error {
			h.asked = true
			return record(ctx, h.TenantID, retryNowUpdate, in, 0)
		}),
		listen(ctx, releaseUpdate, func(ctx workflow.Context, in metering.Asked) error {
			if err := record(ctx, h.TenantID, releaseUpdate, in, 0); err != nil {
				return err
			}
			err := workflow.ExecuteActivity(storing(ctx, "record the release"), do.AskRelease,
				activities.AskReleaseInput{HoldInput: h.input(), Reason: in.Reason}).Get(ctx, nil)
			h.asked = true
			return forOperators(err)
		}),
	)
}

func (h *holdInvoice) input() activities.HoldInput {
	return activities.HoldInput{TenantID: h.TenantID, HoldID: h.HoldID, SyncID: h.SyncID}
}

// step looks at the invoice and does what is to be done. What fails is tried
// again, with another look.
func (h *holdInvoice) step(ctx workflow.Context) error {
	drain(h.changed)
	h.asked, h.moved = false, false
	var found activities.LookAtHoldResult
	err := workflow.ExecuteActivity(looking(ctx, "compare the invoice"), do.LookAtHold, h.input()).Get(ctx, &found)
	if err == nil {
		h.found = found
	}
	switch {
	case err != nil:
	case found.Send != nil:
		err = h.send(ctx, *found.Send)
	case found.Sync:
		err = h.sync(ctx)
	}
	if temporal.IsCanceledError(err) {
		return err
	}
	h.failure = ""
	if err != nil {
		_, message, _ := failureOf(err)
		h.failure = cmp.Or(message, "the attempt failed and is retried")
	}
	h.show(ctx)
	return h.index(ctx)
}

// send has the report sent once: before it is sent again the invoice is looked
// at, because somebody may have changed it.
func (h *holdInvoice) send(ctx workflow.Context, report uuid.UUID) error {
	summary := "hold the invoice"
	if h.found.State != billing.HoldPlanned {
		summary = "release the invoice"
	}
	var sent activities.SendReportResult
	err := workflow.ExecuteActivity(looking(ctx, summary), do.SendReport, activities.SendReportInput{TenantID: h.TenantID, ReportID: report}).Get(ctx, &sent)
	h.moved = err == nil && sent.State == billing.Accepted
	return err
}

// sync has the customer synced by its own run. What came of it the next looks see.
func (h *holdInvoice) sync(ctx workflow.Context) error {
	var requested activities.RequestSyncResult
	if err := workflow.ExecuteActivity(storing(ctx, "request a sync"), do.RequestSyncOfHold, h.input()).Get(ctx, &requested); err != nil {
		return err
	}
	h.SyncID = &requested.SyncID
	run, err := syncCustomerStart(h.TenantID, h.found.CustomerID, metering.ByProvider).childOrSignal(ctx)
	h.syncing, h.moved = run, true
	return err
}

// longestHeldPause is the longest pause between two looks at an invoice that
// disagrees; what has to be done in time is looked at more often.
const longestHeldPause = 30 * time.Minute

func (h *holdInvoice) longestPause() time.Duration {
	if h.found.State == billing.HoldDisagrees {
		return longestHeldPause
	}
	return longestLook
}

// wait waits for the next look.
func (h *holdInvoice) wait(ctx workflow.Context, pause time.Duration) (asked bool, err error) {
	if h.found.Until != nil && h.failure == "" {
		pause = max(time.Second, h.found.Until.Sub(workflow.Now(ctx)))
	}
	asked, err = workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      pause,
		TimerOptions: workflow.TimerOptions{Summary: "wait until the next comparison"},
	}, func() bool { return h.asked || h.changed.Len() > 0 || h.syncing != nil && h.syncing.IsReady() })
	if h.syncing != nil && h.syncing.IsReady() {
		h.syncing = nil
	}
	return asked, err
}

// finish ends the run once everybody who asked for something is answered.
func (h *holdInvoice) finish(ctx workflow.Context) (HoldInvoiceResult, error) {
	return HoldInvoiceResult{h.found.State}, answered(ctx, nil)
}

// nexts is what happens next in each state, for the operators' eyes.
var nexts = map[billing.HoldState]string{
	billing.HoldPlanned:   "the run asks the provider to keep the invoice a draft until the deadline",
	billing.Held:          "the run compares the reported usage, the counted usage and the invoice",
	billing.HoldDisagrees: "an operator releases the invoice and gives a reason, or the invoice becomes final at its deadline",
	billing.HoldReleasing: "the run asks the provider to finalize the invoice",
}

// show keeps what was found before the operators' eyes.
func (h *holdInvoice) show(ctx workflow.Context) {
	text := []string{fmt.Sprintf("| field | value |\n|---|---|\n| customer | %s |\n| state | **%s** |\n| deadline | %s |",
		linked(h.found.CustomerID, h.found.Page), h.found.State, h.found.Deadline.UTC().Format(time.RFC3339))}
	add := func(what, state string) {
		if state != "" {
			text = append(text, fmt.Sprintf("| %s | %s |", what, state))
		}
	}
	for _, reason := range h.found.Found {
		add("found", reason)
	}
	add("next", nexts[h.found.State])
	if h.found.Until != nil && !h.found.State.Ended() {
		add("not before", h.found.Until.UTC().Format(time.RFC3339))
	}
	add("last attempt", h.failure)
	if h.found.State == billing.HoldDisagrees {
		add("to release it", "POST /v1/billing/holds/"+h.HoldID.String()+"/release")
	}
	workflow.SetCurrentDetails(ctx, strings.Join(text, "\n")+"\n")
}

// index lets operators find the invoices that disagree.
func (h *holdInvoice) index(ctx workflow.Context) error {
	outcome := running
	switch {
	case h.found.State == billing.HoldDisagrees:
		outcome = failed
	case h.found.State.Ended():
		outcome = succeeded
	}
	if outcome == h.outcome {
		return nil
	}
	h.outcome = outcome
	return workflow.UpsertTypedSearchAttributes(ctx, outcomeAttribute.ValueSet(outcome))
}

// HoldInvoiceID is the workflow id of a held invoice: a hold is one connection's
// of one invoice.
func HoldInvoiceID(tenant metering.TenantID, hold metering.HoldID) string {
	return fmt.Sprintf("hold-invoice/%d/%d", tenant, hold)
}

func holdInvoiceStart(tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID) start {
	return start{
		workflow: HoldInvoice,
		input:    HoldInvoiceInput{TenantID: tenant, HoldID: hold},
		id:       HoldInvoiceID(tenant, hold),
		summary:  fmt.Sprintf("Hold an invoice of %s until it matches the reported usage", customer),
		details: "Keeps an invoice a draft until the usage of its period is reported, counted and equal to the invoice, and then releases it. " +
			"An invoice that differs waits for POST /v1/billing/holds/" + hold.String() + "/release; without it, the provider finalizes the invoice at the deadline. " +
			"The update retry-now compares it at once. If the run is cancelled, the worker starts another one. " + inAPI(customer),
		tenant: tenant,
		attributes: []temporal.SearchAttributeUpdate{
			customerAttribute.ValueSet(customer.String()), triggerAttribute.ValueSet(string(metering.ByProvider)), outcomeAttribute.ValueSet(running),
		},
		priority: interactive,
		signal:   holdChanged,
	}
}

// RestartHoldInvoice makes sure that a run looks after a customer's held invoice. It leaves
// a run that is open alone.
func RestartHoldInvoice(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID) error {
	s := holdInvoiceStart(tenant, customer, hold)
	s.signal = ""
	return s.by(ctx, c)
}

// ReleaseHeldInvoice has the invoice's run release it, as was written down
// before by whom the API knows. CodeUnavailable when nobody answers: it happens all the same.
func ReleaseHeldInvoice(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID, by metering.Asked) error {
	if err := RestartHoldInvoice(ctx, c, tenant, customer, hold); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return askRun(ctx, c, HoldInvoiceID(tenant, hold), releaseUpdate, by)
}
