package metering

import "time"

// Granularity is the width of a usage window.
type Granularity string

const (
	Hour  Granularity = "hour"
	Day   Granularity = "day"
	Month Granularity = "month"
)

// Range is a half-open span of time, [Start, End).
type Range struct{ Start, End time.Time }

// Contains says whether t lies in the range.
func (r Range) Contains(t time.Time) bool { return !t.Before(r.Start) && t.Before(r.End) }

// Empty says whether no instant lies in the range.
func (r Range) Empty() bool { return !r.Start.Before(r.End) }

// Instant is t as the service keeps it: UTC, in whole microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// WindowOf returns the local window of zone that t lies in. Where the zone's
// offset changes within a window, the window is cut at the change, so that
// windows never overlap and every day and month is a whole number of hours'
// windows. The bounds are in UTC.
func WindowOf(t time.Time, g Granularity, zone *time.Location) Range {
	switch g {
	case Month:
		y, m, _ := t.In(zone).Date()
		return Range{firstInstant(y, m, 1, zone), firstInstant(y, m+1, 1, zone)}
	case Day:
		y, m, d := t.In(zone).Date()
		return Range{firstInstant(y, m, d, zone), firstInstant(y, m, d+1, zone)}
	default:
		return hourOf(t, zone)
	}
}

func hourOf(t time.Time, zone *time.Location) Range {
	local := t.In(zone)
	_, offset := local.Zone()
	sinceHour := (t.Unix() + int64(offset)) % 3600
	if sinceHour < 0 {
		sinceHour += 3600
	}
	start := time.Unix(t.Unix()-sinceHour, 0).UTC()
	end := start.Add(time.Hour)
	from, until := local.ZoneBounds()
	if !from.IsZero() && start.Before(from) {
		start = from.UTC()
	}
	if !until.IsZero() && end.After(until) {
		end = until.UTC()
	}
	return Range{start, end}
}

// firstInstant returns the first instant of a local day, also where midnight
// is skipped or happens twice.
func firstInstant(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	if from, _ := t.ZoneBounds(); !from.IsZero() {
		before := from.Add(-time.Nanosecond)
		_, offsetBefore := before.In(zone).Zone()
		_, offsetAfter := from.In(zone).Zone()
		midnightBefore := time.Date(y, m, d, 0, 0, 0, 0, time.FixedZone("", offsetBefore))
		midnightAfter := time.Date(y, m, d, 0, 0, 0, 0, time.FixedZone("", offsetAfter))
		switch {
		case midnightBefore.Before(from):
			return midnightBefore.UTC() // midnight happened under the former offset: the first of the two
		case midnightAfter.Before(from):
			return from.UTC() // midnight was skipped: the day begins with the change
		}
	}
	return t.UTC()
}

// Span is a Range cut so that each part can be read from the cheapest place
// that is exact for it: whole months, whole hours, and raw events at the
// edges that the caller made ragged.
type Span struct {
	Months Range   // whole local months; empty when none
	Hours  []Range // whole local hours outside Months, at most two ranges
	Ragged []Range // parts of a local hour, at most two ranges
}

// Split cuts r for zone.
func Split(r Range, zone *time.Location) Span {
	if r.Empty() {
		return Span{}
	}
	hours := wholeWindows(r, Hour, zone)
	if hours.Empty() {
		return Span{Ragged: []Range{r}}
	}
	span := Span{Ragged: nonEmpty(Range{r.Start, hours.Start}, Range{hours.End, r.End})}
	span.Months = wholeWindows(hours, Month, zone)
	if span.Months.Empty() {
		span.Months = Range{}
		span.Hours = []Range{hours}
		return span
	}
	span.Hours = nonEmpty(Range{hours.Start, span.Months.Start}, Range{span.Months.End, hours.End})
	return span
}

// wholeWindows returns the widest range within r whose ends are both window bounds.
func wholeWindows(r Range, g Granularity, zone *time.Location) Range {
	first := WindowOf(r.Start, g, zone)
	whole := Range{first.Start, WindowOf(r.End, g, zone).Start}
	if first.Start.Before(r.Start) {
		whole.Start = first.End
	}
	return whole
}

func nonEmpty(ranges ...Range) []Range {
	var kept []Range
	for _, r := range ranges {
		if !r.Empty() {
			kept = append(kept, r)
		}
	}
	return kept
}
