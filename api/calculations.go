package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// calculations registers the operation that calculates charges without a meter.
func (s *server) calculations() {
	huma.Register(s.api, reading(post("calculate-charges", "/v1/pricing/calculate", PricingRead, "Calculate the charges of terms",
		"Takes the terms of a price and up to 100 quantities. Returns the charge of a billing period for each quantity, and saves nothing.\n\n"+
			"- The terms are validated as for setting a price. No meter and no customer is read.\n- Prices by dimension cannot be calculated: 'dimensions' returns 422.")), s.calculateCharges)
}

// Quantity is usage that is not measured.
type Quantity struct {
	Quantity   SentDecimal `json:"quantity" doc:"Usage of the billing period in units of the meter. A quantity below 0 is charged as 0"`
	EventCount int64       `json:"event_count,omitempty" minimum:"0" maximum:"1000000000000" doc:"Number of counted events, for fixed_fee. Default: 0"`
}

type calculateInput struct {
	Body struct {
		NewTerms
		Usage []Quantity `json:"usage" minItems:"1" maxItems:"100" doc:"Quantities to charge, each as the usage of one billing period"`
		Steps *bool      `json:"steps,omitempty" doc:"Whether the response contains the steps of each charge. Default: true"`
	}
}

type calculation struct {
	Currency string             `json:"currency" example:"USD"`
	Charges  []calculatedCharge `json:"charges" doc:"One charge for each quantity, in the order of the request"`
}

type calculatedCharge struct {
	Quantity   metering.Decimal `json:"quantity" doc:"Quantity of the request"`
	EventCount int64            `json:"event_count" doc:"Number of events of the request"`
	Charge     metering.Decimal `json:"charge" doc:"Charge, rounded half to even to the currency's minor unit"`
	Steps      []step           `json:"steps,omitempty" doc:"Steps from the quantity to the charge, which is the last step. They are the steps of GET /v1/billing/explain, without price_version. Absent if the request has 'steps' set to false"`
}

type calculateOutput struct{ Body calculation }

func (s *server) calculateCharges(ctx context.Context, in *calculateInput) (*calculateOutput, error) {
	terms, err := in.Body.terms(principalOf(ctx).Tenant.Currency)
	if err != nil {
		return nil, err
	}
	withSteps := in.Body.Steps == nil || *in.Body.Steps
	out := &calculateOutput{calculation{Currency: terms.Currency, Charges: []calculatedCharge{}}}
	for _, q := range in.Body.Usage {
		of := billing.Measured{Units: q.Quantity.Decimal, Events: q.EventCount}
		charge := calculatedCharge{Quantity: of.Units, EventCount: of.Events, Charge: terms.ChargeIn(terms.Currency, of)}
		if withSteps {
			charge.Steps = showSteps(terms.ChargeSteps(of))
		}
		out.Body.Charges = append(out.Body.Charges, charge)
	}
	return out, nil
}
