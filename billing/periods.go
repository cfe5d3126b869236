package billing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Period is one billing period of a customer's billing schedule. Each period begins when the previous one ends.
type Period struct {
	ID metering.PeriodID // 0: not stored yet
	metering.Range
	Stream       int        // number of the billing schedule
	ClosedAt     *time.Time // nil: usage still changes the period
	Complete     bool       // closed, without reports to send or resolve and without an invoice to wait for
	Omitted      bool       // the facts lack invoices or reports of the period, so it cannot be compared
	Closed       []ClosedLine
	Subscription Subscription
	Bills        metering.Bills // form of usage on the provider's invoices; "": undecided, or no invoices
	Watermark    Watermark      // as stored
}

// ClosedLine holds the totals of one meter at the close of a period, and the state of their billing.
type ClosedLine struct {
	MeterID      metering.MeterID
	MeterVersion metering.MeterVersionID // version that counted the usage
	Aggregation  metering.Aggregation    // aggregation of that version, which also applies to late usage
	Usage        metering.Decimal
	Events       int64
	Dimensions   []DimensionUsage // Usage by dimension, if the price has dimensions
	PriceVersion int              // 0: the meter had no price, or the provider's own price applied
	Source       PriceSource      // level of PriceVersion; "": PriceVersion is 0, or the line is not stored yet
	Terms        Terms            // terms of the charge, unaffected by later price changes
	Price        ProviderPrice    // provider's own price of the charge; nil: Terms apply
	Charge       metering.Decimal
	Currency     string
	Billed       bool           // a provider bills the line; other lines are never adjusted
	Test         bool           // closed with a connection in test mode, in which no customer is charged
	Scale        *int32         // decimals of the charged units; nil: all decimals of Usage
	Bills        metering.Bills // form of usage on the invoices, if the provider creates invoices
	Trial        bool           // the provider charges neither the units nor late usage

	Reconciled   *Reconciliation // last comparison with final invoices; nil: none yet
	phase        phase           // set by NewBooks, like billedTotals
	billedTotals billedTotals    // nearest to the line's total, until the period is complete

	// Difference between the late usage before the last change of the meter's value property or filters and the usage
	// of the same events under the new definition. It is added to the counted late usage, so that each late event
	// counts by the definition at the time of its arrival.
	LateDifference Measured

	// Late usage, stored before retention can delete its events. nil: late usage is still counted.
	LateUsage      *metering.Decimal
	LateEvents     *int64
	LateDimensions []DimensionUsage
}

// PeriodPlace is the position of a period in the order of all of a customer's periods.
type PeriodPlace struct {
	Start  time.Time
	Stream int
}

// Place returns the period's position in the order of the customer's periods.
func (p Period) Place() PeriodPlace { return PeriodPlace{p.Start, p.Stream} }

// Compare orders periods by start. Periods with the same start are in the order of their schedule numbers.
func (p PeriodPlace) Compare(o PeriodPlace) int {
	return cmp.Or(p.Start.Compare(o.Start), cmp.Compare(p.Stream, o.Stream))
}

// Before reports whether p precedes o.
func (p PeriodPlace) Before(o PeriodPlace) bool { return p.Compare(o) < 0 }

// Deadline returns the instant at which the period is due to close: its end plus the tenant's grace.
func (p Period) Deadline(grace time.Duration) time.Time { return p.End.Add(grace) }

// CalendarPeriod returns the calendar month that contains t, in the time zone.
func CalendarPeriod(t time.Time, timezone *time.Location) metering.Range {
	return metering.WindowOf(t, metering.Month, timezone)
}

// Periods returns the periods of the billing schedule as of Now, oldest first: the stored periods and the missing ones
// up to Now. The last stored period may end earlier than stored.
func Periods(f Facts) []Period {
	periods := f.shortened()
	for _, r := range missingPeriods(&f, periods) {
		periods = append(periods, Period{Range: r})
	}
	slices.SortFunc(periods, func(a, b Period) int { return a.Start.Compare(b.Start) })
	for i := range periods {
		periods[i].Stream = f.Stream
		periods[i].setSubscription(&f)
		periods[i].setBills(f.Connection)
		periods[i].markStandalone(&f)
	}
	return periods
}

// shortened returns the stored periods, the last one with its end as of Now (see shorten).
func (f *Facts) shortened() []Period {
	periods := slices.Clone(f.Stored)
	if len(periods) > 0 {
		last := &periods[len(periods)-1]
		last.End = last.shorten(f)
	}
	return periods
}

// ExpectedPeriods returns Periods and, if the last known period of the subscription is over, the expected next period.
// The expected period is never stored.
func ExpectedPeriods(f Facts) []Period {
	periods := Periods(f)
	if f.subscribed() && !f.Side.Period.End.After(f.Now) {
		periods = append(periods, Period{Range: AfterSubscription(f.Side.Period.End, f.Now), Stream: f.Stream})
	}
	return periods
}

