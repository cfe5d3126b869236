package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

func (s *server) registerHolds() {
	const path = "/v1/billing/holds"
	huma.Register(s.api, get("list-invoice-holds", path, BillingRead, "List held invoices",
		"Lists held invoices, current and past, newest first. Odometer holds a draft invoice until its lines agree with the reports, an operator releases it, or its deadline passes. Enable holds with `invoice_hold` "+
			"in `PATCH /v1/tenant`."), s.listHolds)
	huma.Register(s.api, get("get-invoice-hold", path+"/{id}", BillingRead, "Get a held invoice",
		"Returns the state, the differences found, and the deadline at which the provider finalizes the invoice without a release."), s.getHold)
	huma.Register(s.api, post("release-invoice-hold", path+"/{id}/release", BillingWrite, "Release a held invoice",
		"Asks the provider to finalize the invoice, even if differences were found. The audit log keeps the reason. A repeat changes nothing.\n\n"+
			"- Returns 409 if the invoice is final, was edited at the provider, or is already being released.\n"+
			"- Returns 503 if the workflow engine or its workers do not respond. The invoice is released when the workers respond."), s.releaseHold)
}

const releaseAction = "release"

type invoiceHold struct {
	ID           string            `json:"id" example:"hld_42"`
	CustomerID   string            `json:"customer_id" example:"cus_42"`
	ExternalID   string            `json:"external_id" doc:"External ID of the customer"`
	CustomerName string            `json:"customer_name" doc:"Empty if the customer has no name"`
	ConnectionID string            `json:"connection_id" example:"con_1"`
	InvoiceID    string            `json:"invoice_id" doc:"Id of the invoice at the provider" example:"in_1MtHbELkdIwHu7ixl4OzzPMv"`
	Period       heldPeriod        `json:"period"`
	State        billing.HoldState `json:"state" doc:"State of the hold:\n- 'planned': the provider has not accepted the hold yet.\n- 'held': not all reports are counted and compared yet.\n- 'disagrees': the invoice differs from the reports. Act on the differences.\n- 'releasing': Odometer is asking the provider to finalize the invoice.\n- 'released': the invoice is final.\n- 'expired': the invoice became final at the deadline.\n- 'finalized': the provider finalized the invoice before the deadline, without a release.\n- 'theirs': the draft was edited at the provider or is finalized there manually, so Odometer does not change the invoice.\n- 'refused': the provider did not accept the hold."`
	Reasons      []holdReason      `json:"reasons" doc:"Differences of the last comparison. If an operator released the invoice, the differences before the release"`
	GraceUntil   time.Time         `json:"grace_until" doc:"End of the grace. The draft is not compared before this time"`
	Deadline     time.Time         `json:"deadline" doc:"Time at which the provider finalizes the invoice if it was not released, unless the draft was changed at the provider"`
	Actions      []string          `json:"actions" doc:"Available actions. Each action is a path below the hold" example:"[\"release\"]"`
	Hold         *holdReport       `json:"hold,omitempty"`
	Release      *holdReport       `json:"release,omitempty"`
	ReleasedBy   string            `json:"released_by" doc:"Operator that requested the release. Empty if no operator did" example:"key_12"`
	Note         string            `json:"note" doc:"Reason given by the operator"`
	LookedAt     *time.Time        `json:"looked_at"`
	EndedAt      *time.Time        `json:"ended_at" doc:"Null while the hold is active"`
	CreatedAt    time.Time         `json:"created_at"`
}

// heldPeriod is the subscription period with the usage that the held invoice bills.
type heldPeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

type holdReason struct {
	Code billing.HoldCode `json:"code"`
	billing.Text
	MeterID   string            `json:"meter_id,omitempty" example:"mtr_7"`
	MeterSlug string            `json:"meter_slug,omitempty" example:"api-calls"`
	Ours      *metering.Decimal `json:"ours,omitempty" doc:"Reported units. For charge_differs, the reported amount"`
	Theirs    *metering.Decimal `json:"theirs,omitempty" doc:"Units that the provider has counted. For price_differs and charge_differs, the provider's amount"`
}

// holdReport is the report that holds or releases the invoice. It is absent if nothing was sent.
type holdReport struct {
	ID       string        `json:"id" format:"uuid"`
	State    billing.State `json:"state"`
	Response string        `json:"response" doc:"Result of the last attempt"`
}

