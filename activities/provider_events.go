package activities

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// ProviderEventInput names the event's row.
type ProviderEventInput struct {
	TenantID metering.TenantID        `json:"tenant_id"`
	RowID    metering.ProviderEventID `json:"row_id"`
}

// ReadEventResult describes an event.
type ReadEventResult struct {
	CustomerID metering.CustomerID `json:"customer_id"`    // 0: the event concerns no customer in Odometer
	Invoice    bool                `json:"invoice"`        // the event is about an invoice, otherwise about a subscription
	Page       string              `json:"page,omitempty"` // the customer's URL in the API
}

// ReadEvent returns the customer of an event, and whether it is about an invoice.
func (a *Activities) ReadEvent(ctx context.Context, in ProviderEventInput) (ReadEventResult, error) {
	defer sendHeartbeats(ctx)()
	event, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	return ReadEventResult{customer, event.Invoice, a.pageOf(customer)}, err
}

// ReadInvoiceResult describes the event's invoice.
type ReadInvoiceResult struct {
	Cycle     bool      `json:"cycle"` // the invoice bills a period's usage
	Final     bool      `json:"final"` // the invoice does not change any more
	CreatedAt time.Time `json:"created_at"`
	Refused   string    `json:"refused,omitempty"` // the provider refused the API key: the instruction for an operator

	Hold metering.HoldID `json:"hold,omitempty"` // open hold of the invoice, which needs a run; 0: none
}

// ReadInvoice reads the current state of the event's invoice and stores it. If the tenant holds
// invoices, it also stores a hold for a draft. A refusal of the API key is a result, because the event must be
// handled after an operator has saved another key.
func (a *Activities) ReadInvoice(ctx context.Context, in ProviderEventInput) (ReadInvoiceResult, error) {
	defer sendHeartbeats(ctx)()
	event, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	if err != nil || customer == 0 {
		return ReadInvoiceResult{}, err
	}
	reader, err := a.invoicesOf(ctx, in.TenantID, customer)
	if err != nil || reader.invoices == nil {
		return ReadInvoiceResult{}, err
	}
	kept, err := reader.refreshInvoice(ctx, event.ObjectID)
	if metering.CodeOf(err) == metering.CodeProviderRefuse && !isOwnRefusal(err) {
		return ReadInvoiceResult{Refused: failureText(err)}, nil
	}
	if err != nil {
		return ReadInvoiceResult{}, err
	}
	hold, err := reader.beginHold(ctx, kept)
	return ReadInvoiceResult{Cycle: kept.Renewal, Final: !kept.FinalizedAt.IsZero(), CreatedAt: kept.CreatedAt, Hold: hold}, err
}

// RequestSyncResult names the requested sync.
type RequestSyncResult struct {
	SyncID uuid.UUID `json:"sync_id"`
}

// RequestSync requests a sync because of an event. If a request already waits for a pass, it
// returns that request and adds none. A retry therefore adds a request only if a pass began in the
// meantime. It requests nothing if the event concerns no customer.
func (a *Activities) RequestSync(ctx context.Context, in ProviderEventInput) (RequestSyncResult, error) {
	defer sendHeartbeats(ctx)()
	_, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	if err != nil || customer == 0 {
		return RequestSyncResult{}, err
	}
	sync, err := a.store.Syncs.RequestByProvider(ctx, in.TenantID, customer, a.now())
	return RequestSyncResult{sync}, err
}

// ReadSyncInput names a sync that an event requested.
type ReadSyncInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	SyncID   uuid.UUID         `json:"sync_id"`
}

// ReadSyncResult is the state of a sync that an event requested.
type ReadSyncResult struct {
	Status   metering.SyncStatus `json:"status"`
	Error    string              `json:"error"`    // of a failed sync: the instruction for an operator
	Excluded int                 `json:"excluded"` // number of excluded meters
}

// ReadSync returns the state of a sync that an event requested.
func (a *Activities) ReadSync(ctx context.Context, in ReadSyncInput) (ReadSyncResult, error) {
	defer sendHeartbeats(ctx)()
	sync, err := a.store.Syncs.Get(ctx, in.TenantID, in.SyncID)
	return ReadSyncResult{sync.Status, sync.Error, len(sync.Excluded)}, err
}

// FinishEventInput contains the outcome of an event, in words.
type FinishEventInput struct {
	ProviderEventInput
	Outcome string `json:"outcome"`
}

// FinishEvent records that an event is handled.
func (a *Activities) FinishEvent(ctx context.Context, in FinishEventInput) error {
	defer sendHeartbeats(ctx)()
	return a.store.ProviderEvents.Handle(ctx, in.TenantID, in.RowID, in.Outcome, a.now())
}
