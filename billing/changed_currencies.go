package billing

import (
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// CurrencyChange is a difference between the currency in which a customer is billed and the currency of a price that
// would charge the customer after a change of its facts.
type CurrencyChange struct {
	From, To string // ISO 4217
	Begun    bool   // in a begun period, the price in To replaces a price of another owner
}

// ChangedCurrencies returns the changes of currency in a billing schedule after a change of its facts, one for each
// From and To. It compares the prices at the start of each open period and, for later periods, from Now on.
func ChangedCurrencies(before, after Facts) (all []CurrencyChange) {
	var begun []time.Time
	for _, p := range OpenPeriods(before) {
		begun = append(begun, p.Start)
	}
	for _, m := range after.Meters {
		if !after.feeds(m.ID) {
			continue
		}
		for _, at := range slices.Concat(begun, before.laterPrices(m.ID), after.laterPrices(m.ID)) {
			if c, changed := changedCurrency(&before, &after, m.ID, at); changed {
				c.Begun = c.Begun && slices.Contains(begun, at)
				all = AddCurrencies(all, []CurrencyChange{c})
			}
		}
	}
	return all
}

// AddCurrencies returns both lists as one list with one entry for each From and To.
func AddCurrencies(all, more []CurrencyChange) []CurrencyChange {
	for _, c := range more {
		i := slices.IndexFunc(all, func(known CurrencyChange) bool { return known.From == c.From && known.To == c.To })
		if i < 0 {
			all = append(all, c)
			continue
		}
		all[i].Begun = all[i].Begun || c.Begun
	}
	return all
}

// laterPrices returns Now and the later instants at which another price of the meter can begin to charge the customer.
func (f *Facts) laterPrices(meter metering.MeterID) []time.Time {
	all := startsSince(slices.Concat(f.Customer.Prices, f.Prices[meter]), f.Now)
	for _, a := range f.Customer.Plans {
		if a.EffectiveFrom.After(f.Now) {
			all = append(all, a.EffectiveFrom)
		}
	}
	return all
}

// KeepsCurrency reports whether previous is a version of the same price as p, is not free, and has the currency of p.
func (p Price) KeepsCurrency(previous Price) bool {
	return previous.Version > 0 && previous.SameSeries(p) && !previous.isFree() && previous.Currency == p.Currency
}

// changedCurrency compares the currency in which a meter was charged at an instant before the change with the currency
// of the meter's price after it. changed is false if both are the same, or if the price after the change is missing, is
// free or keeps its currency.
func changedCurrency(before, after *Facts, meter metering.MeterID, at time.Time) (c CurrencyChange, changed bool) {
	previous, _ := before.Customer.PriceAt(meter, before.Prices[meter], at)
	next, priced := after.Customer.PriceAt(meter, after.Prices[meter], at)
	if !priced || next.isFree() || next.KeepsCurrency(previous) {
		return c, false
	}
	if c.From = before.billedIn(meter, at); c.From != "" {
		c.Begun = !previous.SameSeries(next)
	} else {
		c.From = before.invoicedIn(at)
	}
	c.To = next.Currency
	return c, c.From != "" && c.From != c.To
}

// billedIn returns the currency in which the customer is billed for a meter at an instant: the currency of the
// subscription, else of the meter's price. Free prices do not count. Returns "" if no currency is known.
func (f *Facts) billedIn(meter metering.MeterID, at time.Time) string {
	if f.Side != nil && f.Side.Currency != "" {
		return f.Side.Currency
	}
	return f.chargedIn(meter, at)
}

// invoicedIn returns the only currency of the customer's prices at an instant, if the provider creates invoices. An
// invoice has one currency, but a statement can have several. Free prices do not count.
func (f *Facts) invoicedIn(at time.Time) string {
	if f.Connection == nil || !f.Connection.Invoices {
		return ""
	}
	known := make(map[string]bool)
	for other := range f.Prices {
		known[f.chargedIn(other, at)] = true
	}
	for _, own := range f.Customer.Prices {
		known[f.chargedIn(own.MeterID, at)] = true
	}
	delete(known, "")
	if len(known) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(known))[0]
}

// chargedIn returns the currency of the customer's price of a meter at an instant, or "" without such a price or if the
// price is free.
func (f *Facts) chargedIn(meter metering.MeterID, at time.Time) string {
	p, priced := f.Customer.PriceAt(meter, f.Prices[meter], at)
	if !priced || p.isFree() {
		return ""
	}
	return p.Currency
}
