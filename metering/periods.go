package metering

import "time"

// Period is one link of a customer's chain of billing periods: each begins
// where the former ended.
type Period struct {
	ID         PeriodID
	CustomerID CustomerID
	Range
	ClosedAt *time.Time // nil while usage still changes it
}

// Deadline is the instant until which the period's usage may still be sent:
// its end and the tenant's grace.
func (p Period) Deadline(grace time.Duration) time.Time { return p.End.Add(grace) }

// CalendarPeriod is the calendar month of zone that t lies in.
func CalendarPeriod(t time.Time, zone *time.Location) Range { return WindowOf(t, Month, zone) }

// FirstPeriod is where a customer's chain begins: the month in which it was
// created, or that of its earliest event if that month's grace was still
// running at the creation, or the month of billingStarts where that is set.
func FirstPeriod(created time.Time, earliest, billingStarts *time.Time, grace time.Duration, zone *time.Location) Range {
	if billingStarts != nil {
		return Range{*billingStarts, CalendarPeriod(*billingStarts, zone).End}
	}
	period := CalendarPeriod(created, zone)
	if earliest == nil || !earliest.Before(period.Start) {
		return period
	}
	first := CalendarPeriod(*earliest, zone)
	if first.End.Add(grace).After(created) {
		return first
	}
	return period
}

// ExtendChain returns the periods from first to the one that now lies in: each
// begins where the former ended and ends with that month of zone. There are
// none while first lies ahead of now.
func ExtendChain(first Range, now time.Time, zone *time.Location) []Range {
	var links []Range
	for next := first; !next.Start.After(now); next = (Range{next.End, CalendarPeriod(next.End, zone).End}) {
		links = append(links, next)
	}
	return links
}

// FollowSubscription returns the periods from start to the one that now lies
// in, of a customer who is subscribed at a provider: up to the subscription's
// current period the calendar's, cut where that begins, and then that. Of the
// time after it nothing is known yet.
func FollowSubscription(start, now time.Time, current Range, zone *time.Location) []Range {
	var links []Range
	for !start.After(now) && start.Before(current.End) {
		next := Range{start, current.End}
		if start.Before(current.Start) {
			next.End = CalendarPeriod(start, zone).Within(Range{start, current.Start}).End
		}
		links = append(links, next)
		start = next.End
	}
	return links
}

// AfterSubscription is the period that now lies in, of a customer whose
// subscription's last known period ended at end: a month, until the provider
// says otherwise.
func AfterSubscription(end, now time.Time) Range {
	months := 1
	for !end.AddDate(0, months, 0).After(now) {
		months++
	}
	return Range{end.AddDate(0, months-1, 0), end.AddDate(0, months, 0)}
}

// Shorten returns where an open period ends, now that the customer's periods
// are the calendar's, or, where it is not empty, those of a subscription whose
// current one is given: at the next border, or, if no provider was told of the
// period yet, where the subscription's begins. A period never grows.
func (p Period) Shorten(now time.Time, current Range, zone *time.Location, told bool) time.Time {
	border := current.End
	switch {
	case current.Empty():
		border = CalendarPeriod(now, zone).End
	case current.Start.After(p.Start) && (!told || current.Start.After(now)):
		border = current.Start
	}
	if p.ClosedAt != nil || !p.Contains(now) || !border.After(p.Start) || border.Before(now) && told || !border.Before(p.End) {
		return p.End
	}
	return border
}

// Comparison is usage month over month.
type Comparison struct {
	Current, Previous, Delta Decimal
	PercentChange            Decimal // of Previous, two decimals; 0 when both are zero, 100 when only Previous is
}

// Compare fills in the difference of two totals.
func Compare(current, previous Decimal) Comparison {
	c := Comparison{Current: current, Previous: previous, Delta: current.Sub(previous)}
	switch {
	case !previous.IsZero():
		c.PercentChange = c.Delta.percentOf(previous)
	case !current.IsZero():
		c.PercentChange = Whole(100)
	}
	return c
}
