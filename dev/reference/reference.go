// Package reference counts events by the rules of docs/api/meters.md, with encoding/json and big.Rat and
// without any code of the service. Tests compare the service with its results.
package reference

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Definition is the definition of a meter, in the form of the API.
type Definition struct {
	Aggregation   string   `json:"aggregation"` // sum or count
	ValueProperty string   `json:"value_property"`
	Filters       []Filter `json:"filters"`
	GroupBy       []string `json:"group_by"`
}

// Filter is a condition on a property.
type Filter struct {
	Property string            `json:"property"`
	Operator string            `json:"operator"`
	Values   []json.RawMessage `json:"values,omitempty"`
}

// Where returns a filter with these JSON literals as its values.
func Where(property, operator string, literals ...string) Filter {
	f := Filter{Property: property, Operator: operator}
	for _, l := range literals {
		f.Values = append(f.Values, json.RawMessage(l))
	}
	return f
}

// Properties are the decoded properties of an event. Numbers are json.Number.
type Properties map[string]any

// Decode returns the properties in a JSON object, or nil for an empty text.
func Decode(object string) Properties {
	if object == "" {
		return nil
	}
	properties, is := decode(object).(map[string]any)
	if !is {
		panic(object + " is not a JSON object")
	}
	return properties
}

// decode returns a JSON value. Numbers are json.Number.
func decode(literal string) (value any) {
	decoder := json.NewDecoder(strings.NewReader(literal))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		panic(err)
	}
	return value
}

// at returns the property at a path, or nil if it is missing or null.
func (p Properties) at(path string) any {
	if value, whole := p[path]; whole {
		return value
	}
	var value any = map[string]any(p)
	for name := range strings.SplitSeq(path, ".") {
		object, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = object[name]
	}
	return value
}

// Text returns the same text for values that filters and groups treat as equal.
func Text(value any) string {
	switch v := value.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return "number " + r.RatString()
	case string:
		return "text " + v
	case map[string]any, []any:
		compact, err := json.Marshal(v)
		if err != nil {
			panic(err) // the value was decoded from JSON, so it can be encoded
		}
		return "text " + string(compact)
	}
	return fmt.Sprint(value)
}

// matches reports whether the properties of an event meet the filter.
func (f Filter) matches(p Properties) bool {
	value := p.at(f.Property)
	equal := slices.ContainsFunc(f.Values, func(literal json.RawMessage) bool { return Text(decode(string(literal))) == Text(value) })
	switch f.Operator {
	case "exists":
		return value != nil
	case "not_exists":
		return value == nil
	case "eq", "in":
		return value != nil && equal
	case "ne", "not_in":
		return value == nil || !equal
	}
	number, is := value.(json.Number)
	if !is {
		return false
	}
	a, _ := new(big.Rat).SetString(number.String())
	b, _ := new(big.Rat).SetString(string(f.Values[0]))
	return map[string]bool{"gt": a.Cmp(b) > 0, "gte": a.Cmp(b) >= 0, "lt": a.Cmp(b) < 0, "lte": a.Cmp(b) <= 0}[f.Operator]
}

// numberText matches the values that count as numbers.
var numberText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$`)

// Value returns the value that a meter counts for an event, or nil if it does not count the event.
func (d Definition) Value(value string, p Properties) *big.Rat {
	for _, f := range d.Filters {
		if !f.matches(p) {
			return nil
		}
	}
	if d.ValueProperty != "" {
		switch v := p.at(d.ValueProperty).(type) {
		case json.Number:
			value = v.String()
		case string:
			value = v
		default:
			return nil
		}
	}
	if !numberText.MatchString(value) {
		return nil
	}
	exact, _ := new(big.Rat).SetString(value)
	rounded := toTwelveDecimals(exact)
	if new(big.Rat).Abs(rounded).Cmp(new(big.Rat).SetInt(power(18))) >= 0 {
		return nil
	}
	return rounded
}

// toTwelveDecimals rounds half to even to twelve decimals.
func toTwelveDecimals(exact *big.Rat) *big.Rat {
	scaled := new(big.Rat).Mul(exact, new(big.Rat).SetInt(power(12)))
	twice := new(big.Int).Mul(scaled.Num(), big.NewInt(2))
	whole, rest := new(big.Int).DivMod(new(big.Int).Add(twice, scaled.Denom()), new(big.Int).Mul(scaled.Denom(), big.NewInt(2)), new(big.Int))
	if rest.Sign() == 0 && whole.Bit(0) == 1 {
		whole.Sub(whole, big.NewInt(1))
	}
	return new(big.Rat).SetFrac(whole, power(12))
}

// power returns ten to the n.
func power(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// Group returns a text that is equal for events of the same group.
func (d Definition) Group(p Properties) string {
	var key []string
	for _, name := range d.GroupBy {
		key = append(key, Text(p.at(name)))
	}
	return strings.Join(key, "\x00")
}

// GroupOf returns the result of Group for events with the properties in a group_key of the API.
func (d Definition) GroupOf(key Properties) string {
	var texts []string
	for _, name := range d.GroupBy {
		texts = append(texts, Text(key[name]))
	}
	return strings.Join(texts, "\x00")
}
