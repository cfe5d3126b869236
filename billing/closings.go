package billing

import (
	"math"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Closing is a period to close, with its closed lines.
type Closing struct {
	Period Period
	Lines  []ClosedLine
}

// Working returns the breakdown of the line's charge at the close of the period.
func (l ClosedLine) Working() []Step {
	c := closedCalculation(metering.Meter{ID: l.MeterID}, &l)
	return c.steps()
}

// planClosings plans the periods to close: the periods with an end and grace in the past, oldest first. Neither reports
// nor answers of a provider change the time of a close. No period closes while the first backfill of a meter runs.
// After a restore, no period closes for the length of the grace, so that clients can send lost events again in time.
func (p *planner) planClosings() {
	p.planOutstanding()
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
		lines := p.linesAtClose(period)
		p.plan.Closings = append(p.plan.Closings, Closing{period, lines})
		p.periods[i].ClosedAt, p.periods[i].Closed = &p.Now, lines
	}
	p.compareClosings()
}

// backfilling reports whether the first backfill of any meter is running.
func (p *planner) backfilling() bool {
	return slices.ContainsFunc(p.Meters, func(m metering.Meter) bool { return m.Version.Status == metering.Backfilling })
}

// compareClosings compares the periods that close with the final invoices, and adds the results to the plan. If
// something remains to be reported of these periods, it marks the customer as out of sync: it resets the watermark of
// the open period.
func (p *planner) compareClosings() {
	if len(p.plan.Closings) == 0 {
		return
	}
	f := p.Facts
	f.MayClose, f.After, f.Stored = false, math.MaxInt64, p.periods
	next := NewBooks(f).Plan()
	p.plan.Reconciled, p.plan.Complete, p.plan.PartlyKnown = append(p.plan.Reconciled, next.Reconciled...), next.Complete, next.PartlyKnown
	p.plan.Unreported = next.ReadFirst || len(next.Resume) > 0 || slices.ContainsFunc(next.Reports, p.isOfClosed)
	if open, found := openPeriod(p.periods); p.plan.Unreported && found {
		p.addWatermark(open, Watermark{})
	}
}

// isOfClosed reports whether the report belongs to a closed period or contains an adjustment of one.
func (p *planner) isOfClosed(r Report) bool {
	return p.period(r.Period).ClosedAt != nil || slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Component() == AdjustmentComponent })
}

// linesAtClose returns the closed lines of a period that closes now.
func (p *planner) linesAtClose(period Period) (lines []ClosedLine) {
	all, _ := p.calculations(period)
	positions := make(map[metering.MeterID]*position) // empty if the customer's state at the provider is unknown
	if p.Side != nil {
		for _, m := range p.positionsOf(period) {
			positions[m.meter.ID] = m
		}
	}
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
			p.closeAmount(&l, period, positions[c.meter.ID])
		default:
			p.closeUnits(&l, period, c.meter.UsageScale, positions[c.meter.ID])
		}
		lines = append(lines, l)
	}
	return lines
}

// closeUnits sets in l whether a provider that bills quantities bills the line. If so, it also sets the usage scale,
// the trial, the provider's own price and the charge for the rounded units. m is the line's position; nil: the
// customer's state at the provider is unknown.
func (p *planner) closeUnits(l *ClosedLine, period Period, scale int32, m *position) {
	l.Billed = p.mayBill(period, l)
	if m != nil {
		l.Billed, scale = m.isBilledHere(), *m.scale
	}
	if reported := p.billedOf(period)[l.MeterID]; !l.Billed && reported.quantity.IsZero() && !p.wasCarried(period, l.MeterID) {
		return
	}
	l.Billed, l.Scale, l.Trial = true, &scale, period.Subscription.Trial
	l.priceAs(p.theirPrice(period, l.MeterID))
	if l.Charge = l.chargeFor(l.ownUnits()); l.Trial {
		l.Charge = metering.Decimal{}
	}
}

// mayBill reports whether the period's subscription may bill the line. If the provider's final invoices are read, the
// line also needs a price, in Odometer or at the provider. Without a price, units that the invoices lack could not be
// charged with a later period.
func (p *planner) mayBill(period Period, l *ClosedLine) bool {
	priced := l.PriceVersion > 0 || period.Subscription.Prices[l.MeterID] != nil
	return period.Subscription.ID != "" && (priced || !p.Connection.Invoices)
}

// closeAmount sets in l whether a provider that bills amounts bills the line. If so, and if the period is a trial, it
// sets the charge to 0. m is the line's position; nil: the customer's state at the provider is unknown.
func (p *planner) closeAmount(l *ClosedLine, period Period, m *position) {
	l.Billed = period.Subscription.ID != "" // applies if the destination of the charge is unknown
	if m != nil && m.destination.Excluded.Code != ExcludedNotRead {
		_, code := m.routeBy(rulesOnceRead)
		l.Billed = m.isBilledHere() || code == ExcludedBeforeSubscription && p.rollsForward(period)
	}
	if charged := l.totalsIn(p.billedOf(period)); !l.Billed && charged.amount.IsZero() && !p.wasCarried(period, l.MeterID) {
		return
	}
	if l.Billed, l.Trial = true, period.Subscription.Trial; l.Trial {
		l.Charge = metering.Decimal{}
	}
}

// wasCarried reports whether usage of the closing period was already reported as late usage. That happens if the period
// was closed and billed before the ledger was restored from a backup.
func (p *planner) wasCarried(period Period, meter metering.MeterID) bool {
	return containsAny(p.Reported, func(r *Reported) bool {
		return r.Late && r.MeterID == meter && r.about(period) && p.isInCurrentMode(r.Connection) && r.Standing.Any
	})
}

// priceAs charges the line at the provider's own price, if that is not nil.
func (l *ClosedLine) priceAs(theirs ProviderPrice) {
	if theirs != nil {
		l.PriceVersion, l.Terms, l.Price, l.Currency = 0, Terms{}, theirs, theirs.Currency()
	}
}
