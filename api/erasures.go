package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

type eraseCustomerInput struct {
	CustomerPath
	Body struct {
		Confirm string `json:"confirm" maxLength:"255" doc:"The customer's external_id, to confirm the erasure. An erasure cannot be undone" example:"acme"`
		Because
	}
}

type eraseCustomerOutput struct{ Body customer }

func (s *server) registerErasures() {
	huma.Register(s.api, accepted(post("erase-customer", "/v1/customers/{external_id}/erase", CustomersErase, "Erase a customer's personal data",
		"Replaces the external ID, the name, the metadata and the content of the customer's events with digests. Totals, bills and reports are kept.\n\n"+
			"- Afterwards, the external ID is `erased-<number>`, and events with that ID are rejected.\n"+
			"- Returns 409 `paused` while the customer is paused, if the tenant has a billing provider.\n"+
			"- Returns 409 while usage is unreported, a report is outstanding or a sync has not ended. Also returns 409 while a closed period is not fully "+
			"billed or an invoice is held. The error names the cause.\n"+
			"- Returns 409 if the customer is erased already.")), s.eraseCustomer)
}

// eraseCustomer renames the customer immediately. A workflow run erases the customer's other data. If Temporal
// does not respond, a worker starts the run later.
func (s *server) eraseCustomer(ctx context.Context, in *eraseCustomerInput) (*eraseCustomerOutput, error) {
	reason, err := in.Body.reason()
	if err != nil {
		return nil, err
	}
	externalID, err := in.externalID()
	if err != nil {
		return nil, err
	}
	if in.Body.Confirm != externalID {
		return nil, metering.Invalid("body.confirm", "must equal the customer's external_id")
	}
	if _, err := s.customer(ctx, externalID); err != nil {
		return nil, err
	}
	who := principalOf(ctx)
	erased, err := s.Store.Erasures.Begin(ctx, who.Tenant.ID, who.Actor, externalID, reason, s.Now())
	if err != nil {
		return nil, err
	}
	if err := workflows.StartEraseCustomer(context.WithoutCancel(ctx), s.Temporal, who.Tenant.ID, erased.ID); err != nil {
		s.Log.WarnContext(ctx, "start the erasure: Temporal did not answer, a worker starts it", "customer", erased.ID, "error", err)
	}
	return &eraseCustomerOutput{showCustomer(erased)}, nil
}
