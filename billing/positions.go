package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// position is one meter in one billing period, as the connected provider is to bill it. It is reported as a quantity of
// units, or as an amount of money that a line of an invoice is set to.
type position struct {
	*planner
	calculation // at the usage so far; of a closed period, at its usage when it was closed
	period      Period
	part        metering.Range // of the period, in the subscription's period
	destination Destination
	closed      *ClosedLine // nil: the period is open
	own         []*Reported // the series at the destination
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

// positionOf returns the position of a meter. It separates the series of the destination from all other series, which it
// subtracts: series of another account, customer, target, method or subscription period. common is the
// currency of meters without a price.
func (p *planner) positionOf(period Period, meter metering.Meter, common string) *position {
	m := &position{
		planner: p, calculation: p.calculation(period, meter, common), period: period, part: period.Intersect(period.Subscription.Range),
		destination: p.destinationIn(period, meter.ID), closed: period.line(meter.ID),
	}
	m.trial = period.Subscription.Trial
	if m.closed != nil {
		m.calculation = closedCalculation(meter, m.closed)
		m.calculation.closed = nil
	}
	if m.inMoney() {
		m.noCredit = true
	} else {
		m.scale, m.notNegative, m.trial = new(m.digits()), m.destination.NotNegative, false
		m.theirs = nil
		m.priceAs(p.theirPrice(period, meter.ID))
	}
	for n := range p.Reported {
		switch s := &p.Reported[n]; {
		case s.Late || s.MeterID != meter.ID || !s.about(period) || !p.counts(s.Connection):
		case m.owns(s):
			m.own = append(m.own, s)
		default:
			m.others.add(s, p.priceIn(meter.ID, period))
			m.open = m.open || s.undecided() && p.here(s.Series) && s.State != InDoubt // its outcome changes what is left
		}
	}
	return m
}

// destinationIn returns where the meter is reported in the period.
func (p *planner) destinationIn(period Period, meter metering.MeterID) Destination {
	all := p.Side.Destinations
	if period.Bills == metering.BillsAmounts {
		all = p.Side.Charges
	}
	i := slices.IndexFunc(all, func(d Destination) bool { return d.MeterID == meter })
	if i < 0 {
		return Destination{MeterID: meter, Excluded: ExcludedUnread}
	}
	return all[i]
}

// owns reports whether a series is reported at the destination now. A series to which quantities are added has ended if
// it began after the part of the period in the subscription's period did.
func (m *position) owns(s *Reported) bool {
	there := m.here(s.Series) && s.Customer == m.Side.Customer
	if m.inMoney() {
		return there && s.Kind == ChargeReport && s.Target == m.target() && s.Counting == Replaces && s.Window.Start.Equal(m.part.Start)
	}
	ended := s.Window.Start.Before(m.part.Start) || s.Counting == Adds && s.Window.Start.After(m.part.Start)
	return there && s.Target == m.destination.Target && s.Method == m.destination.Method && !ended
}

// lineAt returns the line that the position has at another usage.
func (m *position) lineAt(usage metering.Decimal) Line {
	c := m.calculation
	c.usage = usage
	return c.line()
}

// digits returns the number of decimals of the quantity. A closed or invoiced period keeps the number that it had.
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

// isReported reports whether the provider already has what the position comes to.
func (m *position) isReported() bool {
	if m.inMoney() {
		amount := m.amount()
		return amount.Equal(m.invoiceLine().money())
	}
	quantity := m.quantity()
	return quantity.Equal(m.reportedHere())
}

// invoiceLine returns the series of a position in money. It is empty if the invoice has no line yet.
func (m *position) invoiceLine() *Reported {
	if len(m.own) == 0 {
		return &Reported{}
	}
	return m.own[len(m.own)-1]
}

// reportedHere returns the quantity that the destination has.
func (m *position) reportedHere() (reported metering.Decimal) {
	for _, s := range m.own {
		reported = reported.Add(s.taken())
	}
	return reported
}

// decide plans what the position's route says.
func (m *position) decide() {
	switch route, reason := m.route(); {
	case route == direct && m.inMoney():
		m.setLine()
	case route == direct:
		m.reportUnits()
	case reason == ExcludedRestored:
		m.waitForReading(m.meter)
	case route == nextPeriod:
		m.leaveRest(reason)
	case reason != "":
		m.leaveOut(reason)
		m.open = m.open || route == wait && m.period.Own() && m.period.ClosedAt != nil
	}
}

// leaveOut lists the meter of an open period as excluded. A meter without usage that belongs to another schedule by now
// is not listed.
func (m *position) leaveOut(reason string) {
	if m.period.ClosedAt == nil && (m.inMoney() || m.feeds(m.meter.ID) || !m.usage.IsZero()) {
		m.exclude(Exclusion{m.meter.ID, m.meter.Slug, reason})
	}
}

// leaveRest lists the meter as excluded if the provider lacks something. A report whose outcome is unknown has to be
// decided first, unless only the final invoice or an operator can decide it.
func (m *position) leaveRest(reason string) {
	m.open = m.open || slices.ContainsFunc(m.own, (*Reported).undecided)
	if !m.isReported() {
		m.leaveOut(reason)
	}
}
