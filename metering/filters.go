package metering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/shopspring/decimal"
)

// Limits on a meter's filters.
const (
	MaxFiltersPerMeter = 10
	MaxFilterValues    = 100
	MaxFilterBytes     = 64 << 10 // of all filters of a meter as JSON
)

// FilterOperator compares a property with the values of a Filter.
type FilterOperator string

const (
	FilterEq        FilterOperator = "eq"
	FilterNe        FilterOperator = "ne"
	FilterIn        FilterOperator = "in"
	FilterNotIn     FilterOperator = "not_in"
	FilterExists    FilterOperator = "exists"
	FilterNotExists FilterOperator = "not_exists"
	FilterGt        FilterOperator = "gt"
	FilterGte       FilterOperator = "gte"
	FilterLt        FilterOperator = "lt"
	FilterLte       FilterOperator = "lte"
)

// Values returns all operators.
func (FilterOperator) Values() []FilterOperator {
	return []FilterOperator{FilterEq, FilterNe, FilterIn, FilterNotIn, FilterExists, FilterNotExists, FilterGt, FilterGte, FilterLt, FilterLte}
}

// Filter is a condition that a property of an event must meet for the event to be counted. A missing or
// null property meets only ne, not_in and not_exists.
type Filter struct {
	Property string         `json:"property"` // a path into properties
	Operator FilterOperator `json:"operator"`
	Values   []FilterValue  `json:"values"`
}

// FilterValue is a JSON string, number or boolean in canonical form. Its zero value is not valid.
type FilterValue struct {
	text   string
	number decimal.Decimal
}

// ParseFilterValue returns the value of a JSON literal. It returns the zero value if the literal is not a
// string, number or boolean that an event can contain.
func ParseFilterValue(literal json.RawMessage) FilterValue {
	kind := firstByte(literal)
	if kind == 0 || strings.IndexByte("{[n", kind) >= 0 || !json.Valid(literal) || jsonRule(literal) != "" {
		return FilterValue{}
	}
	text, err := canonicalValue(literal)
	if err != nil {
		return FilterValue{}
	}
	value := FilterValue{text: string(text)}
	if value.isNumber() {
		if value.number, err = decimal.NewFromString(value.text); err != nil {
			return FilterValue{}
		}
	}
	return value
}

// MarshalJSON returns the JSON literal.
func (v FilterValue) MarshalJSON() ([]byte, error) {
	if v.text == "" {
		return []byte("null"), nil
	}
	return []byte(v.text), nil
}

// UnmarshalJSON parses a JSON literal. Filter.validate rejects the zero value, which an invalid literal
// produces.
func (v *FilterValue) UnmarshalJSON(literal []byte) error {
	*v = ParseFilterValue(literal)
	return nil
}

func (v FilterValue) isNumber() bool { return v.text != "" && isNumberStart(v.text[0]) }

func isNumberStart(c byte) bool { return c == '-' || isDigit(c) }

// equal reports whether two filters select the same events.
func (f Filter) equal(o Filter) bool {
	return f.Property == o.Property && f.Operator == o.Operator &&
		slices.EqualFunc(f.Values, o.Values, func(a, b FilterValue) bool { return a.text == b.text })
}

// isOrdering reports whether the operator is gt, gte, lt or lte.
func (o FilterOperator) isOrdering() bool {
	return o == FilterGt || o == FilterGte || o == FilterLt || o == FilterLte
}

// valueBounds returns the minimum and maximum number of values for the operator, and the rule as text.
func (o FilterOperator) valueBounds() (least, most int, rule string) {
	switch o {
	case FilterExists, FilterNotExists:
		return 0, 0, "must be empty or omitted"
	case FilterIn, FilterNotIn:
		return 1, MaxFilterValues, fmt.Sprintf("must have 1 to %d values", MaxFilterValues)
	default:
		return 1, 1, "must have exactly one value; use in or not_in for several"
	}
}

