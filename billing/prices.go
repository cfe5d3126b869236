package billing

import (
	"cmp"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Price is the price of one meter in one currency: its own, a plan's or a customer's. It holds
// from EffectiveFrom until that of another one.
type Price struct {
	MeterID    metering.MeterID
	PlanID     metering.PlanID     // 0: no plan's
	CustomerID metering.CustomerID // 0: no customer's; without both, the meter's own
	Version    int
	Terms
	Inherits      bool      // ends the customer's own price: the plan's or the meter's holds, and Terms is zero
	EffectiveFrom time.Time // zero: from the beginning
	CreatedAt     time.Time
}

// Validate refuses terms that cannot be charged.
func (p Price) Validate() error {
	if p.Inherits {
		return nil
	}
	return p.Terms.Validate()
}

// PriceSource is the level that a price is set at.
type PriceSource string

// The levels, in the order in which they apply.
const (
	CustomerPrice PriceSource = "customer"
	PlanPrice     PriceSource = "plan"
	MeterPrice    PriceSource = "meter"
)

// Values returns all sources.
func (PriceSource) Values() []PriceSource {
	return []PriceSource{CustomerPrice, PlanPrice, MeterPrice}
}

// Source returns the level that the price is set at; "": there is no price.
func (p Price) Source() PriceSource {
	switch {
	case p.Version == 0:
		return ""
	case p.CustomerID != 0:
		return CustomerPrice
	case p.PlanID != 0:
		return PlanPrice
	}
	return MeterPrice
}

// SameSeries reports whether a version of one price can replace the other.
func (p Price) SameSeries(o Price) bool {
	return p.MeterID == o.MeterID && p.PlanID == o.PlanID && p.CustomerID == o.CustomerID
}

// PriceAt returns the price of the meter that is in force at t for the customer: the customer's
// own price, else the price in the customer's plan, else the meter's own. versions are those of
// the meter and its plans.
func (c Customer) PriceAt(meter metering.MeterID, versions []Price, t time.Time) (in Price, ok bool) {
	if in, ok = ownPriceAt(c.Prices, meter, t); ok && !in.Inherits {
		return in, ok
	}
	return PriceAt(versions, PlanAt(c.Plans, t), t)
}

func ownPriceAt(own []Price, meter metering.MeterID, t time.Time) (in Price, ok bool) {
	return inForce(own, t, func(p *Price) bool { return p.MeterID == meter })
}

// PriceAt returns the price in force at t for a customer without own prices that has the plan, or
// none (0): the plan's price, else the meter's own.
func PriceAt(versions []Price, plan metering.PlanID, t time.Time) (in Price, ok bool) {
	of := func(plan metering.PlanID) func(*Price) bool { return func(p *Price) bool { return p.PlanID == plan } }
	if in, ok = inForce(versions, t, of(plan)); !ok && plan != 0 {
		return inForce(versions, t, of(0))
	}
	return in, ok
}

// InForce returns the version of one price that is in force at t.
func InForce(versions []Price, t time.Time) (in Price, ok bool) {
	return inForce(versions, t, func(*Price) bool { return true })
}

// inForce returns, of the matching versions, the one with the last EffectiveFrom that is not after
// t, and of two with the same the later version.
func inForce(versions []Price, t time.Time, matches func(*Price) bool) (in Price, ok bool) {
	for i := range versions {
		p := &versions[i]
		if p.EffectiveFrom.After(t) || !matches(p) {
			continue
		}
		order := cmp.Or(p.EffectiveFrom.Compare(in.EffectiveFrom), cmp.Compare(p.Version, in.Version))
		if !ok || order > 0 {
			in, ok = *p, true
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
