package stripe

import (
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Timestamp is the time of a report that is made now, where the part r of a
// subscription's period is told of; last is that of the report before it.
func Timestamp(m billing.Method, now, last time.Time, r metering.Range) time.Time {
	switch m {
	case UsageRecord:
		return RecordTime(r.Start)
	case MeterWindow:
		return EventTime(r.Start, r.Start, r.End)
	case MeterLast:
		if next := last.Add(time.Second); now.Before(next) {
			now = next
		}
	}
	return EventTime(now, r.Start, r.End)
}

// RecordTime is the one timestamp of all usage records of the period that
// begins at start: its first second. The start itself is the former period's.
func RecordTime(start time.Time) time.Time { return start.Truncate(time.Second).Add(time.Second) }

// EventTime moves at into the whole minutes from start to end. Stripe sums up
// whole minutes only, so a report outside of them could be billed but never seen.
func EventTime(at, start, end time.Time) time.Time {
	from, until := wholeMinutes(start, end)
	last := until.Add(-time.Second)
	switch {
	case at.After(last):
		return last
	case at.Before(from):
		return from
	default:
		return at.Truncate(time.Second)
	}
}

// wholeMinutes: https://docs.stripe.com/api/billing/meter-event-summary/list
func wholeMinutes(start, end time.Time) (from, until time.Time) {
	return start.Add(time.Minute - time.Nanosecond).Truncate(time.Minute), end.Truncate(time.Minute)
}
