package billing

import (
	"cmp"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Price is what one meter costs in one currency, by itself or in a product. The
// first one holds from the beginning; each later one from its EffectiveFrom.
type Price struct {
	MeterID       metering.MeterID
	ProductID     metering.ProductID // 0: the meter's own
	Version       int
	BasePrice     metering.Decimal // per billing period, in Currency
	IncludedUnits metering.Decimal // covered by the base price
	OverageRate   metering.Decimal // per unit beyond the included ones
	Currency      string           // ISO 4217
	EffectiveFrom time.Time
	CreatedAt     time.Time
}

// Validate checks what a client may choose.
func (p Price) Validate() error {
	for _, amount := range []struct {
		field string
		value metering.Decimal
	}{{"base_price", p.BasePrice}, {"included_units", p.IncludedUnits}, {"overage_rate", p.OverageRate}} {
		if amount.value.IsNegative() {
			return metering.Invalid("body."+amount.field, "must not be negative")
		}
	}
	return metering.ValidCurrency("body.currency", p.Currency)
}

// Charge is base_price + max(0, usage − included_units) × overage_rate, exact.
func (p Price) Charge(usage metering.Decimal) metering.Decimal {
	return p.BasePrice.Add(p.overageCharge(usage))
}

func (p Price) overageCharge(usage metering.Decimal) metering.Decimal {
	return p.Overage(usage).Mul(p.OverageRate)
}

// ChargeIn is Charge as it leaves for a provider, in the currency's minor unit.
func (p Price) ChargeIn(currency string, usage metering.Decimal) metering.Decimal {
	return RoundMoney(p.Charge(usage), currency)
}

// Overage is the usage beyond the included units, never below zero.
func (p Price) Overage(usage metering.Decimal) metering.Decimal {
	over := usage.Sub(p.IncludedUnits)
	if over.IsNegative() {
		return metering.Decimal{}
	}
	return over
}

// PriceAt returns the price in force at t for who has a product, or none (0):
// the product's, else the meter's own.
func PriceAt(versions []Price, product metering.ProductID, t time.Time) (in Price, ok bool) {
	if in, ok = priceOf(versions, product, t); !ok && product != 0 {
		return priceOf(versions, 0, t)
	}
	return in, ok
}

// priceOf returns the price with the last EffectiveFrom that is not after t,
// and of two with the same the later version.
func priceOf(versions []Price, product metering.ProductID, t time.Time) (in Price, ok bool) {
	for _, p := range versions {
		if p.ProductID != product || p.EffectiveFrom.After(t) {
			continue
		}
		order := cmp.Or(p.EffectiveFrom.Compare(in.EffectiveFrom), cmp.Compare(p.Version, in.Version))
		if !ok || order > 0 {
			in, ok = p, true
		}
	}
	return in, ok
}

// minorDigits lists the ISO 4217 currencies whose minor unit is not a
// hundredth (ISO 4217:2015, table A.1).
var minorDigits = map[string]int32{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0,
	"RWF": 0, "UGX": 0, "UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// RoundMoney rounds an amount that leaves for a provider to the currency's
// minor unit, half to even. It is applied once per meter line; totals add
// rounded lines.
func RoundMoney(amount metering.Decimal, currency string) metering.Decimal {
	return amount.Round(MinorDigits(currency))
}

// MinorDigits is how many digits the currency's minor unit has.
func MinorDigits(currency string) int32 {
	if digits, ok := minorDigits[currency]; ok {
		return digits
	}
	return 2
}
