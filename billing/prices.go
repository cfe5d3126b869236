package billing

import (
	"cmp"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Price is one version of the price of a meter in one currency. The price is the meter's own, a plan's or a
// customer's. The version applies from EffectiveFrom until the EffectiveFrom of the next version.
type Price struct {
	MeterID    metering.MeterID
	PlanID     metering.PlanID     // plan with this price; 0: none
	CustomerID metering.CustomerID // customer with this price; 0: none. With neither, the price is the meter's own
	Version    int
	Terms
	Inherits      bool      // ends the customer's own price: the plan's or the meter's price applies, and Terms is zero
	EffectiveFrom time.Time // zero: from the beginning
	CreatedAt     time.Time
}

// Validate returns an error if the terms are invalid. A price that inherits has no terms and is always valid.
func (p Price) Validate() error {
	if p.Inherits {
		return nil
	}
	return p.Terms.Validate()
}

// PriceSource is the level at which a price is set.
type PriceSource string

// The levels, in order of precedence.
const (
	CustomerPrice PriceSource = "customer"
	PlanPrice     PriceSource = "plan"
	MeterPrice    PriceSource = "meter"
)

// Values returns all sources.
func (PriceSource) Values() []PriceSource {
	return []PriceSource{CustomerPrice, PlanPrice, MeterPrice}
}

// Source returns the level at which the price is set, or "" if Version is 0: there is no price.
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

// SameSeries reports whether p and o are versions of the same price: of the same meter, plan and customer.
func (p Price) SameSeries(o Price) bool {
	return p.MeterID == o.MeterID && p.PlanID == o.PlanID && p.CustomerID == o.CustomerID
}

// PriceAt returns the price of the meter that is in force at t for the customer: the customer's
// own price, else the price in the customer's plan, else the meter's own. versions contains all
// versions of the meter's own price and of the plans' prices of the meter.
func (c Customer) PriceAt(meter metering.MeterID, versions []Price, t time.Time) (in Price, ok bool) {
	if in, ok = ownPriceAt(c.Prices, meter, t); ok && !in.Inherits {
		return in, ok
	}
	return PriceAt(versions, PlanAt(c.Plans, t), t)
}

// FirstPriceSince returns the price of the meter that is in force at t for the customer or, if there is none, the first
// one that is in force later.
func (c Customer) FirstPriceSince(meter metering.MeterID, versions []Price, t time.Time) (in Price, ok bool) {
	at := startsSince(slices.Concat(versions, c.Prices), t)
	slices.SortFunc(at, time.Time.Compare)
	for _, t := range at {
		if in, ok = c.PriceAt(meter, versions, t); ok {
			return in, ok
		}
	}
	return in, false
}

// startsSince returns t and the later instants at which a version takes effect.
func startsSince(versions []Price, t time.Time) []time.Time {
	all := []time.Time{t}
	for _, p := range versions {
		if p.EffectiveFrom.After(t) {
			all = append(all, p.EffectiveFrom)
		}
	}
	return all
}

// ownPriceAt returns the version of a customer's own price of a meter that is in force at t.
func ownPriceAt(own []Price, meter metering.MeterID, t time.Time) (in Price, ok bool) {
	return inForce(own, t, func(p *Price) bool { return p.MeterID == meter })
}

// PriceAt returns the price of a meter that is in force at t for customers with the plan and without own
// prices: the plan's price, else the meter's own. A plan of 0 stands for customers without a plan.
func PriceAt(versions []Price, plan metering.PlanID, t time.Time) (in Price, ok bool) {
	of := func(plan metering.PlanID) func(*Price) bool { return func(p *Price) bool { return p.PlanID == plan } }
	if in, ok = inForce(versions, t, of(plan)); !ok && plan != 0 {
		return inForce(versions, t, of(0))
	}
	return in, ok
}

// InForce returns the version that is in force at t. All versions must be of the same price.
func InForce(versions []Price, t time.Time) (in Price, ok bool) {
	return inForce(versions, t, func(*Price) bool { return true })
}

// inForce returns the matching version with the latest EffectiveFrom at or before t. If several have that
// EffectiveFrom, it returns the one with the highest Version.
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

// RoundMoney rounds an amount half to even to the currency's minor unit, as it is sent to a provider. Odometer
// rounds the charge of each line once; totals are sums of rounded lines.
func RoundMoney(amount metering.Decimal, currency string) metering.Decimal {
	return amount.Round(metering.MinorDigits(currency))
}
