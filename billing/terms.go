package billing

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/odometer-metering/odometer/metering"
)

// Terms are all that a charge depends on beside the units. They never change:
// whatever was charged keeps the hash of those that it was charged by.
type Terms struct {
	BasePrice     metering.Decimal `json:"base_price"`     // per billing period, in Currency
	IncludedUnits metering.Decimal `json:"included_units"` // covered by the base price
	OverageRate   metering.Decimal `json:"overage_rate"`   // per unit beyond the included ones
	Currency      string           `json:"currency"`       // ISO 4217

	Model         Model            `json:"model,omitzero"`          // how the units beyond the included ones are charged; "": by OverageRate
	UnitPrice     metering.Decimal `json:"unit_price,omitzero"`     // of PerUnits units
	PerUnits      int64            `json:"per_units,omitzero"`      // units that a unit price buys; 0: one
	Tiers         []Tier           `json:"tiers,omitempty"`         // of units beyond the included ones
	PackageSize   int64            `json:"package_size,omitzero"`   // units of a package
	PackagePrice  metering.Decimal `json:"package_price,omitzero"`  // of each started package
	Percent       metering.Decimal `json:"percent,omitzero"`        // of the units, which are an amount in Currency
	FixedFee      metering.Decimal `json:"fixed_fee,omitzero"`      // of each counted event
	MinimumCharge metering.Decimal `json:"minimum_charge,omitzero"` // per billing period
	MaximumCharge metering.Decimal `json:"maximum_charge,omitzero"` // per billing period; 0: none

	Dimensions *Dimensions `json:"dimensions,omitempty"` // nil: all usage has one price
}

// Model is how a price charges the units beyond the included ones.
type Model string

// The models of a price.
const (
	ModelOverage    Model = "overage" // each unit costs the overage rate; Terms have "" for it
	ModelPerUnit    Model = "per_unit"
	ModelGraduated  Model = "graduated" // each unit costs the price of its own tier
	ModelVolume     Model = "volume"    // all units cost the price of the tier that the quantity reaches
	ModelPackage    Model = "package"
	ModelPercentage Model = "percentage"
)

// Values returns all models.
func (Model) Values() []Model {
	return []Model{ModelOverage, ModelPerUnit, ModelGraduated, ModelVolume, ModelPackage, ModelPercentage}
}

// Tier is the price of units up to a bound.
type Tier struct {
	UpTo      *metering.Decimal `json:"up_to"` // the last quantity of the tier; nil: it is the last tier
	UnitPrice metering.Decimal  `json:"unit_price"`
	FlatFee   metering.Decimal  `json:"flat_fee,omitzero"` // for quantities beyond the previous bound, in the first tier also for 0
}

// TermsSchema is the version of the form that terms are kept in.
const TermsSchema = 1

// Hash is the SHA-256 of the terms as they are kept.
func (t Terms) Hash() [sha256.Size]byte { return sha256.Sum256(t.JSON()) }

// JSON is how terms are kept: decimals without zeros at their end, and always
// the same fields in the same order.
func (t Terms) JSON() []byte {
	text, err := json.Marshal(struct {
		Schema int `json:"schema"`
		Terms
	}{TermsSchema, t})
	if err != nil {
		panic(err) // decimals and a text are always written
	}
	return text
}

// PriceModel returns the model, ModelOverage included.
func (t Terms) PriceModel() Model {
	if t.Model == "" {
		return ModelOverage
	}
	return t.Model
}
