package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// reconciliationVerb is an operator's decision about a discrepancy.
type reconciliationVerb struct {
	path                 string
	decision             billing.Decision
	summary, description string
}

var reconciliationVerbs = []reconciliationVerb{
	{
		"waive", billing.Waive, "Waive the amount missing on invoices of a closed period",
		"Counts the period's charge as fully billed because of an event at the provider, such as a voided invoice. The missing amount is not billed.",
	},
	{
		"rebill", billing.Rebill, "Rebill the amount missing on invoices of a closed period",
		"Bills the missing amount in the current open period. If the only invoice is void, the missing amount is the whole charge.",
	},
	{
		"write-off", billing.WriteOff, "Write off the amount missing on invoices of a closed period",
		"Counts the period's charge as fully billed because you give up the missing amount. The missing amount is not billed.",
	},
}

func (s *server) registerReconciliations() {
	const path = "/v1/billing/reconciliation"
	huma.Register(s.api, heavy(get("list-reconciliations", path, BillingRead, "List the reconciliations of closed periods",
		"Lists the comparison of each closed period and meter with the provider's final invoices, newest period first. Each item has the charge of the "+
			"period, the units that the provider has accepted and counted, and the invoiced units.")), s.listReconciliations)
	for _, verb := range reconciliationVerbs {
		huma.Register(s.api, post(verb.path+"-reconciliation", path+"/{period}/{meter}/"+verb.path, BillingWrite, verb.summary,
			verb.description+"\n\n- The customer's next sync applies the decision. The audit log keeps the reason.\n"+
				"- A repeat changes nothing.\n"+
				"- Returns 409 if the period's last invoice is not final or the invoices agree."), s.decide(verb.decision))
	}
}

type reconciliation struct {
	CustomerID   string           `json:"customer_id" example:"cus_42"`
	ExternalID   string           `json:"external_id" doc:"External ID of the customer"`
	CustomerName string           `json:"customer_name" doc:"Empty if the customer has no name"`
	Period       reconciledPeriod `json:"period"`
	MeterID      string           `json:"meter_id"`
	MeterSlug    string           `json:"meter_slug"`

	Bills    metering.Bills    `json:"bills" doc:"Unit in which the provider bills the period. With 'amounts', all accepted, counted, invoiced and billed quantities are money, in the currency of the charge"`
	Ours     reconciledOurs    `json:"ours"`
	Accepted metering.Decimal  `json:"accepted_quantity" doc:"Units that the provider has accepted"`
	Counted  metering.Decimal  `json:"counted_quantity" doc:"Accepted units that the provider has counted"`
	Invoiced reconciledTheirs  `json:"invoiced"`
	Billed   *metering.Decimal `json:"billed_quantity,omitempty" doc:"Units that count as billed and are never charged again. Absent while 'state' is 'open'"`

	State  billing.ReconciliationState  `json:"state"`
	Reason billing.ReconciliationReason `json:"reason,omitempty" doc:"Reason for the difference between the invoices and the closed period. Absent if the invoices agree, and while 'state' is 'open'"`
	billing.Text
	Actions   []billing.Decision `json:"actions" doc:"Available decisions. Send a decision to the path with its name below the reconciliation. The path of write_off is 'write-off'"`
	DecidedBy string             `json:"decided_by" doc:"Operator that decided the state. Empty if the rules decided the state, or if the state is undecided" example:"key_12"`
	DecidedAt *time.Time         `json:"decided_at" doc:"Time of the decision. Null while 'state' is 'open'"`
	Note      string             `json:"note" doc:"Reason given by the operator"`

	Invoices []reconciledInvoice `json:"invoices" doc:"Invoices of the provider's period that contains this billing period, as last read"`
}

