package billing

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/odometer-metering/odometer/metering"
)

// Terms are the part of a price that determines the charge for given usage. They are immutable and stored under
// their hash. Each charge keeps the hash of its terms.
type Terms struct {
	BasePrice     metering.Decimal `json:"base_price"`     // per billing period, in Currency
	IncludedUnits metering.Decimal `json:"included_units"` // units covered by the base price
	OverageRate   metering.Decimal `json:"overage_rate"`   // per unit beyond the included units
	Currency      string           `json:"currency"`       // ISO 4217

	Model         Model            `json:"model,omitzero"`          // for units beyond IncludedUnits; "": ModelOverage
	UnitPrice     metering.Decimal `json:"unit_price,omitzero"`     // price of PerUnits units
	PerUnits      int64            `json:"per_units,omitzero"`      // number of units that a unit price pays for; 0: 1
	Tiers         []Tier           `json:"tiers,omitempty"`         // tiers of the units beyond the included units
	PackageSize   int64            `json:"package_size,omitzero"`   // number of units in a package
	PackagePrice  metering.Decimal `json:"package_price,omitzero"`  // price of each started package
	Percent       metering.Decimal `json:"percent,omitzero"`        // of the units, which are an amount in Currency
	FixedFee      metering.Decimal `json:"fixed_fee,omitzero"`      // fee for each counted event
	MinimumCharge metering.Decimal `json:"minimum_charge,omitzero"` // per billing period
	MaximumCharge metering.Decimal `json:"maximum_charge,omitzero"` // per billing period; 0: none

	Dimensions *Dimensions `json:"dimensions,omitempty"` // prices by dimension; nil: all usage has the same price
}

// Model is the rule by which a price charges the units beyond the included units.
type Model string

// The models of a price.
const (
	ModelOverage    Model = "overage" // each unit costs the overage rate; Terms.Model is "" instead
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

// Tier is one tier of a graduated or volume price. The units beyond the included units reach a tier if they exceed the
// bound of the previous tier. They always reach the first tier. ModelVolume charges only the last tier reached.
type Tier struct {
	UpTo      *metering.Decimal `json:"up_to"` // last quantity in the tier; nil: no limit, as in the last tier
	UnitPrice metering.Decimal  `json:"unit_price"`
	FlatFee   metering.Decimal  `json:"flat_fee,omitzero"` // once, if the tier is charged
}

// TermsSchema is the version of the stored encoding of terms.
const TermsSchema = 1

// Hash returns the SHA-256 of the stored encoding of the terms.
func (t Terms) Hash() [sha256.Size]byte { return sha256.Sum256(t.JSON()) }

// JSON returns the encoding of the terms for storage. It is deterministic: fields have a fixed order, and
// decimals have no trailing zeros.
func (t Terms) JSON() []byte {
	text, err := json.Marshal(struct {
		Schema int `json:"schema"`
		Terms
	}{TermsSchema, t})
	if err != nil {
		panic(err) // unreachable: the fields of Terms always encode as JSON
	}
	return text
}

// PriceModel returns the model, with ModelOverage in place of "".
func (t Terms) PriceModel() Model {
	if t.Model == "" {
		return ModelOverage
	}
	return t.Model
}
