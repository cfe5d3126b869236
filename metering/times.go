package metering

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	errNotATime   = errors.New("must be RFC 3339 with seconds and an offset, such as 2026-11-01T00:00:00Z")
	errLeapSecond = errors.New("must not be a leap second: send 23:59:59 or the 00:00:00 after it")
	errYear       = errors.New("must be in the years 1 to 9999 in UTC")
)

// Instant returns t as the service stores it: UTC, truncated to microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Sooner returns the earlier of two instants. A zero instant is treated as unset.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ParseTime parses an RFC 3339 instant and truncates it to microseconds, the precision of
// the database. It is stricter than time.Parse, which accepts forms that RFC 3339 does not have.
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
	// An offset can move an instant out of the years that a response can contain.
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

// hasForm reports whether text matches form. A 0 in form matches any digit, and T matches
// both cases.
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

// zoneinfo is the IANA time zone database, version 2025c. It is the file
// lib/time/zoneinfo.zip of Go 1.26.8; a newer Go replaces it.
//
// time.LoadLocation is not used because it prefers the host's files: two hosts
// could compute different billing periods for one tenant.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zoneFiles returns the files of the time zones by name.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic(fmt.Sprintf("open zoneinfo.zip: %v", err)) // the file is part of the program
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") && file.Name != "Factory" { // a placeholder for hosts without a zone
			files[file.Name] = file
		}
	}
	return files
})

// ZoneNames returns the names of all time zones, sorted.
func ZoneNames() []string { return slices.Sorted(maps.Keys(zoneFiles())) }

var loadedZones sync.Map // *time.Location by name

// LoadLocation returns the time zone with an IANA name, such as Europe/Zurich.
func LoadLocation(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	loaded, _ := loadedZones.Load(name)
	if location, ok := loaded.(*time.Location); ok {
		return location, nil
	}
	file, known := zoneFiles()[name]
	if !known {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	reader, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("open time zone %q: %w", name, err)
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("read time zone %q: %w", name, err)
	}
	location, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("parse time zone %q: %w", name, err)
	}
	loadedZones.Store(name, location)
	return location, nil
}

// Location returns the time zone with a name that was validated when it was
// stored. It returns UTC for an unknown name.
func Location(name string) *time.Location {
	location, err := LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return location
}

// Bounds on the difference between a process's clock and the database's.
const (
	ClockWarning = 5 * time.Second // beyond this difference, the process is not ready
	ClockLimit   = time.Minute     // beyond this difference, the process makes no decision that depends on the time
)

// MaxIngestDelay is the maximum time from the receipt of an event until other transactions can read the event. It is
// longer than a wait in the writer's queue, the writer's deadline and ClockLimit together.
const MaxIngestDelay = 5 * time.Minute

// ClockOffset returns how far a process's clock is ahead of the database's clock; known is false
// before the first comparison. A nil ClockOffset means that the clocks agree.
type ClockOffset func() (offset time.Duration, known bool)

// Correct converts now from the process's clock to the database's clock.
func (o ClockOffset) Correct(now time.Time) time.Time {
	if o == nil {
		return now
	}
	offset, _ := o()
	return now.Add(-offset)
}

// Check returns an error if the clocks differ by more than bound, or have not been compared yet.
func (o ClockOffset) Check(bound time.Duration) error {
	if o == nil {
		return nil
	}
	offset, known := o()
	if !known {
		return Errorf(CodeUnavailable, "the server has not compared its clock with the database's clock yet; try again")
	}
	if offset.Abs() > bound {
		err := Errorf(CodeUnavailable, "the server's clock and the database's clock differ by more than %s; try again", bound)
		return err.Because(fmt.Errorf("this process's clock is %s ahead", offset.Round(time.Millisecond)))
	}
	return nil
}

// Range is a half-open span of time, [Start, End).
type Range struct{ Start, End time.Time }

// Contains reports whether t lies in the range.
func (r Range) Contains(t time.Time) bool { return !t.Before(r.Start) && t.Before(r.End) }

// Empty reports whether no instant lies in the range.
func (r Range) Empty() bool { return !r.Start.Before(r.End) }

// Intersect returns the intersection of both ranges. It is empty if they do not overlap.
func (r Range) Intersect(o Range) Range {
	if o.Start.After(r.Start) {
		r.Start = o.Start
	}
	if o.End.Before(r.End) {
		r.End = o.End
	}
	return r
}
