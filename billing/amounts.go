package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// linesAtMost is the maximum number of Odometer's lines on one invoice. Providers accept a few hundred lines, and other
// sources add lines too.
const linesAtMost = 200

// billsAt returns the form of usage on the invoices of a period that begins at start: quantities (default) or amounts.
func (c Connection) billsAt(start time.Time) metering.Bills {
	bills := c.Bills
	if start.Before(c.BillsSince) {
		bills = c.BillsBefore
	}
	if bills == "" {
		return metering.BillsQuantities
	}
	return bills
}

// setBills records whether an open period is billed in quantities or in amounts, if the provider creates invoices. A
// recorded value stays, even if the tenant changes the setting.
func (p *Period) setBills(c *Connection) {
	if p.ClosedAt == nil && p.Bills == "" && c != nil && c.Invoices {
		p.Bills = c.billsAt(p.Start)
	}
}

// lacksCharges reports whether the destinations of amounts are needed and were not read. They are needed while a period
// that is billed in amounts can still be reported.
func (p *planner) lacksCharges() bool {
	return p.Side.Charges == nil && slices.ContainsFunc(p.periods, func(period Period) bool {
		return period.Bills == metering.BillsAmounts && !p.isOver(period.Start)
	})
}

// money returns the amount that counts as billed by a series of charges: for a line on a final invoice, the amount that
// Odometer last set; otherwise the highest amount in reports that the provider may have accepted. If a user edits the
// line, the difference is neither charged again nor credited automatically.
func (r *Reported) money() metering.Decimal {
	switch {
	case r.Line != nil:
		return r.Line.Set
	case r.Counting == Adds:
		return r.billed().Added
	}
	return r.billed().Amount
}

// pendingLines returns the number of lines that accepted and outstanding reports set on the period's invoice. Lines on
// final invoices are not included.
func (p *planner) pendingLines(period Period) (n int) {
	for i := range p.Facts.Reported {
		r := &p.Facts.Reported[i]
		late := r.Late && r.Window.Start.Equal(period.Start)
		if r.Kind == ChargeReport && r.Counting == Replaces && p.here(r.Series) && r.Standing.Any && r.Line == nil && (late || !r.Late && r.about(period)) {
			n++
		}
	}
	return n
}

// target returns the target of the position's invoice line: ownInvoice if the period has a standalone invoice, else the
// customer's subscription.
func (m *position) target() string {
	if m.period.IsStandalone() {
		return m.ownInvoice()
	}
	return m.Side.Subscription
}

// setLine plans the report that sets the position's invoice line to its current amount, if such a report is needed.
func (m *position) setLine() {
	l, own := m.line(), m.invoiceLine()
	if !m.shouldReport(own, !l.Amount.Equal(own.Taken.Amount) || m.mayLackReports(own)) {
		return
	}
	if !own.Standing.Any {
		m.lines++
	}
	m.plan.Reports = append(m.plan.Reports, Report{
		Series: Series{
			Kind: ChargeReport, Connection: m.Connection.ID, Customer: m.Side.Customer, Target: m.target(), Method: m.destination.Method,
			Counting: Replaces, Period: m.period.Start, Window: m.part,
		},
		Destination: m.destination, Lines: []Line{l}, Quantity: l.Amount, Currency: l.Currency, Of: m.period.Range,
		Deadline: m.period.Deadline(m.Settings.Grace),
	})
}

// outcomeOnInvoice sets and returns the outcome of the series' last report, as a line on a final invoice shows it. s is
// the report's state. The first case that applies decides:
//   - Rejected: the report was never sent, or the line is set to the amount of the last accepted report.
//   - Accepted: the line is set to the amount of the last report.
//   - "": the line shows neither amount.
func (r *Reported) outcomeOnInvoice(s State) State {
	switch {
	case s == Planned, r.Taken.Any && r.Line.Set.Equal(r.Taken.Amount):
		r.Outstanding, r.State, r.Standing = false, Rejected, r.Taken
		return Rejected
	case r.Line.Set.Equal(r.Standing.Amount):
		r.Outstanding, r.State, r.Taken = false, Accepted, r.Standing
		return Accepted
	}
	return ""
}

