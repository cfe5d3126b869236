package api

import (
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// SentTime is an instant of a request, which metering.ParseTime parses. huma and
// encoding/json parse a time.Time each in another way.
type SentTime struct {
	time.Time
	sent   bool  // no instant stands for absence: each is a legal value
	broken error // in a body
}

// UnmarshalText parses a query parameter.
func (s *SentTime) UnmarshalText(text []byte) (err error) {
	s.Time, err = metering.ParseTime(string(text))
	s.sent = true
	return err
}

// UnmarshalJSON parses a JSON string. Resolve returns its error, with the place.
func (s *SentTime) UnmarshalJSON(literal []byte) error {
	var text string
	if err := json.Unmarshal(literal, &text); err != nil {
		return err
	}
	s.Time, s.broken = metering.ParseTime(text)
	s.sent = true
	return nil
}

// pointer returns nil if none was sent.
func (s *SentTime) pointer() *time.Time {
	if s == nil || !s.sent {
		return nil
	}
	return &s.Time
}

// Resolve returns the rule that an instant of a body breaks.
func (s *SentTime) Resolve(_ huma.Context, place *huma.PathBuffer) []error {
	if s.broken == nil {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: place.String(), Message: s.broken.Error()}}
}

// Schema sets the format as an extension: huma checks the formats that it knows of by
// parsers of its own.
func (SentTime) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Extensions: map[string]any{"format": "date-time"}}
}
