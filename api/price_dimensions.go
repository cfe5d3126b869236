package api

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// scalarSchema is the schema of metering.Scalar. It declares no type, because client generators would create
// a type for each of several alternatives.
type scalarSchema struct{}

func (scalarSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A string, a number, a boolean or null"}
}

// priceDimensions contains the prices by values of event properties in a response.
type priceDimensions struct {
	By      []string         `json:"by" doc:"Properties of the meter's 'group_by' that select the price"`
	Prices  []dimensionPrice `json:"prices" doc:"Prices in order. The first that matches charges the usage. If none matches, 'default' charges it; without 'default', it is unrated"`
	Default *DimensionRate   `json:"default,omitempty"` // nil: usage that no price matches is unrated
}

type dimensionPrice struct {
	Match map[string][]metering.Scalar `json:"match" doc:"Values by property. Usage matches if it has one of the values of each property"`
	DimensionRate
}

// DimensionRate is the rate of one price by dimension, or of the default. The sum of all units with this rate
// is charged as one quantity.
type DimensionRate struct {
	IncludedUnits metering.Decimal  `json:"included_units" doc:"Units that are not charged. They are subtracted from the sum of the matching units"`
	Model         billing.Model     `json:"model" doc:"How the units beyond the included units are charged"`
	OverageRate   *metering.Decimal `json:"overage_rate,omitempty" doc:"Price of each unit beyond the included units. Only with the model 'overage'"`
	UnitPrice     *metering.Decimal `json:"unit_price,omitempty" doc:"Price of each charged unit, or of per_units charged units. Only with the model per_unit"`
	PerUnits      int64             `json:"per_units,omitempty" doc:"Number of units that a unit price pays for. Absent: 1" example:"1000000"`
	Tiers         []priceTier       `json:"tiers,omitempty" doc:"Tiers of the charged units, in ascending order. Only with the models 'graduated' and 'volume'"`
	PackageSize   int64             `json:"package_size,omitempty" doc:"Number of units in a package. Only with the model 'package'" example:"1000"`
	PackagePrice  *metering.Decimal `json:"package_price,omitempty" doc:"Price of each started package. Only with the model 'package'"`
	Percent       *metering.Decimal `json:"percent,omitempty" doc:"Percentage of the charged units, which are an amount in major units of 'currency'. Only with the model 'percentage'"`
	FixedFee      *metering.Decimal `json:"fixed_fee,omitempty" doc:"Fee for each counted event. Only with the model 'percentage'"`
}

func showDimensions(d billing.Dimensions, currency string) *priceDimensions {
	shown := &priceDimensions{By: d.By}
	for _, p := range d.Prices {
		shown.Prices = append(shown.Prices, dimensionPrice{p.Match, showRate(p.Terms(currency))})
	}
	if d.Default != nil {
		shown.Default = new(showRate(d.Default.Terms(currency)))
	}
	return shown
}

func showRate(t billing.Terms) DimensionRate {
	of := showModelTerms(t)
	shown := DimensionRate{
		IncludedUnits: t.IncludedUnits, Model: of.Model, UnitPrice: of.UnitPrice, PerUnits: of.PerUnits, Tiers: of.Tiers,
		PackageSize: of.PackageSize, PackagePrice: of.PackagePrice, Percent: of.Percent, FixedFee: of.FixedFee,
	}
	if of.Model == billing.ModelOverage {
		shown.OverageRate = &t.OverageRate
	}
	return shown
}

// SentDimensions contains the prices by values of event properties in a request.
type SentDimensions struct {
	By      []string             `json:"by" minItems:"1" maxItems:"5" maxLength:"255" doc:"Properties that select the price. Each must be in the meter's 'group_by'; otherwise 409"`
	Prices  []SentDimensionPrice `json:"prices" minItems:"1" maxItems:"100" doc:"Prices in order. The first that matches charges the usage. If none matches, 'default' charges it; without 'default', it is unrated"`
	Default *SentDimensionRate   `json:"default,omitempty"` // nil: usage that no price matches is unrated
}

// SentDimensionPrice is a price in a request, with the property values that it matches.
type SentDimensionPrice struct {
	Match map[string][]metering.Scalar `json:"match" doc:"Values by property of 'by', 1 to 100 for each property. Usage matches if it has one of the values of each property"`
	SentDimensionRate
}

// SentDimensionRate is the rate of a price in a request.
type SentDimensionRate struct {
	IncludedUnits SentDecimal `json:"included_units" required:"false" doc:"Units that are not charged. They are subtracted from the sum of the matching units"`
	OverageRate   SentDecimal `json:"overage_rate" required:"false" doc:"Price of each unit beyond the included units. Required with the model 'overage'"`
	NewRate
}

func (in SentDimensions) terms(currency string) *billing.Dimensions {
	d := &billing.Dimensions{By: in.By}
	for _, p := range in.Prices {
		d.Prices = append(d.Prices, billing.DimensionPrice{Match: p.Match, Rate: billing.RateOf(p.terms(currency))})
	}
	if in.Default != nil {
		d.Default = new(billing.RateOf(in.Default.terms(currency)))
	}
	return d
}

// validate returns an error if a rate has a field of another model or has no amount.
func (in SentDimensions) validate(currency string) error {
	for n, p := range in.Prices {
		if err := p.validate(fmt.Sprintf("body.dimensions.prices[%d]", n), currency); err != nil {
			return err
		}
	}
	if in.Default == nil {
		return nil
	}
	return in.Default.validate("body.dimensions.default", currency)
}

func (in SentDimensionRate) validate(at, currency string) error {
	model := in.terms(currency).PriceModel()
	if err := in.refuseFields(at, model); err != nil {
		return err
	}
	return in.requireAmount(at, model)
}
