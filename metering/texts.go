package metering

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxText is the maximum length of event_type, customer_id, idempotency_key and names, in characters,
// because maxLength in an OpenAPI document counts Unicode code points.
const maxText = 255

// longerThan reports whether text has more than the given number of characters.
func longerThan(most int, text string) bool {
	return len(text) > most && utf8.RuneCountInString(text) > most
}

// textRule returns the rule that an identifier-like text breaks, or "".
func textRule(text string) string {
	switch {
	case text == "":
		return "is required"
	case longerThan(maxText, text):
		return fmt.Sprintf("must have at most %d characters", maxText)
	case strings.ContainsRune(text, 0):
		return "must not contain NUL"
	case !utf8.ValidString(text):
		return "must be UTF-8"
	}
	return ""
}

func validText(location, text string) error {
	if rule := textRule(text); rule != "" {
		return Invalid(location, "%s", rule)
	}
	return nil
}

// ValidName returns an error if the name is not valid. An empty name is valid.
func ValidName(name string) error { return validDisplay("body.name", name, maxText) }

// validDisplay returns an error if a display text is not valid. An empty text is valid.
func validDisplay(location, text string, most int) error {
	if longerThan(most, text) || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return Invalid(location, "must be at most %d characters of UTF-8 without NUL", most)
	}
	return nil
}
