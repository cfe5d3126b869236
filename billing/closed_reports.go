package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// A period closes by the clock, whatever was reported of it by then. What it
// closed at is reported on as its own: in a statement until one that says all
// was taken, in quantities until the invoice that bills them is final. Where
// that comes to an end, and something is lacking, it is carried.

// billedSoFar is what is billed of a closed line of which nothing more is reported.
type billedSoFar struct{ units, amount metering.Decimal }

// pending says whether the period is closed and not complete.
func (p Period) pending() bool { return p.ClosedAt != nil && !p.Complete }

// account notes in the lines of a closed period what is billed of them, if they
// are not reported on and that is something else than what they came to.
func (b *Books) account(p *Period) {
	if p.ClosedAt == nil {
		return
	}
	for n := range p.Closed {
		p.Closed[n].so = nil
	}
	if p.Complete {
		return
	}
	billed, least := b.billedOf(*p), b.atLeast().billedOf(*p)
	for n := range p.Closed {
		l := &p.Closed[n]
		so := l.soFar(billed, least)
		if l.Reconciled == nil && b.bills(l) && !b.reportedOn(*p, l) && !b.isAll(l, so) {
			l.so = &so
		}
	}
}

// billedOf is what everybody has billed of the period: the present receiver with
// the last statement that it has taken, others at the most.
func (b *Books) billedOf(p Period) map[metering.MeterID]elsewhere {
	stated := func(s Series) bool { return s.Kind == StatementReport && b.here(s) }
	all := b.billed(p, func(r *Reported) bool { return !r.Late && !stated(r.Series) })
	last := b.lastStatement(p, State.Taken)
	for _, l := range last.Lines {
		if l.Component() == UsageComponent && b.stands(last, p) {
			e, taken := all[l.MeterID], Sums{Any: true, Value: l.Quantity, Amount: l.Amount, Currency: l.Currency}
			e.add(&Reported{Taken: taken, Standing: taken}, Price{})
			all[l.MeterID] = e
		}
	}
	return all
}

func (l *ClosedLine) billedIn(billed map[metering.MeterID]elsewhere) billedSoFar {
	c := closedCalculation(metering.Meter{ID: l.MeterID}, l)
	c.others = billed[l.MeterID]
	so := billedSoFar{units: c.others.quantity}
	for _, p := range c.money() {
		so.amount = so.amount.Add(p.amount)
	}
	return so
}

// soFar is what comes nearest to the closed line of all that may be billed of it,
// from the least to the most: as long as nobody knows what came of a report, nothing
// is charged, or given back, because of it.
func (l *ClosedLine) soFar(most, least map[metering.MeterID]elsewhere) billedSoFar {
	from, to := l.billedIn(least), l.billedIn(most)
	return billedSoFar{units: between(from.units, l.ownUnits(), to.units), amount: between(from.amount, l.Charge, to.amount)}
}

// between is d, or the end of the range that it lies beyond.
func between(least, d, most metering.Decimal) metering.Decimal {
	return smaller(larger(least, d), most)
}

// atLeast are the facts were nothing of what may have arrived there, but what
// takes something back.
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

// isAll says whether it is what the line came to. What units cost is known; of
// what is billed in amounts nothing else matters, but to who is sent statements.
func (f *Facts) isAll(l *ClosedLine, so billedSoFar) bool {
	if l.inAmounts() && (f.Connection == nil || !f.Connection.Statements) {
		return so.amount.Equal(l.Charge)
	}
	return so.units.Equal(l.ownUnits()) && (l.Scale != nil || so.amount.Equal(l.Charge))
}

// reportedOn says whether what the closed line lacks is still reported as its own.
// It is asked of lines that are billed.
func (b *Books) reportedOn(p Period, l *ClosedLine) bool {
	switch {
	case !p.pending() || l.Reconciled != nil || b.Connection == nil:
		return false
	case b.Connection.Statements:
		return !b.saidAll(p)
	case b.isCarried(p, l):
		return false
	case b.Side == nil:
		return true // that is not known
	case b.Connection.Invoices:
		return b.awaitsInvoice(p)
	}
	i := slices.IndexFunc(b.Meters, func(m metering.Meter) bool { return m.ID == l.MeterID })
	m := (&planner{Books: b}).positionOf(p, b.Meters[i], l.Currency)
	route, _ := m.routeBy(rulesOnceRead)
	return route == direct && !m.isReported()
}

// isCarried says whether later periods carry something else of a closed line than
// what came late: what the period itself lacks. Then that is not reported as its own
// any more, although it could be again, as where the customer has the former
// subscription once more whose last invoice is not final.
func (b *Books) isCarried(p Period, l *ClosedLine) bool {
	carried := b.billed(p, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID })[l.MeterID]
	if carried.quantity.IsZero() && carried.amounts[l.Currency].IsZero() {
		return false
	}
	var units, amount metering.Decimal
	if booked, known := b.bookedOf(l.MeterID, p.Start); known {
		units, amount = booked.Units.Sub(l.ownUnits()).Sub(booked.OnlyReported), booked.Charge.Sub(l.Charge).Sub(booked.OnlyReportedCharge)
	}
	so, known := l.soFar(b.billedOf(p), b.atLeast().billedOf(p)), *l
	known.so = &so
	return isBeyond(carried.quantity, units, l.ownUnits().Sub(known.billedUnits())) ||
		isBeyond(carried.amounts[l.Currency], amount, l.Charge.Sub(known.billedCharge()))
}

