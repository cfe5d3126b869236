package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// HoldInput names a held invoice, and the last sync that was requested for it. SyncID is nil if
// there is none.
type HoldInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	HoldID   metering.HoldID   `json:"hold_id"`
	SyncID   *uuid.UUID        `json:"sync_id,omitempty"`
}

// beginHold stores a hold for a renewal's draft invoice if the tenant has enabled invoice holds and
// the provider supports them. It returns the invoice's open hold, or 0 if there is none.
func (r invoiceReader) beginHold(ctx context.Context, in metering.Invoice) (metering.HoldID, error) {
	holds, ok := r.Provider.(providers.Holds)
	if !ok {
		return 0, nil
	}
	open, err := r.store.Holds.OpenOf(ctx, r.tenant, in.Connection, in.ID)
	if err != nil || open != 0 || !in.Renewal || !in.FinalizedAt.IsZero() {
		return open, err
	}
	settings, err := r.store.Tenants.Get(ctx, r.tenant)
	if err != nil || !settings.InvoiceHold.Enabled {
		return 0, err
	}
	r.question.ID = in.ID
	draft, err := measureCall(r.metrics, r.Kind, func() (billing.Draft, error) { return holds.Draft(ctx, r.credentials, r.question) })
	if err != nil || draft.Gone || !draft.FinalizedAt.IsZero() {
		return 0, err
	}
	return r.store.Holds.Begin(ctx, r.tenant, ledger.NewHold{
		Customer: r.customer, Invoice: in, Draft: draft,
		Frame: func(until time.Time) (billing.Framed, error) { return holds.FrameHold(in.ID, until) },
	}, r.now())
}

// LookAtHoldResult contains the result of comparing a held invoice with the usage, and the next
// action.
type LookAtHoldResult struct {
	CustomerID metering.CustomerID `json:"customer_id"`
	Page       string              `json:"page,omitempty"` // the customer's URL in the API
	State      billing.HoldState   `json:"state"`
	Found      []string            `json:"found"` // reasons for the state, in words with internal ids
	Deadline   time.Time           `json:"deadline"`
	Send       *uuid.UUID          `json:"send,omitempty"`  // report to send, which holds or releases the invoice
	Sync       bool                `json:"sync,omitempty"`  // the customer needs a sync
	Until      *time.Time          `json:"until,omitempty"` // no action is necessary before this time
}

// LookAtHold reads a held invoice and the provider's counts of its period, compares them with the
// reported usage, and stores the next action.
func (a *Activities) LookAtHold(ctx context.Context, in HoldInput) (LookAtHoldResult, error) {
	defer sendHeartbeats(ctx)()
	look, err := a.store.Holds.Look(ctx, in.TenantID, in.HoldID, in.SyncID, a.now())
	if err != nil || look.State.Ended() {
		return a.holdResult(look, billing.HoldDecision{State: look.State, Reasons: look.Reasons}), err
	}
	frame := func() (billing.Framed, error) {
		return billing.Framed{}, errors.New("the hold belongs to another connection, so its invoice cannot be released")
	}
	if !look.Facts.Replaced {
		holds, err := a.readHeld(ctx, in.TenantID, &look)
		if err != nil {
			return LookAtHoldResult{}, err
		}
		frame = func() (billing.Framed, error) { return holds.FrameRelease(look.InvoiceID) }
	}
	decision := look.Facts.Decide()
	send, err := a.store.Holds.Decided(ctx, in.TenantID, look, decision, frame, a.now())
	if err != nil {
		return LookAtHoldResult{}, err
	}
	if decision.State == billing.HoldRefused {
		activity.GetLogger(ctx).Warn("the provider does not hold an invoice; it becomes final as usual", "tenant", in.TenantID.String(), "hold", in.HoldID.String(), "response", look.Hold.Hold.Response)
	}
	result := a.holdResult(look, decision)
	if send != (uuid.UUID{}) {
		result.Send = &send
	}
	return result, nil
}

// reasonsShown bounds the number of reasons that a run shows.
const reasonsShown = 20

