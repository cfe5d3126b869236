package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// eventFields are those that an event has.
var eventFields = []string{"event_type", "customer_id", "timestamp", "value", "properties", "idempotency_key"}

// Bounds of what is said about fields that an event does not have.
const (
	maxUnknownFields = 20 // of a request, and of one event
	maxUnknownName   = 64
)

// bodyDecoder decodes a body and keeps the text of what it has just decoded,
// but not that of the whole body.
type bodyDecoder struct {
	*json.Decoder
	text *recentText
}

func newBodyDecoder(body io.Reader) bodyDecoder {
	text := &recentText{from: &shortBlanks{from: body}}
	return bodyDecoder{json.NewDecoder(text), text}
}

// maxBlanks of white space in a row are more than anybody indents by.
const maxBlanks = 1 << 10

// shortBlanks leaves out white space between tokens beyond so much of it in a
// row: the decoder would keep all of it, and look at it again with every read.
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

// recentText keeps what was read since forget.
type recentText struct {
	from  io.Reader
	start int64 // in the body, of what is kept
	kept  []byte
}

func (t *recentText) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	t.kept = append(t.kept, p[:n]...)
	return n, err
}

// take returns what lies before an offset of the body, until the next Read, and forgets it.
func (t *recentText) take(before int64) []byte {
	taken := t.kept[:before-t.start]
	t.kept, t.start = t.kept[len(taken):], before
	return taken
}

// unknownFields are the names of an object's fields that are not among known,
// in the decoder's way of comparing them. The text is valid JSON, perhaps with
// a comma before it.
func unknownFields(text []byte, known []string) (names []string) {
	text = bytes.TrimLeft(text, ", \t\r\n")
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil
	}
	depth, naming := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			depth++
			naming = depth == 1
		case '}', ']':
			depth--
		case ',':
			naming = depth == 1
		case '"':
			end := endOfString(text, i)
			if naming {
				naming = false
				names = appendUnknown(names, text[i:end], known)
			}
			i = end - 1
		}
	}
	return names
}

// endOfString is the offset after the string that begins at start.
func endOfString(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func appendUnknown(names []string, literal []byte, known []string) []string {
	if slices.Contains(known, string(bytes.Trim(literal, `"`))) {
		return names // nearly always, as it is written
	}
	var name string
	if len(names) == maxUnknownFields || json.Unmarshal(literal, &name) != nil || slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
		return names
	}
	return append(names, name)
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
