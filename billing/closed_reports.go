package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// The close of a period does not wait for its reports. After the close, Odometer continues to report the closed lines
// with that period. Statements are sent until the receiver has accepted one with all lines. Quantities and amounts are
// reported until the invoice that bills them is final. Later periods bill or credit a difference that remains.

// billedTotals holds the units and the amount that are billed of a closed line.
type billedTotals struct{ units, amount metering.Decimal }

// pending reports whether the period is closed and not complete.
func (p Period) pending() bool { return p.ClosedAt != nil && !p.Complete }

// setBilledTotals stores the billed total in each closed line that meets these conditions, and clears it in all other
// lines:
//   - The period is not complete, and nothing more of the line is reported with it.
//   - A provider bills the line, and no final invoices were compared with it.
//   - The billed total differs from the line's total.
func (b *Books) setBilledTotals(p *Period) {
	if p.ClosedAt == nil {
		return
	}
	for n := range p.Closed {
		p.Closed[n].billedTotals = nil
	}
	if p.Complete {
		return
	}
	billed, least := b.billedOf(*p), b.atLeast().billedOf(*p)
	for n := range p.Closed {
		l := &p.Closed[n]
		totals := l.nearestTotals(billed, least)
		if b.isUnreconciled(l) && !b.reportedOn(*p, l) && !b.isFullyBilled(l, totals) {
			l.billedTotals = &totals
		}
	}
}

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
	return billedTotals{units: clamp(lowest.units, l.ownUnits(), highest.units), amount: clamp(lowest.amount, l.Charge, highest.amount)}
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

// isFullyBilled reports whether the billed total equals the total of the closed line:
//   - For a line that is billed in amounts, it compares the amounts, unless the connection uses statements.
//   - For a line with a Scale, it compares the units, because they determine the charge.
//   - For all other lines, it compares both.
func (f *Facts) isFullyBilled(l *ClosedLine, billed billedTotals) bool {
	if l.inAmounts() && (f.Connection == nil || !f.Connection.Statements) {
		return billed.amount.Equal(l.Charge)
	}
	return billed.units.Equal(l.ownUnits()) && (l.Scale != nil || billed.amount.Equal(l.Charge))
}

// reportedOn reports whether the unbilled part of a closed line is still reported with the line's own period. Callers
// pass only lines that a provider bills.
func (b *Books) reportedOn(p Period, l *ClosedLine) bool {
	switch {
	case !p.pending() || l.Reconciled != nil || b.Connection == nil:
		return false
	case b.Connection.Statements:
		return !b.hasFullStatement(p)
	case b.isCarried(p, l):
		return false
	case b.Side == nil:
		return true // the customer's state at the provider is unknown
	case b.Connection.Invoices:
		return b.awaitsInvoice(p)
	}
	i := slices.IndexFunc(b.Meters, func(m metering.Meter) bool { return m.ID == l.MeterID })
	m := (&planner{Books: b}).positionOf(p, b.Meters[i], l.Currency)
	route, _ := m.routeBy(rulesOnceRead)
	return route == direct && !m.isReported()
}

// isCarried reports whether later periods bill the unbilled part of a closed line, and not only its late usage. That
// part is then no longer reported with its own period, even if this becomes possible again. An example is a customer
// that returns to a previous subscription with a last invoice that is not final.
func (b *Books) isCarried(p Period, l *ClosedLine) bool {
	carried := b.billed(p, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID })[l.MeterID]
	if carried.quantity.IsZero() && carried.amounts[l.Currency].IsZero() {
		return false
	}
	var units, amount metering.Decimal
	if booked, known := b.bookedOf(l.MeterID, p.Start); known {
		units, amount = booked.Units.Sub(l.ownUnits()).Sub(booked.OnlyReported), booked.Charge.Sub(l.Charge).Sub(booked.OnlyReportedCharge)
	}
	totals, billed := l.nearestTotals(b.billedOf(p), b.atLeast().billedOf(p)), *l
	billed.billedTotals = &totals
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
	if p.IsStandalone() {
		return b.Connection.Invoices && !p.Subscription.Invoiced && b.isCharged(p)
	}
	return b.Connection.Invoices && b.subscribed() && p.Subscription.ID == b.Side.Subscription && !p.Subscription.Invoiced
}

// hasFullStatement reports whether the receiver has accepted a statement with the totals of all closed lines that
// belong in it (see isUnreconciled). A statement is ignored if a restore may have lost a later one that arrived.
func (b *Books) hasFullStatement(p Period) bool {
	return slices.ContainsFunc(b.Statements, func(s Sent) bool {
		return s.Period.Equal(p.Start) && s.State.Taken() && b.isLastSent(s, p) && !containsAny(p.Closed, func(l *ClosedLine) bool {
			return b.isUnreconciled(l) && !slices.ContainsFunc(s.Lines, l.isStatedIn)
		})
	})
}

