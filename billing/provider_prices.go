package billing

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// ProviderPrice is a provider's own price of the units that one of its
// destinations adds up, with the provider's rounding. It never changes: what was
// charged by it keeps the hash of its terms.
type ProviderPrice interface {
	// ID is the price's at the provider.
	ID() string
	// JSON is how its terms are kept: always the same bytes.
	JSON() []byte
	// Currency is ISO 4217.
	Currency() string
	// Lines are those that an invoice has for so many units.
	Lines(units metering.Decimal) []PriceLine
	// Terms are those of ours that charge the same, but for the rounding, if any do.
	Terms() (t Terms, same bool)
	// String is what it charges, in words.
	String() string
}

// ProviderTermsSchema is the version of the form that a provider's terms are
// kept in: what is in them is the provider's own.
const ProviderTermsSchema = 2

// PriceLine is one line of an invoice, in the currency itself.
type PriceLine struct {
	Units  metering.Decimal // of the usage that it is for
	Priced metering.Decimal // what the rate is for: the units, or packages of them
	Rate   metering.Decimal // for each
	Flat   bool             // Amount is fixed, and for no units
	Amount metering.Decimal // rounded as the provider rounds
}

// PriceHash names a provider's price by what it says.
func PriceHash(p ProviderPrice) [sha256.Size]byte { return sha256.Sum256(p.JSON()) }

// chargeAt is what the provider charges for so many units.
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

// notePrices notes the prices of the subscription that the period lies in. What
// is no longer on it keeps the price that it had last.
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

// SamePrices says whether the meters have the same prices in two of them.
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

// PriceDifference is a price of ours that is not the one that the provider
// charges.
type PriceDifference struct {
	MeterID   metering.MeterID
	MeterSlug string
	Ours      string // what each charges, in words
	Theirs    string
	First     string // the first difference between the two, in words
}

// DifferenceOf compares our price of a meter with the provider's.
func DifferenceOf(m metering.Meter, ours Terms, theirs ProviderPrice) (d PriceDifference, differs bool) {
	first := "Odometer has no form of the provider's price"
	if t, is := theirs.Terms(); is {
		if first = ours.FirstDifference(t); first == "" {
			return PriceDifference{}, false
		}
	}
	return PriceDifference{m.ID, m.Slug, ours.String(), theirs.String(), first}, true
}

// Linked is what is known of a customer's prices where a provider has its own.
type Linked struct {
	Meters  []metering.Meter
	Prices  map[metering.MeterID][]Price // of meters and plans
	Plans   []Assignment
	Own     []Price // the customer's own prices
	Side    Side
	Charged bool // our prices are charged there
	Now     time.Time
}

// price is ours of a meter, and the provider's, where both are known.
func (l Linked) price(m metering.Meter) (ours Price, theirs ProviderPrice, both bool) {
	destinations := l.Side.all()
	i := slices.IndexFunc(destinations, func(d Destination) bool { return d.MeterID == m.ID && d.Price != nil })
	ours, priced := Customer{Plans: l.Plans, Prices: l.Own}.PriceAt(m.ID, l.Prices[m.ID], l.Now)
	if i < 0 || !priced {
		return Price{}, nil, false
	}
	return ours, destinations[i].Price, true
}

// Differences are the prices of ours that are not those that the provider charges.
func (l Linked) Differences() (all []PriceDifference) {
	if l.Charged {
		return nil
	}
	for _, m := range l.Meters {
		if ours, theirs, both := l.price(m); both {
			if d, differs := DifferenceOf(m, ours.Terms, theirs); differs {
				all = append(all, d)
			}
		}
	}
	return all
}

// Validate refuses prices of ours in another currency than the provider bills
// the meter in: nobody could say what such a customer owes.
func (l Linked) Validate(field string) error {
	for _, m := range l.Meters {
		if ours, theirs, both := l.price(m); both && ours.Currency != theirs.Currency() {
			return metering.Invalid(field, "names a customer whom the provider bills in %s for the meter %s, but the meter's price in Odometer is in %s; set a price in %s first",
				theirs.Currency(), m.Slug, ours.Currency, theirs.Currency())
		}
	}
	return nil
}
