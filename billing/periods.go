package billing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Period is one billing period of a customer's stream: each begins where the
// former ended.
type Period struct {
	ID metering.PeriodID // 0: it is not stored yet
	metering.Range
	Stream       int
	ClosedAt     *time.Time // nil while usage still changes it
	Complete     bool       // closed, and nothing of it is to be reported, on its way, or to be seen on an invoice
	Closed       []ClosedLine
	Subscription Subscription
	Bills        metering.Bills // in what a provider with invoices bills it; "": that is not decided, or there is none
	Watermark    Watermark      // as it is stored
}

// ClosedLine is what a closed period came to for one meter.
type ClosedLine struct {
	MeterID      metering.MeterID
	MeterVersion metering.MeterVersionID // that has counted the usage
	Aggregation  metering.Aggregation    // of that version: late usage is counted by it too
	Usage        metering.Decimal
	Events       int64
	Dimensions   []DimensionUsage // of the usage, with prices by dimension
	PriceVersion int              // 0: the meter had no price, or the provider's own
	Source       PriceSource      // of that version; "": as PriceVersion 0, or the line is not stored yet
	Terms        Terms            // that the charge is by, whatever the price is now
	Price        ProviderPrice    // that the charge is by instead; nil: it is by Terms
	Charge       metering.Decimal
	Currency     string
	Billed       bool           // a provider bills it: only then is there something to adjust
	Test         bool           // in test mode, in which nobody is charged
	Scale        *int32         // decimals of the units that the charge is for; nil: all that the usage has
	Bills        metering.Bills // in what the period was billed, where its provider makes invoices
	Trial        bool           // the provider charges nothing for them, nor for what comes later

	Reconciled *Reconciliation // the last one; nil: there is none yet
	so         *billedSoFar    // what is billed where nothing more of the period is reported; nil: all is, or will be. Reconcile finds it

	// What came late, once the events behind it may go; nil: it is still counted.
	LateUsage      *metering.Decimal
	LateEvents     *int64
	LateDimensions []DimensionUsage
}

// PeriodPlace is where a period stands among all of a customer's.
type PeriodPlace struct {
	Start  time.Time
	Stream int
}

// Place is the period's.
func (p Period) Place() PeriodPlace { return PeriodPlace{p.Start, p.Stream} }

// Compare orders places by time, and those of one instant by stream.
func (p PeriodPlace) Compare(o PeriodPlace) int {
	return cmp.Or(p.Start.Compare(o.Start), cmp.Compare(p.Stream, o.Stream))
}

// Before says whether the place comes first.
func (p PeriodPlace) Before(o PeriodPlace) bool { return p.Compare(o) < 0 }

// Deadline is the instant until which the period's usage may still be sent:
// its end and the tenant's grace.
func (p Period) Deadline(grace time.Duration) time.Time { return p.End.Add(grace) }

// CalendarPeriod is the calendar month of the timezone that t lies in.
func CalendarPeriod(t time.Time, timezone *time.Location) metering.Range {
	return metering.WindowOf(t, metering.Month, timezone)
}

// Periods returns the customer's billing periods as they are now, oldest
// first: those that are stored, of which the open one may have become shorter,
// and those that they lack up to now.
func Periods(f Facts) []Period {
	periods := slices.Clone(f.Stored)
	if len(periods) > 0 {
		last := &periods[len(periods)-1]
		last.End = last.shorten(&f)
	}
	for _, r := range missingPeriods(&f, periods) {
		periods = append(periods, Period{Range: r})
	}
	slices.SortFunc(periods, func(a, b Period) int { return a.Start.Compare(b.Start) })
	for i := range periods {
		periods[i].Stream = f.Stream
		periods[i].subscribe(&f)
		periods[i].bill(f.Connection)
		periods[i].own(&f)
	}
	return periods
}

// ExpectedPeriods are Periods, and what is expected to follow a subscription
// whose last known period is over, which is never stored.
func ExpectedPeriods(f Facts) []Period {
	periods := Periods(f)
	if f.subscribed() && !f.Side.Period.End.After(f.Now) {
		periods = append(periods, Period{Range: AfterSubscription(f.Side.Period.End, f.Now), Stream: f.Stream})
	}
	return periods
}

// CurrentPeriod is the customer's billing period that Now lies in. Before the
// first one begins it is the calendar's.
func CurrentPeriod(f Facts) metering.Range { return expectedAt(f, f.Now) }

// expectedAt returns the customer's billing period that an instant lies in, or the calendar's if the
// billing periods do not reach it.
func expectedAt(f Facts, at time.Time) metering.Range {
	for _, p := range ExpectedPeriods(f) {
		if p.Contains(at) {
			return p.Range
		}
	}
	return CalendarPeriod(at, f.Settings.Timezone)
}

