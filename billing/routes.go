package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// route is what happens with the part of a position that the provider does not have.
type route string

const (
	none       route = "none"        // nothing: the provider does not bill it, or its final invoices were compared with it
	direct     route = "direct"      // it is reported now, as the period's own
	wait       route = "wait"        // it is reported later, without anybody's help
	nextPeriod route = "next_period" // it is not reported any more: a later period bills it
	operator   route = "operator"    // it is not reported until somebody changes something
)

// rule is a row of the route table. A position has the route of the first row that applies to it.
type rule struct {
	reason  string // as listed for the meter; "": the meter is not listed
	route   route
	applies func(*position) bool
}

var rules = []rule{
	{"", none, (*position).isCompared},

	// The meter cannot be reported.
	{ExcludedBackfilling, wait, func(m *position) bool { return m.meter.Version.Status == metering.Backfilling }},
	{ExcludedUnread, wait, func(m *position) bool { return m.destination.Excluded == ExcludedUnread }},
	{"", operator, func(m *position) bool { return m.destination.Excluded != "" }}, // the provider's reason
	{ExcludedShared, operator, func(m *position) bool { return m.isShared }},
	{ExcludedByOperator, operator, func(m *position) bool { return slices.Contains(m.leaves, m.meter.ID) }},
	{ExcludedOtherPrice, operator, (*position).isInOtherCurrency},

	// Nothing more is reported of the period.
	{ExcludedEarlier, nextPeriod, (*position).isOutsideSubscription},
	{ExcludedInvoiced, nextPeriod, (*position).isInvoiced},
	{ExcludedCarried, nextPeriod, func(m *position) bool { return m.closed != nil && m.isCarried(m.period, m.closed) }},
	{ExcludedUnpriced, nextPeriod, (*position).isPricedSince},
	{ExcludedOver, nextPeriod, func(m *position) bool {
		return m.destination.OnlyWhileRun && !m.part.End.After(m.Side.Period.Start)
	}},
	{ExcludedWindow, nextPeriod, func(m *position) bool {
		return m.destination.Window != "" && firstWindowEnd(m.part, m.destination.Window).After(m.part.End)
	}},
	{ExcludedOnInvoice, nextPeriod, func(m *position) bool { return m.inMoney() && m.invoiceLine().Line != nil }},
	{ExcludedNoLine, nextPeriod, (*position).hasNoInvoice},
	{ExcludedLines, nextPeriod, func(m *position) bool {
		return m.inMoney() && !m.invoiceLine().Standing.Any && m.lines >= linesAtMost
	}},
	{"", wait, func(m *position) bool { return m.period.Own() && m.period.ClosedAt == nil }}, // its invoice is created after the close

	{ExcludedRestored, wait, (*position).awaitsReading},
	{"", direct, func(*position) bool { return true }},
}

// route returns the position's route and the reason for it.
func (m *position) route() (route, string) {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.applies(m) })
	if rules[i].reason == "" && rules[i].route == operator {
		return operator, m.destination.Excluded
	}
	return rules[i].route, rules[i].reason
}

// isCompared reports whether nothing of the closed period can be reported: the provider does not bill the meter, or its
// final invoices were compared with what was reported.
func (m *position) isCompared() bool {
	return m.period.ClosedAt != nil && (m.closed == nil || !m.stated(m.closed))
}

// isInOtherCurrency reports whether the position's amount cannot be a line of its invoice.
func (m *position) isInOtherCurrency() bool {
	amount := m.amount()
	return m.inMoney() && !amount.IsZero() && m.excludedIn(m.currency, m.target(), m.period) != ""
}

// isOutsideSubscription reports whether no part of the period lies in the customer's present subscription.
func (m *position) isOutsideSubscription() bool {
	sub := m.period.Subscription
	return !m.period.Own() && (sub.ID == "" || sub.ID != m.Side.Subscription || m.part.Empty())
}

// isInvoiced reports whether the period's invoice is, or may be, final.
func (m *position) isInvoiced() bool {
	if m.period.Own() {
		return m.finalizes(m.period)
	}
	return m.period.Subscription.Invoiced
}

// isPricedSince reports whether a closed quantity had no known price at the close, and the provider has a price for it
// by now. The provider does not bill at that price what it was not reported before the close. What the invoices lack
// would be billed later at the price of the close, for nothing.
func (m *position) isPricedSince() bool {
	l := m.closed
	return !m.inMoney() && l != nil && l.PriceVersion == 0 && l.Price == nil && m.Connection.Invoices && m.destination.Price != nil && len(m.own) == 0
}

// hasNoInvoice reports whether the position has no line yet, and the subscription's next invoice is not the period's.
func (m *position) hasNoInvoice() bool {
	return m.inMoney() && !m.period.Own() && !m.invoiceLine().Standing.Any && (m.Side.Ended || !m.part.End.After(m.Side.Period.Start))
}

// awaitsReading reports whether the provider's totals have to be read after a restore before anything is reported.
func (m *position) awaitsReading() bool {
	return m.Unread && (m.inMoney() || m.destination.Counting == Adds)
}

// isBilledHere reports whether the provider bills the position: with the period or, if nothing more is reported of the
// period, with a later one.
func (m *position) isBilledHere() bool {
	route, reason := m.route()
	switch reason {
	case ExcludedBackfilling, ExcludedUnread, ExcludedEarlier:
		return false
	}
	return route != none && route != operator
}
