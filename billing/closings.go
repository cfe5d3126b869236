package billing

import (
	"math"
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
	c := closedCalculation(metering.Meter{ID: l.MeterID}, &l)
	return c.steps()
}

// close plans which periods close: those whose end and grace are over, oldest
// first. Nothing that a provider does, or says, changes that. A meter that is
// still counting its past is waited for, and so are the periods after it. Once
// the ledger was restored, what clients send again has the grace to come in time.
func (p *planner) close() {
	p.leaveFormer()
	if p.Now.Before(p.restoredAt().Add(p.Settings.Grace)) {
		p.plan.Waiting = true
		return
	}
	for i, period := range p.periods {
		if period.ClosedAt != nil {
			continue
		}
		if p.Now.Before(period.Deadline(p.Settings.Grace)) {
			break
		}
		if p.backfilling() {
			p.plan.Waiting = true
			break
		}
		lines := p.closed(period)
		p.plan.Closings = append(p.plan.Closings, Closing{period, lines})
		p.periods[i].ClosedAt, p.periods[i].Closed = &p.Now, lines
	}
	p.lookAtClosed()
}

func (p *planner) backfilling() bool {
	return slices.ContainsFunc(p.Meters, func(m metering.Meter) bool { return m.Version.Status == metering.Backfilling })
}

// lookAtClosed compares the periods that close with the invoices, and has
// somebody look where they leave something to report.
func (p *planner) lookAtClosed() {
	if len(p.plan.Closings) == 0 {
		return
	}
	f := p.Facts
	f.MayClose, f.After, f.Stored = false, math.MaxInt64, p.periods
	next := NewBooks(f).Plan()
	p.plan.Reconciled, p.plan.Complete, p.plan.PartlyKnown = append(p.plan.Reconciled, next.Reconciled...), next.Complete, next.PartlyKnown
	p.plan.Unreported = next.ReadFirst || len(next.Resume) > 0 || slices.ContainsFunc(next.Reports, p.isOfClosed)
	if open, found := openPeriod(p.periods); p.plan.Unreported && found {
		p.knows(open, Watermark{})
	}
}

// isOfClosed says whether the report says anything of a closed period.
func (p *planner) isOfClosed(r Report) bool {
	return p.period(r.Period).ClosedAt != nil || slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Component() == AdjustmentComponent })
}

// closed is what the period closes at.
func (p *planner) closed(period Period) (lines []ClosedLine) {
	all, _ := p.calculations(period)
	taken := make(map[string]bool)
	for i := range all {
		c := &all[i]
		l := ClosedLine{
			MeterID: c.meter.ID, MeterVersion: c.version, Aggregation: c.meter.Version.Aggregation, Usage: c.usage, Events: c.events,
			Dimensions:   c.price.shown(c.dimensions),
			PriceVersion: c.price.Version, Terms: c.price.Terms, Charge: c.charge(), Currency: c.currency,
			Billed: p.Connection != nil, Test: p.inTest(), Bills: period.Bills,
		}
		switch {
		case p.Connection == nil || p.Connection.Statements:
		case l.inAmounts():
			p.closeAmount(&l, period, *c)
		default:
			p.closeUnits(&l, period, c.meter, taken)
		}
		lines = append(lines, l)
	}
	return lines
}

// closeUnits notes whether a provider that is reported units bills the line, and
// charges it by these.
func (p *planner) closeUnits(l *ClosedLine, period Period, meter metering.Meter, taken map[string]bool) {
	scale := meter.UsageScale
	l.Billed = p.mayBill(period, l) // as long as nobody has looked what is there
	if p.Side != nil {
		m := p.positionOf(period, meter, l.Currency)
		m.isShared = taken[m.destination.Target]
		l.Billed, scale = m.isBilledHere(), *m.scale
		taken[m.destination.Target] = true
	}
	if reported := p.billedOf(period)[meter.ID]; !l.Billed && reported.quantity.IsZero() && !p.wasCarried(period, meter.ID) {
		return
	}
	l.Billed, l.Scale, l.Trial = true, &scale, period.Subscription.Trial
	l.priceAs(p.theirPrice(period, meter.ID))
	if l.Charge = l.chargeFor(l.ownUnits()); l.Trial {
		l.Charge = metering.Decimal{}
	}
}

// mayBill says whether the subscription that the period lies in may bill the line.
// Of one whose invoices are read it takes a price, of ours or that it had when it was
// read: else nobody could say what is carried of units that the invoices lack.
func (p *planner) mayBill(period Period, l *ClosedLine) bool {
	priced := l.PriceVersion > 0 || period.Subscription.Prices[l.MeterID] != nil
	return period.Subscription.ID != "" && (priced || !p.Connection.Invoices)
}

// closeAmount notes whether a provider that is charged amounts bills the line.
func (p *planner) closeAmount(l *ClosedLine, period Period, c calculation) {
	l.Billed = period.Subscription.ID != "" // as long as nobody has looked where it goes
	if p.Side != nil && p.destinationIn(period, c.meter.ID).Excluded != ExcludedUnread {
		m := p.positionOf(period, c.meter, c.currency)
		_, reason := m.route()
		l.Billed = m.isBilledHere() || reason == ExcludedEarlier && p.leavesRest(period)
	}
	if charged := l.billedIn(p.billedOf(period)); !l.Billed && charged.amount.IsZero() && !p.wasCarried(period, l.MeterID) {
		return
	}
	if l.Billed, l.Trial = true, period.Subscription.Trial; l.Trial {
		l.Charge = metering.Decimal{}
	}
}

// wasCarried says whether anything of the open period was charged as of a closed
// one: before the ledger was restored it was closed, and billed.
func (p *planner) wasCarried(period Period, meter metering.MeterID) bool {
	return containsAny(p.Reported, func(r *Reported) bool {
		return r.Late && r.MeterID == meter && r.about(period) && p.counts(r.Connection) && r.Standing.Any
	})
}

// priceAs has the line charged at the provider's own price.
func (l *ClosedLine) priceAs(theirs ProviderPrice) {
	if theirs != nil {
		l.PriceVersion, l.Terms, l.Price, l.Currency = 0, Terms{}, theirs, theirs.Currency()
	}
}
