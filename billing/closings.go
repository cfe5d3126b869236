package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Closing is a period that is to close, and what it came to.
type Closing struct {
	Period Period
	Lines  []ClosedLine
}

// Working is how the line's charge was worked out when the period closed.
func (l ClosedLine) Working() []Step {
	c := closedCalculation(metering.Meter{ID: l.MeterID}, l)
	return c.steps()
}

// close plans which periods close: those whose end and grace are over, or whose
// invoice is final, oldest first, and only where the provider has taken exactly
// what they come to. A period that is due and cannot close holds up those
// after it.
func (p *planner) close() {
	if p.underWay() {
		p.plan.Waiting = true
		return
	}
	p.dry = true
	defer p.lookAtUnreported()
	for i, period := range p.periods {
		if period.ClosedAt != nil {
			continue
		}
		if p.Now.Before(period.Deadline(p.Settings.Grace)) && !period.Subscription.Invoiced {
			return
		}
		lines, complete := p.closed(period)
		if !complete {
			p.plan.Waiting = true
			return
		}
		p.plan.Closings = append(p.plan.Closings, Closing{period, lines})
		p.periods[i].ClosedAt, p.periods[i].Closed = &p.Now, lines
	}
}

// lookAtUnreported has the oldest period that stays open reported again, where
// one that closes leaves it something to adjust.
func (p *planner) lookAtUnreported() {
	unreported := p.refused || slices.ContainsFunc(p.plan.Closings, func(c Closing) bool { return slices.ContainsFunc(c.Lines, ClosedLine.unreported) })
	if open, found := openPeriod(p.periods); unreported && found {
		p.knows(open, Watermark{})
	}
}

// underWay says whether the outcome of a report has to be known before
// anything closes: of a statement to this connection, and of what may have
// arrived at a former one and counts.
func (p *planner) underWay() bool {
	p.leaveFormer()
	return slices.ContainsFunc(p.Open, func(o Open) bool {
		if p.connectedTo(o.Connection) {
			return o.Kind == StatementReport
		}
		return p.counts(o.Connection) && !slices.Contains(p.plan.Withdraw, o.ID)
	})
}

// closed is what the period closes at. complete says that every meter is
// counted, and the provider, if there is one, knows what the period comes to.
func (p *planner) closed(period Period) (lines []ClosedLine, complete bool) {
	all, excluded := p.calculations(period)
	if slices.ContainsFunc(excluded, func(e Exclusion) bool { return e.Reason == ExcludedBackfilling }) {
		return nil, false
	}
	for i := range all {
		c := &all[i]
		lines = append(lines, ClosedLine{
			MeterID: c.meter.ID, MeterVersion: c.version, Aggregation: c.meter.Version.Aggregation, Usage: c.usage, Events: c.events,
			PriceVersion: c.price.Version, Terms: c.price.Terms, Charge: c.charge(), Currency: c.currency,
			Billed: p.Connection != nil, Test: p.inTest(),
		})
	}
	switch {
	case p.Connection == nil:
		return lines, true
	case p.Connection.Statements:
		return lines, p.statementTaken(period, linesOf(all))
	}
	return lines, p.quantitiesCounted(period, lines)
}

// statementTaken says whether the last statement of the period was taken and
// says what it comes to.
func (p *planner) statementTaken(period Period, lines []Line) bool {
	latest := p.lastStatement(period, func(State) bool { return true })
	target := Series{Kind: StatementReport, Connection: p.Connection.ID, Window: period.Range}
	of := append(slices.Clone(lines), p.adjustments(p.periods, target, latest.Lines)...)
	return len(of) == 0 || latest.State.Taken() && sameLines(latest.Lines, of)
}

// quantitiesCounted says whether the provider was seen to have counted
// everything that it can be reported of the period, and notes in the lines what
// that was: for the rest it is never charged with the period.
func (p *planner) quantitiesCounted(period Period, lines []ClosedLine) bool {
	if p.Side == nil {
		return false // it has to be read again
	}
	p.open = false
	p.quantitiesOf(period)
	p.lateCharges(period)
	if p.open {
		return false
	}
	for i := range lines {
		l := &lines[i]
		reported, billed := p.reported[l.MeterID]
		if l.Billed = billed; !billed {
			continue
		}
		l.Reported, l.ReportedScale = &reported.quantity, reported.scale
		l.Charge = l.Terms.ChargeIn(l.Currency, l.ownUnits())
		if l.Trial = period.Subscription.Trial; l.Trial {
			l.Charge = metering.Decimal{}
		}
	}
	return true
}
