package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// phase determines where the rest of a closed line is billed: the part of its total that is not billed yet. The close of
// a period does not wait for its reports. After the close, the rest is reported with the line's own period, as long as
// the provider bills it there. Then later periods bill or credit the rest.
type phase string

const (
	phaseNotBilled phase = "not_billed" // not billed: no provider bills the line
	phaseCompared  phase = "compared"   // as the reconciliation with the final invoices determines
	phaseOtherMode phase = "other_mode" // not billed until the tenant uses the other mode (test or live) again
	phaseComplete  phase = "complete"   // there is no rest
	phaseReported  phase = "reported"   // with the line's own period: its next reports contain the rest
	phaseWaiting   phase = "waiting"    // with the line's own period: an invoice, or a read of the customer, is expected
	phaseCarried   phase = "carried"    // with later periods, which already bill a part of it
	phaseEnded     phase = "ended"      // with later periods, if there is a rest
)

// phaseFacts holds the facts that decide the phases of the closed lines of a period.
type phaseFacts struct {
	*Books
	period Period
}

// phases is the table of phases. The first row that applies to a closed line decides its phase.
// docs/billing.md contains a copy, which TestTheDecisionTablesAreDocumented compares with it.
var phases = []struct {
	when            string // the condition, in words
	phase           phase
	appliesToPeriod func(phaseFacts) bool              // nil: any period
	appliesToLine   func(phaseFacts, *ClosedLine) bool // nil: any line
}{
	{"No provider bills the line.", phaseNotBilled, nil, func(_ phaseFacts, l *ClosedLine) bool { return !l.Billed }},
	{"Final invoices were compared with the line.", phaseCompared, nil, func(_ phaseFacts, l *ClosedLine) bool { return l.Reconciled != nil }},
	{"The line was closed in the other mode (test or live).", phaseOtherMode, nil, func(f phaseFacts, l *ClosedLine) bool { return !f.bills(l) }},
	{"The period is complete.", phaseComplete, func(f phaseFacts) bool { return f.period.Complete }, nil},

	{"The tenant has no provider.", phaseEnded, func(f phaseFacts) bool { return f.Connection == nil }, nil},
	{"The receiver of statements lacks nothing of the period.", phaseEnded, func(f phaseFacts) bool { return f.Connection.Statements && !f.lacks(f.period) }, nil},
	{"The receiver of statements has accepted a statement with all closed totals.", phaseEnded, func(f phaseFacts) bool { return f.Connection.Statements && f.hasFullStatement(f.period) }, nil},
	{"The receiver of statements has not accepted such a statement.", phaseReported, func(f phaseFacts) bool { return f.Connection.Statements }, nil},

	{"A later period already bills a part of the rest.", phaseCarried, nil, phaseFacts.isCarried},
	{"The customer's state at the provider was not read yet.", phaseWaiting, func(f phaseFacts) bool { return f.Side == nil }, nil},
	{"The invoice that bills the period is not final.", phaseWaiting, func(f phaseFacts) bool { return f.awaitsInvoice(f.period) }, nil},
	{"The provider creates invoices.", phaseEnded, func(f phaseFacts) bool { return f.Connection.Invoices }, nil},
	{"The provider lacks a part of the line, and the line's route is `direct`.", phaseReported, nil, phaseFacts.isReportable},
	{"Otherwise.", phaseEnded, nil, nil},
}

// setPhases decides the phase of each line of a period. A row of the table is applied to all lines before the next row,
// because whether an invoice is expected depends on all lines.
func (b *Books) setPhases(p *Period) {
	p.Closed = slices.Clone(p.Closed)
	var most, least map[metering.MeterID]seriesTotals
	if p.pending() {
		most, least = b.billedOf(*p), b.atLeast().billedOf(*p)
	}
	undecided := make([]*ClosedLine, len(p.Closed))
	for n := range p.Closed {
		l := &p.Closed[n]
		l.phase, l.billedTotals = "", l.nearestTotals(most, least)
		undecided[n] = l
	}
	facts := phaseFacts{b, *p}
	for _, r := range phases {
		if len(undecided) == 0 || r.appliesToPeriod != nil && !r.appliesToPeriod(facts) {
			continue
		}
		undecided = slices.DeleteFunc(undecided, func(l *ClosedLine) bool {
			applies := r.appliesToLine == nil || r.appliesToLine(facts, l)
			if applies {
				l.phase = r.phase
			}
			return applies
		})
	}
}

