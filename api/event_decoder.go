package api

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/odometer-metering/odometer/metering"
)

// eventDecoder reads events from a body as it arrives, in one pass, without storing the body. An invalid
// event rejects only itself.
type eventDecoder struct {
	*jsontext.Decoder
	texts   map[string]string // decoded event types and customer ids by JSON literal, shared by the events of a batch
	seen    uint8             // fields that the current event has had so far: one bit for each of eventFields
	reserve func(events int) error
}

// reservedAtOnce is the number of events of a batch for which memory is reserved at once, before they are read.
const reservedAtOnce = 20

// newEventDecoder returns a decoder that reads events from a body. The caller can set the function reserve, which
// reserves memory for the decoded events.
func newEventDecoder(body io.Reader) *eventDecoder {
	return &eventDecoder{
		reserve: func(int) error { return nil },
		Decoder: jsontext.NewDecoder(&trimmer{from: body}, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		texts:   make(map[string]string),
	}
}

// maxShared is the maximum length in bytes of a JSON string in texts.
const maxShared = 255

// notAnObject is the rejection of a value that is not an object.
var notAnObject = metering.Rejection{Code: "invalid_event", Field: "event", Message: "must be an object"}

// event reads the next value as an event. If the value is not an object, event sets the rejection and returns
// no error. null is read as an event without fields.
func (d *eventDecoder) event() (e sentEvent, err error) {
	switch d.PeekKind() {
	case 'n':
		return e, d.SkipValue()
	case '{':
	default:
		e.rejection = new(notAnObject)
		return e, d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return e, err
	}
	d.seen = 0
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

// field reads the value of a field into the event. name is the field's name as a JSON string.
func (d *eventDecoder) field(e *sentEvent, name jsontext.Value) (err error) {
	switch string(name) {
	case `"event_type"`:
		d.once(e, 0)
		return d.text(e, "event_type", &e.EventType)
	case `"customer_id"`:
		d.once(e, 1)
		return d.text(e, "customer_id", &e.CustomerID)
	case `"timestamp"`:
		d.once(e, 2)
		return d.optional(e, "timestamp", &e.Timestamp)
	case `"value"`:
		d.once(e, 3)
		return d.raw(&e.Value)
	case `"properties"`:
		d.once(e, 4)
		return d.raw(&e.Properties)
	case `"idempotency_key"`:
		d.once(e, 5)
		return d.optional(e, "idempotency_key", &e.IdempotencyKey)
	}
	written, ok := unquote(name)
	switch {
	case !ok:
		e.reject("invalid_event", "event", "must have field names that are "+validUTF8)
	case slices.Contains(eventFields, written): // the name contains escape sequences
		return d.field(e, jsontext.Value(`"`+written+`"`))
	case slices.Contains(e.ignored, written):
		e.reject(codeDuplicateName, metering.ShortName(written), givenTwice)
	case len(e.ignored) < maxUnknownFields:
		e.ignored = append(e.ignored, written)
	}
	return d.SkipValue()
}

// codeDuplicateName is the code of an event with a repeated field.
const codeDuplicateName = "duplicate_name"

const (
	givenTwice = "must be given once"
	validUTF8  = "UTF-8, without lone surrogates"
)

// once rejects the event if the field was already read.
func (d *eventDecoder) once(e *sentEvent, field int) {
	if d.seen&(1<<field) != 0 {
		e.reject(codeDuplicateName, eventFields[field], givenTwice)
	}
	d.seen |= 1 << field
}

// reject sets the rejection of the event, unless the event already has a rejection.
func (e *sentEvent) reject(code, field, message string) {
	if e.rejection == nil {
		e.rejection = &metering.Rejection{Code: code, Field: field, Message: message}
	}
}

// text reads a text that is often equal in several events. Equal texts share their memory. null leaves the field
// unchanged.
func (d *eventDecoder) text(e *sentEvent, field string, into *string) error {
	literal, err := d.literal(e, field)
	if literal == nil {
		return err
	}
	text, ok := d.shared(literal)
	if !ok {
		e.reject("invalid_"+field, field, "must be "+validUTF8)
	}
	*into = text
	return err
}

// optional reads an optional text. It treats null as an absent field.
func (d *eventDecoder) optional(e *sentEvent, field string, into **string) error {
	literal, err := d.literal(e, field)
	if literal == nil {
		return err
	}
	text, ok := unquote(literal)
	if !ok {
		e.reject("invalid_"+field, field, "must be "+validUTF8)
	}
	*into = &text
	return err
}

// literal reads a JSON string. It returns nil for null. For a value of another kind, it rejects the event and
// also returns nil.
func (d *eventDecoder) literal(e *sentEvent, field string) (jsontext.Value, error) {
	switch d.PeekKind() {
	case 'n':
		return nil, d.SkipValue()
	case '"':
		return d.ReadValue()
	}
	e.reject("invalid_"+field, field, "must be a string")
	return nil, d.SkipValue()
}

// raw copies a JSON value without decoding it.
func (d *eventDecoder) raw(into *json.RawMessage) error {
	value, err := d.ReadValue()
	if err == nil {
		*into = json.RawMessage(value.Clone())
	}
	return err
}

// shared returns the text of a JSON string. Equal texts of several events share their memory.
func (d *eventDecoder) shared(literal jsontext.Value) (text string, ok bool) {
	if text, known := d.texts[string(literal)]; known {
		return text, true
	}
	text, ok = unquote(literal)
	if ok && len(literal) <= maxShared {
		d.texts[string(literal)] = text
	}
	return text, ok
}

// unquote returns the text of a JSON string. ok reports whether the text is UTF-8 without lone surrogates.
func unquote(literal jsontext.Value) (text string, ok bool) {
	within := literal[1 : len(literal)-1]
	if !slices.Contains(within, '\\') && utf8.Valid(within) {
		return string(within), true
	}
	unquoted, err := jsontext.AppendUnquote(nil, literal)
	return string(unquoted), err == nil
}

// batch reads {"events": […]}. It returns an error at the first event beyond maxBatch. It skips other fields
// and returns their names.
func (d *eventDecoder) batch() (batch sentEvents, err error) {
	if token, err := d.ReadToken(); err != nil {
		return batch, d.malformed(err)
	} else if token.Kind() != '{' {
		return batch, metering.Invalid("body", "must be an object with the field events")
	}
	seen := make(map[string]bool)
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return batch, d.malformed(err)
		}
		field, ok := unquote(name)
		switch {
		case !ok:
			return batch, metering.Invalid("body", "must have field names that are "+validUTF8)
		case seen[field]:
			return batch, metering.Invalid("body."+metering.ShortName(field), givenTwice)
		case len(seen) > maxSkippedFields:
			return batch, metering.Invalid("body", "must have at most %d fields", maxSkippedFields)
		}
		seen[field] = true
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
			return nil, metering.Invalid("body.events", "must contain at most %d events", maxBatch)
		}
		if len(events)%reservedAtOnce == 0 {
			if err := d.reserve(len(events) + reservedAtOnce); err != nil {
				return nil, err
			}
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

// atEnd returns an error if the body contains more than one value.
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

// malformed returns the error to report if a body cannot be decoded. The error contains the position of the
// fault, but no part of the body.
func (d *eventDecoder) malformed(err error) error {
	if problem := bodyProblem(err); problem != nil {
		return problem
	}
	return metering.Errorf(codeMalformed, "the body is not valid JSON: it is incomplete or has an error after byte %d", d.InputOffset())
}
