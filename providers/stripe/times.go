package stripe

import (
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Timestamp returns the timestamp of a report that is framed at now. r is the reported part of a
// subscription's period, and last is the timestamp of the previous report.
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

// RecordTime returns the timestamp of all usage records of the period that begins at start: one second
// after the start. The start itself belongs to the previous period.
func RecordTime(start time.Time) time.Time { return start.Truncate(time.Second).Add(time.Second) }

// EventTime returns the given time in whole seconds, limited to the whole minutes between start and end. Stripe's
// summaries cover only whole minutes, so an event outside them could be billed, but not read.
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

// wholeMinutes returns start rounded up and end rounded down to whole minutes:
// https://docs.stripe.com/api/billing/meter-event-summary/list
func wholeMinutes(start, end time.Time) (from, until time.Time) {
	return start.Add(time.Minute - time.Nanosecond).Truncate(time.Minute), end.Truncate(time.Minute)
}
