package billing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Dimensions are prices by the values of the meter's group_by properties. They replace the
// model and the included units of Terms.
type Dimensions struct {
	By      []string         `json:"by"`      // properties of the meter's group_by
	Prices  []DimensionPrice `json:"prices"`  // the first that matches charges the usage
	Default *Rate            `json:"default"` // of usage that none of the prices matches; nil: it is unrated
}

// DimensionPrice is the price of the usage that matches. All of it is one quantity.
type DimensionPrice struct {
	Match map[string][]metering.Scalar `json:"match"` // property of By → values, one of which the usage has
	Rate
}

// Rate is how the units with some dimension values are charged.
type Rate struct {
	IncludedUnits metering.Decimal `json:"included_units,omitzero"`
	OverageRate   metering.Decimal `json:"overage_rate,omitzero"`
	Model         Model            `json:"model,omitzero"`
	UnitPrice     metering.Decimal `json:"unit_price,omitzero"`
	PerUnits      int64            `json:"per_units,omitzero"`
	Tiers         []Tier           `json:"tiers,omitempty"`
	PackageSize   int64            `json:"package_size,omitzero"`
	PackagePrice  metering.Decimal `json:"package_price,omitzero"`
	Percent       metering.Decimal `json:"percent,omitzero"`
	FixedFee      metering.Decimal `json:"fixed_fee,omitzero"`
}

// Terms returns terms that charge the same.
func (r Rate) Terms(currency string) Terms {
	return Terms{
		IncludedUnits: r.IncludedUnits, OverageRate: r.OverageRate, Currency: currency, Model: r.Model, UnitPrice: r.UnitPrice, PerUnits: r.PerUnits,
		Tiers: r.Tiers, PackageSize: r.PackageSize, PackagePrice: r.PackagePrice, Percent: r.Percent, FixedFee: r.FixedFee,
	}
}

// RateOf returns the fields of terms that a rate has.
func RateOf(t Terms) Rate {
	return Rate{t.IncludedUnits, t.OverageRate, t.Model, t.UnitPrice, t.PerUnits, t.Tiers, t.PackageSize, t.PackagePrice, t.Percent, t.FixedFee}
}

// rates returns the terms of the prices in their order, and of the default last.
func (t Terms) rates() (all []Terms) {
	if t.Dimensions == nil {
		return nil
	}
	for _, p := range t.Dimensions.Prices {
		all = append(all, p.Terms(t.Currency))
	}
	if d := t.Dimensions.Default; d != nil {
		all = append(all, d.Terms(t.Currency))
	}
	return all
}

// DimensionUsage is the usage with one combination of dimension values.
type DimensionUsage struct {
	Key    json.RawMessage  `json:"dimension"` // property → value, canonical; nil: not known, as in metering.OtherGroup
	Units  metering.Decimal `json:"units"`
	Events int64            `json:"events"`
}

// Equal reports whether both are the same usage.
func (u DimensionUsage) Equal(o DimensionUsage) bool {
	return bytes.Equal(u.Key, o.Key) && u.Units.Equal(o.Units) && u.Events == o.Events
}

// UnmarshalJSON reads what the database has kept, which is not canonical.
func (u *DimensionUsage) UnmarshalJSON(text []byte) (err error) {
	type kept DimensionUsage
	if err := json.Unmarshal(text, (*kept)(u)); err != nil {
		return err
	}
	u.Key, err = metering.CanonicalKey(u.Key)
	return err
}

// AddDimensions returns the sum of two usages by key, in the order of the keys.
func AddDimensions(a, b []DimensionUsage) (sum []DimensionUsage) {
	for _, u := range slices.Concat(a, b) {
		i, found := slices.BinarySearchFunc(sum, u.Key, func(u DimensionUsage, key json.RawMessage) int { return bytes.Compare(u.Key, key) })
		if !found {
			sum = slices.Insert(sum, i, DimensionUsage{Key: u.Key})
		}
		sum[i].Units, sum[i].Events = sum[i].Units.Add(u.Units), sum[i].Events+u.Events
	}
	return slices.DeleteFunc(sum, func(u DimensionUsage) bool { return u.Units.IsZero() && u.Events == 0 })
}

// subtractDimensions returns the difference of two usages by key.
func subtractDimensions(a, b []DimensionUsage) []DimensionUsage {
	b = slices.Clone(b)
	for i := range b {
		b[i].Units, b[i].Events = metering.Decimal{}.Sub(b[i].Units), -b[i].Events
	}
	return AddDimensions(a, b)
}

// ByDimension returns the properties by which any of the prices of each meter, or the terms of a
// closed period, charge usage. Usage of these meters is read with their values.
func (f Facts) ByDimension() ByDimension {
	by := DimensionsOf(f.Prices)
	by.AddPrices(f.Customer.Prices)
	for _, p := range f.Stored {
		for _, l := range p.Closed {
			by.add(l.MeterID, l.Terms)
		}
	}
	return by
}

// ByDimension are properties by meter, each in order.
type ByDimension map[metering.MeterID][]string

// DimensionsOf returns the properties by which prices charge usage.
func DimensionsOf(prices map[metering.MeterID][]Price) ByDimension {
	by := make(ByDimension)
	for _, versions := range prices {
		by.AddPrices(versions)
	}
	return by
}

// AddPrices adds the properties of more prices.
func (by ByDimension) AddPrices(prices []Price) {
	for _, p := range prices {
		by.add(p.MeterID, p.Terms)
	}
}

