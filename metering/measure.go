package metering

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Verdict is the decision of a meter version about an event: counted, or the reason why not.
type Verdict string

// Values returns all verdicts.
func (Verdict) Values() []Verdict { return []Verdict{Counted, FilteredOut, ValueMissing, ValueInvalid} }

const (
	Counted      Verdict = "counted"
	FilteredOut  Verdict = "filtered_out"  // a filter does not match
	ValueMissing Verdict = "value_missing" // the property is missing or null
	ValueInvalid Verdict = "value_invalid" // the property is not a number with |value| < 10^18
)

// Measurement is the result of Measure. Value and Group are set if the verdict is Counted, otherwise
// Property is set.
type Measurement struct {
	Verdict  Verdict
	Value    Decimal
	Group    Group
	Property string // path of the property that a filter rejected or that has no valid value; "" for an erased event
}

// Measure evaluates the filters, the value and the group of an event. Ingest, backfills and reads of raw
// events must all use Measure, because SQL would write the numbers in group keys in a different form.
func (g MeterVersion) Measure(e *Event) (m Measurement, err error) {
	if !g.ReadsProperties() {
		return Measurement{Verdict: Counted, Value: e.Value, Group: NoGroup}, nil
	}
	if err := e.indexProperties(); err != nil {
		return m, err
	}
	if m, err = g.evaluate(e); err != nil || m.Verdict != Counted {
		return m, err
	}
	m.Group, err = g.groupOf(e)
	return m, err
}

// ReadsProperties reports whether the definition uses any property of events.
func (g MeterVersion) ReadsProperties() bool { return g.Selects() || len(g.GroupBy) > 0 }

// Selects reports whether the definition has filters or a value property.
func (g MeterVersion) Selects() bool { return g.ValueProperty != "" || len(g.Filters) > 0 }

// evaluate returns the measurement of an indexed event without its group.
func (g MeterVersion) evaluate(e *Event) (m Measurement, err error) {
	if !g.Selects() {
		return Measurement{Verdict: Counted, Value: e.Value}, nil
	}
	if e.Erased {
		m.Verdict, m.Value, err = g.evaluateErased(e)
		return m, err
	}
	for i := range g.Filters {
		matches, err := g.Filters[i].matches(e.property(g.Filters[i].Property))
		if err != nil || !matches {
			return Measurement{Verdict: FilteredOut, Property: g.Filters[i].Property}, err
		}
	}
	if g.ValueProperty == "" {
		return Measurement{Verdict: Counted, Value: e.Value}, nil
	}
	if m.Verdict, m.Value = measuredValue(e.property(g.ValueProperty)); m.Verdict != Counted {
		m.Property = g.ValueProperty
	}
	return m, nil
}

// measuredValue returns the value of a property: a JSON number, or a string that contains one. The value is
// rounded half to even to MaxFractionDigits.
func measuredValue(property []byte) (Verdict, Decimal) {
	if !isSet(property) {
		return ValueMissing, Decimal{}
	}
	literal := property
	if property[0] == '"' {
		if literal = property[1 : len(property)-1]; !isPlainString(property) {
			literal = unescaped(property)
		}
	}
	if n, is := smallInteger(literal); is {
		return Counted, Whole(n)
	}
	value, err := parseMeasured(string(literal))
	if err != nil {
		return ValueInvalid, Decimal{}
	}
	return Counted, value
}

// smallInteger parses a JSON number that consists of digits only and fits in an int64, the most frequent
// form.
func smallInteger(literal []byte) (n int64, is bool) {
	if len(literal) == 0 || len(literal) > MaxIntegerDigits || literal[0] == '0' && len(literal) > 1 || !isPlainInteger(literal) {
		return 0, false
	}
	for _, c := range literal {
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// MeasuredProperty is the name of the property in which an erased event stores its measured values: by the ID of each
// meter of the event type, and by DefinitionDigest. The value of a meter that did not count the event is null. No
// group_by path can have this name.
const MeasuredProperty = "$measured"

// evaluateErased returns the value that was stored when the event was erased: the value of the meter or, if the meter
// is newer, the value of an equal definition. A change of the meter therefore credits no usage that was billed before.
func (g MeterVersion) evaluateErased(e *Event) (Verdict, Decimal, error) {
	measured := e.property(MeasuredProperty)
	value := fieldOf(measured, g.MeterID.String())
	if value == nil {
		value = fieldOf(measured, g.DefinitionDigest())
	}
	if !isSet(value) {
		return FilteredOut, Decimal{}, nil
	}
	var kept Decimal
	if err := kept.UnmarshalJSON(value); err != nil {
		return FilteredOut, Decimal{}, fmt.Errorf("value of erased event: %w", err)
	}
	return Counted, kept, nil
}

// DefinitionDigest returns a hash of the value property and the filters.
func (g MeterVersion) DefinitionDigest() string {
	text, err := json.Marshal(struct {
		ValueProperty string   `json:"value_property"`
		Filters       []Filter `json:"filters"`
	}{g.ValueProperty, g.Filters})
	if err != nil {
		panic(err) // strings and FilterValues always encode
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:16])
}

// groupOf returns the group of an indexed event.
func (g MeterVersion) groupOf(e *Event) (Group, error) {
	if len(g.GroupBy) == 0 {
		return NoGroup, nil
	}
	names := g.GroupBy
	if !slices.IsSorted(names) {
		names = slices.Sorted(slices.Values(names))
	}
	key := append(make([]byte, 0, 128), '{')
	for i, name := range names {
		value, err := canonicalValue(e.property(name))
		if err != nil {
			return Group{}, err
		}
		if i > 0 {
			key = append(key, ',')
		}
		key = append(append(appendText(key, name), ':'), value...)
	}
	return newGroup(append(key, '}')), nil
}

// GroupOf returns the group of an event with these properties, a JSON object or nil.
func (g MeterVersion) GroupOf(properties json.RawMessage) (Group, error) {
	if len(g.GroupBy) == 0 {
		return NoGroup, nil
	}
	if len(properties) > 0 && !json.Valid(properties) {
		return Group{}, errNotAnObject
	}
	e := Event{Properties: properties}
	if err := e.indexProperties(); err != nil {
		return Group{}, err
	}
	return g.groupOf(&e)
}

// Property returns the canonical JSON of a property of an event, or nil if it is missing.
func (e *Event) Property(path string) (json.RawMessage, error) {
	if err := e.indexProperties(); err != nil {
		return nil, err
	}
	value := e.property(path)
	if value == nil {
		return nil, nil
	}
	return canonicalValue(value)
}

// Missing returns the group_by properties that are missing in a counted event. A property with the value
// null is not missing.
func (g MeterVersion) Missing(group Group, e *Event) (names []string) {
	if !bytes.Contains(group.Key, []byte("null")) || e.indexProperties() != nil {
		return nil // without null in the key, no property is missing
	}
	for _, name := range g.GroupBy {
		if e.property(name) == nil {
			names = append(names, name)
		}
	}
	return names
}
