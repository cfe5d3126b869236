package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// billedTotals holds the units and the amount that are billed of a closed line. highest is the highest amount that may
// be billed while outcomes are unknown; only nearestTotals sets it.
type billedTotals struct{ units, amount, highest metering.Decimal }

// pending reports whether the period is closed and not complete.
func (p Period) pending() bool { return p.ClosedAt != nil && !p.Complete }

// billedOf returns, for each meter, the units and amounts that all connections in the current mode have billed with the
// period, without late usage. For statements of the current connection, these are the lines of the last accepted
// statement, if that is surely the receiver's last one. For other series, outstanding reports are included at the
// highest possible totals.
func (b *Books) billedOf(p Period) map[metering.MeterID]seriesTotals {
	isStatement := func(s Series) bool { return s.Kind == StatementReport && b.here(s) }
	all := b.billed(p, func(r *Reported) bool { return !r.Late && !isStatement(r.Series) })
	last := b.lastStatement(p, State.Taken)
	for _, l := range last.Lines {
		if l.Component() == UsageComponent && b.isLastSent(last, p) {
			e, accepted := all[l.MeterID], Sums{Any: true, Value: l.Quantity, Amount: l.Amount, Currency: l.Currency}
			e.add(&Reported{Taken: accepted, Standing: accepted}, Price{})
			all[l.MeterID] = e
		}
	}
	return all
}

// totalsIn returns the units and the amount that are billed of the closed line. billed is a result of billedOf. The
// amount includes only amounts in the line's currency.
func (l *ClosedLine) totalsIn(billed map[metering.MeterID]seriesTotals) billedTotals {
	c := closedCalculation(metering.Meter{ID: l.MeterID}, l)
	c.others = billed[l.MeterID]
	totals := billedTotals{units: c.others.quantity}
	for _, p := range c.money() {
		totals.amount = totals.amount.Add(p.amount)
	}
	return totals
}

// nearestTotals returns the billed units and amount of the closed line. While outcomes are unknown, the billed total
// lies between the lowest and the highest possible total. nearestTotals then returns the value in that range that is
// nearest to the line's total. Thus no unknown outcome leads to a charge or a credit.
func (l *ClosedLine) nearestTotals(most, least map[metering.MeterID]seriesTotals) billedTotals {
	lowest, highest := l.totalsIn(least), l.totalsIn(most)
	return billedTotals{
		units: clamp(lowest.units, l.ownUnits(), highest.units), amount: clamp(lowest.amount, l.Charge, highest.amount), highest: highest.amount,
	}
}

// clamp returns d, limited to the range from least to most.
func clamp(least, d, most metering.Decimal) metering.Decimal {
	return smaller(larger(least, d), most)
}

// atLeast returns the books with the lowest totals that the providers may have. An outstanding report is included only
// if it decreases a total.
func (b *Books) atLeast() *Books {
	if !containsAny(b.Reported, func(r *Reported) bool { return r.Outstanding }) {
		return b
	}
	least := *b
	least.Reported = slices.Clone(b.Reported)
	for i := range least.Reported {
		if r := &least.Reported[i]; r.Outstanding {
			r.Taken = r.least()
			r.Standing = r.Taken
		}
	}
	return &least
}

// lastLines returns the lines of the next statement of a closed period. The next statement replaces the last accepted
// one. It therefore repeats the accepted adjustments, and the accepted lines of meters with nothing to report. lastLines
// returns no lines if the period is fully billed, or if an accepted statement already contains all lines.
func (p *planner) lastLines(period Period) (lines, late []Line) {
	isReported := func(l *ClosedLine) bool { return l.phase == phaseReported }
	if !containsAny(period.Closed, isReported) || !p.lacks(period) {
		return nil, nil
	}
	accepted := p.lastStatement(period, State.Taken).Lines
	others := p.billed(period, func(r *Reported) bool { return !r.Late && !p.here(r.Series) })
	for _, m := range p.Meters {
		l := period.line(m.ID)
		if l == nil || !isReported(l) {
			if i := slices.IndexFunc(accepted, Line{MeterID: m.ID}.about); i >= 0 {
				lines = append(lines, accepted[i])
			}
			continue
		}
		c := closedCalculation(m, l)
		c.closed, c.others = nil, others[m.ID]
		p.addCarried(&c, period, l)
		lines = append(lines, c.statementLine())
	}
	late = slices.Clone(accepted)
	return lines, slices.DeleteFunc(late, func(l Line) bool { return l.Component() != AdjustmentComponent })
}

