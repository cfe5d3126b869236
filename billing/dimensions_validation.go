package billing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Limits of prices by dimension.
const (
	MaxDimensionPrices = 100
	MaxMatchValues     = 100 // values of one property in one price

	// MaxTermsBytes is the maximum size of the terms of a price as JSON. Terms without dimensions are always
	// smaller. The size is enough for MaxDimensionPrices prices of 640 bytes each.
	MaxTermsBytes = 64 << 10
)

// rateFields are the JSON fields of Rate. If terms with dimensions have several of them, the error names the first of
// this list.
var rateFields = []string{
	"model", "included_units", "overage_rate", "unit_price", "per_units", "tiers", "package_size", "package_price", "percent", "fixed_fee",
}

// validDimensions returns an error if the prices by dimension are invalid or too large, or if the terms also have
// fields of Rate.
func (t Terms) validDimensions() error {
	d := t.Dimensions
	if d == nil {
		return nil
	}
	if n := len(t.JSON()); n > MaxTermsBytes {
		return metering.Invalid("body.dimensions", "must be shorter: the price has %d bytes as JSON, and at most %d are allowed; use fewer or shorter prices, tiers and values, or several meters", n, MaxTermsBytes)
	}
	if err := cmp.Or(t.refuseRate(), d.validBy(), d.validPrices(t.Currency)); err != nil {
		return err
	}
	if d.Default != nil {
		if err := Within("body.dimensions.default", d.Default.Terms(t.Currency).Validate()); err != nil {
			return err
		}
	}
	if commonPerUnits(t.rates()) == 0 {
		return metering.Invalid("body.dimensions", "must have per_units with a least common multiple of at most %d; use the same per_units in all prices", int64(MaxPerUnit))
	}
	return nil
}

// validBy returns an error if By is empty or too long, or contains an invalid or repeated property.
func (d *Dimensions) validBy() error {
	if n := len(d.By); n == 0 || n > metering.MaxGroupByKeys {
		return metering.Invalid("body.dimensions.by", "must contain 1 to %d properties of the meter's group_by", metering.MaxGroupByKeys)
	}
	for n, property := range d.By {
		at := fmt.Sprintf("body.dimensions.by[%d]", n)
		if err := metering.ValidPath(at, property); err != nil {
			return err
		}
		if slices.Contains(d.By[:n], property) {
			return metering.Invalid(at, "repeats an earlier property; name each property once")
		}
	}
	return nil
}

// validPrices returns an error for the first price that is invalid, or that never applies because an earlier price
// covers it.
func (d *Dimensions) validPrices(currency string) error {
	if n := len(d.Prices); n == 0 || n > MaxDimensionPrices {
		return metering.Invalid("body.dimensions.prices", "must contain 1 to %d prices", MaxDimensionPrices)
	}
	for n, p := range d.Prices {
		at := fmt.Sprintf("body.dimensions.prices[%d]", n)
		if err := d.validMatch(at+".match", p.Match); err != nil {
			return err
		}
		if earlier := slices.IndexFunc(d.Prices[:n], func(o DimensionPrice) bool { return o.covers(p) }); earlier >= 0 {
			return metering.Invalid(at+".match", "must match values that prices[%d] does not match; the first price that matches applies, so this price would never apply", earlier)
		}
		if err := Within(at, p.Terms(currency).Validate()); err != nil {
			return err
		}
	}
	return nil
}

// refuseRate returns an error if terms with dimensions have a field of Rate. Each price by dimension has its own.
func (t Terms) refuseRate() error {
	written, err := json.Marshal(RateOf(t))
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(written, &fields); err != nil {
		return err
	}
	for _, field := range rateFields {
		if fields[field] != nil {
			return BesideDimensions(field)
		}
	}
	return nil
}

// BesideDimensions returns the error for a field of Rate that is not allowed together with dimensions.
func BesideDimensions(field string) error {
	return metering.Invalid("body."+field, "must be absent with dimensions; set it in each of dimensions.prices and in dimensions.default")
}

// validMatch returns an error if match is empty, names a property that is not in By, or has invalid or repeated values.
func (d *Dimensions) validMatch(at string, match map[string][]metering.Scalar) error {
	if len(match) == 0 {
		return metering.Invalid(at, "must name values of at least one property of dimensions.by; use dimensions.default for all other usage")
	}
	for _, property := range slices.Sorted(maps.Keys(match)) {
		values := match[property]
		if !slices.Contains(d.By, property) {
			return metering.Invalid(at, "must have only properties of dimensions.by, which are %s; add %s there or remove it", strings.Join(d.By, ", "), property)
		}
		if n := len(values); n == 0 || n > MaxMatchValues {
			return metering.Invalid(at+"."+property, "must contain 1 to %d values", MaxMatchValues)
		}
		for n, value := range values {
			field := fmt.Sprintf("%s.%s[%d]", at, property, n)
			if err := value.Validate(field); err != nil {
				return err
			}
			switch {
			case len(value.String()) > metering.MaxGroupKeyBytes:
				return metering.Invalid(field, "must be at most %d bytes as JSON: usage with longer values is counted in $other, which no price charges", metering.MaxGroupKeyBytes)
			case slices.Contains(values[:n], value):
				return metering.Invalid(field, "repeats an earlier value; name each value once")
			}
		}
	}
	return nil
}

// covers reports whether p matches all usage that o matches.
func (p DimensionPrice) covers(o DimensionPrice) bool {
	for property, values := range p.Match {
		others := o.Match[property]
		if len(others) == 0 || slices.ContainsFunc(others, func(value metering.Scalar) bool { return !slices.Contains(values, value) }) {
			return false
		}
	}
	return true
}

// Within returns an error for the first field of err, with prefix instead of "body" at the start of the field's
// location. If err has no fields, Within returns err unchanged.
func Within(prefix string, err error) error {
	var coded *metering.Error
	if !errors.As(err, &coded) || len(coded.Fields) == 0 {
		return err
	}
	field := coded.Fields[0]
	return metering.Invalid(prefix+strings.TrimPrefix(field.Location, "body"), "%s", field.Message)
}