// holdResult returns the decision about a held invoice as the result of LookAtHold.
func (a *Activities) holdResult(look ledger.HoldLook, d billing.HoldDecision) LookAtHoldResult {
	result := LookAtHoldResult{CustomerID: look.CustomerID, Page: a.pageOf(look.CustomerID), State: d.State, Found: []string{}, Deadline: look.Deadline, Sync: d.Sync}
	for _, r := range d.Reasons[:min(len(d.Reasons), reasonsShown)] {
		text := r.Text(r.MeterID.String())
		result.Found = append(result.Found, text.Message+". "+text.NextStep)
	}
	if more := len(d.Reasons) - reasonsShown; more > 0 {
		result.Found = append(result.Found, fmt.Sprintf("%d more reasons; GET /v1/billing/holds lists them", more))
	}
	if !d.Until.IsZero() {
		result.Until = &d.Until
	}
	return result
}

// readHeld reads the invoice from the provider. If the hold's sync has finished and the invoice is still a draft, it
// also reads the provider's counts.
func (a *Activities) readHeld(ctx context.Context, tenant metering.TenantID, look *ledger.HoldLook) (providers.Holds, error) {
	wanted, err := a.store.Links.Wanted(ctx, tenant, look.CustomerID)
	if err != nil {
		return nil, err
	}
	p, err := a.openProvider(tenant, wanted.Provider)
	if err != nil {
		return nil, err
	}
	holds, ok := p.Provider.(providers.Holds)
	if !ok {
		return nil, fmt.Errorf("%s cannot hold invoices", p.Name)
	}
	destinations, err := a.store.Links.Destinations(ctx, tenant, look.CustomerID, look.Connection)
	if err != nil {
		return nil, err
	}
	look.Facts.Draft, err = measureCall(a.metrics, p.Kind, func() (billing.Draft, error) {
		return holds.Draft(ctx, p.credentials, providers.InvoiceQuestion{
			ID: look.InvoiceID, Meters: wanted.Meters, Mapping: wanted.Provider.Mapping, Destinations: destinations,
		})
	})
	if err != nil || !look.Facts.Sync.Status.Done() || !look.Facts.Draft.FinalizedAt.IsZero() {
		return holds, err
	}
	return holds, a.readHeldUsage(ctx, tenant, p, look)
}

// readHeldUsage adds the reported and counted units and the reported amounts of the invoice's period to look.
func (a *Activities) readHeldUsage(ctx context.Context, tenant metering.TenantID, p openedProvider, look *ledger.HoldLook) error {
	if err := a.store.Holds.ReadPlaces(ctx, tenant, look); err != nil {
		return err
	}
	if err := a.store.Holds.ReadCharges(ctx, tenant, look); err != nil {
		return err
	}
	for _, place := range look.Places {
		counted, err := measureCall(a.metrics, p.Kind, func() (metering.Decimal, error) { return p.Count(ctx, p.credentials, placeOf(place)) })
		if err != nil {
			return err
		}
		look.AddCounted(place, counted)
	}
	return nil
}

// AskReleaseInput names the held invoice and the reason for its release.
type AskReleaseInput struct {
	HoldInput
	Reason string `json:"reason"`
}

// AskRelease records an operator's request to release the invoice. An earlier request stays
// unchanged.
func (a *Activities) AskRelease(ctx context.Context, in AskReleaseInput) error {
	defer sendHeartbeats(ctx)()
	_, err := a.store.Holds.AskRelease(ctx, in.TenantID, metering.Operator, in.HoldID, in.Reason, a.now())
	return err
}

// RequestSyncOfHold requests a sync of the held invoice's customer.
func (a *Activities) RequestSyncOfHold(ctx context.Context, in HoldInput) (RequestSyncResult, error) {
	defer sendHeartbeats(ctx)()
	hold, err := a.store.Holds.Get(ctx, in.TenantID, in.HoldID)
	if err != nil {
		return RequestSyncResult{}, err
	}
	sync, err := a.store.Syncs.RequestByProvider(ctx, in.TenantID, hold.CustomerID, a.now())
	return RequestSyncResult{sync}, err
}