// isOpen reports whether the provider bills the line, and its final invoices were not compared with the line.
func (s phase) isOpen() bool {
	return s != phaseNotBilled && s != phaseOtherMode && s != phaseCompared
}

// isReportable reports whether the provider lacks a part of the line, and accepts it now.
func (f phaseFacts) isReportable(l *ClosedLine) bool {
	i := slices.IndexFunc(f.Meters, func(m metering.Meter) bool { return m.ID == l.MeterID })
	m := (&planner{Books: f.Books}).positionOf(f.period, f.Meters[i], l.Currency)
	route, _ := m.routeBy(rulesOnceRead)
	return route == direct && !m.isReported()
}

// isCarried reports whether later periods bill a part of the rest of the line, and not only its late usage. The rest is
// then no longer reported with its own period, even if this becomes possible again. An example is a customer that
// returns to a previous subscription with a last invoice that is not final.
func (f phaseFacts) isCarried(l *ClosedLine) bool {
	carried := f.billed(f.period, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID })[l.MeterID]
	if carried.quantity.IsZero() && carried.amounts[l.Currency].IsZero() {
		return false
	}
	var units, amount metering.Decimal
	if booked, known := f.bookedOf(l.MeterID, f.period.Start); known {
		units, amount = booked.Units.Sub(l.ownUnits()).Sub(booked.OnlyReported), booked.Charge.Sub(l.Charge).Sub(booked.OnlyReportedCharge)
	}
	billed := *l
	billed.phase = phaseCarried // billedUnits returns the units that are billed so far
	return isBeyond(carried.quantity, units, l.ownUnits().Sub(billed.billedUnits())) ||
		isBeyond(carried.amounts[l.Currency], amount, l.Charge.Sub(billed.billedCharge()))
}

// isBeyond reports whether later periods bill a part of lacking, the unbilled part of a closed line. carried is the
// total reported with later periods, and late is the booked late usage to bill. For a positive lacking, carried must
// exceed both late and 0. For a negative lacking, all three are compared with reversed signs. The total that later
// periods report in the end, late + lacking, must meet the same condition. A true result therefore stays true while
// further reports bring carried to that total.
func isBeyond(carried, late, lacking metering.Decimal) bool {
	if lacking.IsNegative() {
		carried, late, lacking = negative(carried), negative(late), negative(lacking)
	}
	return smaller(carried, late.Add(lacking)).Cmp(notNegative(late)) > 0
}

// awaitsInvoice reports whether an invoice that bills the period is not final yet. It is the period's standalone
// invoice, if that has or needs a charge of the period, or the last invoice of the customer's current subscription for
// the period.
func (b *Books) awaitsInvoice(p Period) bool {
	switch {
	case !b.Connection.Invoices || p.Subscription.Invoiced:
		return false
	case p.IsStandalone():
		return b.isCharged(p)
	}
	return b.subscribed() && p.Subscription.ID == b.Side.Subscription
}

// hasFullStatement reports whether the receiver has accepted a statement with the totals of all closed lines that
// belong in it (see phase.isOpen). A statement is ignored if a restore may have lost a later one that arrived.
func (b *Books) hasFullStatement(p Period) bool {
	return slices.ContainsFunc(b.Statements, func(s Sent) bool {
		return s.Period.Equal(p.Start) && s.State.Taken() && b.isLastSent(s, p) && !containsAny(p.Closed, func(l *ClosedLine) bool {
			return l.phase.isOpen() && !slices.ContainsFunc(s.Lines, l.isStatedIn)
		})
	})
}

// isStatedIn reports whether a line of a statement has the totals of the closed line.
func (l *ClosedLine) isStatedIn(line Line) bool {
	return line.about(Line{MeterID: l.MeterID}) && line.Events == l.Events && line.PriceVersion == l.PriceVersion && line.Currency == l.Currency &&
		line.Usage.Equal(l.Usage) && line.Charge.Equal(l.Charge)
}
