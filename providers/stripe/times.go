package stripe

import "time"

// RecordTime is the one timestamp of all usage records of the period that
// begins at start: its first second. The start itself is the former period's.
func RecordTime(start time.Time) time.Time { return start.Truncate(time.Second).Add(time.Second) }

// EventTime moves at into the whole minutes from start to end. Stripe sums up
// whole minutes only, so an entry outside of them could be billed but never seen.
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
