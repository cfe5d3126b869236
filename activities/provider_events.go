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

// ReadEventResult is what has to be done about it.
type ReadEventResult struct {
	CustomerID metering.CustomerID `json:"customer_id"`    // 0: it is about none of ours
	Invoice    bool                `json:"invoice"`        // it is about an invoice, else about a subscription
	Page       string              `json:"page,omitempty"` // of the customer in the API
}

// ReadEvent says what an event is about.
func (a *Activities) ReadEvent(ctx context.Context, in ProviderEventInput) (ReadEventResult, error) {
	defer alive(ctx)()
	event, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	return ReadEventResult{customer, event.Invoice, a.pageOf(customer)}, err
}

// ReadInvoiceResult is what has to be done about the invoice.
type ReadInvoiceResult struct {
	Cycle     bool      `json:"cycle"` // it bills a period's usage
	Final     bool      `json:"final"` // and nothing changes it any more
	CreatedAt time.Time `json:"created_at"`

	Hold metering.HoldID `json:"hold,omitempty"` // of the invoice: its run has to know; 0: it is not held
}

// ReadInvoice reads the event's invoice as it is now, and keeps it. A draft that
// is to be held gets its hold written down.
func (a *Activities) ReadInvoice(ctx context.Context, in ProviderEventInput) (ReadInvoiceResult, error) {
	defer alive(ctx)()
	event, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	if err != nil || customer == 0 {
		return ReadInvoiceResult{}, err
	}
	reader, err := a.invoicesOf(ctx, in.TenantID, customer)
	if err != nil || reader.invoices == nil {
		return ReadInvoiceResult{}, err
	}
	kept, err := reader.keep(ctx, event.ObjectID)
	if err != nil {
		return ReadInvoiceResult{}, err
	}
	hold, err := reader.beginHold(ctx, kept)
	return ReadInvoiceResult{kept.Renewal, !kept.FinalizedAt.IsZero(), kept.CreatedAt, hold}, err
}

// RequestSyncResult names the sync that answers a request.
type RequestSyncResult struct {
	SyncID uuid.UUID `json:"sync_id"`
}

// RequestSync requests a sync because of an event. A request that no pass has
// taken yet answers, so that a repeat adds none unless a pass began meanwhile.
func (a *Activities) RequestSync(ctx context.Context, in ProviderEventInput) (RequestSyncResult, error) {
	defer alive(ctx)()
	_, customer, err := a.store.ProviderEvents.Get(ctx, in.TenantID, in.RowID)
	if err != nil || customer == 0 {
		return RequestSyncResult{}, err
	}
	sync, err := a.store.Syncs.RequestByProvider(ctx, in.TenantID, customer, a.now())
	return RequestSyncResult{sync}, err
}

// ReadSyncInput names a sync that an event has requested.
type ReadSyncInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	SyncID   uuid.UUID         `json:"sync_id"`
}

// ReadSyncResult is where the sync that an event has requested stands.
type ReadSyncResult struct {
	Status   metering.SyncStatus `json:"status"`
	Error    string              `json:"error"`    // of a failed one: what an operator should do
	Excluded int                 `json:"excluded"` // meters
}

// ReadSync says where the sync that the event has asked for stands.
func (a *Activities) ReadSync(ctx context.Context, in ReadSyncInput) (ReadSyncResult, error) {
	defer alive(ctx)()
	sync, err := a.store.Syncs.Get(ctx, in.TenantID, in.SyncID)
	return ReadSyncResult{sync.Status, sync.Error, len(sync.Excluded)}, err
}

// FinishEventInput is what came of an event.
type FinishEventInput struct {
	ProviderEventInput
	Outcome string `json:"outcome"`
}

// FinishEvent records that nothing is left to do about an event.
func (a *Activities) FinishEvent(ctx context.Context, in FinishEventInput) error {
	defer alive(ctx)()
	return a.store.ProviderEvents.Handle(ctx, in.TenantID, in.RowID, in.Outcome, a.now())
}
