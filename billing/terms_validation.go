package billing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Limits of the fields of a price.
const (
	MaxTiers   = 100
	MaxPerUnit = 1_000_000_000_000 // maximum of PerUnits and of PackageSize
)

// modelFields maps a JSON field of Terms to the models that allow it. All models allow the other fields.
var modelFields = map[string][]Model{
	"overage_rate":  {ModelOverage},
	"unit_price":    {ModelPerUnit},
	"per_units":     {ModelPerUnit, ModelGraduated, ModelVolume},
	"tiers":         {ModelGraduated, ModelVolume},
	"package_size":  {ModelPackage},
	"package_price": {ModelPackage},
	"percent":       {ModelPercentage},
	"fixed_fee":     {ModelPercentage},
}

// Has reports whether prices of the model may have the JSON field of Terms.
func (m Model) Has(field string) bool {
	models, some := modelFields[field]
	return !some || slices.Contains(models, m)
}

// RefuseField returns an error if prices of the model cannot have the field.
func (m Model) RefuseField(field string) error {
	if m.Has(field) {
		return nil
	}
	var names []string
	for _, model := range modelFields[field] {
		names = append(names, string(model))
	}
	return metering.Invalid("body."+field, "must be absent with the model %s; it belongs to the model %s", m, strings.Join(names, ", "))
}

// Validate checks the fields that a client can set. The error names the first invalid field, such as
// body.tiers[0].up_to.
func (t Terms) Validate() error {
	if !slices.Contains(Model("").Values(), t.PriceModel()) {
		return metering.Invalid("body.model", "must be one of overage, per_unit, graduated, volume, package, percentage")
	}
	for _, a := range t.amounts() {
		if a.value.IsNegative() {
			return metering.Invalid("body."+a.field, "must not be negative")
		}
		if err := t.PriceModel().RefuseField(a.field); err != nil && !a.value.IsZero() {
			return err
		}
	}
	if err := metering.ValidCurrency("body.currency", t.Currency); err != nil {
		return err
	}
	for _, check := range []func() error{t.validPerUnits, t.validPackages, t.validTiers, t.validBounds, t.validDimensions} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// amount is a decimal field of Terms with its JSON name.
type amount struct {
	field string
	value metering.Decimal
}

// amounts returns the decimal fields of the terms, except those of tiers and dimensions.
func (t Terms) amounts() []amount {
	return []amount{
		{"base_price", t.BasePrice}, {"included_units", t.IncludedUnits}, {"overage_rate", t.OverageRate}, {"unit_price", t.UnitPrice},
		{"package_price", t.PackagePrice}, {"percent", t.Percent}, {"fixed_fee", t.FixedFee},
		{"minimum_charge", t.MinimumCharge}, {"maximum_charge", t.MaximumCharge},
	}
}

// validPerUnits returns an error if PerUnits is set and the model does not allow it, or if it is out of bounds.
func (t Terms) validPerUnits() error {
	if t.PerUnits == 0 {
		return nil
	}
	if err := t.PriceModel().RefuseField("per_units"); err != nil {
		return err
	}
	return validCount("body.per_units", t.PerUnits)
}

// validPackages returns an error if PackageSize is set and the model does not allow it, or if it is out of bounds. The
// model package requires it.
func (t Terms) validPackages() error {
	if t.Model != ModelPackage && t.PackageSize == 0 {
		return nil
	}
	if err := t.PriceModel().RefuseField("package_size"); err != nil {
		return err
	}
	return validCount("body.package_size", t.PackageSize)
}

// validCount returns an error unless n is from 1 to MaxPerUnit.
func validCount(field string, n int64) error {
	if n < 1 || n > MaxPerUnit {
		return metering.Invalid(field, "must be a whole number from 1 to %d", int64(MaxPerUnit))
	}
	return nil
}

// validBounds returns an error if the maximum charge is less than the minimum charge. It also returns an error for a
// bound with more decimals than the currency, because a rounded charge could exceed the bound.
func (t Terms) validBounds() error {
	digits := metering.MinorDigits(t.Currency)
	for _, bound := range []amount{{"minimum_charge", t.MinimumCharge}, {"maximum_charge", t.MaximumCharge}} {
		if !bound.value.Equal(bound.value.Round(digits)) {
			return metering.Invalid("body."+bound.field, "must have at most %d decimals, because charges in %s are rounded to %d decimals", digits, t.Currency, digits)
		}
	}
	if !t.MaximumCharge.IsZero() && t.MaximumCharge.Cmp(t.MinimumCharge) < 0 {
		return metering.Invalid("body.maximum_charge", "must not be less than minimum_charge, which is %s", t.MinimumCharge)
	}
	return nil
}

// validTiers returns an error if the model does not allow the number of tiers, or if a tier is invalid.
func (t Terms) validTiers() error {
	tiered := t.PriceModel().Has("tiers")
	switch n := len(t.Tiers); {
	case !tiered && n > 0:
		return t.PriceModel().RefuseField("tiers")
	case tiered && (n == 0 || n > MaxTiers):
		return metering.Invalid("body.tiers", "must contain 1 to %d tiers with the model %s", MaxTiers, t.Model)
	}
	for n, tier := range t.Tiers {
		if err := t.validTier(n, tier); err != nil {
			return err
		}
	}
	return nil
}

// validTier returns an error if tier n has a negative price, or a bound that does not exceed the previous one. Only the
// last tier must have no bound.
func (t Terms) validTier(n int, tier Tier) error {
	field := func(name string) string { return fmt.Sprintf("body.tiers[%d].%s", n, name) }
	last := n == len(t.Tiers)-1
	switch {
	case tier.UnitPrice.IsNegative():
		return metering.Invalid(field("unit_price"), "must not be negative")
	case tier.FlatFee.IsNegative():
		return metering.Invalid(field("flat_fee"), "must not be negative")
	case last && tier.UpTo != nil:
		return metering.Invalid(field("up_to"), "must be null in the last tier; add a tier with up_to null for larger quantities")
	case last:
		return nil
	case tier.UpTo == nil:
		return metering.Invalid(field("up_to"), "must be a number in every tier except the last")
	case n == 0 && tier.UpTo.Cmp(metering.Decimal{}) <= 0:
		return metering.Invalid(field("up_to"), "must be greater than 0")
	case n > 0 && tier.UpTo.Cmp(*t.Tiers[n-1].UpTo) <= 0:
		return metering.Invalid(field("up_to"), "must be greater than tiers[%d].up_to, which is %s", n-1, *t.Tiers[n-1].UpTo)
	}
	return nil
}
