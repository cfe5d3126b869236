package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// linesAtMost is how many lines of ours an invoice gets: providers take a few
// hundred, and others add their own.
const linesAtMost = 200

// Why what a meter comes to is not charged as an amount.
const (
	ExcludedOnInvoice  = "the meter's line is already on an invoice; usage that arrived after it is billed with the next period"
	ExcludedNoLine     = "the period is over, and its invoice has no line for the meter; the remaining usage is billed with the next period"
	ExcludedLines      = "the invoice has its maximum number of lines; the remaining amount is billed with the next period"
	ExcludedOtherPrice = "the currency of the meter's price differs from the customer's subscription; set a price in the subscription's currency for later periods"
)

// billsAt is in what a period that begins then is billed.
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

// bill notes in what the period is billed, unless that is decided: it stays so,
// whatever the tenant chooses meanwhile.
func (p *Period) bill(c *Connection) {
	if p.ClosedAt == nil && p.Bills == "" && c != nil && c.Invoices {
		p.Bills = c.billsAt(p.Start)
	}
}

// lacksCharges says whether a period that is reported is billed in amounts, and
// nobody has asked yet where they go.
func (p *planner) lacksCharges() bool {
	return p.Side.Charges == nil && slices.ContainsFunc(p.periods, func(period Period) bool {
		return period.Bills == metering.BillsAmounts && !p.isOver(period.Start)
	})
}

// money is what the far side bills of a series of charges: what a line on a final
// invoice was set to, else what it has at the most. What somebody has made of the
// line since is neither charged again nor given back by itself.
func (r *Reported) money() metering.Decimal {
	switch {
	case r.Line != nil:
		return r.Line.Set
	case r.Counting == Adds:
		return r.billed().Added
	}
	return r.billed().Amount
}

// pendingLines is how many lines the period's invoice gets as it stands.
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

// target is what the line goes onto the next invoice of.
func (m *position) target() string {
	if m.period.Own() {
		return OwnInvoice
	}
	return m.Side.Subscription
}

// setLine plans to set the line to the amount so far.
func (m *position) setLine() {
	l, own := m.line(), m.invoiceLine()
	if !m.next(own, !l.Amount.Equal(own.Taken.Amount) || m.forgotten(own)) {
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

// outcomeOnInvoice is what the line on a final invoice shows of the last report
// of its series: whether it was set by that, or by the one before. "": nothing.
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

// reconciledAmount compares a closed line that was charged as an amount with the final invoices. known is false while a
// line of the period is on no final invoice, or the period's last invoice is not final and another one may follow. It is
// also false if nothing was charged, and nothing is to be. Half a minor unit is no difference.
func (b *Books) reconciledAmount(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	r = Reconciliation{Period: p.Start, MeterID: l.MeterID, Units: l.Charge}
	if b.Unread {
		return r, false // a report that the ledger lacks may have set a line
	}
	var others elsewhere
	var lines []*ChargeLine
	charged := !l.Charge.IsZero()
	for s := range b.ownOf(p, l.MeterID) {
		if s.Line != nil {
			lines = append(lines, s.Line)
			continue
		}
		if b.awaitsLine(s) {
			return r, false
		}
		charged = charged || s.Standing.Any
		others.add(s, b.priceIn(l.MeterID, p))
	}
	r.Elsewhere = l.billedIn(map[metering.MeterID]elsewhere{l.MeterID: others}).amount
	r.compareAmounts(lines, l.Currency)
	final := slices.ContainsFunc(invoices, p.isBilledIn) || len(lines) > 0 && p.Subscription.Invoiced
	none := p.Own() && p.pending() && !p.Subscription.Invoiced // no line of it is on an own invoice
	return r, (charged || len(lines) > 0) && (final || none)
}

// awaitsLine reports whether a series of charges that is on no final invoice may still get on one.
func (b *Books) awaitsLine(s *Reported) bool {
	return b.isOnItsWay(s) || s.Kind == ChargeReport && b.here(s.Series) && s.Taken.Any
}

// isBilledIn reports whether the invoices are those of the period's subscription, and bill a part of the period.
func (p Period) isBilledIn(i invoiced) bool {
	return i.Subscription == p.Subscription.ID && !i.Period.Intersect(p.Range).Empty()
}

// compareAmounts completes a reconciliation with the lines of final invoices. A line that somebody lowered at the
// provider counts as billed at the amount that it was set to.
func (r *Reconciliation) compareAmounts(lines []*ChargeLine, currency string) {
	void, edited := false, false
	for _, line := range lines {
		r.Reported, r.Invoiced, void = r.Reported.Add(line.Set), r.Invoiced.Add(line.Amount), void || line.Void
		if !agree(line.Amount, line.Set, currency) {
			r.Unexplained, edited = r.Unexplained.Add(notNegative(line.Amount.Sub(line.Set))), true
		}
	}
	r.Reported = r.Reported.Add(r.Elsewhere)
	r.Billed = r.Reported
	if void {
		r.Invoiced = metering.Decimal{}
	}
	if agree(r.Billed, r.Units, currency) {
		r.Billed = r.Units
	}
	r.State, r.Reason = r.judged(void)
	if edited && !void && r.Unexplained.IsZero() {
		r.State, r.Reason = ReconciliationWaived, ReasonEdited
	}
}

// agree says whether two amounts differ by half a minor unit at the most.
func agree(a, b metering.Decimal, currency string) bool {
	return RoundMoney(a.Sub(b), currency).IsZero()
}
