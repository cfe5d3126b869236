// Package lint finds retired terms in identifiers and in text, and phrases that readers have to read twice.
// docs/glossary.md explains the current terms. The tests of the package check the repository's own rules: which
// package imports which, names of files, comments, documents, and the use of clocks.
package lint

import (
	"slices"
	"strings"
	"unicode"
)

// Where is the scope in which a word is retired.
type Where int

// Anywhere covers identifiers, columns, fields and text. Fields covers the names of columns and of fields
// of the API.
const (
	Anywhere Where = iota
	Fields
)

// Word is a retired term and its replacement.
type Word struct {
	Retired string // lower-case words, such as "events per minute"
	Use     string
	Where   Where
}

// Retired lists the terms in the forms in which they occurred.
var Retired = []Word{
	{"telling", "report", Anywhere},
	{"tellings", "reports", Anywhere},
	{"untold", "unreported", Anywhere},
	{"snapshot", "statement", Anywhere},
	{"snapshots", "statements", Anywhere},
	{"entry", "report", Fields},
	{"entries", "lines", Fields},
	{"entry id", "report id", Anywhere},
	{"entry status", "state", Anywhere},
	{"billing entries", "reports", Anywhere},
	{"billing entry", "report", Anywhere},
	{"sync entries", "lines", Anywhere},
	{"sync entry", "line", Anywhere},
	{"mechanism", "reporting method", Anywhere},
	{"mechanisms", "reporting methods", Anywhere},
	{"acknowledged", "accepted", Anywhere},
	{"ambiguous", "in doubt", Anywhere},
	{"unsettled", "outstanding", Anywhere},
	{"settle report", "complete report", Anywhere},
	{"settle reports", "complete reports", Anywhere},
	{"settle entry", "complete report", Anywhere},
	{"problem", "error", Fields},
	{"skipped", "excluded", Fields},
	{"skip meter", "exclude meter", Anywhere},
	{"skipped meter", "excluded meter", Anywhere},
	{"skipped meters", "excluded meters", Anywhere},
	{"sync skips", "exclusions", Anywhere},
	{"chunk of customers", "batch", Anywhere},
	{"chunks of customers", "batches", Anywhere},
	{"sync chunk", "sync batch", Anywhere},
	{"close chunk", "close batch", Anywhere},
	{"mass", "bulk sync", Anywhere},
	{"due customers", "out of sync", Anywhere},
	{"told", "reported", Fields},
	{"told decimals", "reported scale", Anywhere},
	{"provider decimals", "usage scale", Anywhere},
	{"payer", "facts", Anywhere},
	{"covered events", "watermark", Anywhere},
	{"covered catalog", "configuration hash", Anywhere},
	{"carrier", "target period", Anywhere},
	{"frozen", "closed", Anywhere},
	{"unfrozen", "open", Anywhere},
	{"freeze", "close", Anywhere},
	{"freezes", "closes", Anywhere},
	{"freezing", "closing", Anywhere},
	{"generation", "meter version", Anywhere},
	{"generations", "meter versions", Anywhere},
	{"filling", "backfilling", Anywhere},
	{"usage differs", "discrepancy", Anywhere},
	{"usage differences", "discrepancies", Anywhere},
	{"second count", "reconciliation", Anywhere},
	{"doubtful", "suspect", Anywhere},
	{"nameless", "redact", Anywhere},
	{"patience", "retry after", Anywhere},
	{"patient", "retry after", Anywhere},
	{"lend", "lease", Anywhere},
	{"attended until", "lease", Anywhere},
	{"rests until", "backoff", Anywhere},
	{"upkeep", "maintenance", Anywhere},
	{"events per minute", "requests per minute", Anywhere},
	{"zone", "timezone", Fields},
	{"kinds", "event types", Fields},
	{"subject", "resource", Fields},
	{"interval", "schedule", Fields},
	{"every", "schedule", Fields},
	{"billing synced", "sync succeeded", Anywhere},
	{"billing sync failed", "sync failed", Anywhere},
	{"billing discrepancy", "discrepancy detected", Anywhere},
	{"member reset asked", "password reset requested", Anywhere},
	{"cancelled", "canceled", Anywhere},
	{"cancelling", "canceling", Anywhere},
}

// In returns the retired terms in an identifier or a text, in the order of Retired. Terms of the scope Fields are found
// only if where is Fields and the whole text is the term.
func In(text string, where Where) []string {
	parts := Parts(text)
	var found []string
	for _, word := range Retired {
		if word.Where == Anywhere && has(parts, strings.Fields(word.Retired)) ||
			word.Where == Fields && where == Fields && slices.Equal(parts, strings.Fields(word.Retired)) {
			found = append(found, word.Retired)
		}
	}
	return found
}

// Parts returns the words of a text or an identifier in lower case. ClosedAt, closed_at and "closed at"
// have the same parts.
func Parts(text string) []string {
	var parts []string
	letters := []rune(text)
	begin := -1
	for i, r := range letters {
		if begin >= 0 && (!unicode.IsLetter(r) || begins(letters, i)) {
			parts = append(parts, strings.ToLower(string(letters[begin:i])))
			begin = -1
		}
		if begin < 0 && unicode.IsLetter(r) {
			begin = i
		}
	}
	if begin >= 0 {
		parts = append(parts, strings.ToLower(string(letters[begin:])))
	}
	return parts
}

// begins reports whether the letter at i begins a new word after another letter, such as the S of
// ClosedSpan and of HMACSecret.
func begins(letters []rune, i int) bool {
	if !unicode.IsUpper(letters[i]) {
		return false
	}
	return unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])
}

// has reports whether the words are next to each other in parts.
func has(parts, word []string) bool {
	for i := range len(parts) - len(word) + 1 {
		if slices.Equal(parts[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