// PeriodOfMeter returns the billing period that an instant lies in, of the stream of a customer
// that bills the meter now.
func PeriodOfMeter(streams []Facts, meter metering.MeterID, at time.Time) metering.Range {
	for _, f := range streams {
		if f.feeds(meter) {
			return expectedAt(f, at)
		}
	}
	return expectedAt(streams[0], at)
}

func (f *Facts) subscribed() bool { return f.Side != nil && f.Side.Subscription != "" }

// current is the subscription's period; empty where there is none.
func (f *Facts) current() metering.Range {
	if !f.subscribed() {
		return metering.Range{}
	}
	return f.Side.Period
}

// subscribe notes which subscription an open period lies in, and at what prices:
// of an earlier period of the subscription's, those that nobody has noted yet.
func (p *Period) subscribe(f *Facts) {
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
		s.Invoiced, s.Scales = false, nil // that was of the former one
	}
	s.ID, s.Range, s.Trial = side.Subscription, side.Period, side.Trial
	if f.Connection != nil {
		s.Connection = f.Connection.ID
	}
	s.notePrices(side)
}

// missingPeriods are those that the stream lacks up to now: after its end, and,
// once that is decided, before its beginning.
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

// headOpenUntil is until when an event may bring the customer's first period
// forward: the end of the last calendar month before it was made, and the grace.
// nil: that is decided, once and for all, by then, by an operator, or by a
// subscription.
func (f *Facts) headOpenUntil() *time.Time {
	c := f.Customer
	until := c.HeadOpenUntil
	if until == nil && len(f.Stored) == 0 {
		end := CalendarPeriod(c.CreatedAt, f.Settings.Timezone).Start.Add(f.Settings.Grace)
		until = &end
	}
	if until == nil || !f.Now.Before(*until) || c.BillingStartsAt != nil || f.subscribed() {
		return nil
	}
	return until
}

// extend returns the periods from start to the one that Now lies in.
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

// first is where the customer's periods begin.
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

// FirstPeriod is where a customer's periods begin: the month that an operator
// has said, or in which the customer was made, or the earliest before that of
// which an event came before the month's end and grace. It is asked once that
// instant is past, so that it does not matter when somebody asks.
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

// ExtendPeriods returns the periods from first to the one that now lies in:
// each begins where the former ended and ends with that month of the timezone.
// There are none while first lies ahead of now.
func ExtendPeriods(first metering.Range, now time.Time, timezone *time.Location) []metering.Range {
	var periods []metering.Range
	for next := first; !next.Start.After(now); next = (metering.Range{Start: next.End, End: CalendarPeriod(next.End, timezone).End}) {
		periods = append(periods, next)
	}
	return periods
}

// FollowSubscription returns the periods from start to the one that now lies
// in, of a customer who is subscribed at a provider: up to the subscription's
// current period the calendar's, cut where that begins, and then that. Of the
// time after it nothing is known yet.
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

// AfterSubscription is the period that now lies in, of a customer whose
// subscription's last known period ended at end: a month, until the provider
// says otherwise.
func AfterSubscription(end, now time.Time) metering.Range {
	months := 1
	for !end.AddDate(0, months, 0).After(now) {
		months++
	}
	return metering.Range{Start: end.AddDate(0, months-1, 0), End: end.AddDate(0, months, 0)}
}

// shorten returns where the last period ends, now that the customer's periods
// are the calendar's or those of a subscription: at the next border, or, if no
// provider was reported it yet, where the subscription's begins: one in test
// mode neither, since what has windows of it has them for good. A period never
// grows.
func (p Period) shorten(f *Facts) time.Time {
	if p.ClosedAt != nil || !p.Contains(f.Now) {
		return p.End
	}
	now, current := f.Now, f.current()
	reported := containsAny(f.Reported, func(r *Reported) bool { return r.about(p) && r.Standing.Any })
	noted := f.subscribed() && p.Subscription.ID == f.Side.Subscription && p.Subscription.Start.Equal(current.Start)
	border := current.End
	switch {
	case current.Empty():
		border = CalendarPeriod(now, f.Settings.Timezone).End
	case current.Start.After(p.Start) && !noted && (!reported || current.Start.After(now)):
		border = current.Start
	}
	if !border.After(p.Start) || border.Before(now) && reported || !border.Before(p.End) {
		return p.End
	}
	return border
}

// about says whether the series is of the period's usage.
func (s Series) about(p Period) bool { return s.Period.Equal(p.Start) }
