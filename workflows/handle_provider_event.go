package workflows

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// HandleProviderEventInput names the event's row.
type HandleProviderEventInput struct {
	TenantID metering.TenantID        `json:"tenant_id"`
	RowID    metering.ProviderEventID `json:"row_id"`
}

// HandleProviderEventResult is what came of it.
type HandleProviderEventResult struct {
	Outcome string `json:"outcome"`
}

// HandleProviderEvent acts on what a billing provider told us of. It looks at
// how things stand now, not at how they stood when the event was made: events
// come more than once and in any order.
func HandleProviderEvent(ctx workflow.Context, in HandleProviderEventInput) (HandleProviderEventResult, error) {
	h := handleProviderEvent{in: in, row: activities.ProviderEventInput{TenantID: in.TenantID, RowID: in.RowID}}
	outcome, err := h.run(ctx)
	if _, message, refused := failureOf(err); refused {
		outcome, err = message, nil
	}
	if err != nil {
		return HandleProviderEventResult{}, err
	}
	err = workflow.ExecuteActivity(storing(ctx, "record the outcome"), do.FinishEvent,
		activities.FinishEventInput{ProviderEventInput: h.row, Outcome: outcome}).Get(ctx, nil)
	return HandleProviderEventResult{outcome}, err
}

type handleProviderEvent struct {
	in    HandleProviderEventInput
	row   activities.ProviderEventInput
	event activities.ReadEventResult

	requested activities.RequestSyncResult
}

func (h *handleProviderEvent) run(ctx workflow.Context) (outcome string, err error) {
	err = workflow.ExecuteActivity(storing(ctx, "read the event"), do.ReadEvent, h.row).Get(ctx, &h.event)
	if err != nil {
		return "", err
	}
	if h.event.CustomerID == 0 {
		return "the event concerns no customer in Odometer", nil
	}
	h.show(ctx)
	if !h.event.Invoice {
		return h.sync(ctx, workflow.Now(ctx), "the customer was synced with its current subscription items",
			"the customer was not synced with its current subscription items")
	}
	var invoice activities.ReadInvoiceResult
	err = workflow.ExecuteActivity(calling(ctx, workflow.Now(ctx).Add(readingLimit), "read the invoice"), do.ReadInvoice, h.row).Get(ctx, &invoice)
	if err == nil && invoice.Hold != 0 {
		_, err = holdInvoiceStart(h.in.TenantID, h.event.CustomerID, invoice.Hold).childOrSignal(ctx)
	}
	switch {
	case err != nil:
		return "", err
	case !invoice.Cycle && !invoice.Final:
		return "the invoice was stored", nil
	case !invoice.Final:
		return h.sync(ctx, invoice.CreatedAt, "the period's last usage was sent", "the period's last usage was not sent")
	}
	var closed activities.CloseBatchResult
	err = workflow.ExecuteActivity(storing(ctx, "close the period"), do.CloseBatch,
		activities.BatchInput{TenantID: h.in.TenantID, Customers: []metering.CustomerID{h.event.CustomerID}}).Get(ctx, &closed)
	switch {
	case !invoice.Cycle && closed.Closed == 0:
		return "the invoice was stored", err
	case closed.Closed == 0:
		return "the invoice was stored; its period is not closed yet", err
	}
	return "the invoice was stored and its period closed", err
}

// sync makes sure that a pass over the customer begins after now, and says what
// came of it: whether it was done or undone, and why.
func (h *handleProviderEvent) sync(ctx workflow.Context, since time.Time, done, undone string) (outcome string, err error) {
	if err := workflow.ExecuteActivity(storing(ctx, "request a sync"), do.RequestSync, h.row).Get(ctx, &h.requested); err != nil {
		return "", err
	}
	run, err := syncCustomerStart(h.in.TenantID, h.event.CustomerID, metering.ByProvider).childOrSignal(ctx)
	if err != nil {
		return "", err
	}
	sync, err := h.awaitSync(ctx, since, run)
	if err != nil {
		return "", err
	}
	switch sync.Status {
	case metering.SyncFailed:
		outcome = undone + ": " + sync.Error
	case metering.SyncSucceeded:
		outcome = done
	default:
		outcome = undone + " in time; the sync continues"
	}
	if sync.Excluded > 0 {
		outcome += fmt.Sprintf("; meters excluded: %d", sync.Excluded)
	}
	found := failed
	if sync.Status == metering.SyncSucceeded {
		found = succeeded
	}
	return outcome, workflow.UpsertTypedSearchAttributes(ctx, outcomeAttribute.ValueSet(found))
}

