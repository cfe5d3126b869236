package billing

import "github.com/odometer-metering/odometer/metering"

// DimensionTerms holds the terms of a price by dimension that charges a meter in a period.
type DimensionTerms struct {
	MeterID metering.MeterID
	Period  metering.Range
	Terms   Terms
}

// DimensionTerms returns the terms of each meter that a price by dimension charges in an open period.
func (f UnratedFacts) DimensionTerms(period Period) (all []DimensionTerms) {
	for _, m := range f.metersIn(period) {
		if terms := f.dimensionTerms(m, period); terms != nil {
			all = append(all, DimensionTerms{m.ID, period.Range, *terms})
		}
	}
	return all
}

// dimensionTerms returns the terms of the price by dimension that charges the meter in an open period. It returns nil
// if there is no such price, if the provider bills quantities, during the first backfill of the meter, or if the period
// is a trial.
func (f UnratedFacts) dimensionTerms(m metering.Meter, period Period) *Terms {
	price, _ := f.price(m.ID, period)
	inQuantities := f.Connection != nil && !f.Connection.Statements && period.Bills != metering.BillsAmounts
	if price.Dimensions == nil || inQuantities || m.Version.Status == metering.Backfilling || period.Subscription.Trial {
		return nil
	}
	return &price.Terms
}

// Rates reports whether the terms charge usage with the dimension values in key. A nil key means that the values are
// unknown.
func (t Terms) Rates(key []byte) bool {
	return t.Dimensions == nil || t.Dimensions.rateOf(key) != unrated
}

// UnratedUsage returns the part of the usage that no price by dimension charges.
func (t Terms) UnratedUsage(usage []DimensionUsage) (units metering.Decimal, events int64) {
	return t.Charge(Measured{Dimensions: usage}).unratedUnits()
}
