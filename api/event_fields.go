package api

import (
	"fmt"
	"io"
	"strings"
)

// eventFields are those that an event has.
var eventFields = []string{"event_type", "customer_id", "timestamp", "value", "properties", "idempotency_key"}

// Bounds of what is said about fields that an event does not have.
const (
	maxUnknownFields = 20 // of a request, and of one event
	maxUnknownName   = 64
)

// maxBlanks of white space in a row are more than anybody indents by.
const maxBlanks = 1 << 10

// shortBlanks leaves out white space between tokens beyond so much of it in a
// row: a decoder would keep all of it.
type shortBlanks struct {
	from     io.Reader
	blanks   int // in a row, up to here
	inString bool
	escaped  bool
}

// Read reads on where all that has come is left out.
func (b *shortBlanks) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = b.from.Read(p)
		n = b.shorten(p[:n])
	}
	return n, err
}

// shorten moves what stays of a text to its beginning and returns its length.
func (b *shortBlanks) shorten(text []byte) (n int) {
	for _, c := range text {
		switch {
		case b.escaped:
			b.escaped = false
		case b.inString:
			b.inString, b.escaped = c != '"', c == '\\'
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if b.blanks++; b.blanks > maxBlanks {
				continue
			}
		default:
			b.inString, b.blanks = c == '"', 0
		}
		text[n] = c
		n++
	}
	return n
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
		if len(name) > maxUnknownName {
			name = strings.ToValidUTF8(name[:maxUnknownName], "") + "…"
		}
		w.texts = append(w.texts, fmt.Sprintf("unknown field %q of %s is ignored", name, place))
	}
}