// isUnreconciled reports whether a provider bills the closed line in the current mode, and no final invoices were
// compared with it. Such a line belongs in the period's last statement.
func (b *Books) isUnreconciled(l *ClosedLine) bool { return b.bills(l) && l.Reconciled == nil }

// isStatedIn reports whether a line of a statement has the totals of the closed line.
func (l *ClosedLine) isStatedIn(line Line) bool {
	return line.about(Line{MeterID: l.MeterID}) && line.Events == l.Events && line.PriceVersion == l.PriceVersion && line.Currency == l.Currency &&
		line.Usage.Equal(l.Usage) && line.Charge.Equal(l.Charge)
}

// lastLines returns the lines of the next statement of a closed period. late holds the adjustments of the last accepted
// statement, because the next statement replaces that one. lastLines returns no lines if the period is fully billed, or
// if an accepted statement already contains all lines.
func (p *planner) lastLines(period Period) (lines, late []Line) {
	if !period.pending() || p.hasFullStatement(period) {
		return nil, nil
	}
	billed, others := p.billedOf(period), p.billed(period, func(r *Reported) bool { return !r.Late && !p.here(r.Series) })
	lacking := len(billed) == 0 || !p.knowsLastSent(period)
	for _, m := range p.Meters {
		l := period.line(m.ID)
		if l == nil || !p.isUnreconciled(l) {
			continue
		}
		lacking = lacking || !p.isFullyBilled(l, l.totalsIn(billed))
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

// addCarried adds to c.others the part of a closed line that other connections have billed with later periods. It first
// deducts the late usage, which later periods bill too.
func (p *planner) addCarried(c *calculation, period Period, l *ClosedLine) {
	carried := p.billed(period, func(r *Reported) bool { return r.Late && r.MeterID == l.MeterID && !p.here(r.Series) })[l.MeterID]
	late := p.lateCalculation(period, c.meter, l)
	p.excludeOnlyReported(&late)
	units := late.units().Sub(l.ownUnits()).Sub(late.late.onlyReported)
	amount := late.charge().Sub(l.Charge).Sub(late.late.onlyReportedCharge)
	units, amount = notNegative(carried.quantity.Sub(notNegative(units))), notNegative(carried.amounts[l.Currency].Sub(notNegative(amount)))
	if units.IsZero() && amount.IsZero() {
		return
	}
	c.others.quantity = c.others.quantity.Add(units)
	c.others.parts = append(slices.Clone(c.others.parts), seriesPart{series: carried.parts[0].series, quantity: units, amount: amount, currency: l.Currency})
}

// isComplete reports whether nothing remains to be reported, resolved or invoiced of a closed period. In these cases,
// it returns true once every line that a provider bills was compared with final invoices:
//   - The tenant has no connection.
//   - The connection uses no statements, and the customer's state at the provider was not read yet.
//   - The connection uses no statements, and the invoice of the subscription for the period is not final.
func (b *Books) isComplete(p Period) bool {
	own := b.mayInvoice(p)
	switch {
	case own && b.isToInvoice(p):
		return false
	case b.Connection == nil, !b.Connection.Statements && (b.Side == nil || !own && b.awaitsInvoice(p)):
		return !containsAny(p.Closed, (*ClosedLine).isOpen)
	}
	billed := b.billedOf(p)
	if b.lacksStatement(p, billed) || b.hasOpenReport(p) {
		return false
	}
	return !containsAny(p.Closed, func(l *ClosedLine) bool {
		return l.isOpen() && !(b.bills(l) && b.isFullyBilled(l, l.totalsIn(billed)))
	})
}

// mayInvoice reports whether the connection may still create the period's standalone invoice.
func (b *Books) mayInvoice(p Period) bool {
	return p.IsStandalone() && b.Connection != nil && b.Connection.Invoices && b.Side != nil && !p.Subscription.Invoiced
}

// isOpen reports whether a provider bills the line and no final invoices were compared with it.
func (l *ClosedLine) isOpen() bool { return l.Billed && l.Reconciled == nil }

// lacksStatement reports whether the receiver of statements may lack the statement of the closed period. A period
// without charges needs a statement too. billed is the result of billedOf.
func (b *Books) lacksStatement(p Period, billed map[metering.MeterID]seriesTotals) bool {
	return b.Connection.Statements && (len(billed) == 0 || !b.knowsLastSent(p)) && containsAny(p.Closed, b.isUnreconciled)
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
