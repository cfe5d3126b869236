package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// registerCalculations registers the operation that calculates charges without a meter.
func (s *server) registerCalculations() {
	huma.Register(s.api, reading(post("calculate-charges", "/v1/pricing/calculate", PricingRead, "Calculate the charges of terms",
		"Takes the terms of a price and up to 100 quantities. Returns the charge of a billing period for each quantity, and saves nothing.\n\n"+
			"- The terms are validated as for setting a price. No meter and no customer is read.\n- With 'dimensions', by_dimension of each quantity has the usage of combinations of values.\n"+
			"- A response has at most 5,000 steps. Beyond that, the request returns 422.")), s.calculateCharges)
}

// maxCalculatedSteps is the maximum number of steps in a response, because a request of 100 KB could otherwise have a
// response of 50 MB.
const maxCalculatedSteps = 5000

// Quantity is hypothetical usage of a billing period.
type Quantity struct {
	Quantity    SentDecimal         `json:"quantity" required:"false" doc:"Usage of the billing period in units of the meter. A quantity below 0 is charged as 0. Required, except with 'dimensions'"`
	EventCount  int64               `json:"event_count,omitempty" minimum:"0" maximum:"1000000000000" doc:"Number of counted events, for fixed_fee. Default: 0"`
	ByDimension []DimensionQuantity `json:"by_dimension,omitempty" maxItems:"101" doc:"Usage of the billing period by values of properties, instead of 'quantity' and event_count. Only with 'dimensions'"`
}

// DimensionQuantity is hypothetical usage with one combination of values.
type DimensionQuantity struct {
	Dimension  map[string]metering.Scalar `json:"dimension" doc:"Value of each property of 'by'. Null is the value of events without the property"`
	Quantity   SentDecimal                `json:"quantity" doc:"Usage with these values in units of the meter"`
	EventCount int64                      `json:"event_count,omitempty" minimum:"0" maximum:"1000000000000" doc:"Number of counted events, for fixed_fee. Default: 0"`
}

type calculateInput struct {
	Body struct {
		SentTerms
		Usage []Quantity `json:"usage" minItems:"1" maxItems:"100" doc:"Quantities to charge, each as the usage of one billing period"`
		Steps *bool      `json:"steps,omitempty" doc:"Whether the response contains the steps of each charge. Default: true"`
	}
}

type calculation struct {
	Currency string             `json:"currency" example:"USD"`
	Charges  []calculatedCharge `json:"charges" doc:"One charge for each quantity, in the order of the request"`
}

type calculatedCharge struct {
	Quantity   metering.Decimal `json:"quantity" doc:"Quantity of the request, or the sum of by_dimension"`
	EventCount int64            `json:"event_count" doc:"Number of events of the request, or the sum of by_dimension"`
	Charge     metering.Decimal `json:"charge" doc:"Charge, rounded half to even to the currency's minor unit"`
	Steps      []step           `json:"steps,omitempty" doc:"Steps from the quantity to the charge, which is the last step. They are the steps of GET /v1/billing/explain, without price_version. Absent if the request has 'steps' set to false"`
}

type calculateOutput struct{ Body calculation }

func (s *server) calculateCharges(ctx context.Context, in *calculateInput) (*calculateOutput, error) {
	terms, err := in.Body.terms(principalOf(ctx).Tenant.Currency)
	if err != nil {
		return nil, err
	}
	withSteps, steps := in.Body.Steps == nil || *in.Body.Steps, 0
	out := &calculateOutput{calculation{Currency: terms.Currency, Charges: []calculatedCharge{}}}
	for n, q := range in.Body.Usage {
		of, err := q.measured(fmt.Sprintf("body.usage[%d]", n), terms.Dimensions)
		if err != nil {
			return nil, err
		}
		charge := calculatedCharge{Quantity: of.Units, EventCount: of.Events, Charge: terms.ChargeIn(terms.Currency, of)}
		if withSteps {
			charge.Steps = showSteps(terms.ChargeSteps(of))
			if steps += countSteps(charge.Steps); steps > maxCalculatedSteps {
				return nil, metering.Invalid("body.usage", "must have fewer quantities, because the charges have more than %d steps; or set steps to false", maxCalculatedSteps)
			}
		}
		out.Body.Charges = append(out.Body.Charges, charge)
	}
	return out, nil
}

// measured returns the usage to charge. location identifies the quantity in the request, for errors.
func (q Quantity) measured(location string, by *billing.Dimensions) (of billing.Measured, err error) {
	if by == nil {
		switch {
		case q.ByDimension != nil:
			return of, metering.Invalid(location+".by_dimension", "must be absent without dimensions; use quantity")
		case !q.Quantity.sent:
			return of, metering.Invalid(location+".quantity", "is required")
		}
		return billing.Measured{Units: q.Quantity.Decimal, Events: q.EventCount}, nil
	}
	switch {
	case q.Quantity.sent:
		return of, metering.Invalid(location+".quantity", "must be absent with dimensions; use by_dimension")
	case q.EventCount != 0:
		return of, metering.Invalid(location+".event_count", "must be absent with dimensions; use event_count of by_dimension")
	}
	for n, part := range q.ByDimension {
		usage, err := part.usage(fmt.Sprintf("%s.by_dimension[%d]", location, n), by)
		if err != nil {
			return of, err
		}
		of.Dimensions = billing.AddDimensions(of.Dimensions, []billing.DimensionUsage{usage})
		of.Units, of.Events = of.Units.Add(usage.Units), of.Events+usage.Events
	}
	return of, nil
}

func (q DimensionQuantity) usage(at string, by *billing.Dimensions) (billing.DimensionUsage, error) {
	for _, property := range slices.Sorted(maps.Keys(q.Dimension)) {
		if !slices.Contains(by.By, property) {
			return billing.DimensionUsage{}, metering.Invalid(at+".dimension", "must have only properties of dimensions.by, which are %s", strings.Join(by.By, ", "))
		}
		if err := q.Dimension[property].Validate(at + ".dimension." + property); err != nil {
			return billing.DimensionUsage{}, err
		}
	}
	if len(q.Dimension) < len(by.By) {
		return billing.DimensionUsage{}, metering.Invalid(at+".dimension", "must have a value of each property of dimensions.by, which are %s; null is the value of events without the property", strings.Join(by.By, ", "))
	}
	return billing.DimensionUsage{Key: metering.PlainJSON(q.Dimension), Units: q.Quantity.Decimal, Events: q.EventCount}, nil
}