// reconciledAmount compares a closed line that is billed in amounts with the final invoices. Amounts that differ by at
// most half a minor unit are treated as equal. known is false in these cases:
//   - The provider's totals were not read since the last restore.
//   - A series of the line is on no final invoice, and may still get on one.
//   - The period's last invoice is not final, and may still bill the line.
//   - The connection uses statements, and no final invoice bills the period. The facts then lack the statements of the
//     period.
//   - No charge was reported, and the line's charge is 0.
func (b *Books) reconciledAmount(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	r = Reconciliation{Period: p.Start, MeterID: l.MeterID, Units: l.Charge}
	if b.Unread {
		return r, false // a report that the ledger lacks may have set a line
	}
	var others seriesTotals
	var lines []*ChargeLine
	charged := !l.Charge.IsZero()
	for s := range b.ownOf(p, l.MeterID) {
		if s.Line != nil {
			lines, charged = append(lines, s.Line), true
			continue
		}
		if b.awaitsLine(s) {
			return r, false
		}
		charged = charged || s.Standing.Any
		others.add(s, b.priceIn(l.MeterID, p))
	}
	r.Elsewhere = l.totalsIn(map[metering.MeterID]seriesTotals{l.MeterID: others}).amount
	r.compareAmounts(lines, l.Currency)
	final := slices.ContainsFunc(invoices, p.isBilledIn) || len(lines) > 0 && p.Subscription.Invoiced
	return r, charged && (final || b.lacksInvoice(p))
}

// lacksInvoice reports whether a closed standalone period has no final invoice yet. Receivers of statements get none.
func (b *Books) lacksInvoice(p Period) bool {
	return !b.Connection.Statements && p.IsStandalone() && p.pending() && !p.Subscription.Invoiced
}

// awaitsLine reports whether a series without a line on a final invoice may still get one.
func (b *Books) awaitsLine(s *Reported) bool {
	return b.awaitsOutcome(s) || s.Kind == ChargeReport && b.here(s.Series) && s.Taken.Any
}

// isBilledIn reports whether the final invoices belong to the period's subscription and bill a part of the period.
func (p Period) isBilledIn(i invoiced) bool {
	return i.Subscription == p.Subscription.ID && !i.Period.Intersect(p.Range).Empty()
}

// compareAmounts sets the figures and the state of a reconciliation from the lines of final invoices. Each line is
// treated as billed at the amount that Odometer set, even if a user edited the line or its invoice is void. Invoiced
// contains the amounts on the invoices, without void lines.
func (r *Reconciliation) compareAmounts(lines []*ChargeLine, currency string) {
	void, edited := false, false
	for _, line := range lines {
		r.Reported = r.Reported.Add(line.Set)
		if line.Void {
			void = true
			continue
		}
		r.Invoiced = r.Invoiced.Add(line.Amount)
		if !agree(line.Amount, line.Set, currency) {
			r.Unexplained, edited = r.Unexplained.Add(notNegative(line.Amount.Sub(line.Set))), true
		}
	}
	r.Reported = r.Reported.Add(r.Elsewhere)
	r.Billed = r.Reported
	if agree(r.Billed, r.Units, currency) {
		r.Billed = r.Units
	}
	r.State, r.Reason = r.judged(void)
	if edited && !void && r.Unexplained.IsZero() {
		r.State, r.Reason = ReconciliationWaived, ReasonLineEdited
	}
}

// agree reports whether two amounts differ by at most half a minor unit of the currency.
func agree(a, b metering.Decimal, currency string) bool {
	return RoundMoney(a.Sub(b), currency).IsZero()
}
