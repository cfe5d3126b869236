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
	By      []string         `json:"by"`      // properties of the meter's group_by that select the price
	Prices  []DimensionPrice `json:"prices"`  // in order; the first that matches charges the usage
	Default *Rate            `json:"default"` // price of usage that none of Prices matches; nil: such usage is unrated
}

// DimensionPrice is the price of usage with certain values. It charges the sum of all usage to which it applies as one
// quantity.
type DimensionPrice struct {
	Match map[string][]metering.Scalar `json:"match"` // property of By → accepted values; all properties must match
	Rate
}

// Rate determines the charge for the usage of one DimensionPrice or of the default. Its fields mean the same as the
// fields of Terms with these names.
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

// Terms returns terms with the fields of the rate and with the currency.
func (r Rate) Terms(currency string) Terms {
	return Terms{
		IncludedUnits: r.IncludedUnits, OverageRate: r.OverageRate, Currency: currency, Model: r.Model, UnitPrice: r.UnitPrice, PerUnits: r.PerUnits,
		Tiers: r.Tiers, PackageSize: r.PackageSize, PackagePrice: r.PackagePrice, Percent: r.Percent, FixedFee: r.FixedFee,
	}
}

// RateOf returns the rate with the fields that Terms and Rate have in common. It ignores all other fields.
func RateOf(t Terms) Rate {
	return Rate{t.IncludedUnits, t.OverageRate, t.Model, t.UnitPrice, t.PerUnits, t.Tiers, t.PackageSize, t.PackagePrice, t.Percent, t.FixedFee}
}

// rates returns the terms of all prices by dimension in order, followed by the terms of the default. It returns nil
// without prices by dimension.
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

// DimensionUsage is the usage of a meter with one combination of dimension values.
type DimensionUsage struct {
	Key    json.RawMessage  `json:"dimension"` // property → value, canonical; nil: unknown, as in metering.OtherGroup
	Units  metering.Decimal `json:"units"`
	Events int64            `json:"events"`
}

// Equal reports whether u and o have the same key, units and number of events.
func (u DimensionUsage) Equal(o DimensionUsage) bool {
	return bytes.Equal(u.Key, o.Key) && u.Units.Equal(o.Units) && u.Events == o.Events
}

// UnmarshalJSON decodes stored usage. It converts the key to its canonical form, because the database does not keep
// that form. The units are a sum, which may exceed the bounds of ParseDecimal.
func (u *DimensionUsage) UnmarshalJSON(text []byte) (err error) {
	var stored struct {
		Key    json.RawMessage `json:"dimension"`
		Units  json.Number     `json:"units"`
		Events int64           `json:"events"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	if err := u.Units.Scan(stored.Units.String()); err != nil {
		return err
	}
	u.Events = stored.Events
	u.Key, err = metering.CanonicalKey(stored.Key)
	return err
}

// AddDimensions returns the sums of units and events in a and b by key, ordered by key. It omits a key if both
// sums are 0.
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

// subtractDimensions returns a − b by key, ordered by key. It omits a key if both differences are 0.
func subtractDimensions(a, b []DimensionUsage) []DimensionUsage {
	b = slices.Clone(b)
	for i := range b {
		b[i].Units, b[i].Events = metering.Decimal{}.Sub(b[i].Units), -b[i].Events
	}
	return AddDimensions(a, b)
}

// ByDimension returns, for each meter, the properties on which its prices or the terms of its closed lines depend.
// The usage of these meters is read separately for each combination of values of these properties.
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

// ByDimension maps a meter to the properties on which its prices depend, in ascending order without duplicates. It
// lacks meters without prices by dimension.
type ByDimension map[metering.MeterID][]string

// DimensionsOf returns, for each meter, the properties on which its prices depend.
func DimensionsOf(prices map[metering.MeterID][]Price) ByDimension {
	by := make(ByDimension)
	for _, versions := range prices {
		by.AddPrices(versions)
	}
	return by
}

// AddPrices adds the properties on which the prices depend.
func (by ByDimension) AddPrices(prices []Price) {
	for _, p := range prices {
		by.add(p.MeterID, p.Terms)
	}
}

// And returns the union of both sets of properties, for each meter.
func (by ByDimension) And(other ByDimension) ByDimension {
	both := maps.Clone(by)
	for meter, properties := range other {
		both.addAll(meter, properties)
	}
	return both
}

// addAll adds the properties to those of the meter.
func (by ByDimension) addAll(meter metering.MeterID, properties []string) {
	by[meter] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(by[meter], properties))))
}

// add adds the properties on which the terms depend to those of the meter.
func (by ByDimension) add(meter metering.MeterID, t Terms) {
	if t.Dimensions != nil {
		by.addAll(meter, t.Dimensions.By)
	}
}

// values returns the key's values of the properties in By, or nil if the key lacks any of these properties.
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

// project reduces each key to the properties in By and adds up the usage of equal keys. A key that lacks any of these
// properties becomes nil.
func (d *Dimensions) project(usage []DimensionUsage) []DimensionUsage {
	shown := slices.Clone(usage)
	for i := range shown {
		shown[i].Key = nil
		if values := d.values(usage[i].Key); values != nil {
			shown[i].Key = metering.PlainJSON(values) // canonical, because the values are
		}
	}
	return AddDimensions(shown, nil)
}

// shown returns the usage, added up by the properties on which the terms depend. It returns nil if the terms have no
// prices by dimension.
func (t Terms) shown(usage []DimensionUsage) []DimensionUsage {
	if t.Dimensions == nil {
		return nil
	}
	return t.Dimensions.project(usage)
}

// rateOf returns the index in Terms.rates of the rate that charges usage with the key, or unrated.
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

// unrated is the result of rateOf if no rate charges the usage.
const unrated = -1

// matches reports whether all properties of Match have an accepted value in values.
func (p DimensionPrice) matches(values map[string]json.RawMessage) bool {
	for property, alternatives := range p.Match {
		if !slices.ContainsFunc(alternatives, func(value metering.Scalar) bool { return value.String() == string(values[property]) }) {
			return false
		}
	}
	return true
}

// ChargedRate is the charge of one price by dimension, or of the default, for the usage that it charges.
type ChargedRate struct {
	Number     int  // index in Dimensions.Prices; for the default, the number of prices
	Default    bool // the charge is that of Dimensions.Default
	Dimensions []DimensionUsage
	Of         Measured // sum of the usage in Dimensions
	Terms      Terms
	Charged
}

// chargeDimensions charges the usage of each rate separately. Usage that no rate charges is unrated. To round a
// quotient only once, it does not add up the quotients of the rates. It multiplies each charge by the least common
// multiple of all PerUnits, and divides the sum by it.
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
	var sum metering.Decimal // of the charges, multiplied by common
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

// First returns the first units of the usage, without a number of events. With prices by dimension, usage is ordered
// by the price that charges it, unrated usage last. A provider bills units without dimension values; Odometer treats
// these units as the first units in this order.
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

// unratedUnits returns the units and the number of events of the usage that no rate charges.
func (c Charged) unratedUnits() (units metering.Decimal, events int64) {
	for _, u := range c.Unrated {
		units, events = units.Add(u.Units), events+u.Events
	}
	return units, events
}
