package api

import (
	"fmt"
	"io"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// eventFields is the names of an event's fields.
var eventFields = []string{"event_type", "customer_id", "timestamp", "value", "properties", "idempotency_key"}

// unknownField returns the rejection of an event with an unknown field, for a strict tenant.
func unknownField(name string) *metering.Rejection {
	rule := "the fields of an event are " + strings.Join(eventFields, ", ")
	if nearest := nearestField(name); nearest != "" {
		rule = fmt.Sprintf("did you mean %q?", nearest)
	}
	return &metering.Rejection{Code: "unknown_field", Field: shortened(name), Message: "is not a field of an event, and the tenant is strict; " + rule}
}

// maxFieldName is the maximum length of a name in bytes for which nearestField searches. The names of all event
// fields are shorter.
const maxFieldName = 64

// farthestTypo is the maximum edit distance at which nearestField suggests a field.
const farthestTypo = 2

// nearestField returns the event field with the most similar name, or "" if none is similar.
func nearestField(name string) (nearest string) {
	plain := func(name string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name)) }
	if len(name) > maxFieldName {
		return ""
	}
	least := farthestTypo + 1
	for _, field := range eventFields {
		if wrong := editDistance(plain(name), plain(field)); wrong < least {
			nearest, least = field, wrong
		}
	}
	return nearest
}

// editDistance returns the minimum number of bytes to insert, delete or replace to convert a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// maxUnknownFields is the maximum number of unknown fields that are recorded for an event, and the maximum number
// of warnings about unknown fields for a request.
const maxUnknownFields = 20

// maxBlanks is the maximum number of consecutive white-space bytes that trimmer retains. Indentation never needs
// more.
const maxBlanks = 1 << 10

// maxNesting is the nesting depth above which jsontext.Decoder fails.
const maxNesting = 10_000

// trimmer removes white space beyond maxBlanks in a row, because the decoder would retain it in memory. It also
// removes the content of values at the depth maxNesting, because the decoder would fail. The content is not
// needed: such a value breaks a rule of its event, or its field is ignored.
type trimmer struct {
	from     io.Reader
	blanks   int // number of consecutive white-space bytes before the current byte
	depth    int
	inString bool
	escaped  bool
}

// Read implements io.Reader. It reads again if trim has removed all bytes.
func (b *trimmer) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = b.from.Read(p)
		n = b.trim(p[:n])
	}
	return n, err
}

// trim removes bytes from text. It moves the other bytes to the beginning of text and returns their number.
func (b *trimmer) trim(text []byte) (n int) {
	for i := 0; i < len(text); i++ {
		if b.inString {
			run := b.restOfString(text[i:])
			if b.depth < maxNesting {
				if n < i {
					copy(text[n:], text[i:i+run])
				}
				n += run
			}
			i += run - 1
			continue
		}
		deep := b.depth >= maxNesting
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			if b.blanks++; b.blanks > maxBlanks {
				continue
			}
		default:
			b.blanks = 0
			switch c {
			case '"':
				b.inString = true
			case '{', '[':
				b.depth++
			case '}', ']':
				b.depth--
			}
		}
		if deep && b.depth >= maxNesting {
			continue
		}
		text[n] = text[i]
		n++
	}
	return n
}

// restOfString returns the number of bytes of text that belong to the string in which text begins.
func (b *trimmer) restOfString(text []byte) int {
	for i, c := range text {
		switch {
		case b.escaped:
			b.escaped = false
		case c == '\\':
			b.escaped = true
		case c == '"':
			b.inString = false
			return i + 1
		}
	}
	return len(text)
}

// fieldWarnings collects one warning for each unknown field, with the location of its first occurrence.
type fieldWarnings struct {
	seen  map[string]bool
	texts []string
}

// addFields adds warnings about unknown fields. place describes the part of the request with these fields.
func (w *fieldWarnings) addFields(place string, names []string) {
	for _, name := range names {
		if w.seen[name] || len(w.texts) == maxUnknownFields {
			continue
		}
		if w.seen == nil {
			w.seen = make(map[string]bool)
		}
		w.seen[name] = true
		w.texts = append(w.texts, fmt.Sprintf("unknown field %q of %s is ignored", metering.ShortName(name), place))
	}
}