const (
	// finalization is how long a provider leaves an invoice a draft, unless told otherwise.
	finalization = time.Hour
	// longestLook is the longest pause between two looks at a sync.
	longestLook = 5 * time.Minute
)

// awaitSync waits until the sync has ended, or the invoice that was made at
// since takes no more usage.
func (h *handleProviderEvent) awaitSync(ctx workflow.Context, since time.Time, run workflow.Future) (sync activities.ReadSyncResult, err error) {
	began := workflow.Now(ctx)
	until := began.Add(finalization)
	if since.Before(began) {
		until = since.Add(finalization)
	}
	for pause := time.Second; ; pause = min(2*pause, longestLook) {
		err = workflow.ExecuteActivity(storing(ctx, "read the state of the sync"), do.ReadSync,
			activities.ReadSyncInput{TenantID: h.in.TenantID, SyncID: h.requested.SyncID}).Get(ctx, &sync)
		if err != nil || sync.Status.Done() {
			return sync, err
		}
		if !workflow.Now(ctx).Before(until) {
			if workflow.Now(ctx).Sub(began) > readingLimit || !h.stillDraft(ctx) {
				return sync, nil
			}
			until = workflow.Now(ctx).Add(finalization)
		}
		h.show(ctx, fmt.Sprintf("The sync is %s. The run waits for its end until %s.", sync.Status, until.UTC().Format(time.RFC3339)))
		ended, err := workflow.AwaitWithTimeout(ctx, min(pause, max(time.Second, until.Sub(workflow.Now(ctx)))),
			func() bool { return run != nil && run.IsReady() })
		if err != nil {
			return sync, err
		}
		if ended {
			run = nil // look once more; what another run answers is waited for
		}
	}
}

// show keeps whom the event is about, and what is waited for, before the operators' eyes.
func (h *handleProviderEvent) show(ctx workflow.Context, waits ...string) {
	about := fmt.Sprintf("Customer: %s.", linked(h.event.CustomerID, h.event.Page))
	workflow.SetCurrentDetails(ctx, strings.Join(append([]string{about}, waits...), " "))
}

// stillDraft says whether the event's invoice still takes usage, as far as the
// provider answers.
func (h *handleProviderEvent) stillDraft(ctx workflow.Context) bool {
	if !h.event.Invoice {
		return false
	}
	var invoice activities.ReadInvoiceResult
	err := workflow.ExecuteActivity(looking(ctx, "check whether the invoice is still a draft"), do.ReadInvoice, h.row).Get(ctx, &invoice)
	return err == nil && !invoice.Final
}

// HandleProviderEventID is the workflow id of an event of a provider's.
func HandleProviderEventID(tenant metering.TenantID, row metering.ProviderEventID) string {
	return fmt.Sprintf("provider-event/%d/%d", tenant, row)
}

// handleProviderEventStart is of an event about the customer; 0: about none of ours.
func handleProviderEventStart(tenant metering.TenantID, customer metering.CustomerID, row metering.ProviderEventID) start {
	s := start{
		workflow: HandleProviderEvent,
		input:    HandleProviderEventInput{TenantID: tenant, RowID: row},
		id:       HandleProviderEventID(tenant, row),
		summary:  fmt.Sprintf("Process a provider event of %s", tenant),
		details: "Reads the current state of the subscription or the invoice. Sends the last usage of a period while its invoice is a draft, " +
			"and closes the period once its invoice is final.",
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{triggerAttribute.ValueSet(string(metering.ByProvider))},
		priority:   interactive,
	}
	if customer != 0 {
		s.details += " " + inAPI(customer)
		s.attributes = append(s.attributes, customerAttribute.ValueSet(customer.String()))
	}
	return s
}

// StartHandleProviderEvent makes sure that a run acts on the event, whose row
// was committed before. The customer is who it is about; 0: none of ours.
func StartHandleProviderEvent(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, row metering.ProviderEventID) error {
	return handleProviderEventStart(tenant, customer, row).by(ctx, c)
}
