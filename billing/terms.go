package billing

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Terms are all that a charge depends on beside the units. They never change:
// whatever was charged keeps the hash of those that it was charged by.
type Terms struct {
	BasePrice     metering.Decimal `json:"base_price"`     // per billing period, in Currency
	IncludedUnits metering.Decimal `json:"included_units"` // covered by the base price
	OverageRate   metering.Decimal `json:"overage_rate"`   // per unit beyond the included ones
	Currency      string           `json:"currency"`       // ISO 4217
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

// Validate checks what a client may choose.
func (t Terms) Validate() error {
	for _, amount := range []struct {
		field string
		value metering.Decimal
	}{{"base_price", t.BasePrice}, {"included_units", t.IncludedUnits}, {"overage_rate", t.OverageRate}} {
		if amount.value.IsNegative() {
			return metering.Invalid("body."+amount.field, "must not be negative")
		}
	}
	return metering.ValidCurrency("body.currency", t.Currency)
}

// Charge is base_price + max(0, usage − included_units) × overage_rate, exact.
func (t Terms) Charge(usage metering.Decimal) metering.Decimal {
	return t.BasePrice.Add(t.overageCharge(usage))
}

func (t Terms) overageCharge(usage metering.Decimal) metering.Decimal {
	return t.Overage(usage).Mul(t.OverageRate)
}

// ChargeIn is Charge as it leaves for a provider, in the currency's minor unit.
func (t Terms) ChargeIn(currency string, usage metering.Decimal) metering.Decimal {
	return RoundMoney(t.Charge(usage), currency)
}

// UnitPrice is what the last of so many units costs.
func (t Terms) UnitPrice(metering.Decimal) metering.Decimal { return t.OverageRate }

// PerUnit is what each unit costs, where each costs the same and nothing else is charged.
func (t Terms) PerUnit() (rate metering.Decimal, same bool) {
	return t.OverageRate, t.BasePrice.IsZero() && t.IncludedUnits.IsZero()
}

// Overage is the usage beyond the included units, never below zero.
func (t Terms) Overage(usage metering.Decimal) metering.Decimal {
	over := usage.Sub(t.IncludedUnits)
	if over.IsNegative() {
		return metering.Decimal{}
	}
	return over
}

// String is what the terms charge, in words.
func (t Terms) String() string {
	var parts []string
	if !t.BasePrice.IsZero() {
		parts = append(parts, fmt.Sprintf("%s %s for the period", t.BasePrice, t.Currency))
	}
	if !t.IncludedUnits.IsZero() {
		parts = append(parts, fmt.Sprintf("%s units included", t.IncludedUnits))
	}
	return strings.Join(append(parts, fmt.Sprintf("%s %s for each unit", t.OverageRate, t.Currency)), ", ")
}
