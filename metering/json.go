package metering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits on JSON that a client sends, such as the properties of an event.
const (
	MaxPropertiesBytes = 16 << 10
	maxPropertiesDepth = 32
	maxNumberBytes     = 128
)

// fewNames is the maximum number of names in an object among which a duplicate is found by comparing all
// pairs. More names are sorted instead.
const fewNames = 16

// jsonRule returns the rule that valid JSON breaks, or "". PostgreSQL's jsonb rejects NUL and unpaired
// surrogates, and expands exponents.
func jsonRule(raw []byte) string {
	if !utf8.Valid(raw) {
		return "must be UTF-8"
	}
	var room [fewNames][]byte
	names := room[:0]                      // of all objects that are not closed yet
	var starts [maxPropertiesDepth + 1]int // index of the first name of the object at each depth
	depth, number := 0, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '"':
			number = 0
			end, escaped := endOfString(raw, i+1)
			text := raw[i+1 : end]
			if escaped {
				if rule := escapeRule(text); rule != "" {
					return rule
				}
			}
			if isName(raw[end:]) {
				if escaped {
					text = unescaped(raw[i : end+1])
				}
				names = append(names, text)
			}
			i = end
		case '{', '[':
			if depth++; depth > maxPropertiesDepth {
				return fmt.Sprintf("must have at most %d nested levels", maxPropertiesDepth)
			}
			starts[depth], number = len(names), 0
		case '}', ']':
			if twice := repeated(names[starts[depth]:]); twice != nil {
				return fmt.Sprintf("must not contain the name %q twice in the same object", ShortName(string(twice)))
			}
			names = names[:starts[depth]]
			depth--
			number = 0
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '-', '.':
			if number++; number > maxNumberBytes {
				return fmt.Sprintf("must not contain a number of more than %d characters", maxNumberBytes)
			}
		case 'e', 'E':
			if number > 0 && longExponent(raw[i+1:]) {
				return "must not contain a number with an exponent of more than two digits"
			}
		default:
			number = 0
		}
	}
	return ""
}

// endOfString returns the index of the closing quote of a string, and whether the string contains an escape.
// from is the index after the opening quote.
func endOfString(raw []byte, from int) (end int, escaped bool) {
	for end = from; raw[end] != '"'; end++ {
		if raw[end] == '\\' {
			escaped = true
			end++
		}
	}
	return end, escaped
}

// isName reports whether a string is the name of a field. fromQuote begins with the string's closing quote.
func isName(fromQuote []byte) bool {
	rest := fromQuote[1:]
	if len(rest) > 0 && rest[0] > ' ' {
		return rest[0] == ':'
	}
	return bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":"))
}

// escapeRule returns the rule that the escapes of a string break, or "".
func escapeRule(text []byte) string {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; text[i] != 'u' {
			continue
		}
		unit := utf16Unit(text[i+1:])
		i += 4
		switch {
		case unit == 0:
			return "must not contain NUL"
		case !utf16.IsSurrogate(unit):
		case !bytes.HasPrefix(text[i+1:], []byte(`\u`)), utf16.DecodeRune(unit, utf16Unit(text[i+3:])) == utf8.RuneError:
			return "must not contain an unpaired UTF-16 surrogate, which is not a character"
		default:
			i += 6
		}
	}
	return ""
}

// utf16Unit returns the code unit of a \u escape. text begins with the four hexadecimal digits.
func utf16Unit(text []byte) rune {
	unit, _ := strconv.ParseUint(string(text[:4]), 16, 16) // valid JSON
	return rune(unit)
}

// ShortName shortens a name that a client chose, so that an error message can contain it.
func ShortName(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// unescaped returns the text of a valid JSON string literal.
func unescaped(literal []byte) []byte {
	var text string
	_ = json.Unmarshal(literal, &text) // valid JSON
	return []byte(text)
}

// repeated returns a name that occurs twice, or nil. It may reorder names.
func repeated(names [][]byte) []byte {
	if len(names) > fewNames {
		slices.SortFunc(names, bytes.Compare)
		for i := range names[1:] {
			if bytes.Equal(names[i], names[i+1]) {
				return names[i]
			}
		}
		return nil
	}
	for i, name := range names {
		for _, other := range names[:i] {
			if bytes.Equal(name, other) {
				return name
			}
		}
	}
	return nil
}

// Scalar is a JSON string, number, boolean or null in the canonical form of group keys. Its zero value is
// not valid.
type Scalar struct{ text string }

// ParseScalar returns the scalar of a JSON literal. It returns the zero value if the literal is not a scalar
// that an event can contain.
func ParseScalar(literal json.RawMessage) Scalar {
	switch kind := firstByte(literal); {
	case kind == 0, kind == '{', kind == '[', !json.Valid(literal), jsonRule(literal) != "":
		return Scalar{}
	}
	text, err := canonicalValue(literal)
	if err != nil {
		return Scalar{}
	}
	return Scalar{string(text)}
}

// Validate returns an error at location for the zero value.
func (s Scalar) Validate(location string) error {
	if s.text == "" {
		return Invalid(location, "must be a string without NUL, a boolean, null, or a number of at most 128 characters and an exponent of at most two digits")
	}
	return nil
}

// String returns the JSON literal.
func (s Scalar) String() string { return s.text }

// MarshalJSON writes the JSON literal.
func (s Scalar) MarshalJSON() ([]byte, error) {
	if s.text == "" {
		return []byte("null"), nil
	}
	return []byte(s.text), nil
}

// UnmarshalJSON parses a JSON literal. Validate rejects the zero value, which an invalid literal produces.
func (s *Scalar) UnmarshalJSON(literal []byte) error {
	*s = ParseScalar(literal)
	return nil
}

// CanonicalKey converts a group's key, or a part of it, to the form that GroupOf returns. jsonb columns
// return keys in a different form.
func CanonicalKey(key json.RawMessage) (json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(key, &values); err != nil || values == nil {
		return nil, err
	}
	group, err := MeterVersion{GroupBy: slices.Collect(maps.Keys(values))}.GroupOf(key)
	return group.Key, err
}
