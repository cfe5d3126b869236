package metering

import "time"

// Period is one link of a customer's chain of billing periods: each begins
// where the former ended.
type Period struct {
	ID         PeriodID
	CustomerID CustomerID
	Range
	FrozenAt *time.Time // nil while usage still changes it
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
