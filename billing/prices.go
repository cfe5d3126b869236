package billing

import (
	"cmp"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Price is the price of one meter in one currency, its own or a plan's. It holds from
// EffectiveFrom until that of another one.
type Price struct {
	MeterID metering.MeterID
	PlanID  metering.PlanID // 0: the meter's own
	Version int
	Terms
	EffectiveFrom time.Time // zero: from the beginning
	CreatedAt     time.Time
}

// PriceAt returns the price in force at t for a customer with the plan, or without one (0): the
// plan's price, else the meter's own.
func PriceAt(versions []Price, plan metering.PlanID, t time.Time) (in Price, ok bool) {
	if in, ok = priceOf(versions, plan, t); !ok && plan != 0 {
		return priceOf(versions, 0, t)
	}
	return in, ok
}

// priceOf returns the price with the last EffectiveFrom that is not after t,
// and of two with the same the later version.
func priceOf(versions []Price, plan metering.PlanID, t time.Time) (in Price, ok bool) {
	for _, p := range versions {
		if p.PlanID != plan || p.EffectiveFrom.After(t) {
			continue
		}
		order := cmp.Or(p.EffectiveFrom.Compare(in.EffectiveFrom), cmp.Compare(p.Version, in.Version))
		if !ok || order > 0 {
			in, ok = p, true
		}
	}
	return in, ok
}

// RoundMoney rounds an amount that leaves for a provider to the currency's
// minor unit, half to even. It is applied once per meter line; totals add
// rounded lines.
func RoundMoney(amount metering.Decimal, currency string) metering.Decimal {
	return amount.Round(metering.MinorDigits(currency))
}
