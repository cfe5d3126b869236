package api

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/odometer-metering/odometer/metering"
)

// eventDecoder reads events from a body as it arrives, in one pass, without holding
// the body. Names of fields are compared as encoding/json does.
type eventDecoder struct {
	*jsontext.Decoder
	texts map[string]string // event types and customers, which the events of a batch share
}

func newEventDecoder(body io.Reader) *eventDecoder {
	return &eventDecoder{
		Decoder: jsontext.NewDecoder(&shortBlanks{from: body}, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		texts:   make(map[string]string),
	}
}

// maxShared bounds the bytes of a text that is looked for among those that were read before.
const maxShared = 255

// event reads the next value. One of the wrong kind somewhere in it rejects that
// event only; err then is nil.
func (d *eventDecoder) event() (e sentEvent, err error) {
	switch d.PeekKind() {
	case 'n':
		return e, d.SkipValue()
	case '{':
	default:
		e.rejection = &metering.Rejection{Code: "invalid_event", Field: "event", Message: "must be an object"}
		return e, d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return e, err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return e, err
		}
		if err := d.field(&e, name); err != nil {
			return e, err
		}
	}
	_, err = d.ReadToken()
	return e, err
}

// field reads the value of the field that is named by a JSON string.
func (d *eventDecoder) field(e *sentEvent, name jsontext.Value) (err error) {
	switch string(name) {
	case `"event_type"`:
		return d.text(e, "event_type", &e.EventType)
	case `"customer_id"`:
		return d.text(e, "customer_id", &e.CustomerID)
	case `"timestamp"`:
		return d.optional(e, "timestamp", &e.Timestamp)
	case `"value"`:
		return d.raw(&e.Value)
	case `"properties"`:
		return d.raw(&e.Properties)
	case `"idempotency_key"`:
		return d.optional(e, "idempotency_key", &e.IdempotencyKey)
	}
	written := unquote(name)
	known := slices.IndexFunc(eventFields, func(field string) bool { return strings.EqualFold(field, written) })
	if known >= 0 {
		return d.field(e, jsontext.Value(`"`+eventFields[known]+`"`))
	}
	if len(e.ignored) < maxUnknownFields {
		e.ignored = append(e.ignored, written)
	}
	return d.SkipValue()
}

// text reads a text that other events are likely to have too. null changes nothing.
func (d *eventDecoder) text(e *sentEvent, field string, into *string) error {
	literal, err := d.literal(e, field)
	if literal != nil {
		*into = d.shared(literal)
	}
	return err
}

// optional reads a text that may be absent, as null is.
func (d *eventDecoder) optional(e *sentEvent, field string, into **string) error {
	*into = nil
	literal, err := d.literal(e, field)
	if literal != nil {
		*into = new(unquote(literal))
	}
	return err
}

// literal reads a JSON string; nil is null, or a value of another kind, which
// rejects the event.
func (d *eventDecoder) literal(e *sentEvent, field string) (jsontext.Value, error) {
	switch d.PeekKind() {
	case 'n':
		return nil, d.SkipValue()
	case '"':
		return d.ReadValue()
	}
	if e.rejection == nil {
		e.rejection = &metering.Rejection{Code: "invalid_" + field, Field: field, Message: "must be a string"}
	}
	return nil, d.SkipValue()
}

// raw reads a value as it is written.
func (d *eventDecoder) raw(into *json.RawMessage) error {
	value, err := d.ReadValue()
	if err == nil {
		*into = json.RawMessage(value.Clone())
	}
	return err
}

// shared is the text of a JSON string, the same one where an event before had it.
func (d *eventDecoder) shared(literal jsontext.Value) string {
	if text, known := d.texts[string(literal)]; known {
		return text
	}
	text := unquote(literal)
	if len(literal) <= maxShared {
		d.texts[string(literal)] = text
	}
	return text
}

// unquote is the text of a JSON string; what is not UTF-8 becomes U+FFFD.
func unquote(literal jsontext.Value) string {
	within := literal[1 : len(literal)-1]
	if !slices.Contains(within, '\\') && utf8.Valid(within) {
		return string(within)
	}
	text, _ := jsontext.AppendUnquote(nil, literal) // the decoder has seen that it is a string
	return string(text)
}

// batch reads {"events": […]}, and stops at the first event too many. Other
// fields are skipped, and noted.
func (d *eventDecoder) batch() (batch sentEvents, err error) {
	if token, err := d.ReadToken(); err != nil {
		return batch, d.malformed(err)
	} else if token.Kind() != '{' {
		return batch, metering.Invalid("body", "must be an object with events")
	}
	for fields := 0; d.PeekKind() != '}'; fields++ {
		name, err := d.ReadValue()
		if err != nil {
			return batch, d.malformed(err)
		}
		field := unquote(name)
		if field == "events" {
			if batch.events, err = d.events(); err != nil {
				return batch, err
			}
			continue
		}
		batch.ignored = append(batch.ignored, field)
		if err := d.SkipValue(); err != nil {
			return batch, d.malformed(err)
		}
		if fields > maxSkippedFields {
			return batch, metering.Invalid("body", "must have at most %d fields", maxSkippedFields)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return batch, d.malformed(err)
	}
	return batch, d.atEnd()
}

func (d *eventDecoder) events() ([]sentEvent, error) {
	if token, err := d.ReadToken(); err != nil {
		return nil, d.malformed(err)
	} else if token.Kind() != '[' {
		return nil, metering.Invalid("body.events", "must be an array")
	}
	var events []sentEvent
	for d.PeekKind() != ']' {
		if len(events) == maxBatch {
			return nil, metering.Invalid("body.events", "must hold at most %d events", maxBatch)
		}
		e, err := d.event()
		if err != nil {
			return nil, d.malformed(err)
		}
		events = append(events, e)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, d.malformed(err)
	}
	return events, nil
}

// atEnd refuses what comes after the one value of a body.
func (d *eventDecoder) atEnd() error {
	_, err := d.ReadToken()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = errors.New("more than one value")
	}
	return d.malformed(err)
}

// malformed says why a body could not be read, by place alone.
func (d *eventDecoder) malformed(err error) error {
	if problem := bodyProblem(err, maxEventsBody); problem != nil {
		return problem
	}
	return metering.Errorf(codeMalformed, "the body is not JSON: it ends or breaks after byte %d", d.InputOffset())
}
