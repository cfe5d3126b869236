package metering

import (
	"sort"
	"time"
)

// Granularity is the width of a usage window.
type Granularity string

const (
	Hour  Granularity = "hour"
	Day   Granularity = "day"
	Week  Granularity = "week" // from Monday on
	Month Granularity = "month"
)

// Values returns all granularities.
func (Granularity) Values() []Granularity {
	return []Granularity{Hour, Day, Week, Month}
}

// WindowOf returns the window in the local time of zone that contains t. If the zone's offset changes within
// an hour, the change is a boundary between two hour windows. So windows never overlap, and every day, week
// and month consists of whole hour windows. The bounds are in UTC.
func WindowOf(t time.Time, g Granularity, zone *time.Location) Range {
	local := t.In(zone)
	y, m, d := local.Date()
	var w Range
	switch g {
	case Day:
		w = Range{firstInstant(y, m, d, zone), firstInstant(y, m, d+1, zone)}
	case Week:
		monday := d - (int(local.Weekday())+6)%7
		w = Range{firstInstant(y, m, monday, zone), firstInstant(y, m, monday+7, zone)}
	case Month:
		w = Range{firstInstant(y, m, 1, zone), firstInstant(y, m+1, 1, zone)}
	default:
		return hourOf(t, zone)
	}
	if !t.Before(w.End) { // clocks went back over midnight, so t is after the first end of its date
		return WindowOf(w.End, g, zone)
	}
	return w
}

// hourOf returns the hour window that contains t.
func hourOf(t time.Time, zone *time.Location) Range {
	t = t.UTC().Truncate(time.Second)
	const hour = 3600
	local := t.Unix() + int64(offset(t, zone)/time.Second)
	start := t.Add(-time.Duration((local%hour+hour)%hour) * time.Second)
	end := start.Add(time.Hour)
	if at, changes := offsetChange(start, t, zone); changes {
		start = at
	}
	if at, changes := offsetChange(t, end.Add(-time.Second), zone); changes {
		end = at
	}
	return Range{start, end}
}

// firstInstant returns the first instant of a local day, even if midnight is skipped or occurs twice.
func firstInstant(y int, m time.Month, d int, zone *time.Location) time.Time {
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	from, until := midnight.Add(-farthestOffset), midnight.Add(farthestOffset)
	before, after := midnight.Add(-offset(from, zone)), midnight.Add(-offset(until, zone))
	if before.Equal(after) {
		return before
	}
	at, _ := offsetChange(from, until, zone)
	switch {
	case before.Before(at):
		return before
	case after.Before(at): // midnight is skipped: the day begins with the change
		return at
	}
	return after
}

// farthestOffset exceeds every current and historical offset of a time zone from UTC.
const farthestOffset = 17 * time.Hour

// offset returns the zone's offset at t, positive east of UTC.
func offset(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// offsetChange returns the instant between from (exclusive) and until (inclusive) at which the zone's offset changes.
// It compares offsets instead of using Time.ZoneBounds, because ZoneBounds ends at the end of a year in a zone that is
// defined by a rule.
func offsetChange(from, until time.Time, zone *time.Location) (at time.Time, changes bool) {
	before := offset(from, zone)
	if offset(until, zone) == before {
		return time.Time{}, false
	}
	seconds := sort.Search(int(until.Sub(from)/time.Second), func(i int) bool {
		return offset(from.Add(time.Duration(i)*time.Second), zone) != before
	})
	return from.Add(time.Duration(seconds) * time.Second), true
}

// Span is a Range divided into parts, each of which is read from the cheapest exact source. The sources are
// totals of whole months, totals of whole hours, and raw events for incomplete hours at both ends.
type Span struct {
	Months Range   // whole local months; empty when none
	Hours  []Range // whole local hours outside Months, at most two ranges
	Ragged []Range // parts of a local hour, at most two ranges
}

// Split divides r by the local hours and months of zone.
func Split(r Range, zone *time.Location) Span {
	if r.Empty() {
		return Span{}
	}
	hours := wholeWindows(r, Hour, zone)
	if hours.End.Before(hours.Start) { // r is part of one hour
		return Span{Ragged: []Range{r}}
	}
	span := Span{Ragged: nonEmpty(Range{r.Start, hours.Start}, Range{hours.End, r.End})}
	span.Months = wholeWindows(hours, Month, zone)
	if span.Months.Empty() {
		span.Months = Range{}
		span.Hours = nonEmpty(hours)
		return span
	}
	span.Hours = nonEmpty(Range{hours.Start, span.Months.Start}, Range{span.Months.End, hours.End})
	return span
}

// wholeWindows returns the widest range within r that starts and ends at window bounds.
func wholeWindows(r Range, g Granularity, zone *time.Location) Range {
	first := WindowOf(r.Start, g, zone)
	whole := Range{first.Start, WindowOf(r.End, g, zone).Start}
	if first.Start.Before(r.Start) {
		whole.Start = first.End
	}
	return whole
}

// nonEmpty returns the ranges without the empty ones.
func nonEmpty(ranges ...Range) []Range {
	var kept []Range
	for _, r := range ranges {
		if !r.Empty() {
			kept = append(kept, r)
		}
	}
	return kept
}