type reconciledPeriod struct {
	ID    string    `json:"id" example:"per_42"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

type reconciledOurs struct {
	Usage    metering.Decimal `json:"usage" doc:"Usage at the closing of the period"`
	Charge   metering.Decimal `json:"charge" doc:"Charge of the usage at the closing of the period. If the provider prices the units, at the provider's price"`
	Currency string           `json:"currency" example:"USD"`
}

type reconciledTheirs struct {
	Quantity    metering.Decimal  `json:"quantity" doc:"Units on final invoices that are not void. The number does not change after 'state' is decided"`
	Unexplained metering.Decimal  `json:"unexplained" doc:"Units of 'quantity' that Odometer did not report. 0 while 'state' is 'open'"`
	Amount      *metering.Decimal `json:"amount,omitempty" doc:"Invoiced amount of the meter before discounts and tax. Absent if the invoices have no amount of the meter or several currencies"`
	Currency    string            `json:"currency,omitempty" doc:"Currency of 'amount'" example:"USD"`
}

type reconciledInvoice struct {
	ID           string           `json:"id" doc:"Id of the invoice at the provider" example:"in_1MtHbELkdIwHu7ixl4OzzPMv"`
	ConnectionID string           `json:"connection_id" example:"con_1"`
	Status       string           `json:"status" doc:"Status at the provider" example:"paid"`
	Void         bool             `json:"void" doc:"Whether the invoice bills nothing, because it was voided or fully credited"`
	Renewal      bool             `json:"renewal" doc:"Whether the invoice is the last one of its period: a renewal, the last invoice of a canceled subscription, or Odometer's finalized standalone invoice"`
	Quantity     metering.Decimal `json:"quantity" doc:"Units of the meter on the invoice"`
	Amount       metering.Decimal `json:"amount" doc:"Amount of the meter on the invoice, before discounts and tax"`
	Currency     string           `json:"currency" example:"USD"`
	FinalizedAt  *time.Time       `json:"finalized_at" doc:"Time at which the provider finalized the invoice. Null while it can change"`
}

func showReconciliation(r ledger.Reconciled) reconciliation {
	text := r.Reason.Text()
	if r.Actor != "" { // an operator has decided
		text.NextStep = ""
	}
	shown := reconciliation{
		CustomerID: r.CustomerID.String(), ExternalID: r.ExternalID, CustomerName: r.CustomerName,
		Period:  reconciledPeriod{r.PeriodID.String(), r.Period.Start.UTC(), r.Period.End.UTC()},
		MeterID: r.MeterID.String(), MeterSlug: r.MeterSlug,
		Bills: r.Bills, Ours: reconciledOurs{r.Usage, r.Charge, r.Currency}, Accepted: r.Accepted, Counted: r.Counted,
		Invoiced: reconciledTheirs{r.Invoiced, r.Unexplained, r.InvoicedAmount, r.InvoicedCurrency},
		State:    r.State, Reason: r.Reason, Text: text, Actions: append([]billing.Decision{}, r.Decisions()...),
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

func showReconciledInvoice(i ledger.ReconciledInvoice) reconciledInvoice {
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
	Period   string                      `query:"period" maxLength:"64" doc:"Id of a billing period"`
}

type listReconciliationsOutput struct{ Body List[reconciliation] }

// listReconciliations lists the meters of closed periods with the amounts of the provider's invoices.
func (s *server) listReconciliations(ctx context.Context, in *listReconciliationsInput) (*listReconciliationsOutput, error) {
	filter := ledger.ReconciliationFilter{State: in.State}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return nil, withLocation("query.customer", err)
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
	return &listReconciliationsOutput{listOf(ctx, s, list, showReconciliation, ledger.Reconciled.Key)}, nil
}

type decideInput struct {
	Period string `path:"period" maxLength:"64" doc:"Id of the billing period" example:"per_42"`
	Meter  string `path:"meter" maxLength:"64" doc:"The meter's slug"`
	Body   Because
}

type decideOutput struct{ Body reconciliation }

// decide returns the handler of an operator's decision about a discrepancy.
func (s *server) decide(decision billing.Decision) func(context.Context, *decideInput) (*decideOutput, error) {
	return func(ctx context.Context, in *decideInput) (*decideOutput, error) {
		reason, err := in.Body.reason()
		if err != nil {
			return nil, err
		}
		m, err := s.meter(ctx, in.Meter)
		if err != nil {
			return nil, withLocation("path.meter", err)
		}
		period, _ := metering.ParsePeriodID(in.Period) // 0 on error; no period has this ID
		who := principalOf(ctx)
		decided, err := s.Store.Reconciliations.Decide(ctx, who.Tenant.ID, ledger.ReconciliationKey{Period: period, Meter: m.ID},
			ledger.Verdict{Decision: decision, Actor: who.Actor, Note: reason}, s.Now())
		if err != nil {
			return nil, withLocation("path.period", err)
		}
		return &decideOutput{showReconciliation(decided)}, nil
	}
}
