package metering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxPathLevels is the maximum number of names in a path into properties.
const maxPathLevels = 5

// propertyIndex contains the positions of an event's properties in their JSON text.
type propertyIndex struct {
	fields []propertyPlace
	built  bool
}

// propertyPlace contains the offsets of a name, including its quotes, and of its value.
type propertyPlace struct{ name, nameEnd, value, valueEnd uint32 }

var errNotAnObject = errors.New("properties: must be a JSON object")

// indexProperties finds the positions of the properties in valid JSON. It parses the JSON once for all
// meter versions that measure the event.
func (e *Event) indexProperties() error {
	if e.index.built || len(e.Properties) == 0 {
		return nil
	}
	if firstByte(e.Properties) != '{' {
		return errNotAnObject
	}
	fields := make([]propertyPlace, 0, 8)
	scanObject(e.Properties, func(place propertyPlace) { fields = append(fields, place) })
	e.index = propertyIndex{fields, true}
	return nil
}

// property returns the JSON of the property at path, or nil. A top-level property with the whole path as its
// name takes precedence over a nested one. The last value of a repeated name is used, as in jsonb.
func (e *Event) property(path string) []byte {
	if value := e.topLevel(path); value != nil {
		return value
	}
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		return nil
	}
	return nestedValue(e.topLevel(name), rest)
}

// topLevel returns the JSON of the top-level property with this name, or nil.
func (e *Event) topLevel(name string) []byte {
	for _, place := range slices.Backward(e.index.fields) {
		if isNamed(e.Properties[place.name:place.nameEnd], name) {
			return e.Properties[place.value:place.valueEnd]
		}
	}
	return nil
}

// nestedValue returns the value at a path into a valid JSON value, or nil.
func nestedValue(raw []byte, path string) []byte {
	for {
		name, rest, more := strings.Cut(path, ".")
		if raw = fieldOf(raw, name); raw == nil || !more {
			return raw
		}
		path = rest
	}
}

// fieldOf returns the value of a field of a valid JSON value, or nil.
func fieldOf(raw []byte, name string) (value []byte) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	scanObject(raw, func(place propertyPlace) {
		if isNamed(raw[place.name:place.nameEnd], name) {
			value = raw[place.value:place.valueEnd]
		}
	})
	return value
}

// isNamed reports whether a JSON string literal equals name.
func isNamed(literal []byte, name string) bool {
	text := literal[1 : len(literal)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text) == name
	}
	return string(unescaped(literal)) == name
}

// scanObject calls visit with the positions of each field of a valid JSON object.
func scanObject(raw []byte, visit func(propertyPlace)) {
	for i := skipSpace(raw, 0) + 1; ; { // after the brace
		if i = skipSpace(raw, i); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
		if raw[i] == '}' {
			return
		}
		place := propertyPlace{name: uint32(i)}
		i = endOfValue(raw, i)
		place.nameEnd = uint32(i)
		i = skipSpace(raw, skipSpace(raw, i)+1) // the colon
		place.value = uint32(i)
		i = endOfValue(raw, i)
		place.valueEnd = uint32(i)
		visit(place)
	}
}

// endOfValue returns the offset after the valid JSON value that begins at offset i.
func endOfValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		end, _ := endOfString(raw, i+1)
		return end + 1
	case '{', '[':
		for depth := 0; ; i++ {
			switch raw[i] {
			case '"':
				i, _ = endOfString(raw, i+1)
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(raw) && raw[i] > ' ' && raw[i] != ',' && raw[i] != '}' && raw[i] != ']' {
		i++
	}
	return i
}

// skipSpace returns the offset of the first byte from offset i on that is not white space.
func skipSpace(raw []byte, i int) int {
	for raw[i] <= ' ' {
		i++
	}
	return i
}

// firstByte returns the first byte after leading white space, or 0 if there is none.
func firstByte(raw []byte) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// isSet reports whether a property is present and not null.
func isSet(raw []byte) bool { return len(raw) > 0 && raw[0] != 'n' }

// ValidPath returns an error if the text is not a valid path into properties.
func ValidPath(location, path string) error {
	if err := validText(location, path); err != nil {
		return err
	}
	if strings.HasPrefix(path, "$") {
		return Invalid(location, "must not begin with '$'")
	}
	if levels := strings.Count(path, ".") + 1; levels > maxPathLevels {
		return Invalid(location, "must have at most %d names with a dot between them, and has %d; send the property in a higher level", maxPathLevels, levels)
	}
	return nil
}

// canonicalValue returns the unique JSON text of a property's value. It is null for a missing property, the
// plain decimal form of a number, and the compact JSON text of an object or array as a string.
func canonicalValue(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	switch raw[0] {
	case '"':
		if isPlainString(raw) {
			return raw, nil
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("property: %w", err)
		}
		return PlainJSON(text), nil
	case '{', '[':
		var tree any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&tree); err != nil {
			return nil, fmt.Errorf("property: %w", err)
		}
		return PlainJSON(string(PlainJSON(canonicalNumbers(tree)))), nil
	case 't', 'f', 'n':
		return raw, nil
	default:
		if isPlainInteger(raw) {
			return raw, nil
		}
		return json.RawMessage(canonicalNumber(string(raw))), nil
	}
}

// isPlainString reports whether a JSON string has only ASCII characters and no escapes. canonicalValue
// returns such a string unchanged.
func isPlainString(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// appendText appends a text as canonical JSON.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return append(to, PlainJSON(text)...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

// isPlainInteger reports whether a JSON number consists of digits only. canonicalValue returns such a number
// unchanged.
func isPlainInteger(raw []byte) bool {
	for _, c := range raw {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// canonicalNumbers converts every number in a JSON tree to plain decimal form. The original form cannot be
// part of a key, because jsonb rewrites 1e2 to 100.
func canonicalNumbers(tree any) any {
	switch node := tree.(type) {
	case json.Number:
		return json.Number(canonicalNumber(node.String()))
	case []any:
		for i := range node {
			node[i] = canonicalNumbers(node[i])
		}
	case map[string]any:
		for name := range node {
			node[name] = canonicalNumbers(node[name])
		}
	}
	return tree
}
