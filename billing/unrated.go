package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// UnratedReason is why nothing bills the usage of a meter in a period.
type UnratedReason string

const (
	BeforeFirstPeriod  UnratedReason = "before_first_period"  // the usage is older than the customer's first billing period
	NoPrice            UnratedReason = "no_price"             // neither the meter, the customer's plan nor the customer has a price
	NoProvider         UnratedReason = "no_provider"          // the tenant has no billing provider
	NoProviderLink     UnratedReason = "no_provider_link"     // the customer has no billing_provider_id
	NoSubscriptionItem UnratedReason = "no_subscription_item" // the provider accepts no usage of the meter for the customer
	BeforeSubscription UnratedReason = "before_subscription"  // the period lies outside the customer's subscription
	ClosedUnbilled     UnratedReason = "closed_unbilled"      // when the period closed, no provider would bill the usage
	UnpricedDimension  UnratedReason = "unpriced_dimension"   // no price by dimension matches the usage, and there is no default
)

// UnratedUnknown stands for unrated usage that could not be computed. No line has it.
const UnratedUnknown UnratedReason = "unknown"

// Values are all reasons that a line may have.
func (UnratedReason) Values() []UnratedReason {
	return []UnratedReason{BeforeFirstPeriod, NoPrice, NoProvider, NoProviderLink, NoSubscriptionItem, BeforeSubscription, ClosedUnbilled, UnpricedDimension}
}

// Text returns the reason in words.
func (r UnratedReason) Text() string {
	switch r {
	case BeforeFirstPeriod:
		return "usage is older than its customer's first billing period"
	case NoPrice:
		return "neither the meter, the customer's plan nor the customer has a price"
	case NoProvider:
		return "no billing provider is configured"
	case NoProviderLink:
		return "the customer has no billing_provider_id"
	case NoSubscriptionItem:
		return "the provider accepts no usage of the meter for the customer"
	case BeforeSubscription:
		return "the period lies outside the customer's subscription"
	case ClosedUnbilled:
		return "when the period closed, no provider would bill the usage"
	case UnpricedDimension:
		return "no price in dimensions charges usage with these values"
	}
	return "unrated usage could not be computed; GET /v1/billing/unrated/totals returns why"
}

// UnratedLine is usage of one meter in one period that nothing will bill. The usage of an
// UnpricedDimension is a part of the meter's, and another line may have all of it.
type UnratedLine struct {
	Period    metering.Range
	Stream    int
	State     PeriodState // PeriodBefore: it is no billing period
	MeterID   metering.MeterID
	MeterSlug string
	Reason    UnratedReason
	Detail    string // the provider's reason in words; "": there is none
	Usage     metering.Decimal
	Events    int64
	Estimate  *metering.Decimal // the charge at the price in force; nil: there is no price
	Currency  string            // of the estimate; "": there is none
}

// PeriodBefore is a calendar month, or a part of one, before the first billing period.
const PeriodBefore PeriodState = "before"

// UnratedFacts are the facts that decide which usage of a customer nothing bills.
// Stored may lack closed periods.
type UnratedFacts struct {
	Facts
	Linked      bool       // the customer has an id at the provider
	FirstStored *time.Time // the start of the first period that is stored; nil: none is
	Since       time.Time  // the start of a calendar month; periods that ended before are of no interest
}

// Bills reports whether the tenant bills anything: else it only meters, and none of its
// usage counts as unrated.
func (f Facts) Bills() bool { return f.Connection != nil || f.HasPrices() }

// HasPrices reports whether any meter, plan or customer of the tenant has a price.
func (f Facts) HasPrices() bool {
	if f.OwnPriced {
		return true
	}
	for _, versions := range f.Prices {
		if len(versions) > 0 {
			return true
		}
	}
	return false
}

// Periods are those in which usage of some meter is unrated: calendar months before the
// first billing period, and billing periods that are not closed.
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
			reason, _ := f.reason(m, p)
			return reason != "" || f.dimensionTerms(m, p) != nil
		}) {
			periods = append(periods, p)
		}
	}
	return periods
}

// FirstStart is where the customer's first billing period begins, or, while an event may
// still bring that forward, the earliest start that the events so far give it.
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

// Lines are the unrated lines of one of Periods. The facts have its usage.
func (f UnratedFacts) Lines(period Period) (lines []UnratedLine) {
	before := f.Stream == 0 && !period.End.After(f.FirstStart())
	b := NewBooks(f.Facts)
	all, _ := b.calculations(period)
	for _, c := range all {
		line := UnratedLine{
			Period: period.Range, Stream: f.Stream, State: PeriodBefore, MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Reason: BeforeFirstPeriod,
			Usage: c.usage, Events: c.events,
		}
		if !before {
			line.State = period.stateAt(f.Now)
			line.Reason, line.Detail = f.reason(c.meter, period)
		}
		if _, priced := f.price(c.meter.ID, period); priced {
			line.Estimate, line.Currency = new(c.charge()), c.currency
		}
		charged := !before && line.Estimate != nil && !line.Estimate.IsZero()
		if line.Reason != "" && (c.events > 0 || charged) {
			lines = append(lines, line)
		}
		if terms := f.dimensionTerms(c.meter, period); terms != nil && !before {
			line.Reason, line.Detail, line.Estimate, line.Currency = UnpricedDimension, "", nil, ""
			if line.Usage, line.Events = terms.UnratedUsage(c.dimensions); line.Events > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// reason is why nothing will bill the meter in an open period, with the provider's own
// words; "" if something will, or if that is not known before the next sync.
func (f UnratedFacts) reason(m metering.Meter, period Period) (reason UnratedReason, detail string) {
	_, priced := f.price(m.ID, period)
	connection := f.Connection
	switch {
	case m.Version.Status == metering.Backfilling, period.Subscription.Trial:
		return "", ""
	case connection == nil:
		return f.unpriced(priced, NoProvider), ""
	case connection.Statements:
		return f.unpriced(priced, ""), ""
	case !f.Linked:
		return NoProviderLink, ""
	case period.Bills == metering.BillsAmounts && !priced:
		return f.unpriced(priced, ""), ""
	case f.Side == nil:
		return "", ""
	}
	if excluded := f.excluded(m, period); excluded != "" {
		return NoSubscriptionItem, excluded
	}
	if period.Bills != metering.BillsAmounts && period.Subscription.ID == "" && f.Side.Customer != "" {
		return BeforeSubscription, ""
	}
	return "", ""
}

// unpriced is NoPrice for a meter without a price, unless the tenant has no prices at
// all, and the other reason for one that has a price.
func (f *Facts) unpriced(priced bool, other UnratedReason) UnratedReason {
	switch {
	case priced:
		return other
	case f.HasPrices():
		return NoPrice
	}
	return ""
}
