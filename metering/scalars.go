package metering

import (
	"encoding/json"
	"maps"
	"slices"
)

// Scalar is a JSON string, number, boolean or null in the canonical form of a group's key. Its zero
// value is none of them.
type Scalar struct{ text string }

// ParseScalar returns the scalar of a JSON literal, or the zero value if it is not one that an
// event can have.
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

// IsZero reports whether the value is no scalar.
func (s Scalar) IsZero() bool { return s.text == "" }

// String returns the JSON literal.
func (s Scalar) String() string { return s.text }

// MarshalJSON writes the JSON literal.
func (s Scalar) MarshalJSON() ([]byte, error) {
	if s.text == "" {
		return []byte("null"), nil
	}
	return []byte(s.text), nil
}

// UnmarshalJSON reads a JSON literal. The caller refuses the zero value.
func (s *Scalar) UnmarshalJSON(literal []byte) error {
	*s = ParseScalar(literal)
	return nil
}

// CanonicalKey returns a group's key, or a part of it, as GroupOf writes it. The database writes
// keys in another form.
func CanonicalKey(key json.RawMessage) (json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(key, &values); err != nil || values == nil {
		return nil, err
	}
	group, err := MeterVersion{GroupBy: slices.Collect(maps.Keys(values))}.GroupOf(key)
	return group.Key, err
}