// isBeyond says whether what is carried goes beyond what came late, as what is
// lacking does, and will also once that is carried with all that came late: so
// nothing that is reported of either changes the answer.
func isBeyond(carried, late, lacking metering.Decimal) bool {
	if lacking.IsNegative() {
		carried, late, lacking = negative(carried), negative(late), negative(lacking)
	}
	return smaller(carried, late.Add(lacking)).Cmp(notNegative(late)) > 0
}

// awaitsInvoice says whether the period is one of the present subscription's
// whose last invoice is not final, or one that its own invoice is to bill.
func (b *Books) awaitsInvoice(p Period) bool {
	if p.Own() {
		return b.Connection.Invoices && !p.Subscription.Invoiced && b.isCharged(p)
	}
	return b.Connection.Invoices && b.subscribed() && p.Subscription.ID == b.Side.Subscription && !p.Subscription.Invoiced
}

// saidAll says whether a statement was taken of all that the period came to.
func (b *Books) saidAll(p Period) bool {
	return slices.ContainsFunc(b.Statements, func(s Sent) bool {
		return s.Period.Equal(p.Start) && s.State.Taken() && b.stands(s, p) && !containsAny(p.Closed, func(l *ClosedLine) bool {
			return b.stated(l) && !slices.ContainsFunc(s.Lines, l.isSaidBy)
		})
	})
}

// stated says whether the closed line stands in the period's last statement.
func (b *Books) stated(l *ClosedLine) bool { return b.bills(l) && l.Reconciled == nil }

func (l *ClosedLine) isSaidBy(said Line) bool {
	return said.about(Line{MeterID: l.MeterID}) && said.Events == l.Events && said.PriceVersion == l.PriceVersion && said.Currency == l.Currency &&
		said.Usage.Equal(l.Usage) && said.Charge.Equal(l.Charge)
}

// lastLines returns the lines of the last statement of a closed period, and the adjustments that the receiver has
// accepted with the period's last statement. It returns none if all of the period is billed, or was stated already.
func (p *planner) lastLines(period Period) (lines, late []Line) {
	if !period.pending() || p.saidAll(period) {
		return nil, nil
	}
	billed, others := p.billedOf(period), p.billed(period, func(r *Reported) bool { return !r.Late && !p.here(r.Series) })
	lacking := len(billed) == 0 || !p.lastStands(period)
	for _, m := range p.Meters {
		l := period.line(m.ID)
		if l == nil || !p.stated(l) {
			continue
		}
		lacking = lacking || !p.isAll(l, l.billedIn(billed))
		c := closedCalculation(m, l)
		c.closed, c.others = nil, others[m.ID]
		p.addCarried(&c, period, l)
		lines = append(lines, c.statementLine())
	}
	if !lacking || len(lines) == 0 {
		return nil, nil
	}
	return lines, adjustmentsIn(p.lastStatement(period, State.Taken).Lines)
}

// adjustmentsIn returns the lines that adjust other periods.
func adjustmentsIn(lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Component() != AdjustmentComponent })
}

// addCarried adds to what others have billed of a closed line what they were
// reported of it with a later period, beyond what came late.
func (p *planner) addCarried(c *calculation, period Period, l *ClosedLine) {
	carried := p.billed(period, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID && !p.here(r.Series) })[l.MeterID]
	late := p.lateCalculation(period, c.meter, l)
	p.leaveOnlyReported(&late)
	units := late.units().Sub(l.ownUnits()).Sub(late.late.onlyReported)
	amount := late.charge().Sub(l.Charge).Sub(late.late.onlyReportedCharge)
	units, amount = notNegative(carried.quantity.Sub(notNegative(units))), notNegative(carried.amounts[l.Currency].Sub(notNegative(amount)))
	if units.IsZero() && amount.IsZero() {
		return
	}
	c.others.quantity = c.others.quantity.Add(units)
	c.others.parts = append(slices.Clone(c.others.parts), elsewherePart{series: carried.parts[0].series, quantity: units, amount: amount, currency: l.Currency})
}

// isComplete reports whether a closed period needs nothing more: each line is settled, no report has an unknown outcome,
// and no invoice or statement is missing. While nobody knows what the provider has, only final invoices settle a line.
func (b *Books) isComplete(p Period) bool {
	own := b.mayInvoice(p)
	switch {
	case own && b.isToInvoice(p):
		return false
	case b.Connection == nil, !b.Connection.Statements && (b.Side == nil || !own && b.awaitsInvoice(p)):
		return !containsAny(p.Closed, (*ClosedLine).isOpen)
	case b.lacksStatement(p), b.hasOpenReport(p):
		return false
	}
	billed := b.billedOf(p)
	return !containsAny(p.Closed, func(l *ClosedLine) bool {
		return l.isOpen() && !(b.bills(l) && b.isAll(l, l.billedIn(billed)))
	})
}

// mayInvoice reports whether the connection may still create the period's own invoice.
func (b *Books) mayInvoice(p Period) bool {
	return p.Own() && b.Connection != nil && b.Connection.Invoices && b.Side != nil && !p.Subscription.Invoiced
}

// isOpen reports whether the line is billed and was not compared with final invoices.
func (l *ClosedLine) isOpen() bool { return l.Billed && l.Reconciled == nil }

// lacksStatement reports whether the receiver may not have a statement of the closed period. A period without charges
// is stated too.
func (b *Books) lacksStatement(p Period) bool {
	return b.Connection.Statements && (len(b.billedOf(p)) == 0 || !b.lastStands(p)) && containsAny(p.Closed, b.stated)
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

// complete are the closed periods that are complete by now.
func (b *Books) complete() (all []Period) {
	for _, p := range b.Stored {
		if p.pending() && b.isComplete(p) {
			all = append(all, p)
		}
	}
	return all
}
