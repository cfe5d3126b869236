package metering

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// FilterPrefix begins the query parameters that select groups: "filter.model=large".
const FilterPrefix = "filter."

// OtherProperty is the one property of OtherGroup's key. No meter groups by it.
const OtherProperty = "$other"

// ParseGroupValue returns the value of a group key that a text of a query selects, as
// canonical JSON. A JSON number, string, true, false or null is that value; any other
// text is the string of its characters.
func ParseGroupValue(text string) json.RawMessage {
	switch {
	case text == "null", text == "true", text == "false":
		return json.RawMessage(text)
	case isJSONNumber(text) && len(text) <= maxNumberBytes && !longExponentIn(text): // no event has others
		return json.RawMessage(canonicalNumber(text))
	}
	if quoted, is := parseJSONString(text); is {
		text = quoted
	}
	return PlainJSON(text)
}

// parseJSONString reads a JSON string that an event can have: one without NUL and lone
// surrogates.
func parseJSONString(literal string) (text string, is bool) {
	if !strings.HasPrefix(literal, `"`) || !strings.HasSuffix(literal, `"`) || !jsontext.Value(literal).IsValid() {
		return "", false
	}
	err := json.Unmarshal([]byte(literal), &text)
	return text, err == nil && !strings.ContainsRune(text, 0)
}

// GroupValueText returns a text that ParseGroupValue parses to the value: without quotes
// if possible.
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

// FilterOf returns the query parameters that select the group of a key.
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

// PlainJSON is the JSON of a value, without escapes of HTML.
func PlainJSON(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // texts and trees of JSON are JSON
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
