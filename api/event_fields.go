package api

import (
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/metering"
)

// eventFields are those that an event has.
var eventFields = []string{"event_type", "customer_id", "timestamp", "value", "properties", "idempotency_key"}

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
