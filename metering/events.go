package metering

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// Bounds of one event.
const (
	maxTextBytes       = 255 // event_type, customer_id, idempotency_key, names
	MaxPropertiesBytes = 16 << 10
	maxPropertiesDepth = 32
	maxNumberBytes     = 128 // of a number within properties
	maxEventYears      = 5   // back
	maxEventLead       = time.Hour
)

// SentEvent is an event as a client sent it: absent fields are nil or "".
type SentEvent struct {
	EventType      string          `json:"event_type"`
	CustomerID     string          `json:"customer_id"` // the customer's external_id
	Timestamp      *string         `json:"timestamp"`
	Value          json.RawMessage `json:"value"`
	Properties     json.RawMessage `json:"properties"`
	IdempotencyKey *string         `json:"idempotency_key"`
}

// Event is a judged event, ready to be stored.
type Event struct {
	ID             uuid.UUID // version 7, made at ingest
	CustomerID     CustomerID
	ExternalID     string
	EventType      string
	At             time.Time
	Value          Decimal
	Properties     json.RawMessage // a JSON object, or nil
	IdempotencyKey string          // "" when none was sent
	Dated          bool            // sent with a timestamp
	ReceivedAt     time.Time
	Hash           [32]byte // of the event as it was sent; zero without a key
}

// Rejection says why one event of a request was not accepted.
type Rejection struct {
	Index   int
	Code    string // "invalid_value", "timestamp_too_old", …
	Field   string
	Message string
}

func (r *Rejection) Error() string { return r.Field + " " + r.Message }

func reject(code, field, format string, args ...any) *Rejection {
	return &Rejection{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Judge turns a sent event into one that can be stored, or says which rule it
// breaks. An absent timestamp becomes now, an absent value 1.
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
	if given(s.Value) {
		value, err := ParseDecimal(string(s.Value))
		if err != nil {
			return Event{}, reject("invalid_value", "value", "%s", err)
		}
		event.Value = value
	}
	if given(s.Properties) {
		properties, rejection := judgeProperties(s.Properties)
		if rejection != nil {
			return Event{}, rejection
		}
		event.Properties = properties
	}
	if s.IdempotencyKey != nil {
		event.Hash = s.hash(event.Value)
	}
	return event, nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

func judgeTimestamp(text string, now time.Time) (time.Time, *Rejection) {
	at, err := ParseTime(text)
	if err != nil {
		return time.Time{}, reject("invalid_timestamp", "timestamp", "%s", err)
	}
	if at.Before(Instant(now.AddDate(-maxEventYears, 0, 0))) {
		return time.Time{}, reject("timestamp_too_old", "timestamp", "must not be more than five years back")
	}
	if at.After(now.Add(maxEventLead)) {
		return time.Time{}, reject("timestamp_in_future", "timestamp", "must not be more than one hour ahead")
	}
	return at, nil
}

// hash covers what the client sent, so that a repeat without a timestamp is
// the same event whenever it comes. Of the value it covers the number, however
// that was written.
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
	part(s.Timestamp != nil, optional(s.Timestamp))
	part(given(s.Value), value.String())
	part(given(s.Properties), compact(s.Properties))
	return sha256.Sum256(text)
}

func optional(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// compact is JSON without the white space between its tokens.
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

// judgeProperties accepts a JSON object that the database can hold as it is:
// jsonb refuses NUL and lone surrogates, and expands exponents.
func judgeProperties(raw json.RawMessage) (json.RawMessage, *Rejection) {
	const code, field = "invalid_properties", "properties"
	if !bytes.HasPrefix(raw, []byte("{")) {
		return nil, reject(code, field, "must be an object")
	}
	if len(raw) > MaxPropertiesBytes {
		return nil, reject("properties_too_large", field, "must have at most %d bytes", MaxPropertiesBytes)
	}
	if !utf8.Valid(raw) {
		return nil, reject(code, field, "must be UTF-8")
	}
	escaped, rule := scanJSON(raw)
	if rule != "" {
		return nil, reject(code, field, "%s", rule)
	}
	if !escaped {
		return raw, nil
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, reject(code, field, "must be an object")
	}
	var clean bytes.Buffer
	encoder := json.NewEncoder(&clean)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return nil, reject(code, field, "must be an object")
	}
	return bytes.TrimSuffix(clean.Bytes(), []byte("\n")), nil
}

// scanJSON walks valid JSON once and reports whether a string has a \u escape,
// and the first bound that is broken.
func scanJSON(raw []byte) (escaped bool, rule string) {
	depth, number := 0, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '"':
			number = 0
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] != '\\' {
					continue
				}
				i++
				if bytes.HasPrefix(raw[i:], []byte("u0000")) {
					return true, "must not contain NUL"
				}
				escaped = escaped || bytes.HasPrefix(raw[i:], []byte("u"))
			}
		case '{', '[':
			if depth++; depth > maxPropertiesDepth {
				return escaped, fmt.Sprintf("must nest at most %d deep", maxPropertiesDepth)
			}
			number = 0
		case '}', ']':
			depth--
			number = 0
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '-', '.':
			if number++; number > maxNumberBytes {
				return escaped, fmt.Sprintf("must have numbers of at most %d characters", maxNumberBytes)
			}
		case 'e', 'E':
			if number > 0 && longExponent(raw[i+1:]) {
				return escaped, "must have exponents of at most two digits"
			}
		default:
			number = 0
		}
	}
	return escaped, ""
}

func longExponent(rest []byte) bool {
	rest = bytes.TrimLeft(rest, "+-")
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	return n > 2
}

// canonicalNumber is the plain decimal form of a JSON number, without trailing
// zeros. What is no number stays as it is.
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

func longExponentIn(literal string) bool {
	i := strings.IndexAny(literal, "eE")
	return i >= 0 && longExponent([]byte(literal[i+1:]))
}

// textRule returns the rule that an identifier-like text breaks, or "".
func textRule(text string) string {
	switch {
	case text == "":
		return "is required"
	case len(text) > maxTextBytes:
		return fmt.Sprintf("must have at most %d bytes", maxTextBytes)
	case strings.ContainsRune(text, 0):
		return "must not contain NUL"
	case !utf8.ValidString(text), strings.Contains(text, lostText):
		return "must be UTF-8"
	}
	return ""
}

// lostText is what the JSON decoder puts where bytes or surrogates mean
// nothing. Two texts that differ there alone would become one: one key, one
// customer.
const lostText = string(utf8.RuneError)

func validText(location, text string) error {
	if rule := textRule(text); rule != "" {
		return Invalid(location, "%s", rule)
	}
	return nil
}
