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
	// releaseUpdate is the update with which an operator releases the invoice, even if it does not match the usage.
	releaseUpdate = "release"
	// holdChanged signals a HoldInvoice run that the provider sent an event about its invoice.
	holdChanged = "hold-changed"
)

// HoldInvoiceInput names the hold, and contains the state that a previous run passes on.
type HoldInvoiceInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	HoldID   metering.HoldID   `json:"hold_id"`
	SyncID   *uuid.UUID        `json:"sync_id,omitempty"` // last sync that the workflow requested; nil: none
}

// HoldInvoiceResult contains the final state of the hold.
type HoldInvoiceResult struct {
	State billing.HoldState `json:"state"`
}

// HoldInvoice keeps an invoice a draft until three conditions hold: its period accepts no more
// usage, all usage of the period is reported and counted, and the invoice matches the usage. Then
// it releases the invoice. An invoice that differs waits for an operator or for the deadline. The
// provider finalizes the invoice at the deadline, even if no worker is running.
//
// Each step reads the current state again, and stores its decision before it acts. A run may
// therefore end at any point, and another run continues.
func HoldInvoice(ctx workflow.Context, in HoldInvoiceInput) (HoldInvoiceResult, error) {
	h := holdInvoice{HoldInvoiceInput: in, changed: workflow.GetSignalChannel(ctx, holdChanged), outcome: running}
	if err := h.registerUpdateHandlers(ctx); err != nil {
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
		interrupted, err := h.wait(ctx, pause)
		if err != nil {
			return HoldInvoiceResult{}, err
		}
		if interrupted {
			pause = time.Second / 2
		}
		if longHistory(ctx) && workflow.AllHandlersFinished(ctx) {
			return HoldInvoiceResult{}, workflow.NewContinueAsNewError(ctx, HoldInvoice, h.HoldInvoiceInput)
		}
	}
}

// holdInvoice is the state of a HoldInvoice run.
type holdInvoice struct {
	HoldInvoiceInput
	changed workflow.ReceiveChannel
	asked   bool // an operator requested another comparison
	moved   bool // the provider accepted the report of the last step, or the step requested a sync
	found   activities.LookAtHoldResult
	failure string          // error of the last step, which is retried
	outcome string          // last value of the search attribute
	syncing workflow.Future // child run that performs the requested sync; nil: no child run performs it
}

// registerUpdateHandlers registers the handlers of the updates retry-now and release.
func (h *holdInvoice) registerUpdateHandlers(ctx workflow.Context) error {
	return errors.Join(
		registerUpdate(ctx, retryNowUpdate, func(ctx workflow.Context, in metering.Asked) error {
			h.asked = true
			return recordUpdate(ctx, h.TenantID, retryNowUpdate, in, 0)
		}),
		registerUpdate(ctx, releaseUpdate, func(ctx workflow.Context, in metering.Asked) error {
			if err := recordUpdate(ctx, h.TenantID, releaseUpdate, in, 0); err != nil {
				return err
			}
			err := workflow.ExecuteActivity(shortStep(ctx, "record the release"), do.AskRelease,
				activities.AskReleaseInput{HoldInput: h.input(), Reason: in.Reason}).Get(ctx, nil)
			h.asked = true
			return asRunFailure(err)
		}),
	)
}

// input returns the input of activities about the hold.
func (h *holdInvoice) input() activities.HoldInput {
	return activities.HoldInput{TenantID: h.TenantID, HoldID: h.HoldID, SyncID: h.SyncID}
}

// step compares the invoice and acts on the decision. A failure is shown to operators; the next
// step compares the invoice again.
func (h *holdInvoice) step(ctx workflow.Context) error {
	drain(h.changed)
	h.asked, h.moved = false, false
	var found activities.LookAtHoldResult
	err := workflow.ExecuteActivity(providerCall(ctx, "compare the invoice"), do.LookAtHold, h.input()).Get(ctx, &found)
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
	return h.updateOutcomeAttribute(ctx)
}

// send makes one attempt to send the report. Another attempt needs another comparison, because the
// invoice may have been changed at the provider in the meantime.
func (h *holdInvoice) send(ctx workflow.Context, report uuid.UUID) error {
	summary := "hold the invoice"
	if h.found.State != billing.HoldPlanned {
		summary = "release the invoice"
	}
	var sent activities.SendReportResult
	err := workflow.ExecuteActivity(providerCall(ctx, summary), do.SendReport, activities.SendReportInput{TenantID: h.TenantID, ReportID: report}).Get(ctx, &sent)
	h.moved = err == nil && sent.State == billing.Accepted
	return err
}

// sync requests a sync of the customer, which has a run of its own. The next comparisons read its
// result.
func (h *holdInvoice) sync(ctx workflow.Context) error {
	var requested activities.RequestSyncResult
	if err := workflow.ExecuteActivity(shortStep(ctx, "request a sync"), do.RequestSyncOfHold, h.input()).Get(ctx, &requested); err != nil {
		return err
	}
	h.SyncID = &requested.SyncID
	run, err := syncCustomerStart(h.TenantID, h.found.CustomerID, metering.ByProvider).startChildOrSignal(ctx)
	h.syncing, h.moved = run, true
	return err
}