// validate returns an error if the filter is not valid.
func (f Filter) validate(location string) error {
	if err := ValidPath(location+".property", f.Property); err != nil {
		return err
	}
	if !slices.Contains(f.Operator.Values(), f.Operator) {
		return Invalid(location+".operator", "must be one of eq, ne, in, not_in, exists, not_exists, gt, gte, lt and lte")
	}
	least, most, rule := f.Operator.valueBounds()
	if n := len(f.Values); n < least || n > most {
		return Invalid(location+".values", "%s, because operator is %s", rule, f.Operator)
	}
	for i, value := range f.Values {
		at := fmt.Sprintf("%s.values[%d]", location, i)
		switch {
		case value.text == "":
			return Invalid(at, "must be a string, a number, true or false; use the operators exists and not_exists for null")
		case f.Operator.isOrdering() && !value.isNumber():
			return Invalid(at, "must be a number, because operator is %s", f.Operator)
		case longerThan(maxText, value.text):
			return Invalid(at, "must have at most %d characters as JSON", maxText)
		}
	}
	return nil
}

// matches reports whether a property meets the filter. A missing property is nil.
func (f Filter) matches(property []byte) (bool, error) {
	switch f.Operator {
	case FilterExists:
		return isSet(property), nil
	case FilterNotExists:
		return !isSet(property), nil
	case FilterEq, FilterIn:
		return f.equals(property)
	case FilterNe, FilterNotIn:
		equals, err := f.equals(property)
		return !equals, err
	}
	return f.inOrder(property)
}

// equals reports whether a property equals one of the values.
func (f Filter) equals(property []byte) (bool, error) {
	if !isSet(property) {
		return false, nil
	}
	text, err := canonicalValue(property)
	if err != nil {
		return false, err
	}
	for i := range f.Values {
		if string(text) == f.Values[i].text {
			return true, nil
		}
	}
	return false, nil
}

// inOrder reports whether a property is a number that compares with the filter's value as the operator
// requires.
func (f Filter) inOrder(property []byte) (bool, error) {
	if len(property) == 0 || !isNumberStart(property[0]) {
		return false, nil
	}
	number, err := decimal.NewFromString(string(property))
	if err != nil {
		return false, fmt.Errorf("property: %w", err)
	}
	order := number.Cmp(f.Values[0].number)
	switch f.Operator {
	case FilterGt:
		return order > 0, nil
	case FilterGte:
		return order >= 0, nil
	case FilterLt:
		return order < 0, nil
	default:
		return order <= 0, nil
	}
}

// FilterPrefix is the prefix of query parameters that select groups, such as "filter.model=large".
const FilterPrefix = "filter."

// OtherProperty is the only property in the key of OtherGroup. No meter can group by it.
const OtherProperty = "$other"

// ParseGroupValue returns the group key value that a query parameter selects, as canonical JSON. A JSON
// number, string, true, false or null selects that value. Any other text selects the string itself.
func ParseGroupValue(text string) json.RawMessage {
	switch {
	case text == "null", text == "true", text == "false":
		return json.RawMessage(text)
	case isJSONNumber(text) && len(text) <= maxNumberBytes && !longExponentIn(text): // events cannot contain other numbers
		return json.RawMessage(canonicalNumber(text))
	}
	if quoted, is := parseJSONString(text); is {
		text = quoted
	}
	return PlainJSON(text)
}

// parseJSONString parses a JSON string. It rejects NUL and unpaired surrogates, which an event cannot contain.
func parseJSONString(literal string) (text string, is bool) {
	if !strings.HasPrefix(literal, `"`) || !strings.HasSuffix(literal, `"`) || !jsontext.Value(literal).IsValid() {
		return "", false
	}
	err := json.Unmarshal([]byte(literal), &text)
	return text, err == nil && !strings.ContainsRune(text, 0)
}

// GroupValueText returns a text that ParseGroupValue parses to the value, without quotes if possible.
func GroupValueText(value json.RawMessage) (string, error) {
	var text string
	if len(value) == 0 || value[0] != '"' {
		return string(value), nil
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", err
	}
	if quoted := PlainJSON(text); !bytes.Equal(ParseGroupValue(text), quoted) {
		return string(quoted), nil
	}
	return text, nil
}

// FilterOf returns the query parameters that select the group with the given key.
func FilterOf(key json.RawMessage) (string, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(key, &values); err != nil {
		return "", err
	}
	var filter string
	for _, property := range slices.Sorted(maps.Keys(values)) {
		text, err := GroupValueText(values[property])
		if err != nil {
			return "", err
		}
		if filter != "" {
			filter += "&"
		}
		filter += url.QueryEscape(FilterPrefix+property) + "=" + url.QueryEscape(text)
	}
	return filter, nil
}

// PlainJSON returns the JSON of a value without HTML escapes.
func PlainJSON(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // strings and decoded JSON always encode
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
