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

// HandleProviderEventResult contains the outcome in words.
type HandleProviderEventResult struct {
	Outcome string `json:"outcome"`
}

// HandleProviderEvent handles an event from a billing provider. Providers deliver events more than
// once and in any order. Therefore, it reads the current state of the subscription or the invoice
// instead of the event's content.
func HandleProviderEvent(ctx workflow.Context, in HandleProviderEventInput) (HandleProviderEventResult, error) {
	h := handleProviderEvent{in: in, row: activities.ProviderEventInput{TenantID: in.TenantID, RowID: in.RowID}}
	outcome, err := h.run(ctx)
	if _, message, refused := failureOf(err); refused {
		outcome, err = message, nil
	}
	if err != nil {
		return HandleProviderEventResult{}, err
	}
	err = workflow.ExecuteActivity(shortStep(ctx, "record the outcome"), do.FinishEvent,
		activities.FinishEventInput{ProviderEventInput: h.row, Outcome: outcome}).Get(ctx, nil)
	return HandleProviderEventResult{outcome}, err
}

// handleProviderEvent is the state of a HandleProviderEvent run.
type handleProviderEvent struct {
	in    HandleProviderEventInput
	row   activities.ProviderEventInput
	event activities.ReadEventResult

	requested activities.RequestSyncResult
}

// run handles the event, and returns the outcome in words.
func (h *handleProviderEvent) run(ctx workflow.Context) (outcome string, err error) {
	err = workflow.ExecuteActivity(shortStep(ctx, "read the event"), do.ReadEvent, h.row).Get(ctx, &h.event)
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
	invoice, err := h.readInvoice(ctx)
	if err == nil && invoice.Hold != 0 {
		_, err = holdInvoiceStart(h.in.TenantID, h.event.CustomerID, invoice.Hold).startChildOrSignal(ctx)
	}
	switch {
	case err != nil:
		return "", err
	case invoice.Refused != "":
		return "the invoice was not read: " + invoice.Refused, nil
	case !invoice.Cycle && !invoice.Final:
		return "the invoice was stored", nil
	case !invoice.Final:
		return h.sync(ctx, invoice.CreatedAt, "the period's last usage was sent", "the period's last usage was not sent")
	}
	var closed activities.CloseBatchResult
	err = workflow.ExecuteActivity(shortStep(ctx, "close the period"), do.CloseBatch,
		activities.BatchInput{TenantID: h.in.TenantID, Customers: []metering.CustomerID{h.event.CustomerID}}).Get(ctx, &closed)
	switch {
	case !invoice.Cycle && closed.Closed == 0:
		return "the invoice was stored", err
	case closed.Closed == 0:
		return "the invoice was stored; its period is not closed yet", err
	}
	return "the invoice was stored and its period closed", err
}

// longestKeyPause is the longest pause between two reads of an invoice while the provider refuses the API key.
const longestKeyPause = time.Hour

// readInvoice reads the event's invoice. While the provider refuses the API key, it reads the invoice again until
// readingLimit has passed.
func (h *handleProviderEvent) readInvoice(ctx workflow.Context) (invoice activities.ReadInvoiceResult, err error) {
	until := workflow.Now(ctx).Add(readingLimit)
	for pause := time.Minute; ; pause = min(2*pause, longestKeyPause) {
		invoice = activities.ReadInvoiceResult{}
		err = workflow.ExecuteActivity(retriedProviderCall(ctx, until, "read the invoice"), do.ReadInvoice, h.row).Get(ctx, &invoice)
		if err != nil || invoice.Refused == "" || !workflow.Now(ctx).Before(until) {
			return invoice, err
		}
		h.show(ctx, fmt.Sprintf("%s. The run reads the invoice again in %s, until %s.", invoice.Refused, pause, until.UTC().Format(time.RFC3339)))
		if err := workflow.Sleep(ctx, pause); err != nil {
			return invoice, err
		}
	}
}

