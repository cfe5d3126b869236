package metering

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// Bounds of one event.
const (
	maxEventYears = 5 // in the past
	MaxEventLead  = time.Hour
)

// SentEvent is an event as a client sent it. Absent fields are nil or "".
type SentEvent struct {
	EventType      string          `json:"event_type"`
	CustomerID     string          `json:"customer_id"` // the customer's external_id
	Timestamp      *string         `json:"timestamp"`
	Value          json.RawMessage `json:"value"`
	Properties     json.RawMessage `json:"properties"`
	IdempotencyKey *string         `json:"idempotency_key"`
}

// Event is a valid event, ready to be stored.
type Event struct {
	ID             uuid.UUID // version 7, created at ingest
	CustomerID     CustomerID
	ExternalID     string
	CustomerSince  time.Time // when the customer was created; set once the event is stored
	EventType      string
	At             time.Time
	Value          Decimal
	Properties     json.RawMessage // a JSON object, or nil
	IdempotencyKey string          // "": none
	Dated          bool            // sent with a timestamp
	ReceivedAt     time.Time
	Hash           [32]byte // of the fields as sent, see SentEvent.hash; zero without an idempotency key
	Erased         bool     // the event's customer was erased: Properties contain only the values that erasure kept

	index propertyIndex // of Properties, which must not change after the index was built
}

// Rejection is the reason why one event of a request was not accepted.
type Rejection struct {
	Index   int
	Code    string // "invalid_value", "timestamp_too_old", …
	Field   string
	Message string
}

func (r *Rejection) Error() string { return r.Field + " " + r.Message }

// reject returns the Rejection with this code, field and message.
func reject(code, field, format string, args ...any) *Rejection {
	return &Rejection{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Judge validates a sent event. It returns the Event to store, or the rule that the sent event breaks. The
// default timestamp is now, and the default value is 1.
func (s SentEvent) Judge(now time.Time) (Event, *Rejection) {
	event := Event{EventType: s.EventType, ExternalID: s.CustomerID, At: Instant(now), Value: Whole(1), ReceivedAt: Instant(now)}
	if rule := textRule(s.EventType); rule != "" {
		return Event{}, reject("invalid_event_type", "event_type", "%s", rule)
	}
	if rule := customerRule(s.CustomerID); rule != "" {
		return Event{}, reject("invalid_customer_id", "customer_id", "%s", rule)
	}
	if s.IdempotencyKey != nil {
		if rule := textRule(*s.IdempotencyKey); rule != "" {
			return Event{}, reject("invalid_idempotency_key", "idempotency_key", "%s", rule)
		}
		event.IdempotencyKey = *s.IdempotencyKey
	}
	if s.Timestamp != nil {
		at, rejection := judgeTimestamp(*s.Timestamp, now)
		if rejection != nil {
			return Event{}, rejection
		}
		event.At, event.Dated = at, true
	}
	if isSent(s.Value) {
		value, err := ParseDecimal(string(s.Value))
		if err != nil {
			return Event{}, reject("invalid_value", "value", "%s", err)
		}
		event.Value = value
	}
	if isSent(s.Properties) {
		if rejection := judgeProperties(s.Properties); rejection != nil {
			return Event{}, rejection
		}
		event.Properties = s.Properties
	}
	if s.IdempotencyKey != nil {
		event.Hash = s.hash(event.Value)
	}
	return event, nil
}

// isSent reports whether an optional field of a sent event is present and not null.
func isSent(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// judgeTimestamp parses the timestamp of a sent event, or returns the rejection of the event.
func judgeTimestamp(text string, now time.Time) (time.Time, *Rejection) {
	at, err := ParseTime(text)
	if err != nil {
		return time.Time{}, reject("invalid_timestamp", "timestamp", "%s", err)
	}
	if at.Before(Instant(now.AddDate(-maxEventYears, 0, 0))) {
		return time.Time{}, reject("timestamp_too_old", "timestamp", "must not be more than five years in the past")
	}
	if at.After(now.Add(MaxEventLead)) {
		return time.Time{}, reject("timestamp_in_future", "timestamp", "must not be more than one hour in the future")
	}
	return at, nil
}

// hash returns a hash of the fields as the client sent them, without defaults. A repeated event without a
// timestamp therefore has the same hash at any time. Different notations of one value have the same hash.
func (s SentEvent) hash(value Decimal) [32]byte {
	text := make([]byte, 0, 512)
	part := func(present bool, content string) {
		if !present {
			text = append(text, ':')
			return
		}
		text = strconv.AppendInt(text, int64(len(content)), 10)
		text = append(append(text, ':'), content...)
	}
	part(true, s.EventType)
	part(true, s.CustomerID)
	part(s.Timestamp != nil, textOrEmpty(s.Timestamp))
	part(isSent(s.Value), value.String())
	part(isSent(s.Properties), compact(s.Properties))
	return sha256.Sum256(text)
}

// textOrEmpty returns the text, or "" for nil.
func textOrEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// compact returns JSON without white space between its tokens.
func compact(raw json.RawMessage) string {
	if !bytes.ContainsAny(raw, " \t\r\n") {
		return string(raw)
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// judgeProperties returns a rejection unless raw is a JSON object that the database can store unchanged.
func judgeProperties(raw json.RawMessage) *Rejection {
	const code, field = "invalid_properties", "properties"
	if !bytes.HasPrefix(raw, []byte("{")) {
		return reject(code, field, "must be an object")
	}
	if len(raw) > MaxPropertiesBytes {
		return reject("properties_too_large", field, "must have at most %d bytes", MaxPropertiesBytes)
	}
	if rule := jsonRule(raw); rule != "" {
		return reject(code, field, "%s", rule)
	}
	return nil
}

// longExponent reports whether an exponent has more than two digits. rest begins after the e of a number.
func longExponent(rest []byte) bool {
	rest = bytes.TrimLeft(rest, "+-")
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	return n > 2
}

// canonicalNumber returns a JSON number in plain decimal form, without trailing zeros. It returns any other
// text unchanged.
func canonicalNumber(literal string) string {
	if len(literal) > 2*maxNumberBytes || !isJSONNumber(literal) || longExponentIn(literal) {
		return literal
	}
	d, err := decimal.NewFromString(literal)
	if err != nil {
		return literal
	}
	return d.String()
}

// longExponentIn reports whether a JSON number has an exponent of more than two digits.
func longExponentIn(literal string) bool {
	i := strings.IndexAny(literal, "eE")
	return i >= 0 && longExponent([]byte(literal[i+1:]))
}
