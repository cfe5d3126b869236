package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// UnratedReason is the reason why nothing bills the usage of a meter in a period.
type UnratedReason string

const (
	BeforeFirstPeriod  UnratedReason = "before_first_period"
	NoPrice            UnratedReason = "no_price"
	NoProvider         UnratedReason = "no_provider"
	NoProviderLink     UnratedReason = "no_provider_link"
	NoSubscriptionItem UnratedReason = "no_subscription_item"
	BeforeSubscription UnratedReason = "before_subscription"
	ClosedUnbilled     UnratedReason = "closed_unbilled"
	UnpricedDimension  UnratedReason = "unpriced_dimension"
)

// UnratedUnknown is the reason of a total if unrated usage could not be computed. No UnratedLine has it.
const UnratedUnknown UnratedReason = "unknown"

// Values returns all reasons that an UnratedLine can have.
func (UnratedReason) Values() []UnratedReason {
	return slices.DeleteFunc(unratedReasons.codes(), func(r UnratedReason) bool { return r == UnratedUnknown })
}

// Text returns the reason in words.
func (r UnratedReason) Text() Text { return unratedReasons.textOf(r) }

// UnratedLine is usage of one meter in one period that nothing will bill. With the reason UnpricedDimension, it is only
// a part of the meter's usage. Another line of the meter may then contain all of its usage.
type UnratedLine struct {
	Period    metering.Range
	Stream    int
	State     PeriodState // PeriodBefore if the period precedes the first billing period
	MeterID   metering.MeterID
	MeterSlug string
	Reason    UnratedReason
	Excluded  ExclusionReason // why the meter is not reported; zero except with NoSubscriptionItem
	Usage     metering.Decimal
	Events    int64
	Estimate  *metering.Decimal // charge at the price in force; nil without a price, and with UnpricedDimension
	Currency  string            // of Estimate; "" if Estimate is nil
}

// Text returns the reason in words. With NoSubscriptionItem, it is the text of Excluded.
func (l UnratedLine) Text() Text {
	if l.Excluded.Code != "" {
		return l.Excluded.Text()
	}
	return l.Reason.Text()
}

// PeriodBefore is the state of a calendar month, or a part of one, before the first billing period.
const PeriodBefore PeriodState = "before"

// UnratedFacts holds the facts that determine which usage of a customer's billing schedule nothing bills. Facts.Stored
// may lack closed periods.
type UnratedFacts struct {
	Facts
	Linked      bool       // the customer has an id at the provider
	FirstStored *time.Time // start of the first stored period of billing schedule 0; nil: no period is stored
	Since       time.Time  // start of a calendar month; periods that ended by then are skipped
}

// Periods returns the periods that can have unrated usage:
//   - for billing schedule 0, the calendar months from Since to the first billing period
//   - the open billing periods in which a meter is unrated or has a price by dimension
func (f UnratedFacts) Periods() (periods []Period) {
	if !f.Bills() {
		return nil
	}
	if first := f.FirstStart(); f.Stream == 0 {
		for _, month := range ExtendPeriods(CalendarPeriod(f.Since, f.Settings.Timezone), first.Add(-time.Microsecond), f.Settings.Timezone) {
			periods = append(periods, Period{Range: month.Intersect(metering.Range{Start: f.Since, End: first})})
		}
	}
	for _, p := range OpenPeriods(f.Facts) {
		if p.End.After(f.Since) && slices.ContainsFunc(f.metersIn(p), func(m metering.Meter) bool {
			return f.reason(m, p) != "" || f.dimensionTerms(m, p) != nil
		}) {
			periods = append(periods, p)
		}
	}
	return periods
}

// FirstStart returns the start of the customer's first billing period. As long as an event can still move that start to
// an earlier month, FirstStart returns the earliest start that the known events determine.
func (f UnratedFacts) FirstStart() time.Time {
	start := f.first().Start
	if f.FirstStored != nil {
		start = *f.FirstStored
	}
	earliest := func(t time.Time) {
		if t.Before(start) {
			start = t
		}
	}
	if periods := ExpectedPeriods(f.Facts); len(periods) > 0 && (f.FirstStored == nil || len(f.Stored) > 0) {
		earliest(periods[0].Start)
	}
	if f.headOpenUntil() != nil {
		earliest(FirstPeriod(f.Customer, f.Settings.Grace, f.Settings.Timezone).Start)
	}
	return start
}

// Lines returns the unrated lines of a period that Periods returned. The facts must contain the usage of the period.
func (f UnratedFacts) Lines(period Period) (lines []UnratedLine) {
	before := f.Stream == 0 && !period.End.After(f.FirstStart())
	all, _ := openBooks(f.Facts).calculations(period)
	for _, c := range all {
		line := f.line(&c, period, before)
		charged := !before && line.Estimate != nil && !line.Estimate.IsZero()
		if line.Reason != "" && (c.events > 0 || charged) {
			lines = append(lines, line)
		}
		if terms := f.dimensionTerms(c.meter, period); terms != nil && !before {
			line.Reason, line.Excluded, line.Estimate, line.Currency = UnpricedDimension, ExclusionReason{}, nil, ""
			if line.Usage, line.Events = terms.UnratedUsage(c.dimensions); line.Events > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// line returns the line of a meter's usage in the period. before is true if the period precedes the first billing
// period. The line then has the reason BeforeFirstPeriod. Otherwise, its reason is the result of the method reason.
func (f UnratedFacts) line(c *calculation, period Period, before bool) UnratedLine {
	line := UnratedLine{
		Period: period.Range, Stream: f.Stream, State: PeriodBefore, MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Reason: BeforeFirstPeriod,
		Usage: c.usage, Events: c.events,
	}
	if !before {
		line.State, line.Reason = period.stateAt(f.Now), f.reason(c.meter, period)
	}
	if line.Reason == NoSubscriptionItem {
		line.Excluded = f.excluded(c.meter, period)
	}
	if _, priced := f.price(c.meter.ID, period); priced {
		line.Estimate, line.Currency = new(c.charge()), c.currency
	}
	return line
}

// reason returns the reason why nothing will bill the meter in an open period. The reason is "" if the usage will be
// billed or is in a trial, or if only the next sync or backfill can determine it.
func (f UnratedFacts) reason(m metering.Meter, period Period) UnratedReason {
	_, priced := f.price(m.ID, period)
	connection := f.Connection
	switch {
	case m.Version.Status == metering.Backfilling, period.Subscription.Trial:
		return ""
	case connection == nil:
		return f.unpriced(priced, NoProvider)
	case connection.Statements:
		return f.unpriced(priced, "")
	case !f.Linked:
		return NoProviderLink
	case period.Bills == metering.BillsAmounts && !priced:
		return f.unpriced(priced, "")
	case f.Side == nil:
		return ""
	}
	if f.excluded(m, period).Code != "" {
		return NoSubscriptionItem
	}
	if period.Bills != metering.BillsAmounts && period.Subscription.ID == "" && f.Side.Customer != "" {
		return BeforeSubscription
	}
	return ""
}

// unpriced returns the given reason for a meter with a price. For a meter without a price, it returns NoPrice, or "" if
// the tenant has no prices at all.
func (f *Facts) unpriced(priced bool, ifPriced UnratedReason) UnratedReason {
	switch {
	case priced:
		return ifPriced
	case f.HasPrices():
		return NoPrice
	}
	return ""
}