// sync requests a sync with the priority of the event, and waits for it with awaitSync. The outcome
// begins with done if the sync succeeded. Otherwise, the outcome begins with undone, and contains
// the error or states that the sync continues.
func (h *handleProviderEvent) sync(ctx workflow.Context, since time.Time, done, undone string) (outcome string, err error) {
	if err := workflow.ExecuteActivity(shortStep(ctx, "request a sync"), do.RequestSync, h.row).Get(ctx, &h.requested); err != nil {
		return "", err
	}
	s := syncCustomerStart(h.in.TenantID, h.event.CustomerID, metering.ByProvider)
	s.priority = workflow.GetInfo(ctx).Priority.PriorityKey
	run, err := s.startChildOrSignal(ctx)
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
	// draftTime is the default time for which a provider keeps an invoice a draft.
	draftTime = time.Hour
	// longestPollPause is the longest pause between two reads of a sync, or two comparisons of a held invoice.
	longestPollPause = 5 * time.Minute
)

// awaitSync waits until the sync ends. It returns earlier if the invoice accepts no more usage. createdAt is the
// creation time of the invoice. For an event about a subscription, it waits for draftTime at most.
func (h *handleProviderEvent) awaitSync(ctx workflow.Context, createdAt time.Time, run workflow.Future) (sync activities.ReadSyncResult, err error) {
	began := workflow.Now(ctx)
	until := began.Add(draftTime)
	if createdAt.Before(began) {
		until = createdAt.Add(draftTime)
	}
	for pause := time.Second; ; pause = min(2*pause, longestPollPause) {
		err = workflow.ExecuteActivity(shortStep(ctx, "read the state of the sync"), do.ReadSync,
			activities.ReadSyncInput{TenantID: h.in.TenantID, SyncID: h.requested.SyncID}).Get(ctx, &sync)
		if err != nil || sync.Status.Done() {
			return sync, err
		}
		if !workflow.Now(ctx).Before(until) {
			if workflow.Now(ctx).Sub(began) > readingLimit || !h.stillDraft(ctx) {
				return sync, nil
			}
			until = workflow.Now(ctx).Add(draftTime)
		}
		h.show(ctx, fmt.Sprintf("The sync is %s. The run waits for its end until %s.", sync.Status, until.UTC().Format(time.RFC3339)))
		ended, err := workflow.AwaitWithTimeout(ctx, min(pause, max(time.Second, until.Sub(workflow.Now(ctx)))),
			func() bool { return run != nil && run.IsReady() })
		if err != nil {
			return sync, err
		}
		if ended {
			run = nil // poll from now on: another run may have taken the request
		}
	}
}

// show shows operators the event's customer and the reason for the wait.
func (h *handleProviderEvent) show(ctx workflow.Context, waits ...string) {
	about := fmt.Sprintf("Customer: %s.", customerLink(h.event.CustomerID, h.event.Page))
	workflow.SetCurrentDetails(ctx, strings.Join(append([]string{about}, waits...), " "))
}

// stillDraft reports whether the event's invoice still accepts usage. It returns false if the event
// is about a subscription, or the provider does not answer.
func (h *handleProviderEvent) stillDraft(ctx workflow.Context) bool {
	if !h.event.Invoice {
		return false
	}
	var invoice activities.ReadInvoiceResult
	err := workflow.ExecuteActivity(providerCall(ctx, "check whether the invoice is still a draft"), do.ReadInvoice, h.row).Get(ctx, &invoice)
	return err == nil && invoice.Refused == "" && !invoice.Final
}

// HandleProviderEventID returns the workflow ID of a provider event.
func HandleProviderEventID(tenant metering.TenantID, row metering.ProviderEventID) string {
	return fmt.Sprintf("provider-event/%d/%d", tenant, row)
}

// handleProviderEventStart returns the start of the event's run. The customer is 0 if the event
// concerns no customer in Odometer.
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
		priority:   background,
	}
	if customer != 0 {
		s.details += " " + customerRequestText(customer)
		s.attributes = append(s.attributes, customerAttribute.ValueSet(customer.String()))
	}
	return s
}

// StartHandleProviderEvent starts a run that handles the event, unless one is open. The caller
// commits the event's row first. The customer is 0 if the event concerns no customer in Odometer. A
// run that is not urgent takes turns with scheduled syncs.
func StartHandleProviderEvent(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, row metering.ProviderEventID, urgent bool) error {
	s := handleProviderEventStart(tenant, customer, row)
	if urgent {
		s.priority = interactive
	}
	return s.startOrJoin(ctx, c)
}
