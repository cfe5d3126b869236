package api

import (
	"fmt"
	"io"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// eventFields are those that an event has.
var eventFields = []string{"event_type", "customer_id", "timestamp", "value", "properties", "idempotency_key"}

// unknownField rejects an event that has a field which no event has.
func unknownField(name string) *metering.Rejection {
	rule := "the fields of an event are " + strings.Join(eventFields, ", ")
	if nearest := nearestField(name); nearest != "" {
		rule = fmt.Sprintf("did you mean %q?", nearest)
	}
	return &metering.Rejection{Code: "unknown_field", Field: shortened(name), Message: "is not a field of an event, and the tenant is strict; " + rule}
}

// maxFieldName is longer than the name of any field of an event.
const maxFieldName = 64

// farthestTypo is how many letters of a field's name may be wrong for it to be recognised.
const farthestTypo = 2

// nearestField returns the field of an event that a name may stand for, or "".
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

// editDistance is the number of bytes to insert, delete or replace to make one text of another.
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

// maxUnknownFields bounds the warnings about fields that an event does not have, of a
// request and of one event.
const maxUnknownFields = 20

// maxBlanks of white space in a row are more than anybody indents by.
const maxBlanks = 1 << 10

// maxNesting is the depth that the decoder refuses to exceed.
const maxNesting = 10_000

// trimmer removes from a body the white space between tokens beyond maxBlanks in a row,
// which a decoder would keep, and the content of values at maxNesting, at which a decoder
// would fail: the event breaks a rule of its own there, or the field is ignored.
type trimmer struct {
	from     io.Reader
	blanks   int // in a row, up to here
	depth    int
	inString bool
	escaped  bool
}

// Read reads on if it has removed everything that has come.
func (b *trimmer) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = b.from.Read(p)
		n = b.trim(p[:n])
	}
	return n, err
}

// trim moves the bytes that stay to the beginning of text and returns their number.
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

// restOfString returns how much of text, which has begun within a string, belongs to it.
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

// fieldWarnings says once of each unknown field where it was found first.
type fieldWarnings struct {
	seen  map[string]bool
	texts []string
}

func (w *fieldWarnings) of(place string, names []string) {
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
