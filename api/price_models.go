package api

import (
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// ModelTerms contains the fields of a price in a response, except base_price, included_units, overage_rate
// and currency.
type ModelTerms struct {
	Model         billing.Model     `json:"model,omitempty" doc:"How the units beyond the included units are charged. Absent with 'dimensions'"`
	UnitPrice     *metering.Decimal `json:"unit_price,omitempty" doc:"Price of each charged unit, or of per_units charged units. Only with the model per_unit"`
	PerUnits      int64             `json:"per_units,omitempty" doc:"Number of units that a unit price pays for. Absent: 1" example:"1000000"`
	Tiers         []priceTier       `json:"tiers,omitempty" doc:"Tiers of the charged units, in ascending order. Only with the models 'graduated' and 'volume'"`
	PackageSize   int64             `json:"package_size,omitempty" doc:"Number of units in a package. Only with the model 'package'" example:"1000"`
	PackagePrice  *metering.Decimal `json:"package_price,omitempty" doc:"Price of each started package. Only with the model 'package'"`
	Percent       *metering.Decimal `json:"percent,omitempty" doc:"Percentage of the charged units, which are an amount in major units of 'currency'. Only with the model 'percentage'"`
	FixedFee      *metering.Decimal `json:"fixed_fee,omitempty" doc:"Fee for each counted event. Only with the model 'percentage'"`
	MinimumCharge *metering.Decimal `json:"minimum_charge,omitempty" doc:"Least charge for each billing period. Absent: none"`
	MaximumCharge *metering.Decimal `json:"maximum_charge,omitempty" doc:"Greatest charge for each billing period. Absent: none"`
	Dimensions    *priceDimensions  `json:"dimensions,omitempty"` // nil: all usage has one price
	Description   string            `json:"description" doc:"The price in words, for people. More than five prices, tiers or values are shortened to the first ones and the number of the others. The other fields are complete" example:"25 USD for the period, 1000 units included, 0.02 USD for each unit"`
}

type priceTier struct {
	UpTo      *metering.Decimal `json:"up_to" doc:"Last quantity of the tier, counted from the first unit beyond the included units. Null in the last tier"`
	UnitPrice metering.Decimal  `json:"unit_price" doc:"Price of each unit, or of per_units units"`
	FlatFee   metering.Decimal  `json:"flat_fee" doc:"Fee of the tier. With 'graduated', the fees of all tiers that the quantity reaches are charged. With 'volume', only the fee of the last of these tiers is charged. The first tier's fee also applies to a quantity of 0"`
}

func showModelTerms(t billing.Terms) ModelTerms {
	model := t.PriceModel()
	ofModel := func(field string, d metering.Decimal) *metering.Decimal {
		if !model.Has(field) {
			return nil
		}
		return &d
	}
	shown := ModelTerms{
		Model: model, PerUnits: t.PerUnits, PackageSize: t.PackageSize, Description: t.String(),
		UnitPrice: ofModel("unit_price", t.UnitPrice), PackagePrice: ofModel("package_price", t.PackagePrice),
		Percent: ofModel("percent", t.Percent), FixedFee: ofModel("fixed_fee", t.FixedFee),
		MinimumCharge: unlessZero(t.MinimumCharge), MaximumCharge: unlessZero(t.MaximumCharge),
	}
	shown.Tiers = showTiers(t.Tiers)
	if t.Dimensions != nil {
		shown.Model, shown.Dimensions = "", showDimensions(*t.Dimensions, t.Currency)
	}
	return shown
}

func showTiers(tiers []billing.Tier) (shown []priceTier) {
	for _, tier := range tiers {
		shown = append(shown, priceTier(tier))
	}
	return shown
}

// unlessZero returns d, or nil if d is 0.
func unlessZero(d metering.Decimal) *metering.Decimal {
	if d.IsZero() {
		return nil
	}
	return &d
}

// NewModel contains the fields of a price in a request, except base_price, included_units, overage_rate and
// currency.
type NewModel struct {
	NewRate
	MinimumCharge SentDecimal `json:"minimum_charge" required:"false" doc:"Least charge for each billing period, with or without usage, with at most the decimals of the currency's minor unit. 0: none"`
	MaximumCharge SentDecimal `json:"maximum_charge" required:"false" doc:"Greatest charge for each billing period, above 0, with at most the decimals of the currency's minor unit. Default: none"`
}

// NewRate contains the fields of a pricing model in a request.
type NewRate struct {
	Model        *billing.Model `json:"model,omitempty" doc:"How the units beyond the included units are charged. Default: 'overage'"`
	UnitPrice    SentDecimal    `json:"unit_price" required:"false" doc:"Price of each charged unit, or of per_units charged units. Required with the model per_unit"`
	PerUnits     *int64         `json:"per_units,omitempty" minimum:"1" maximum:"1000000000000" doc:"Number of units that a unit price pays for, such as 1000000. Only with the models per_unit, 'graduated' and 'volume'. Default: 1"`
	Tiers        []NewTier      `json:"tiers,omitempty" minItems:"1" maxItems:"100" doc:"Tiers in ascending order, counted from the first unit beyond the included units. Required with the models 'graduated' and 'volume'"`
	PackageSize  *int64         `json:"package_size,omitempty" minimum:"1" maximum:"1000000000000" doc:"Number of units in a package. Required with the model 'package'"`
	PackagePrice SentDecimal    `json:"package_price" required:"false" doc:"Price of each started package. Required with the model 'package'"`
	Percent      SentDecimal    `json:"percent" required:"false" doc:"Percentage of the charged units, which are an amount in major units of 'currency'. 2.9 is 2.9 %. The model 'percentage' needs 'percent', fixed_fee or both"`
	FixedFee     SentDecimal    `json:"fixed_fee" required:"false" doc:"Fee for each counted event. Only with the model 'percentage'"`
}

// NewTier is a tier of a price in a request.
type NewTier struct {
	UpTo      *SentDecimal `json:"up_to" nullable:"true" doc:"Last quantity of the tier, included in it. Null in the last tier"`
	UnitPrice SentDecimal  `json:"unit_price" doc:"Price of each unit, or of per_units units"`
	FlatFee   SentDecimal  `json:"flat_fee" required:"false" doc:"Fee of the tier. With 'graduated', the fees of all tiers that the quantity reaches are charged. With 'volume', only the fee of the last of these tiers is charged. The first tier's fee also applies to a quantity of 0"`
}

// terms returns the validated terms of a request body. currency is the default currency.
func (in NewTerms) terms(currency string) (billing.Terms, error) {
	t, err := in.unvalidatedTerms(currency)
	if err != nil {
		return t, err
	}
	rate := in.rate()
	if err := rate.refuseFields("body", t.PriceModel()); err != nil {
		return t, err
	}
	if err := t.Validate(); err != nil {
		return t, err
	}
	return t, in.requireAmount(rate, t.PriceModel())
}

// terms returns the validated terms of a request body, with or without dimensions. currency is the default
// currency.
func (in SentTerms) terms(currency string) (billing.Terms, error) {
	if in.Dimensions == nil {
		return in.NewTerms.terms(currency)
	}
	t, err := in.unvalidatedTerms(currency)
	if err != nil {
		return t, err
	}
	for _, field := range in.rate().sentFields() {
		return t, billing.BesideDimensions(field)
	}
	t.Dimensions = in.Dimensions.terms(t.Currency)
	if err := t.Validate(); err != nil {
		return t, err
	}
	return t, in.Dimensions.validate(t.Currency)
}

// unvalidatedTerms converts a request body to terms. It validates only that maximum_charge is not 0.
func (in NewTerms) unvalidatedTerms(currency string) (t billing.Terms, err error) {
	if in.Currency != nil {
		currency = *in.Currency
	}
	t = in.rate().terms(currency)
	t.BasePrice, t.MinimumCharge, t.MaximumCharge = in.BasePrice.Decimal, in.MinimumCharge.Decimal, in.MaximumCharge.Decimal
	if in.MaximumCharge.sent && t.MaximumCharge.IsZero() {
		err = metering.Invalid("body.maximum_charge", "must be greater than 0; omit it for a price without a maximum")
	}
	return t, err
}

func (in NewTerms) rate() SentDimensionRate {
	return SentDimensionRate{in.IncludedUnits, in.OverageRate, in.NewRate}
}

// terms converts a rate to billing.Terms without validating them.
func (in SentDimensionRate) terms(currency string) billing.Terms {
	t := billing.Terms{
		IncludedUnits: in.IncludedUnits.Decimal, OverageRate: in.OverageRate.Decimal, Currency: currency,
		UnitPrice: in.UnitPrice.Decimal, PackagePrice: in.PackagePrice.Decimal, Percent: in.Percent.Decimal, FixedFee: in.FixedFee.Decimal,
	}
	if in.Model != nil && *in.Model != billing.ModelOverage {
		t.Model = *in.Model
	}
	if in.PerUnits != nil {
		t.PerUnits = *in.PerUnits
	}
	if in.PackageSize != nil {
		t.PackageSize = *in.PackageSize
	}
	for _, tier := range in.Tiers {
		of := billing.Tier{UnitPrice: tier.UnitPrice.Decimal, FlatFee: tier.FlatFee.Decimal}
		if tier.UpTo != nil {
			of.UpTo = &tier.UpTo.Decimal
		}
		t.Tiers = append(t.Tiers, of)
	}
	return t
}

// sentFields returns the names of the fields that the request contains.
func (in SentDimensionRate) sentFields() (names []string) {
	for _, f := range []struct {
		name string
		sent bool
	}{
		{"model", in.Model != nil},
		{"included_units", in.IncludedUnits.sent},
		{"overage_rate", in.OverageRate.sent},
		{"unit_price", in.UnitPrice.sent},
		{"per_units", in.PerUnits != nil},
		{"tiers", in.Tiers != nil},
		{"package_size", in.PackageSize != nil},
		{"package_price", in.PackagePrice.sent},
		{"percent", in.Percent.sent},
		{"fixed_fee", in.FixedFee.sent},
	} {
		if f.sent {
			names = append(names, f.name)
		}
	}
	return names
}

// refuseFields returns an error if the rate has a field that the model does not use. location identifies the rate
// in the request.
func (in SentDimensionRate) refuseFields(location string, model billing.Model) error {
	for _, field := range in.sentFields() {
		if err := model.RefuseField(field); err != nil {
			return billing.Within(location, err)
		}
	}
	return nil
}

// requireAmount returns an error if the price has no amount, because such a price would be free by mistake.
func (in NewTerms) requireAmount(rate SentDimensionRate, model billing.Model) error {
	if model != billing.ModelOverage {
		return rate.requireAmount("body", model)
	}
	if !in.BasePrice.sent && !in.OverageRate.sent {
		return metering.Invalid("body", "must contain base_price or overage_rate; use 0 for free usage")
	}
	return nil
}

// requireAmount returns an error if the rate has no amount. location identifies the rate in the request.
func (in SentDimensionRate) requireAmount(location string, model billing.Model) error {
	field, sent := "overage_rate", in.OverageRate.sent
	switch model {
	case billing.ModelPerUnit:
		field, sent = "unit_price", in.UnitPrice.sent
	case billing.ModelPackage:
		field, sent = "package_price", in.PackagePrice.sent
	case billing.ModelPercentage:
		field, sent = "percent", in.Percent.sent || in.FixedFee.sent
	case billing.ModelGraduated, billing.ModelVolume:
		return nil // each tier has a price
	}
	if sent {
		return nil
	}
	return metering.Invalid(location+"."+field, "must be present with the model %s; use 0 for free usage", model)
}
