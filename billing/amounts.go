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

// lateAmounts sets the lines of what late usage adds to the closed periods, one
// for each of them and meter. None is ever below zero: what would lower a final
// invoice stays booked.
func (p *planner) lateAmounts(at Series, target Period) {
	at.Counting = Replaces
	for l, s := range p.lateLines(at) {
		d := p.destinationIn(target, l.MeterID)
		changed := s.Line == nil && (!l.Amount.Equal(s.Taken.Amount) || p.forgotten(s))
		if reason := p.excludedAmount(d, l, s, at.Target, target); changed && reason != "" {
			p.exclude(Exclusion{l.MeterID, l.MeterSlug, reason})
			changed = false // it stays booked
		}
		if !p.next(s, changed) {
			continue
		}
		if !s.Standing.Any {
			p.lines++
		}
		at.Period, at.Method = l.Closed, d.Method
		p.plan.Reports = append(p.plan.Reports, Report{
			Series: at, Destination: d, Lines: []Line{l}, Quantity: l.Amount, Currency: l.Currency, Of: p.period(l.Closed).Range,
			Deadline: target.Deadline(p.Settings.Grace),
		})
	}
}

// excludedAmount says why a line of late usage is not set now, if it is not.
func (p *planner) excludedAmount(d Destination, l Line, s *Reported, target string, period Period) string {
	switch {
	case d.Excluded != "":
		return d.Excluded
	case !s.Standing.Any && p.lines >= linesAtMost:
		return ExcludedLines
	}
	return p.excludedIn(l.Currency, target, period)
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

// reconciledAmount is what the invoices bill of a closed period's meter that was
// charged as amounts; it is known once each of them is on a final invoice, and the
// last invoice of the period is final, or there will be none; not where nothing was
// charged, nor is to be.
// Half a minor unit is no difference.
func (b *Books) reconciledAmount(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	r = Reconciliation{Period: p.Start, MeterID: l.MeterID, Units: l.Charge}
	if b.Unread {
		return r, false // a line may be set by a report that is not known
	}
	var others elsewhere
	charged, lines, void, edited := !l.Charge.IsZero(), false, false, false
	for n := range b.Reported {
		s := &b.Reported[n]
		if s.Late || s.MeterID != l.MeterID || !s.about(p) || !b.counts(s.Connection) {
			continue
		}
		pending := s.Kind == ChargeReport && b.here(s.Series) && s.Taken.Any
		if s.Line == nil && (b.isOnItsWay(s) || pending) {
			return r, false
		}
		charged = charged || s.Line != nil || s.Standing.Any
		if s.Line == nil {
			others.add(s, b.priceIn(l.MeterID, p))
			continue
		}
		r.Reported, r.Invoiced = r.Reported.Add(s.Line.Set), r.Invoiced.Add(s.Line.Amount)
		lines, void = true, void || s.Line.Void
		if agree(s.Line.Amount, s.Line.Set, l.Currency) {
			continue
		}
		r.Unexplained = r.Unexplained.Add(notNegative(s.Line.Amount.Sub(s.Line.Set)))
		edited = true
	}
	r.Elsewhere = l.billedIn(map[metering.MeterID]elsewhere{l.MeterID: others}).amount
	r.Billed, r.Reported = r.Reported.Add(r.Elsewhere), r.Reported.Add(r.Elsewhere)
	if void {
		r.Invoiced = metering.Decimal{}
	}
	if agree(r.Billed, r.Units, l.Currency) {
		r.Billed = r.Units
	}
	r.State, r.Reason = r.judged(void)
	if edited && !void && r.Unexplained.IsZero() {
		r.State, r.Reason = ReconciliationWaived, ReasonEdited
	}
	touched := slices.ContainsFunc(invoices, func(i invoiced) bool {
		return i.Subscription == p.Subscription.ID && !i.Period.Intersect(p.Range).Empty()
	})
	none := p.Own() && p.pending() && !p.Subscription.Invoiced // nothing of it goes onto an invoice of ours
	return r, charged && (touched || lines && p.Subscription.Invoiced || none)
}

// agree says whether two amounts differ by half a minor unit at the most.
func agree(a, b metering.Decimal, currency string) bool {
	return RoundMoney(a.Sub(b), currency).IsZero()
}
