package billing

import (
	"cmp"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Price is what one meter costs in one currency, by itself or in a product. The
// first one holds from the beginning; each later one from its EffectiveFrom.
type Price struct {
	MeterID   metering.MeterID
	ProductID metering.ProductID // 0: the meter's own
	Version   int
	Terms
	EffectiveFrom time.Time
	CreatedAt     time.Time
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
