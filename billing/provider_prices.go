package billing

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// ProviderPrice is the price that a provider itself charges for the units of a destination, with the provider's
// rounding. It is immutable: stored data refers to it by its PriceHash.
type ProviderPrice interface {
	// ID returns the id of the price at the provider.
	ID() string
	// JSON returns the encoding of the price for storage. It is deterministic.
	JSON() []byte
	// Currency returns the ISO 4217 code.
	Currency() string
	// Lines returns the lines of an invoice for the given units.
	Lines(units metering.Decimal) []PriceLine
	// Terms returns Odometer terms that charge the same, except for rounding. same is false if there are no such
	// terms.
	Terms() (t Terms, same bool)
	// String describes the price in words.
	String() string
}

// ProviderTermsSchema is the version of the stored encoding of provider prices. Each provider defines the
// fields of its prices.
const ProviderTermsSchema = 2

// PriceLine is one line of a provider's invoice. Rate and Amount are in the major unit of the currency.
type PriceLine struct {
	Units  metering.Decimal // usage that the line charges; 0 if Flat
	Priced metering.Decimal // quantity that Rate applies to: Units, or a number of packages
	Rate   metering.Decimal // price of each unit or package
	Flat   bool             // Amount is a fixed fee that is not for units
	Amount metering.Decimal // rounded by the provider's rule
}

// PriceHash returns the SHA-256 of the price's JSON. Stored data identifies the price by this hash.
func PriceHash(p ProviderPrice) [sha256.Size]byte { return sha256.Sum256(p.JSON()) }

// chargeAt returns the amount that the provider charges for the units.
func chargeAt(p ProviderPrice, units metering.Decimal) (charge metering.Decimal) {
	for _, l := range p.Lines(units) {
		charge = charge.Add(l.Amount)
	}
	return charge
}

// unitPriceAt returns the rate of the last tier that the units reach. With packages, it is the
// price of a package.
func unitPriceAt(p ProviderPrice, units metering.Decimal) (rate metering.Decimal) {
	for _, l := range p.Lines(units) {
		if !l.Flat {
			rate = l.Rate
		}
	}
	return rate
}

// notePrices records the provider's prices of side.Destinations in the subscription. A meter without a price there
// keeps its recorded price.
func (s *Subscription) notePrices(side *Side) {
	if !slices.ContainsFunc(side.Destinations, func(d Destination) bool { return d.Price != nil }) {
		return
	}
	prices := maps.Clone(s.Prices)
	if prices == nil {
		prices = make(map[metering.MeterID]ProviderPrice)
	}
	for _, d := range side.Destinations {
		if d.Price != nil {
			prices[d.MeterID] = d.Price
		}
	}
	s.Prices = prices
}

// SamePrices reports whether s and o have the same prices for the same meters.
func (s Subscription) SamePrices(o Subscription) bool {
	if len(s.Prices) != len(o.Prices) {
		return false
	}
	for meter, price := range s.Prices {
		other := o.Prices[meter]
		if other == nil || PriceHash(price) != PriceHash(other) {
			return false
		}
	}
	return true
}

// PriceDifference describes how the provider's price of a meter differs from Odometer's price.
type PriceDifference struct {
	MeterID   metering.MeterID
	MeterSlug string
	Ours      string // Odometer's price, in words
	Theirs    string // the provider's price, in words
	First     string // first difference between both prices, in words
}

// DifferenceOf compares our terms of a meter with the provider's price, apart from rounding. differs is true also if
// the two cannot be compared.
func DifferenceOf(m metering.Meter, ours Terms, theirs ProviderPrice) (d PriceDifference, differs bool) {
	first := "Odometer has no form of the provider's price"
	if t, is := theirs.Terms(); is {
		if first = ours.FirstDifference(t); first == "" {
			return PriceDifference{}, false
		}
	}
	return PriceDifference{m.ID, m.Slug, ours.String(), theirs.String(), first}, true
}

// Linked contains the data for comparing Odometer's prices for a customer with the provider's prices.
type Linked struct {
	Meters []metering.Meter
	Prices map[metering.MeterID][]Price // prices of meters and plans, without customers' own prices
	Plans  []Assignment
	Own    []Price // the customer's own prices
	Side   Side
	Now    time.Time

	Schedules []Facts // the customer's billing schedules, with the facts of ReadSchedules
}

// theirs returns the provider's price of a meter, or nil if it is missing.
func (l Linked) theirs(meter metering.MeterID) ProviderPrice {
	for _, d := range l.Side.all() {
		if d.MeterID == meter && d.Price != nil {
			return d.Price
		}
	}
	return nil
}

// ours returns our price of a meter in force at an instant.
func (l Linked) ours(meter metering.MeterID, at time.Time) (ours Price, priced bool) {
	return Customer{Plans: l.Plans, Prices: l.Own}.PriceAt(meter, l.Prices[meter], at)
}

// billsAmounts reports whether the provider bills the meter's current period in amounts, at our prices. The provider's
// own price then does not apply.
func (l Linked) billsAmounts(m metering.Meter) bool {
	for _, f := range l.Schedules {
		if !f.feeds(m.ID) {
			continue
		}
		if f.Stream == 0 {
			f.Side = &l.Side
		}
		period := f.running()
		period.setBills(f.Connection) // running can return a period that is only expected
		return period.Bills == metering.BillsAmounts
	}
	return false
}

// Differences compares both prices of each meter and returns the differences. It skips meters for which either price
// is missing, and meters with a current period that is billed in amounts.
func (l Linked) Differences() (all []PriceDifference) {
	for _, m := range l.Meters {
		theirs := l.theirs(m.ID)
		if ours, priced := l.ours(m.ID, l.Now); priced && theirs != nil && !l.billsAmounts(m) {
			if d, differs := DifferenceOf(m, ours.Terms, theirs); differs {
				all = append(all, d)
			}
		}
	}
	return all
}

// Validate returns an error for the field if the currency of our price of a meter differs from that of the provider's
// price, now or later. With such prices, the amount that the customer owes could not be determined.
func (l Linked) Validate(field string) error {
	f := Facts{Now: l.Now, Customer: Customer{Plans: l.Plans, Prices: l.Own}, Prices: l.Prices}
	for _, m := range l.Meters {
		theirs := l.theirs(m.ID)
		if theirs == nil {
			continue
		}
		for _, at := range f.laterPrices(m.ID) {
			if ours, priced := l.ours(m.ID, at); priced && ours.Currency != theirs.Currency() {
				return metering.Invalid(field, "names a customer that the provider bills in %s for the meter %s, but the meter's price in Odometer is in %s; set a price in %s first",
					theirs.Currency(), m.Slug, ours.Currency, theirs.Currency())
			}
		}
	}
	return nil
}