// And returns the properties of both.
func (by ByDimension) And(other ByDimension) ByDimension {
	both := maps.Clone(by)
	for meter, properties := range other {
		both.addAll(meter, properties)
	}
	return both
}

func (by ByDimension) addAll(meter metering.MeterID, properties []string) {
	by[meter] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(by[meter], properties))))
}

func (by ByDimension) add(meter metering.MeterID, t Terms) {
	if t.Dimensions != nil {
		by.addAll(meter, t.Dimensions.By)
	}
}

// values returns the values of the properties By in a key; nil: they are not known.
func (d *Dimensions) values(key json.RawMessage) (values map[string]json.RawMessage) {
	if len(key) == 0 || json.Unmarshal(key, &values) != nil {
		return nil
	}
	maps.DeleteFunc(values, func(property string, _ json.RawMessage) bool { return !slices.Contains(d.By, property) })
	if len(values) < len(d.By) {
		return nil
	}
	return values
}

// project merges usage that differs in other properties than By alone.
func (d *Dimensions) project(usage []DimensionUsage) []DimensionUsage {
	shown := slices.Clone(usage)
	for i := range shown {
		shown[i].Key = nil
		if values := d.values(usage[i].Key); values != nil {
			shown[i].Key = metering.PlainJSON(values) // canonical: the values are
		}
	}
	return AddDimensions(shown, nil)
}

// shown returns the usage by the dimensions of the terms; nil: all of it has one price.
func (t Terms) shown(usage []DimensionUsage) []DimensionUsage {
	if t.Dimensions == nil {
		return nil
	}
	return t.Dimensions.project(usage)
}

// rateOf returns the number of the rate that charges usage with a key, or unrated.
func (d *Dimensions) rateOf(key json.RawMessage) int {
	values := d.values(key)
	if values == nil {
		return unrated
	}
	for n, p := range d.Prices {
		if p.matches(values) {
			return n
		}
	}
	if d.Default != nil {
		return len(d.Prices)
	}
	return unrated
}

// unrated is the number of no rate.
const unrated = -1

func (p DimensionPrice) matches(values map[string]json.RawMessage) bool {
	for property, alternatives := range p.Match {
		if !slices.ContainsFunc(alternatives, func(value metering.Scalar) bool { return value.String() == string(values[property]) }) {
			return false
		}
	}
	return true
}

// ChargedRate is the charge of the usage that one rate charges.
type ChargedRate struct {
	Number     int  // among the prices, from 0
	Default    bool // it is the default
	Dimensions []DimensionUsage
	Of         Measured // their sum
	Terms      Terms
	Charged
}

// chargeDimensions charges the usage of each rate separately. Usage of no rate is unrated. A
// quotient that does not end is rounded once: the sum is divided by the least common multiple.
func (t Terms) chargeDimensions(c *Charged, usage []DimensionUsage) {
	rates := t.rates()
	c.Rates = make([]ChargedRate, len(rates))
	for _, u := range t.Dimensions.project(usage) {
		n := t.Dimensions.rateOf(u.Key)
		if n == unrated {
			c.Unrated = append(c.Unrated, u)
			continue
		}
		r := &c.Rates[n]
		r.Dimensions = append(r.Dimensions, u)
		r.Of.Units, r.Of.Events = r.Of.Units.Add(u.Units), r.Of.Events+u.Events
	}
	common := commonPerUnits(rates)
	var sum metering.Decimal // common times the charges
	for n := range c.Rates {
		r := &c.Rates[n]
		r.Number, r.Default, r.Terms = n, n == len(t.Dimensions.Prices), rates[n]
		r.Charged = rates[n].Charge(r.Of)
		if per := r.Terms.PerUnits; per > 1 {
			sum = sum.Add(r.Units.Mul(metering.Whole(common / per))).Add(r.Flat.Mul(metering.Whole(common)))
		} else {
			sum = sum.Add(r.Usage.Mul(metering.Whole(common)))
		}
	}
	c.Usage = c.divide(sum, common)
}

// commonPerUnits returns the least common multiple of the rates' PerUnits, or 0 if it is
// greater than MaxPerUnit.
func commonPerUnits(rates []Terms) int64 {
	common := int64(1)
	for _, r := range rates {
		per := max(r.PerUnits, 1)
		a, b := common, per
		for b != 0 {
			a, b = b, a%b
		}
		if per/a > MaxPerUnit/common {
			return 0
		}
		common *= per / a
	}
	return common
}

// First returns the first units of usage, in the order of the rates and with unrated usage last,
// without a number of events. Units that a provider bills without dimension values count as these.
func (t Terms) First(of Measured, units metering.Decimal) Measured {
	first := unitsAlone(units)
	if t.Dimensions == nil {
		return first
	}
	place := func(u DimensionUsage) int {
		if n := t.Dimensions.rateOf(u.Key); n != unrated {
			return n
		}
		return len(t.Dimensions.Prices) + 1
	}
	ordered := t.Dimensions.project(of.Dimensions)
	slices.SortStableFunc(ordered, func(a, b DimensionUsage) int { return cmp.Compare(place(a), place(b)) })
	all := units.Cmp(of.Units) >= 0
	for _, u := range ordered {
		if u.Events = 0; !all {
			u.Units = smaller(u.Units, units)
			units = units.Sub(notNegative(u.Units))
		}
		first.Dimensions = append(first.Dimensions, u)
	}
	return first
}

// unratedUnits returns the units that no rate charges, and the events.
func (c Charged) unratedUnits() (units metering.Decimal, events int64) {
	for _, u := range c.Unrated {
		units, events = units.Add(u.Units), events+u.Events
	}
	return units, events
}
