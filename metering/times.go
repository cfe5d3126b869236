package metering

import (
	"errors"
	"strings"
	"time"
)

var (
	errNotATime   = errors.New("must be RFC 3339 with seconds and an offset, such as 2026-11-01T00:00:00Z")
	errLeapSecond = errors.New("must not be a leap second: send 23:59:59 or the 00:00:00 after it")
	errYear       = errors.New("must be in the years 1 to 9999 in UTC")
)

// Instant is t as the service keeps it: UTC, in whole microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// ParseTime parses an RFC 3339 instant and truncates it to microseconds, which the
// database keeps. time.Parse also accepts forms that RFC 3339 does not have.
func ParseTime(text string) (time.Time, error) {
	if !isRFC3339(text) {
		return time.Time{}, errNotATime
	}
	if text[17:19] == "60" {
		return time.Time{}, errLeapSecond
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil {
		return time.Time{}, errNotATime
	}
	// An offset can move an instant out of the years that an answer can show.
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return time.Time{}, errYear
	}
	return Instant(t), nil
}

// isRFC3339 reports whether text has the form of an RFC 3339 instant. time.Parse
// checks the days of the months, and the hours, minutes and seconds.
func isRFC3339(text string) bool {
	const dateTime = "0000-00-00T00:00:00"
	if len(text) <= len(dateTime) || !hasForm(text[:len(dateTime)], dateTime) {
		return false
	}
	rest := text[len(dateTime):]
	if fraction, ok := strings.CutPrefix(rest, "."); ok {
		rest = strings.TrimLeft(fraction, "0123456789")
		if len(rest) == len(fraction) {
			return false
		}
	}
	if rest == "Z" || rest == "z" {
		return true
	}
	return (hasForm(rest, "+00:00") || hasForm(rest, "-00:00")) && rest[1:3] < "24" && rest[4:6] < "60"
}

// hasForm reports whether text has the characters of form, any digit in place of
// each 0, and letters in upper or lower case.
func hasForm(text, form string) bool {
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		c := text[i]
		switch form[i] {
		case '0':
			if c < '0' || c > '9' {
				return false
			}
		case 'T':
			if c != 'T' && c != 't' {
				return false
			}
		default:
			if c != form[i] {
				return false
			}
		}
	}
	return true
}