// CurrentPeriod returns the billing period that contains Now. If there is none, it returns the calendar month.
func CurrentPeriod(f Facts) metering.Range { return expectedAt(f, f.Now) }

// expectedAt returns the billing period that contains an instant. Outside of all billing periods, it returns the
// calendar month.
func expectedAt(f Facts, at time.Time) metering.Range {
	for _, p := range ExpectedPeriods(f) {
		if p.Contains(at) {
			return p.Range
		}
	}
	return CalendarPeriod(at, f.Settings.Timezone)
}

// PeriodOfMeter returns the billing period that contains an instant, in the billing schedule to which the meter belongs
// now. Outside of all billing periods, it returns the calendar month. If no schedule has the meter now, it uses the
// first one. streams holds the facts of all billing schedules of a customer.
func PeriodOfMeter(streams []Facts, meter metering.MeterID, at time.Time) metering.Range {
	for _, f := range streams {
		if f.feeds(meter) {
			return expectedAt(f, at)
		}
	}
	return expectedAt(streams[0], at)
}

// PriceStart returns the time from which a change of the customer's price of a meter applies by default. It is the
// start of the next period of the billing schedule to which the meter belongs now. If the customer was created in the
// current period, it is the start of the current period. schedules holds the facts of all billing schedules of the
// customer.
func PriceStart(schedules []Facts, meter metering.MeterID) time.Time {
	return nextStart(schedules, PeriodOfMeter(schedules, meter, schedules[0].Now))
}

// nextStart returns the end of the current period or, if the customer was created in that period, its start.
func nextStart(schedules []Facts, current metering.Range) time.Time {
	if current.Contains(schedules[0].Customer.CreatedAt) {
		return current.Start
	}
	return current.End
}

// subscribed reports whether a subscription determines the periods of the billing schedule.
func (f *Facts) subscribed() bool { return f.Side != nil && f.Side.Subscription != "" }

// current returns the subscription's current period. It is empty without a subscription.
func (f *Facts) current() metering.Range {
	if !f.subscribed() {
		return metering.Range{}
	}
	return f.Side.Period
}

// setSubscription records the customer's subscription and its prices in an open period. For a period that does not
// overlap the subscription's current period, setSubscription only adds missing prices, and only if the period already
// records the subscription.
func (p *Period) setSubscription(f *Facts) {
	if p.ClosedAt != nil || !f.subscribed() {
		return
	}
	s, side := &p.Subscription, f.Side
	if !p.Start.Before(side.Period.End) || !p.End.After(side.Period.Start) {
		if former := s.Prices; s.ID == side.Subscription {
			s.notePrices(side)
			maps.Copy(s.Prices, former)
		}
		return
	}
	if s.ID != side.Subscription || !s.Start.Equal(side.Period.Start) {
		s.Invoiced, s.Scales = false, nil // both belong to the previous subscription period
	}
	s.ID, s.Range, s.Trial = side.Subscription, side.Period, side.Trial
	if f.Connection != nil {
		s.Connection = f.Connection.ID
	}
	s.notePrices(side)
}

// missingPeriods returns the ranges of the periods that the schedule lacks up to Now. They follow the stored periods.
// Once the start of the first period is final, missing periods can also precede the stored ones.
func missingPeriods(f *Facts, periods []Period) []metering.Range {
	if len(periods) == 0 {
		return f.extend(f.first().Start)
	}
	missing := f.extend(periods[len(periods)-1].End)
	if f.Customer.HeadOpenUntil == nil || f.headOpenUntil() != nil || f.subscribed() {
		return missing
	}
	head := periods[0].Start
	for _, before := range ExtendPeriods(f.first(), head.Add(-time.Microsecond), f.Settings.Timezone) {
		missing = append(missing, before.Intersect(metering.Range{Start: before.Start, End: head}))
	}
	return missing
}

// headOpenUntil returns the instant until which an event can make the customer's first period begin earlier. It is the
// end of the last calendar month before the customer's creation, plus the grace and the time until every event that was
// received in the grace is stored. headOpenUntil returns nil if the start is final: from that instant on, if
// BillingStartsAt is set, or with a subscription.
func (f *Facts) headOpenUntil() *time.Time {
	c := f.Customer
	until := c.HeadOpenUntil
	if until == nil && len(f.Stored) == 0 {
		end := CalendarPeriod(c.CreatedAt, f.Settings.Timezone).Start.Add(f.Settings.Grace + metering.MaxIngestDelay)
		until = &end
	}
	if until == nil || !f.Now.Before(*until) || c.BillingStartsAt != nil || f.subscribed() {
		return nil
	}
	return until
}

// extend returns the periods from start to the one that contains Now. It returns none if start is after Now. With a
// subscription, it returns no period after the current one.
func (f *Facts) extend(start time.Time) []metering.Range {
	if start.After(f.Now) {
		return nil
	}
	if !f.subscribed() {
		first := metering.Range{Start: start, End: CalendarPeriod(start, f.Settings.Timezone).End}
		return ExtendPeriods(first, f.Now, f.Settings.Timezone)
	}
	return FollowSubscription(start, f.Now, f.Side.Period, f.Settings.Timezone)
}

