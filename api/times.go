package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// SentTime is a time in a request. It uses metering.ParseTime, because huma and encoding/json parse time.Time
// in different ways.
type SentTime struct {
	time.Time
	sent   bool  // a flag, because every time is a valid value
	broken error // error of a time in a body
}

// UnmarshalText parses a query parameter.
func (s *SentTime) UnmarshalText(text []byte) (err error) {
	s.Time, err = metering.ParseTime(string(text))
	s.sent = true
	return err
}

// UnmarshalJSON parses a JSON string. Resolve reports a parse error later, with the location of the field. In fields
// that are pointers, encoding/json accepts null without a call.
func (s *SentTime) UnmarshalJSON(literal []byte) error {
	if string(literal) == "null" {
		s.broken = errors.New("must not be null; omit it for the default")
		return nil
	}
	var text string
	if err := json.Unmarshal(literal, &text); err != nil {
		return err
	}
	s.Time, s.broken = metering.ParseTime(text)
	s.sent = true
	return nil
}

// pointer returns nil if the request contains no time.
func (s *SentTime) pointer() *time.Time {
	if s == nil || !s.sent {
		return nil
	}
	return &s.Time
}

// Resolve returns the parse error of a time in a body.
func (s *SentTime) Resolve(_ huma.Context, place *huma.PathBuffer) []error {
	if s.broken == nil {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: place.String(), Message: s.broken.Error()}}
}

// Schema sets the format as an extension, because huma validates the formats that it knows with its own
// parsers.
func (SentTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Extensions: map[string]any{"format": "date-time"}}
}