func showHold(h ledger.Hold) invoiceHold {
	shown := invoiceHold{
		ID: h.ID.String(), CustomerID: h.CustomerID.String(), ExternalID: h.ExternalID, CustomerName: h.CustomerName, ConnectionID: h.Connection.String(), InvoiceID: h.InvoiceID,
		Period: heldPeriod{h.Period.Start.UTC(), h.Period.End.UTC()}, State: h.State, Reasons: []holdReason{},
		GraceUntil: h.GraceUntil.UTC(), Deadline: h.Deadline.UTC(), Actions: []string{}, Hold: showAction(h.Hold), Release: showAction(h.Release),
		ReleasedBy: string(h.Actor), Note: h.Note, LookedAt: h.LookedAt, EndedAt: h.EndedAt, CreatedAt: h.RecordedAt.UTC(),
	}
	for _, r := range h.Reasons {
		reason := holdReason{Code: r.Code, Text: r.Text(h.Slugs[r.MeterID]), Ours: r.Ours, Theirs: r.Theirs}
		if r.MeterID != 0 {
			reason.MeterID, reason.MeterSlug = r.MeterID.String(), h.Slugs[r.MeterID]
		}
		shown.Reasons = append(shown.Reasons, reason)
	}
	if h.State.Releasable() && h.ReleaseAskedAt == nil {
		shown.Actions = append(shown.Actions, releaseAction)
	}
	return shown
}

func showAction(a billing.HoldAction) *holdReport {
	if a.State == "" {
		return nil
	}
	return &holdReport{a.ID.String(), a.State, a.Response}
}

type listHoldsInput struct {
	Paging
	Customer string            `query:"customer" maxLength:"255" doc:"The customer's external ID"`
	State    billing.HoldState `query:"state"`
}

type listHoldsOutput struct{ Body List[invoiceHold] }

func (s *server) listHolds(ctx context.Context, in *listHoldsInput) (*listHoldsOutput, error) {
	filter := ledger.HoldFilter{State: in.State}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return nil, withLocation("query.customer", err)
		}
		filter.Customer = c.ID
	}
	if err := s.readPageToken(ctx, in.PageToken, &filter.Before); err != nil {
		return nil, err
	}
	list, err := s.Store.Holds.List(ctx, principalOf(ctx).Tenant.ID, filter, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &listHoldsOutput{listOf(ctx, s, list, showHold, func(h ledger.Hold) metering.HoldID { return h.ID })}, nil
}

type getHoldInput struct {
	ID string `path:"id" maxLength:"64" example:"hld_42"`
}

type holdOutput struct{ Body invoiceHold }

func (s *server) getHold(ctx context.Context, in *getHoldInput) (*holdOutput, error) {
	id, _ := metering.ParseHoldID(in.ID) // 0 on error; no hold has the id 0
	hold, err := s.Store.Holds.Get(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, withLocation("path.id", err)
	}
	return &holdOutput{showHold(hold)}, nil
}

type releaseHoldInput struct {
	ID   string `path:"id" maxLength:"64" example:"hld_42"`
	Body Because
}

// releaseHold stores an operator's request to release the invoice and passes the request to the workflow run. If
// Temporal or the worker does not respond, releaseHold returns an error. The invoice is then released later,
// because a later run reads the stored request.
func (s *server) releaseHold(ctx context.Context, in *releaseHoldInput) (*holdOutput, error) {
	reason, err := in.Body.reason()
	if err != nil {
		return nil, err
	}
	id, _ := metering.ParseHoldID(in.ID)
	who := principalOf(ctx)
	hold, err := s.Store.Holds.AskRelease(ctx, who.Tenant.ID, who.Actor, id, reason, s.Now())
	if err != nil {
		return nil, withLocation("path.id", err)
	}
	err = workflows.ReleaseHeldInvoice(context.WithoutCancel(ctx), s.Temporal, who.Tenant.ID, hold.CustomerID, id, askedBy(who.Actor, reason))
	if metering.CodeOf(err) == metering.CodeConflict { // the hold has ended in the meantime
		hold, err = s.Store.Holds.Get(ctx, who.Tenant.ID, id)
	}
	if err != nil {
		return nil, err
	}
	return &holdOutput{showHold(hold)}, nil
}
