package billing_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// In lives with standalone invoices, and in some recorded lives, prices may be by dimension, and events have dimension
// values. Other lives may be billed in quantities, which the API refuses together with such prices.

// simulatedGroups lists the event properties by which meters group usage.
var simulatedGroups = []string{"model", "region"}

// countedUsage is the usage for which the oracle computes a charge.
type countedUsage struct {
	units  *big.Rat
	events int64
	groups []referenceUsage // of each event, with its dimension values; nil if the usage has none
}

// charge returns the oracle's charge for the usage.
func (u countedUsage) charge(t billing.Terms) *big.Rat {
	if t.Dimensions != nil {
		return referenceByDimension(t, u.groups)
	}
	return reference(t, u.units, u.events)
}

// unitsAlone returns usage that a provider counts, without events and dimension values.
func unitsAlone(units *big.Rat) countedUsage { return countedUsage{units: units} }

// measuredNow returns the usage of an open period.
func (l *life) measuredNow(meter metering.MeterID, r metering.Range) countedUsage {
	return countedUsage{rational(l.used(meter, r)), l.counted(meter, r), l.groups(meter, r)}
}

// groups returns the usage of each event of a range, or nil in lives without dimensions.
func (l *life) groups(meter metering.MeterID, r metering.Range) (all []referenceUsage) {
	if !l.dimensions {
		return nil
	}
	for _, e := range l.events {
		if e.meter == meter && r.Contains(e.at) && !e.lost && l.isFed(meter, e.at) {
			all = append(all, e.group(l.meter(meter).Version.Aggregation))
		}
	}
	return all
}

// group returns the usage of one event, with its dimension values.
func (e usageEvent) group(aggregation metering.Aggregation) referenceUsage {
	return referenceUsage{e.values, aggregation.Usage(e.value, 1), 1}
}

// someValues draws the dimension values of an event. It returns nil if the event has no known group.
func (l *life) someValues() map[string]string {
	if !l.dimensions || l.tape == nil && l.rng.IntN(8) == 0 {
		return nil
	}
	values := make(map[string]string)
	for _, property := range simulatedGroups {
		values[property] = dimensionValues[l.rng.IntN(len(dimensionValues))]
	}
	return values
}

// groupKey returns the values of the properties in by, in the form of the group keys of the database.
func groupKey(values map[string]string, by []string) json.RawMessage {
	if values == nil {
		return nil
	}
	parts := make([]string, len(by))
	for i, property := range by {
		parts[i] = fmt.Sprintf("%q:%s", property, values[property])
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

// addGroup adds an event's usage to the usage of its group. The groups are sorted by key.
func addGroup(groups []billing.DimensionUsage, key json.RawMessage, units metering.Decimal) []billing.DimensionUsage {
	i, found := slices.BinarySearchFunc(groups, string(key), func(u billing.DimensionUsage, key string) int { return strings.Compare(string(u.Key), key) })
	if !found {
		groups = slices.Insert(groups, i, billing.DimensionUsage{Key: key})
	}
	groups[i].Units, groups[i].Events = groups[i].Units.Add(units), groups[i].Events+1
	return groups
}

// byAnyDimension turns terms into prices by dimension with rates of any model.
func (l *life) byAnyDimension(t billing.Terms) billing.Terms {
	rng := rand.New(rand.NewPCG(l.rng.Uint64(), 7))
	rate := func() billing.Terms {
		short := billing.Terms{IncludedUnits: metering.Whole(rng.Int64N(10)), OverageRate: metering.Whole(rng.Int64N(300)).Mul(oneHundredth), Currency: t.Currency}
		return ofAnyModel(short, true)
	}
	for {
		if priced := byDimension(rng, t, rate); priced.Validate() == nil {
			return priced
		}
	}
}

// newPriceByDimension sets a price by dimension of a meter, of a plan or of the customer.
func (l *life) newPriceByDimension() bool {
	if !l.dimensions {
		return false
	}
	l.nextByDimension = true
	defer func() { l.nextByDimension = false }()
	sets := []func(*life) bool{(*life).newPriceOfMeter, (*life).newPriceOfPlan, (*life).newPriceOfCustomer}
	return sets[l.rng.IntN(len(sets))](l) && !l.nextByDimension
}

// usesUnrated ingests usage of a meter with prices by dimension, with values that none of these prices matches.
func (l *life) usesUnrated() bool {
	for _, m := range l.meters {
		t := l.termsOf(m.ID)
		if t.Dimensions == nil {
			continue
		}
		values := l.someValues()
		if referenceRate(t.Dimensions, values) >= 0 {
			values = nil
		}
		return l.useOf(usageEvent{at: l.now, meter: m.ID, value: l.value(), values: values})
	}
	return false
}

// termsOf returns the terms that are in force now.
func (l *life) termsOf(meter metering.MeterID) (t billing.Terms) {
	version, _ := l.versionAt(meter, l.now)
	for _, p := range l.versions(meter) {
		if p.Version == version {
			t = p.Terms
		}
	}
	return t
}

// checkUnrated compares the unrated usage of a closed line with the oracle: the usage that no price by dimension
// of its terms matches.
func (l *life) checkUnrated(line billing.ClosedLine, groups []referenceUsage) {
	if line.Terms.Dimensions == nil {
		return
	}
	want, events := new(big.Rat), int64(0)
	for _, u := range groups {
		if referenceRate(line.Terms.Dimensions, u.values) < 0 {
			want.Add(want, rational(u.units))
			events += u.events
		}
	}
	if units, n := line.Terms.UnratedUsage(line.Dimensions); rational(units).Cmp(want) != 0 || n != events {
		l.failf("%s units of meter %d from %d events are unrated; the oracle says %s from %d", units, line.MeterID, n, want.FloatString(4), events)
	}
}
