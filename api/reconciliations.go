package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// reconciliationVerb is what an operator may decide about a discrepancy.
type reconciliationVerb struct {
	path                 string
	decision             billing.Decision
	summary, description string
}

var reconciliationVerbs = []reconciliationVerb{
	{
		"waive", billing.Waive, "Waive what invoices lack of a closed period",
		"What the period came to counts as billed, because of what happened at the provider, such as a void invoice. Nothing more is carried of it.",
	},
	{
		"rebill", billing.Rebill, "Rebill what invoices lack of a closed period",
		"What no invoice that stands bills is carried into the target period: all of it where the only one is void.",
	},
	{
		"write-off", billing.WriteOff, "Write off what invoices lack of a closed period",
		"What the period came to counts as billed, because you give up what is missing. Nothing more is carried of it.",
	},
}

func (s *server) reconciliations() {
	const path = "/v1/billing/reconciliation"
	huma.Register(s.api, heavy(get("list-reconciliations", path, BillingRead, "List the reconciliations of closed periods",
		"Compares each closed period and meter with the provider's final invoices, newest period first. Each item has the charge of the period, the units "+
			"that the provider has accepted and counted, and the invoiced units.")), s.listReconciliations)
	for _, verb := range reconciliationVerbs {
		huma.Register(s.api, post(verb.path+"-reconciliation", path+"/{period}/{meter}/"+verb.path, BillingWrite, verb.summary,
			verb.description+" The customer's next sync acts on it. 409 before the period's last invoice is final, and "+
				"where the invoices agree. A repeat changes nothing. The audit log keeps it with the reason."), s.decide(verb.decision))
	}
}

type reconciliation struct {
	CustomerID   string           `json:"customer_id" example:"cus_42"`
	ExternalID   string           `json:"external_id" doc:"The customer's"`
	CustomerName string           `json:"customer_name" doc:"Empty where it has none"`
	Period       reconciledPeriod `json:"period"`
	MeterID      string           `json:"meter_id"`
	MeterSlug    string           `json:"meter_slug"`

	Bills    metering.Bills    `json:"bills" doc:"In what the period was billed. amounts: what invoices bill and what counts as billed is money, in the currency of the charge, under the names of quantities"`
	Ours     reconciledOurs    `json:"ours"`
	Accepted metering.Decimal  `json:"accepted_quantity" doc:"Units that the provider has accepted"`
	Counted  metering.Decimal  `json:"counted_quantity" doc:"Of them, those that it was seen to have counted"`
	Invoiced reconciledTheirs  `json:"invoiced"`
	Billed   *metering.Decimal `json:"billed_quantity,omitempty" doc:"Units that count as billed: they are never charged again; absent while the state is open"`

	State     billing.ReconciliationState `json:"state"`
	Reason    string                      `json:"reason" doc:"Why the invoices bill something else; empty where they do not" example:"accepted, not billed"`
	Actions   []billing.Decision          `json:"actions" doc:"What an operator can decide: each is a path of its own, write_off is write-off there"`
	DecidedBy string                      `json:"decided_by" doc:"Who decided on the state; empty: the rules, or nobody yet" example:"key_12"`
	DecidedAt *time.Time                  `json:"decided_at" doc:"When; null while the state is open"`
	Note      string                      `json:"note" doc:"The reason that the operator gave"`

	Invoices []reconciledInvoice `json:"invoices" doc:"Of the provider's period that this one lies in, as they were last read"`
}

