package billing

import (
	"fmt"

	"github.com/odometer-metering/odometer/metering"
)

// providerForm is a price in the form that providers use. Its tiers contain the base price and the included
// units, and each unit price is for one unit.
type providerForm struct {
	model        Model // ModelGraduated, ModelVolume or ModelPackage
	tiers        []Tier
	packageSize  int64
	packagePrice metering.Decimal
}

// modelName returns the name of the model. A single tier without a flat fee is the model per_unit.
func (f providerForm) modelName() string {
	if len(f.tiers) == 1 && f.tiers[0].FlatFee.IsZero() {
		return string(ModelPerUnit)
	}
	return string(f.model)
}

// providerForm converts the terms to the form that providers use. If this form cannot express a field of the
// terms, without names the field.
func (t Terms) providerForm() (f providerForm, without string) {
	switch {
	case t.Dimensions != nil:
		return f, "dimensions"
	case !t.MinimumCharge.IsZero():
		return f, "minimum_charge"
	case !t.MaximumCharge.IsZero():
		return f, "maximum_charge"
	case !t.FixedFee.IsZero():
		return f, "fixed_fee"
	case t.Model == ModelPackage:
		return t.packageForm()
	case t.Model == ModelVolume && len(t.Tiers) > 1:
		return t.volumeForm()
	}
	return providerForm{model: ModelGraduated, tiers: merged(t.fromZero(t.unitTiers()))}, ""
}

// packageForm does the work of providerForm for the model package.
func (t Terms) packageForm() (f providerForm, without string) {
	switch {
	case !t.BasePrice.IsZero():
		return f, "base_price with the model package"
	case !t.IncludedUnits.IsZero():
		return f, "included_units with the model package"
	}
	return providerForm{model: ModelPackage, packageSize: t.PackageSize, packagePrice: t.PackagePrice}, ""
}

// volumeForm does the work of providerForm for the model volume. It adds the base price to the flat fee of each tier,
// because only one tier is charged.
func (t Terms) volumeForm() (f providerForm, without string) {
	if !t.IncludedUnits.IsZero() {
		return f, "included_units with the model volume"
	}
	tiers := t.unitTiers()
	for i := range tiers {
		tiers[i].FlatFee = tiers[i].FlatFee.Add(t.BasePrice)
	}
	return providerForm{model: ModelVolume, tiers: tiers}, ""
}

// unitTiers returns the tiers of the units beyond the included units, with unit prices for one unit. Terms without
// tiers result in a single tier.
func (t Terms) unitTiers() []Tier {
	if rate, _ := t.rate(); len(t.Tiers) == 0 {
		return []Tier{{UnitPrice: rate}}
	}
	tiers := make([]Tier, len(t.Tiers))
	for i, tier := range t.Tiers {
		tier.UnitPrice = t.perUnits(tier.UnitPrice)
		tiers[i] = tier
	}
	return tiers
}

// fromZero converts tiers of the units beyond the included units to tiers of all units. If there are included units,
// a new first tier contains them and takes over the flat fee of the previous first tier. fromZero adds the base price
// to the flat fee of the first tier. It modifies the elements of tiers.
func (t Terms) fromZero(tiers []Tier) []Tier {
	tiers[0].FlatFee = tiers[0].FlatFee.Add(t.BasePrice)
	if t.IncludedUnits.IsZero() {
		return tiers
	}
	included := Tier{UpTo: &t.IncludedUnits, FlatFee: tiers[0].FlatFee}
	tiers[0].FlatFee = metering.Decimal{}
	for i := range tiers {
		if tiers[i].UpTo != nil {
			tiers[i].UpTo = new(tiers[i].UpTo.Add(t.IncludedUnits))
		}
	}
	return append([]Tier{included}, tiers...)
}

// merged joins each tier without a flat fee to the previous tier if both have the same unit price.
func merged(tiers []Tier) (all []Tier) {
	for _, tier := range tiers {
		if n := len(all); n > 0 && tier.FlatFee.IsZero() && tier.UnitPrice.Equal(all[n-1].UnitPrice) {
			all[n-1].UpTo = tier.UpTo
			continue
		}
		all = append(all, tier)
	}
	return all
}

// FirstDifference describes the first difference between t and the provider's terms, apart from rounding. It
// returns "" if both charge the same. If a field cannot be compared, the text names that field.
func (t Terms) FirstDifference(theirs Terms) string {
	ours, without := t.providerForm()
	if without != "" {
		return "the provider has no form of " + without
	}
	other, without := theirs.providerForm()
	switch {
	case without != "":
		return "Odometer compares no " + without + " of a provider"
	case t.Currency != theirs.Currency:
		return differing("currency", t.Currency, theirs.Currency)
	case ours.model != other.model:
		return differing("model", ours.modelName(), other.modelName())
	case ours.packageSize != other.packageSize:
		return differing("package_size", fmt.Sprint(ours.packageSize), fmt.Sprint(other.packageSize))
	case !ours.packagePrice.Equal(other.packagePrice):
		return differing("package_price", ours.packagePrice.String(), other.packagePrice.String())
	}
	for n := range min(len(ours.tiers), len(other.tiers)) {
		if d := differenceInTier(ours.tiers[n], other.tiers[n]); d != "" {
			return fmt.Sprintf("tier %d: %s", n+1, d)
		}
	}
	return "" // no further tiers: only a last tier has no bound, and the compared bounds are equal
}

// differenceInTier describes the first difference between two tiers. It returns "" if they are equal.
func differenceInTier(ours, theirs Tier) string {
	switch {
	case !ours.UnitPrice.Equal(theirs.UnitPrice):
		return differing("unit_price", ours.UnitPrice.String(), theirs.UnitPrice.String())
	case !ours.FlatFee.Equal(theirs.FlatFee):
		return differing("flat_fee", ours.FlatFee.String(), theirs.FlatFee.String())
	case boundText(ours.UpTo) != boundText(theirs.UpTo):
		return differing("up_to", boundText(ours.UpTo), boundText(theirs.UpTo))
	}
	return ""
}

// boundText returns the bound of a tier as text; "null" if the tier has none.
func boundText(upTo *metering.Decimal) string {
	if upTo == nil {
		return "null"
	}
	return upTo.String()
}

// differing returns the text for a field with different values.
func differing(field, ours, theirs string) string {
	return fmt.Sprintf("%s is %s in Odometer and %s at the provider", field, ours, theirs)
}