// addCarried adds to c.others the part of a closed line that other connections have billed with later periods. It first
// deducts the late usage, which later periods bill too.
func (p *planner) addCarried(c *calculation, period Period, l *ClosedLine) {
	carried := p.billed(period, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID && !p.here(r.Series) })[l.MeterID]
	late := p.lateCalculation(period, c.meter, l)
	p.excludeOnlyReported(&late)
	units := excessOver(carried.quantity, late.units().Sub(l.ownUnits()).Sub(late.late.onlyReported))
	amount := excessOver(carried.amounts[l.Currency], late.charge().Sub(l.Charge).Sub(late.late.onlyReportedCharge))
	if units.IsZero() && amount.IsZero() {
		return
	}
	c.others.quantity = c.others.quantity.Add(units)
	c.others.parts = append(slices.Clone(c.others.parts), seriesPart{series: carried.parts[0].series, quantity: units, amount: amount, currency: l.Currency})
}

// excessOver returns the part of the billed amount that exceeds the late amount. If both are credits, the excess is a
// credit. A late amount with the opposite sign is not billed yet, so it counts as 0.
func excessOver(billed, late metering.Decimal) metering.Decimal {
	zero := metering.Decimal{}
	if billed.IsNegative() {
		return zero.Sub(excessOver(zero.Sub(billed), zero.Sub(late)))
	}
	return notNegative(billed.Sub(notNegative(late)))
}

// isComplete reports whether nothing remains to be reported, resolved or invoiced of a closed period. If there is no
// connection, the customer was not read yet, or an invoice that bills the period is not final, every line that a
// provider bills must have been compared with final invoices.
func (b *Books) isComplete(p Period) bool {
	isOtherMode := func(l *ClosedLine) bool { return l.phase == phaseOtherMode }
	switch {
	case b.isToInvoice(p), containsAny(p.Closed, isOtherMode):
		return false
	case b.Connection == nil, !b.Connection.Statements && (b.Side == nil || b.awaitsInvoice(p)):
		return !containsAny(p.Closed, func(l *ClosedLine) bool { return l.phase.isOpen() })
	}
	return !b.lacks(p) && !b.hasOpenReport(p)
}

// lacks reports whether the provider may lack a part of the closed period. A period without charges needs a statement
// too. The highest possible billed total of each open line is compared with the total of the line:
//   - For a line that is billed in amounts, lacks compares the amounts, unless the connection uses statements.
//   - For a line with a Scale, it compares the units, because they determine the charge.
//   - For all other lines, it compares both.
func (b *Books) lacks(p Period) bool {
	billed := b.billedOf(p)
	unknown := b.Connection.Statements && (len(billed) == 0 || !b.knowsLastSent(p))
	return containsAny(p.Closed, func(l *ClosedLine) bool {
		totals := l.totalsIn(billed)
		units, amount := !totals.units.Equal(l.ownUnits()), !totals.amount.Equal(l.Charge)
		switch {
		case !l.phase.isOpen():
			return false
		case l.inAmounts() && !b.Connection.Statements:
			return amount
		}
		return unknown || units || amount && l.Scale == nil
	})
}

// hasOpenReport reports whether a report of the period has an unknown outcome, or was accepted and not counted by a
// provider without invoices.
func (b *Books) hasOpenReport(p Period) bool {
	statement := slices.ContainsFunc(b.Open, func(o Open) bool {
		return o.Kind == StatementReport && o.Period.Equal(p.Start) && b.connectedTo(o.Connection)
	})
	return statement || containsAny(b.Reported, func(r *Reported) bool {
		uncounted := r.Kind == QuantityReport && r.State == Accepted && b.here(r.Series) && !b.Connection.Invoices
		return r.about(p) && !r.Late && (r.undecided() || uncounted)
	})
}

// complete returns the closed periods that have become complete and are not stored as complete yet.
func (b *Books) complete() (all []Period) {
	for _, p := range b.Stored {
		if p.pending() && b.isComplete(p) {
			all = append(all, p)
		}
	}
	return all
}