// longestHeldPause is the longest pause between two comparisons of an invoice that differs from the usage. For other
// invoices, longestPollPause applies. If the last comparison returned Until, the run waits until that time instead.
const longestHeldPause = 30 * time.Minute

// longestPause returns the longest pause before the next comparison.
func (h *holdInvoice) longestPause() time.Duration {
	if h.found.State == billing.HoldDisagrees {
		return longestHeldPause
	}
	return longestPollPause
}

// wait waits for the next comparison. interrupted reports whether an update, a signal or the end of the
// sync ended the pause early.
func (h *holdInvoice) wait(ctx workflow.Context, pause time.Duration) (interrupted bool, err error) {
	if h.found.Until != nil && h.failure == "" {
		pause = max(time.Second, h.found.Until.Sub(workflow.Now(ctx)))
	}
	interrupted, err = workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      pause,
		TimerOptions: workflow.TimerOptions{Summary: "wait until the next comparison"},
	}, func() bool { return h.asked || h.changed.Len() > 0 || h.syncing != nil && h.syncing.IsReady() })
	if h.syncing != nil && h.syncing.IsReady() {
		h.syncing = nil
	}
	return interrupted, err
}

// finish ends the run after all update handlers have finished.
func (h *holdInvoice) finish(ctx workflow.Context) (HoldInvoiceResult, error) {
	return HoldInvoiceResult{h.found.State}, awaitUpdateHandlers(ctx, nil)
}

// nextSteps describes the next step of each state for operators.
var nextSteps = map[billing.HoldState]string{
	billing.HoldPlanned:   "the run asks the provider to keep the invoice a draft until the deadline",
	billing.Held:          "the run compares the reported usage, the counted usage and the invoice",
	billing.HoldDisagrees: "an operator releases the invoice and gives a reason, or the invoice becomes final at its deadline",
	billing.HoldReleasing: "the run asks the provider to finalize the invoice",
}

// show shows operators the result of the last comparison.
func (h *holdInvoice) show(ctx workflow.Context) {
	text := []string{fmt.Sprintf("| field | value |\n|---|---|\n| customer | %s |\n| state | **%s** |\n| deadline | %s |",
		customerLink(h.found.CustomerID, h.found.Page), h.found.State, h.found.Deadline.UTC().Format(time.RFC3339))}
	add := func(what, state string) {
		if state != "" {
			text = append(text, fmt.Sprintf("| %s | %s |", what, state))
		}
	}
	for _, reason := range h.found.Found {
		add("found", reason)
	}
	add("next", nextSteps[h.found.State])
	if h.found.Until != nil && !h.found.State.Ended() {
		add("not before", h.found.Until.UTC().Format(time.RFC3339))
	}
	add("last attempt", h.failure)
	if h.found.State == billing.HoldDisagrees {
		add("to release it", "POST /v1/billing/holds/"+h.HoldID.String()+"/release")
	}
	workflow.SetCurrentDetails(ctx, strings.Join(text, "\n")+"\n")
}

// updateOutcomeAttribute updates the search attribute by which operators find invoices that differ from the usage.
func (h *holdInvoice) updateOutcomeAttribute(ctx workflow.Context) error {
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

// HoldInvoiceID returns the workflow ID of a hold. A hold belongs to one connection and one
// invoice.
func HoldInvoiceID(tenant metering.TenantID, hold metering.HoldID) string {
	return fmt.Sprintf("hold-invoice/%d/%d", tenant, hold)
}

// holdInvoiceStart returns the start of a held invoice's run.
func holdInvoiceStart(tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID) start {
	return start{
		workflow: HoldInvoice,
		input:    HoldInvoiceInput{TenantID: tenant, HoldID: hold},
		id:       HoldInvoiceID(tenant, hold),
		summary:  fmt.Sprintf("Hold an invoice of %s until it matches the reported usage", customer),
		details: "Keeps an invoice a draft until the usage of its period is reported, counted and equal to the invoice, and then releases it. " +
			"An invoice that differs waits for POST /v1/billing/holds/" + hold.String() + "/release; without it, the provider finalizes the invoice at the deadline. " +
			"The update retry-now compares it at once. If the run is canceled, the worker starts another one. " + customerRequestText(customer),
		tenant: tenant,
		attributes: []temporal.SearchAttributeUpdate{
			customerAttribute.ValueSet(customer.String()), triggerAttribute.ValueSet(string(metering.ByProvider)), outcomeAttribute.ValueSet(running),
		},
		priority: interactive,
		signal:   holdChanged,
	}
}

// RestartHoldInvoice starts a run for a customer's held invoice, unless one is open.
func RestartHoldInvoice(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID) error {
	s := holdInvoiceStart(tenant, customer, hold)
	s.signal = ""
	return s.startOrJoin(ctx, c)
}

// ReleaseHeldInvoice sends the release to the invoice's run, and starts the run if none is open. The caller stores the
// release first. ReleaseHeldInvoice returns CodeConflict if the run has ended, and CodeUnavailable if Temporal or the
// worker does not answer. If it returns CodeUnavailable, the invoice is released later.
func ReleaseHeldInvoice(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, hold metering.HoldID, by metering.Asked) error {
	if err := RestartHoldInvoice(ctx, c, tenant, customer, hold); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return sendUpdate(ctx, c, HoldInvoiceID(tenant, hold), releaseUpdate, by)
}
