package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// position is one meter in one billing period that the connected provider bills. It is reported as a quantity of units,
// or as the amount of an invoice line.
type position struct {
	*planner
	calculation // at the current usage; for a closed period, at the usage of the close
	period      Period
	part        metering.Range // part of the period that lies in the subscription's period
	destination Destination
	closed      *ClosedLine // nil: the period is open, or it closed without the meter
	phase       phase       // "": the period is open
	own         []*Reported // series that report the position to the destination
	isShared    bool        // an earlier meter of the period has the same target
}

// inMoney reports whether the period is billed in amounts.
func (m *position) inMoney() bool { return m.period.Bills == metering.BillsAmounts }

// positionsOf returns the positions of a period, in the order of their meters.
func (p *planner) positionsOf(period Period) (all []*position) {
	common, taken := p.inCommon(p.currencies(period)), make(map[string]bool)
	for _, meter := range p.metersIn(period) {
		m := p.positionOf(period, meter, common)
		m.isShared = !m.inMoney() && taken[m.destination.Target]
		taken[m.destination.Target] = true
		all = append(all, m)
	}
	return all
}

// positionOf returns the position of a meter. It puts the series of the destination in own. It deducts all other series
// of the meter: those of another connection, customer, target, method or subscription period. It sets open while such a
// series at the current connection has a report that is planned or being sent. common is the currency of meters without
// a price that were not billed in the period.
func (p *planner) positionOf(period Period, meter metering.Meter, common string) *position {
	m := &position{
		planner: p, period: period, part: period.Intersect(period.Subscription.Range),
		destination: p.destinationIn(period, meter.ID), closed: period.line(meter.ID),
	}
	if m.closed != nil {
		m.calculation, m.phase = closedCalculation(meter, m.closed), m.closed.phase
		m.calculation.closed = nil
	} else {
		m.calculation = p.calculation(period, meter, common)
		m.trial = period.Subscription.Trial
		if period.ClosedAt != nil {
			m.phase = phaseNotBilled
		}
	}
	if m.inMoney() {
		m.noCredit = true
	} else {
		m.scale, m.notNegative, m.trial = new(m.digits()), m.destination.NotNegative, false
		m.theirs = nil // set from theirPrice below, for a closed period too
		m.priceAs(p.theirPrice(period, meter.ID))
	}
	for s := range p.ownOf(period, meter.ID) {
		if m.owns(s) {
			m.own = append(m.own, s)
			continue
		}
		m.others.add(s, p.priceIn(meter.ID, period))
		m.open = m.open || s.undecided() && p.here(s.Series) && s.State != InDoubt // the outcome changes the remaining units
	}
	return m
}

// destinationIn returns the destination that the meter is reported to in the period. If the last read of the customer's
// state at the provider lacks the meter, the destination is excluded with ExcludedNotRead.
func (p *planner) destinationIn(period Period, meter metering.MeterID) Destination {
	all := p.Side.Destinations
	if period.Bills == metering.BillsAmounts {
		all = p.Side.Charges
	}
	i := slices.IndexFunc(all, func(d Destination) bool { return d.MeterID == meter })
	if i < 0 {
		return Destination{MeterID: meter, Excluded: ExclusionReason{Code: ExcludedNotRead}}
	}
	return all[i]
}

// owns reports whether the series belongs to the position's current destination. It returns false for a series that
// begins before m.part. An invoice line, or a series that the provider adds up, must begin exactly with m.part.
func (m *position) owns(s *Reported) bool {
	there := m.here(s.Series) && s.Customer == m.Side.Customer
	if m.inMoney() {
		return there && s.Kind == ChargeReport && s.Target == m.target() && s.Counting == Replaces && s.Window.Start.Equal(m.part.Start)
	}
	ended := s.Window.Start.Before(m.part.Start) || s.Counting == Adds && s.Window.Start.After(m.part.Start)
	return there && s.Target == m.destination.Target && s.Method == m.destination.Method && !ended
}

// lineAt returns the line of the position as if its usage were the given one.
func (m *position) lineAt(usage metering.Decimal) Line {
	c := m.calculation
	c.usage = usage
	return c.line()
}

// digits returns the number of decimals of the quantity: 0 if the destination accepts whole units only. A closed period
// keeps the number from its close, and an invoiced period keeps the number from its invoice.
func (m *position) digits() int32 {
	switch {
	case m.destination.WholeUnits:
		return 0
	case m.closed != nil && m.closed.Scale != nil:
		return *m.closed.Scale
	case m.period.Subscription.Scales != nil:
		return m.period.Subscription.Scales[m.meter.ID]
	}
	return m.meter.UsageScale
}

// isReported reports whether the provider already has the position's whole amount or quantity.
func (m *position) isReported() bool {
	if m.inMoney() {
		return m.amount().Equal(m.invoiceLine().money())
	}
	return m.quantity().Equal(m.reportedHere())
}

// invoiceLine returns the series that sets the invoice line of a position in money. The series is empty if the position
// has no line yet.
func (m *position) invoiceLine() *Reported {
	if len(m.own) == 0 {
		return &Reported{}
	}
	return m.own[len(m.own)-1]
}

// reportedHere returns the total of the position's series at the destination.
func (m *position) reportedHere() (reported metering.Decimal) {
	for _, s := range m.own {
		reported = reported.Add(s.providerTotal())
	}
	return reported
}

// planReports plans the position's reports according to its route, or excludes the meter from the plan.
func (m *position) planReports() {
	switch route, code := m.route(); {
	case route == direct && m.inMoney():
		m.setLine()
	case route == direct:
		m.reportUnits()
	case code == ExcludedRestored:
		m.waitForReading(m.meter)
	case route == nextPeriod:
		m.listRest(code)
	case code != "":
		m.listExcluded(code)
		m.open = m.open || route == wait && m.period.IsStandalone() && m.period.ClosedAt != nil
	}
}

// listExcluded lists the meter of an open period as excluded. It does not list a meter without usage that now belongs to
// another billing schedule.
func (m *position) listExcluded(code ExclusionCode) {
	if m.period.ClosedAt == nil && (m.inMoney() || m.feeds(m.meter.ID) || !m.usage.IsZero()) {
		m.exclude(Exclusion{m.meter.ID, m.meter.Slug, m.reasonOf(code)})
	}
}

// listRest lists the meter as excluded if the provider lacks part of the position. A later period bills that part. It
// sets open while a report of the position is undecided.
func (m *position) listRest(code ExclusionCode) {
	m.open = m.open || slices.ContainsFunc(m.own, (*Reported).undecided)
	if !m.isReported() {
		m.listExcluded(code)
	}
}