type reconciledPeriod struct {
	ID    string    `json:"id" example:"per_42"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

type reconciledOurs struct {
	Usage    metering.Decimal `json:"usage" doc:"What the period closed at"`
	Charge   metering.Decimal `json:"charge" doc:"For the usage, at our price"`
	Currency string           `json:"currency" example:"USD"`
}

type reconciledTheirs struct {
	Quantity    metering.Decimal  `json:"quantity" doc:"Units that final invoices bill which are not void; once the state is decided, those that it was decided on"`
	Unexplained metering.Decimal  `json:"unexplained" doc:"Of the quantity, what nobody has reported from here; 0 while the state is open"`
	Amount      *metering.Decimal `json:"amount,omitempty" doc:"What they bill for the meter, before discounts and tax; absent: nothing, or in more than one currency"`
	Currency    string            `json:"currency,omitempty" doc:"Of the amount" example:"USD"`
}

type reconciledInvoice struct {
	ID           string           `json:"id" doc:"At the provider" example:"in_1MtHbELkdIwHu7ixl4OzzPMv"`
	ConnectionID string           `json:"connection_id" example:"con_1"`
	Status       string           `json:"status" doc:"At the provider" example:"paid"`
	Void         bool             `json:"void" doc:"Whether nobody has to pay it: it was voided, or credited in full"`
	Renewal      bool             `json:"renewal" doc:"Whether the period's end made it: it is the last one of the period"`
	Quantity     metering.Decimal `json:"quantity" doc:"Units of the meter"`
	Amount       metering.Decimal `json:"amount" doc:"For the meter, before discounts and tax"`
	Currency     string           `json:"currency" example:"USD"`
	FinalizedAt  *time.Time       `json:"finalized_at" doc:"At the provider; null: it may still change"`
}

func showReconciliation(r db.Reconciled) reconciliation {
	shown := reconciliation{
		CustomerID: r.CustomerID.String(), ExternalID: r.ExternalID, CustomerName: r.CustomerName,
		Period:  reconciledPeriod{r.PeriodID.String(), r.Period.Start.UTC(), r.Period.End.UTC()},
		MeterID: r.MeterID.String(), MeterSlug: r.MeterSlug,
		Bills: r.Bills, Ours: reconciledOurs{r.Usage, r.Charge, r.Currency}, Accepted: r.Accepted, Counted: r.Counted,
		Invoiced: reconciledTheirs{r.Invoiced, r.Unexplained, r.InvoicedAmount, r.InvoicedCurrency},
		State:    r.State, Reason: r.Reason, Actions: append([]billing.Decision{}, r.Decisions()...),
		DecidedBy: string(r.Actor), DecidedAt: r.DecidedAt, Note: r.Note, Invoices: []reconciledInvoice{},
	}
	if r.State != billing.ReconciliationOpen {
		shown.Billed = &r.Billed
	}
	for _, i := range r.Invoices {
		shown.Invoices = append(shown.Invoices, showReconciledInvoice(i))
	}
	return shown
}

func showReconciledInvoice(i db.ReconciledInvoice) reconciledInvoice {
	shown := reconciledInvoice{
		ID: i.ID, ConnectionID: i.Connection.String(), Status: i.Status, Void: i.Void, Renewal: i.Renewal, Quantity: i.Quantity, Amount: i.Amount, Currency: i.Currency,
	}
	if i.FinalizedAt != nil {
		at := i.FinalizedAt.UTC()
		shown.FinalizedAt = &at
	}
	return shown
}

type listReconciliationsInput struct {
	Paging
	Customer string                      `query:"customer" maxLength:"255" doc:"The customer's external ID"`
	State    billing.ReconciliationState `query:"state"`
	Period   string                      `query:"period" maxLength:"64" doc:"The id of a billing period"`
}

type listReconciliationsOutput struct{ Body List[reconciliation] }

// listReconciliations shows closed periods' meters beside the provider's invoices.
func (s *server) listReconciliations(ctx context.Context, in *listReconciliationsInput) (*listReconciliationsOutput, error) {
	filter := db.ReconciliationFilter{State: in.State}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return nil, naming("query.customer", err)
		}
		filter.Customer = c.ID
	}
	if in.Period != "" {
		id, ok := metering.ParsePeriodID(in.Period)
		if !ok {
			return nil, metering.Invalid("query.period", "must be the id of a billing period, such as per_42")
		}
		filter.Period = id
	}
	if err := s.readPageToken(ctx, in.PageToken, &filter.Before); err != nil {
		return nil, err
	}
	list, err := s.Store.Reconciliations.List(ctx, principalOf(ctx).Tenant.ID, filter, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &listReconciliationsOutput{listOf(ctx, s, list, showReconciliation, db.Reconciled.Key)}, nil
}

type decideInput struct {
	Period string `path:"period" maxLength:"64" doc:"The period's id" example:"per_42"`
	Meter  string `path:"meter" maxLength:"64" doc:"The meter's slug"`
	Body   Because
}

type decideOutput struct{ Body reconciliation }

// decide lets an operator decide about a discrepancy.
func (s *server) decide(decision billing.Decision) func(context.Context, *decideInput) (*decideOutput, error) {
	return func(ctx context.Context, in *decideInput) (*decideOutput, error) {
		reason, err := in.Body.reason()
		if err != nil {
			return nil, err
		}
		m, err := s.meter(ctx, in.Meter)
		if err != nil {
			return nil, naming("path.meter", err)
		}
		period, _ := metering.ParsePeriodID(in.Period) // else 0, which no period has
		who := principalOf(ctx)
		decided, err := s.Store.Reconciliations.Decide(ctx, who.Tenant.ID, db.ReconciliationKey{Period: period, Meter: m.ID},
			db.Verdict{Decision: decision, Actor: who.Actor, Note: reason}, s.Now())
		if err != nil {
			return nil, naming("path.period", err)
		}
		return &decideOutput{showReconciliation(decided)}, nil
	}
}
