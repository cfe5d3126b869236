package workflows

import (
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// HandleProviderEventInput names the event's row.
type HandleProviderEventInput struct {
	TenantID  metering.TenantID        `json:"tenant_id"`
	RowID     metering.ProviderEventID `json:"row_id"`
	Unindexed bool                     `json:"unindexed"`
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
	if _, message, refused := problemOf(err); refused {
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
}

func (h *handleProviderEvent) run(ctx workflow.Context) (outcome string, err error) {
	err = workflow.ExecuteActivity(storing(ctx, "read the event"), do.ReadEvent, h.row).Get(ctx, &h.event)
	switch {
	case err != nil:
		return "", err
	case h.event.CustomerID == 0:
		return "it is about no customer of ours", nil
	case !h.event.Invoice:
		return "the customer was synced with its items as they are now", h.sync(ctx)
	}
	var invoice activities.ReadInvoiceResult
	err = workflow.ExecuteActivity(calling(ctx, workflow.Now(ctx).Add(itemsPatience), "read the invoice"), do.ReadInvoice, h.row).Get(ctx, &invoice)
	switch {
	case err != nil:
		return "", err
	case !invoice.Cycle:
		return "the invoice was kept", nil
	case !invoice.Final:
		return "the period's last usage was sent", h.sync(ctx)
	}
	var frozen activities.FreezeChunkResult
	err = workflow.ExecuteActivity(storing(ctx, "freeze the period"), do.FreezeChunk,
		activities.SyncChunkInput{TenantID: h.in.TenantID, Customers: []metering.CustomerID{h.event.CustomerID}}).Get(ctx, &frozen)
	if frozen.Frozen == 0 {
		return "the invoice was kept; its period is not frozen yet", err
	}
	return "the invoice was kept and its period frozen", err
}

// sync makes sure that a pass over the customer begins after now, and waits
// for the run that makes it, if it is one of its own.
func (h *handleProviderEvent) sync(ctx workflow.Context) error {
	if err := workflow.ExecuteActivity(storing(ctx, "ask for a sync"), do.RequestSync, h.row).Get(ctx, nil); err != nil {
		return err
	}
	options := workflow.ChildWorkflowOptions{
		WorkflowID:        SyncCustomerID(h.in.TenantID, h.event.CustomerID),
		TaskQueue:         TaskQueue,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:     syncSummary(h.event.CustomerID),
		StaticDetails:     syncDetails(h.in.TenantID, h.event.CustomerID),
		Priority:          temporal.Priority{PriorityKey: interactive, FairnessKey: h.in.TenantID.String()},
	}
	if !h.in.Unindexed {
		options.TypedSearchAttributes = syncAttributes(h.in.TenantID, h.event.CustomerID, metering.ByProvider)
	}
	const tries = 3 // the run may end between the two
	var err error
	for range tries {
		input := SyncCustomerInput{TenantID: h.in.TenantID, CustomerID: h.event.CustomerID, Unindexed: h.in.Unindexed}
		err = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), SyncCustomer, input).GetChildWorkflowExecution().Get(ctx, nil)
		var running *temporal.ChildWorkflowExecutionAlreadyStartedError
		if !errors.As(err, &running) {
			return err
		}
		err = workflow.SignalExternalWorkflow(ctx, options.WorkflowID, "", syncRequested, nil).Get(ctx, nil)
		if err == nil {
			return nil
		}
	}
	return err
}
