package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// route determines how the unreported part of a position is billed.
type route string

const (
	none       route = "none"        // nothing to report: the provider does not bill the meter, another subscription does, or the final invoices were compared
	direct     route = "direct"      // reported now, for the position's own period
	wait       route = "wait"        // reported later, automatically
	nextPeriod route = "next_period" // no longer reported: a later period bills it
	operator   route = "operator"    // not reported until an operator changes a setting
)

// rule is a row of the route table. The first row that applies to a position decides its route.
type rule struct {
	when    string // the condition, in words
	route   route
	code    ExclusionCode // listed with the meter; "": the meter is not listed
	applies func(*position) bool
}

// rules is the route table. docs/billing.md contains a copy, which TestTheDecisionTablesAreDocumented compares with it.
var rules = []rule{
	{"The period is closed. The provider does not bill the meter, or its final invoices were compared.", none, "", func(m *position) bool { return !m.phase.isOpen() }},

	// The meter cannot be reported.
	{"The first backfill of the meter is running.", wait, ExcludedBackfilling, func(m *position) bool { return m.meter.Version.Status == metering.Backfilling }},
	{"The last read of the customer at the provider does not include the meter.", wait, ExcludedNotRead, isExcludedAs(ExcludedNotRead)},
	{"Another subscription of the customer bills the meter.", none, ExcludedOtherSubscription, isExcludedAs(ExcludedOtherSubscription)},
	{"Nothing at the provider bills the meter for this customer.", operator, ExcludedNoTarget, func(m *position) bool { return !m.destination.takes() }},
	{"An earlier meter of the period has the same target.", operator, ExcludedSharedTarget, func(m *position) bool { return m.isShared }},
	{"An operator has excluded the meter from the sync.", operator, ExcludedByOperator, func(m *position) bool { return slices.Contains(m.excludedMeters, m.meter.ID) }},
	{"The currency of the amount differs from that of the invoice.", operator, ExcludedPriceCurrency, (*position).isInOtherCurrency},

	// Something has to be read first.
	{"The ledger was restored, and the provider's totals were not read since.", wait, ExcludedRestored, (*position).awaitsReading},

	// Nothing more is reported of the period.
	{"The period is outside the customer's current subscription.", nextPeriod, ExcludedBeforeSubscription, (*position).isOutsideSubscription},
	{"The period's invoice is final, or is being made final.", nextPeriod, ExcludedInvoiceFinal, (*position).isInvoiced},
	{"A later period already bills what the closed period lacks.", nextPeriod, "", func(m *position) bool { return m.phase == phaseCarried }},
	{"The meter had no known price at the close, and has one at the provider now.", nextPeriod, "", (*position).isPricedSince},
	{"The period is over, and the provider accepts usage only while it runs.", nextPeriod, ExcludedPeriodOver, (*position).isPastPeriod},
	{"No usage window of the provider ends in the period.", nextPeriod, ExcludedNoWindow, (*position).hasNoWindow},
	{"The line is on a final invoice.", nextPeriod, ExcludedLineFinal, func(m *position) bool { return m.inMoney() && m.invoiceLine().Line != nil }},
	{"The meter has no line, and the next invoice is a later period's.", nextPeriod, ExcludedNoInvoiceLine, (*position).hasNoInvoice},
	{"The meter has no line, and the invoice has the maximum number of lines.", nextPeriod, ExcludedTooManyLines, (*position).hasNoRoom},

	{"The period is open, and Odometer creates its invoice after the close.", wait, "", func(m *position) bool { return m.period.IsStandalone() && m.period.ClosedAt == nil }},

	{"Otherwise.", direct, "", func(*position) bool { return true }},
}

// rulesOnceRead are the rules once the provider's totals were read.
var rulesOnceRead = slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return r.code == ExcludedRestored })

// route returns the position's route, and the code that is listed with an excluded meter.
func (m *position) route() (route, ExclusionCode) { return m.routeBy(rules) }