// first returns the customer's first period.
func (f *Facts) first() metering.Range {
	c := f.Customer
	if c.BillingStartsAt == nil && f.current().Contains(c.CreatedAt) {
		return f.current()
	}
	if f.headOpenUntil() != nil {
		return CalendarPeriod(c.CreatedAt, f.Settings.Timezone)
	}
	return FirstPeriod(c, f.Settings.Grace, f.Settings.Timezone)
}

// FirstPeriod returns a customer's first period, from the events so far:
//   - from BillingStartsAt to the end of that month, if BillingStartsAt is set
//   - else the earliest month with an event that was ingested before the month's end plus the grace, if it precedes the
//     month of the customer's creation
//   - else the month of the customer's creation
//
// Once headOpenUntil has passed, the result no longer depends on the time of the call.
func FirstPeriod(c Customer, grace time.Duration, timezone *time.Location) metering.Range {
	if c.BillingStartsAt != nil {
		return metering.Range{Start: *c.BillingStartsAt, End: CalendarPeriod(*c.BillingStartsAt, timezone).End}
	}
	first := CalendarPeriod(c.CreatedAt, timezone)
	for _, early := range c.EarlyEvents {
		month := CalendarPeriod(early.At, timezone)
		if month.Start.Before(first.Start) && early.IngestedAt.Before(month.End.Add(grace)) {
			first = month
		}
	}
	return first
}

// ExtendPeriods returns the first period and the following ones, up to the period that contains now. Each following
// period begins when the previous one ends, and ends with that calendar month in the time zone. There are none if first
// begins after now.
func ExtendPeriods(first metering.Range, now time.Time, timezone *time.Location) []metering.Range {
	var periods []metering.Range
	for next := first; !next.Start.After(now); next = (metering.Range{Start: next.End, End: CalendarPeriod(next.End, timezone).End}) {
		periods = append(periods, next)
	}
	return periods
}

// FollowSubscription returns the periods of a customer with a subscription, from start to the period that contains now.
// Before the subscription's current period, these are calendar months, and the start of the current period cuts the
// last one. A period that begins in the current period ends with it. Later periods are missing, because the provider
// has not determined them.
func FollowSubscription(start, now time.Time, current metering.Range, timezone *time.Location) []metering.Range {
	var periods []metering.Range
	for !start.After(now) && start.Before(current.End) {
		next := metering.Range{Start: start, End: current.End}
		if start.Before(current.Start) {
			next.End = CalendarPeriod(start, timezone).Intersect(metering.Range{Start: start, End: current.Start}).End
		}
		periods = append(periods, next)
		start = next.End
	}
	return periods
}

// AfterSubscription returns the expected period that contains now, if the last known period of the subscription ended
// at end. It assumes periods of one month until the provider determines the next period.
func AfterSubscription(end, now time.Time) metering.Range {
	months := 1
	for !addMonths(end, months).After(now) {
		months++
	}
	return metering.Range{Start: addMonths(end, months-1), End: addMonths(end, months)}
}

// addMonths returns the instant a number of months later. If that month lacks the day, the instant is on the month's
// last day, as at Stripe: https://docs.stripe.com/billing/subscriptions/billing-cycle
func addMonths(at time.Time, months int) time.Time {
	first := at.AddDate(0, months, 1-at.Day())
	last := first.AddDate(0, 1, -1)
	return first.AddDate(0, 0, min(at.Day(), last.Day())-1)
}

// shorten returns the end of the last stored period, which can be earlier than stored while the period is open and
// contains Now. The new end is the first of these that applies:
//   - without a subscription, the end of the calendar month
//   - the start of the subscription's current period, if it is after p.Start and p does not record this period
//     yet. If p was reported, the start must also be after Now.
//   - the end of the subscription's current period
//
// Reports in test mode count too, because the windows of their series remain. A reported period never ends before Now,
// and no period becomes longer.
func (p Period) shorten(f *Facts) time.Time {
	if p.ClosedAt != nil || !p.Contains(f.Now) {
		return p.End
	}
	reported := containsAny(f.Reported, func(r *Reported) bool { return r.about(p) && r.Standing.Any })
	border := p.border(f, reported)
	if !border.After(p.Start) || border.Before(f.Now) && reported || !border.Before(p.End) {
		return p.End
	}
	return border
}

// border returns the end that shorten considers for the period. reported reports whether the period was reported.
func (p Period) border(f *Facts, reported bool) time.Time {
	current := f.current()
	noted := f.subscribed() && p.Subscription.ID == f.Side.Subscription && p.Subscription.Start.Equal(current.Start)
	switch {
	case current.Empty():
		return CalendarPeriod(f.Now, f.Settings.Timezone).End
	case current.Start.After(p.Start) && !noted && (!reported || current.Start.After(f.Now)):
		return current.Start
	}
	return current.End
}

// about reports whether the series reports usage of the period.
func (s Series) about(p Period) bool { return s.Period.Equal(p.Start) }