// routeBy returns the route and the code of the first rule that applies to the position.
func (m *position) routeBy(rules []rule) (route, ExclusionCode) {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.applies(m) })
	return rules[i].route, rules[i].code
}

// reasonOf returns the reason with the code. If the destination has the code, or a code of a newer version, the reason
// is the destination's.
func (m *position) reasonOf(code ExclusionCode) ExclusionReason {
	theirs := m.destination.Excluded
	if theirs.Code == code || code == ExcludedNoTarget {
		return theirs
	}
	return ExclusionReason{Code: code}
}

// isExcludedAs returns a condition that is true if the position's destination is excluded with the code.
func isExcludedAs(code ExclusionCode) func(*position) bool {
	return func(m *position) bool { return m.destination.Excluded.Code == code }
}

// isInOtherCurrency reports whether the position's amount cannot be on its invoice, because the currencies differ.
func (m *position) isInOtherCurrency() bool {
	return m.inMoney() && !m.amount().IsZero() && m.excludedIn(m.currency, m.target(), m.period) != ""
}

// isOutsideSubscription reports whether no part of the period lies in the customer's current subscription.
func (m *position) isOutsideSubscription() bool {
	sub := m.period.Subscription
	return !m.period.IsStandalone() && (sub.ID == "" || sub.ID != m.Side.Subscription || m.part.Empty())
}

// isInvoiced reports whether the period's invoice is final or, for a standalone invoice, may be final.
func (m *position) isInvoiced() bool {
	if m.period.IsStandalone() {
		return m.finalizes(m.period)
	}
	return m.period.Subscription.Invoiced
}

// isPricedSince reports whether a closed quantity got its price only after the close, at a provider that creates
// invoices. It had no known price at the close, now has a price at the provider, and was not reported to the
// destination yet. Such a quantity is not reported, because the new price does not apply to the closed period. If it
// were reported, a later period would bill units that the invoices lack. The price of that bill is the price of the
// close, which charges nothing.
func (m *position) isPricedSince() bool {
	l := m.closed
	return !m.inMoney() && l != nil && l.PriceVersion == 0 && l.Price == nil && m.Connection.Invoices && m.destination.Price != nil && len(m.own) == 0
}

// hasNoInvoice reports whether the position has no line yet and cannot get one: the subscription has ended, or its next
// invoice bills a later period.
func (m *position) hasNoInvoice() bool {
	return m.inMoney() && !m.period.IsStandalone() && !m.invoiceLine().Standing.Any && (m.Side.Ended || !m.part.End.After(m.Side.Period.Start))
}

// isPastPeriod reports whether the subscription's period is over, and the provider accepts usage only while that period
// runs.
func (m *position) isPastPeriod() bool {
	return m.destination.OnlyWhileRun && !m.part.End.After(m.Side.Period.Start)
}

// hasNoWindow reports whether no usage window of the provider ends in the part of the period.
func (m *position) hasNoWindow() bool {
	return m.destination.Window != "" && firstWindowEnd(m.part, m.destination.Window).After(m.part.End)
}

// hasNoRoom reports whether the position has no line yet, and its invoice has the maximum number of lines.
func (m *position) hasNoRoom() bool {
	return m.inMoney() && !m.invoiceLine().Standing.Any && m.lines >= linesAtMost
}

// awaitsReading reports whether the provider's totals must be read after a restore before the position is reported.
func (m *position) awaitsReading() bool {
	return m.Unread && (m.inMoney() || m.destination.Counting == Adds)
}

// isBilledHere reports whether the provider bills the position: with the period or, if nothing more is reported of the
// period, with a later one.
func (m *position) isBilledHere() bool {
	route, code := m.routeBy(rulesOnceRead)
	switch code {
	case ExcludedBackfilling, ExcludedNotRead, ExcludedBeforeSubscription:
		return false
	}
	return route != none && route != operator
}
