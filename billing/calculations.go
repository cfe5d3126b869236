package billing

import (
	"cmp"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// calculation holds the inputs of one line: of a meter in a period, or of the late usage of a closed period. Reports,
// statements and previews show its results. Explain shows the results in the order of their computation.
type calculation struct {
	meter   metering.Meter
	version metering.MeterVersionID // meter version that counted the usage
	usage   metering.Decimal        // of a closed period: as of the close
	events  int64

	dimensions []DimensionUsage // usage by dimension values, for meters with prices by dimension

	price    Price
	theirs   ProviderPrice // provider's own price, if it is charged instead of price; else nil
	currency string
	others   seriesTotals

	scale       *int32 // decimals to which the reported and charged units are rounded; nil: not rounded
	notNegative bool   // the provider accepts no negative quantity
	noCredit    bool   // a negative amount is not billed
	trial       bool   // the period is a trial: nothing is charged for the units

	closed *ClosedLine // line of the closed period; nil for open periods, and for the remaining reports of closed periods
	late   *lateUsage  // late usage of the closed period; nil: the line is of the period itself
}

// lateUsage is the usage that arrived after its period was closed.
type lateUsage struct {
	closed metering.Range
	usage  metering.Decimal
	events int64

	dimensions []DimensionUsage // the late usage by dimension values

	standing *Booked // booking that has all of the late usage; nil: more events are counted than booked

	onlyReported, onlyReportedCharge metering.Decimal // units and charge that the late policy only reports and does not bill
}

// total returns the usage, including late usage.
func (c *calculation) total() metering.Decimal {
	if c.late == nil {
		return c.usage
	}
	return c.usage.Add(c.late.usage)
}

// units returns the units that are charged: all usage, rounded to scale.
func (c *calculation) units() metering.Decimal {
	if c.scale != nil {
		return Units(c.total(), *c.scale)
	}
	return c.total()
}

// charge returns the charge for all units, in the currency's minor unit.
func (c *calculation) charge() metering.Decimal {
	switch {
	case c.late != nil && c.late.standing != nil:
		return c.late.standing.Charge
	case c.trial:
		return metering.Decimal{}
	}
	return c.chargeFor(c.measured())
}

// measured returns the usage that is charged. Quantities for a provider have no event count.
func (c *calculation) measured() Measured {
	if c.scale != nil {
		return c.first(c.units())
	}
	return c.allUsage()
}

// allUsage returns the usage, including late usage, before rounding.
func (c *calculation) allUsage() Measured {
	if c.late == nil {
		return Measured{c.usage, c.events, c.dimensions}
	}
	return Measured{c.usage, c.events, c.dimensions}.Add(Measured{c.late.usage, c.late.events, c.late.dimensions})
}

// first returns the first units of the usage, without a number of events.
func (c *calculation) first(units metering.Decimal) Measured {
	return c.price.First(c.allUsage(), units)
}

// chargeFor returns the charge for the usage, even in a trial.
func (c *calculation) chargeFor(of Measured) metering.Decimal {
	if c.theirs != nil {
		return chargeAt(c.theirs, of.Units)
	}
	return c.price.ChargeIn(c.currency, of)
}

// exact returns the charge before it is rounded. A provider's own price already rounds each price line.
func (c *calculation) exact() metering.Decimal {
	if c.theirs != nil {
		return chargeAt(c.theirs, c.units())
	}
	return c.price.Charge(c.measured()).Exact
}

// unitPrice returns the rate of the last tier that the units reach.
func (c *calculation) unitPrice() metering.Decimal {
	if c.theirs != nil {
		return unitPriceAt(c.theirs, c.units())
	}
	return c.price.UnitPriceAt(c.units())
}

// source returns the level at which the price in Odometer is set; "": no such price is charged.
func (c *calculation) source() PriceSource {
	if c.closed != nil {
		return c.closed.Source
	}
	return c.price.Source()
}

// priceAs charges the units at the provider's own price, if that is not nil.
func (c *calculation) priceAs(theirs ProviderPrice) {
	if theirs != nil {
		c.theirs, c.price, c.currency = theirs, Price{MeterID: c.meter.ID}, theirs.Currency()
	}
}

// otherScale returns the number of decimals to which the quantity billed by other series is rounded before it is
// deducted; nil: no rounding. It returns nil for late usage: the reported quantities of late usage are differences of
// rounded totals, so they are deducted unchanged.
func (c *calculation) otherScale() *int32 {
	if c.late != nil {
		return nil
	}
	return c.scale
}

// quantity returns the units that remain to be billed, without the units that other series have billed. For late usage,
// it also deducts units billed with the closed period and units that are only reported. For a closed line without late
// usage, it returns billedUnits. If notNegative is set, quantity returns at least 0.
func (c *calculation) quantity() metering.Decimal {
	quantity := c.units().Sub(c.others.quantity)
	if scale := c.otherScale(); scale != nil {
		quantity = UnitsBetween(c.others.quantity, c.total(), *scale)
	}
	if c.late != nil {
		quantity = quantity.Sub(c.closed.billedUnits()).Sub(c.late.onlyReported)
	} else if c.closed != nil {
		quantity = c.closed.billedUnits()
	}
	if c.notNegative && quantity.IsNegative() {
		return metering.Decimal{}
	}
	return quantity
}

// amount returns the amount that remains to be billed, with the same deductions as quantity. For a closed line without
// late usage, it returns billedCharge. In a trial, it returns 0. If noCredit is set, it returns at least 0.
func (c *calculation) amount() metering.Decimal {
	if c.trial {
		return metering.Decimal{}
	}
	amount := c.charge().Sub(c.otherAmount())
	if c.late != nil {
		amount = amount.Sub(c.closedCharge()).Sub(c.late.onlyReportedCharge)
	} else if c.closed != nil {
		amount = c.closed.billedCharge()
	}
	if c.noCredit && amount.IsNegative() {
		return metering.Decimal{}
	}
	return amount
}

// closedCharge returns the charge of the closed period that late usage deducts: billedCharge or, if no credit can be
// billed, the highest amount that the provider may bill with the period. A report that lowers the period's line may be
// refused, because the invoice is final.
func (c *calculation) closedCharge() metering.Decimal {
	if c.noCredit && c.closed.inAmounts() && c.closed.Reconciled == nil {
		return larger(c.closed.billedCharge(), c.closed.billedTotals.highest)
	}
	return c.closed.billedCharge()
}

// line returns the line of the calculation, without its breakdown.
func (c *calculation) line() Line {
	l := Line{
		MeterID: c.meter.ID, MeterSlug: c.meter.Slug, Usage: c.total(), Events: c.events, Quantity: c.quantity(),
		PriceVersion: c.price.Version, Price: c.theirs, UnitPrice: c.unitPrice(), Charge: c.charge(), Amount: c.amount(), Currency: c.currency,
	}
	if c.late != nil {
		l.Closed, l.Events = c.late.closed.Start, c.events+c.late.events
	}
	return l
}

// ownUnits returns the units that the closed line charges.
func (l *ClosedLine) ownUnits() metering.Decimal {
	if l.Scale != nil {
		return Units(l.Usage, *l.Scale)
	}
	return l.Usage
}

// inAmounts reports whether the line is billed in amounts.
func (l *ClosedLine) inAmounts() bool { return l.Bills == metering.BillsAmounts }

// billedUnits returns the units of the closed line that are billed with the period:
//   - for a line billed in amounts: its usage
//   - for any other line with a reconciliation: the units that the reconciliation treats as billed
//   - else: the units that were reported or still will be
func (l *ClosedLine) billedUnits() metering.Decimal {
	switch {
	case l.inAmounts():
		return l.Usage
	case l.Reconciled != nil:
		return l.Reconciled.Billed
	case l.phase == phaseCarried, l.phase == phaseEnded:
		return l.billedTotals.units
	}
	return l.ownUnits()
}

// billedCharge returns the charge that is billed with the period:
//   - for a line billed in amounts: the amount of the reconciliation, if there is one
//   - for statements and amounts without a reconciliation: the reported amount, if nothing more is reported
//   - else: the charge for billedUnits at the price of the closed period
func (l *ClosedLine) billedCharge() metering.Decimal {
	switch {
	case l.inAmounts() && l.Reconciled != nil:
		return l.Reconciled.Billed
	case l.Scale == nil && (l.phase == phaseCarried || l.phase == phaseEnded):
		return l.billedTotals.amount
	}
	if units := l.billedUnits(); !l.Trial && !units.Equal(l.ownUnits()) {
		return l.chargeFor(units)
	}
	return l.Charge
}

// chargeFor returns the charge for a number of units at the price of the closed period, even in a trial.
func (l *ClosedLine) chargeFor(units metering.Decimal) metering.Decimal {
	if l.Price != nil {
		return chargeAt(l.Price, units)
	}
	return l.Terms.ChargeIn(l.Currency, l.Terms.First(Measured{l.Usage, l.Events, l.Dimensions}, units))
}

// calculations returns the calculation of each meter in the period at the current usage, and the excluded meters with
// the reason. It deducts usage billed through other connections. The usage is not rounded to the provider's decimals.
func (b *Books) calculations(period Period) (all []calculation, excluded []Exclusion) {
	others := b.billed(period, func(r *Reported) bool { return !r.Late && !b.here(r.Series) })
	common, meters := b.inCommon(b.currencies(period)), b.metersIn(period)
	all = make([]calculation, 0, len(meters))
	for _, m := range meters {
		if m.Version.Status == metering.Backfilling {
			excluded = append(excluded, Exclusion{m.ID, m.Slug, ExclusionReason{Code: ExcludedBackfilling}})
			continue
		}
		c := b.calculation(period, m, common)
		c.others = others[m.ID]
		all = append(all, c)
	}
	return all, excluded
}

// calculation returns the calculation of a meter in an open period at the current usage. It does not deduct the usage
// that other series have billed. common is the currency of meters without a price that were not billed in the period.
func (b *Books) calculation(period Period, m metering.Meter, common string) calculation {
	price, _ := b.price(m.ID, period)
	usage := b.usage(m.ID, period)
	return calculation{
		meter: m, version: m.Version.ID, usage: usage.Total, events: usage.Events, dimensions: usage.Dimensions,
		price: price, currency: cmp.Or(price.Currency, b.lastBilledIn(period, m.ID), common),
	}
}

// lastBilledIn returns the currency of the last amount of the meter's period that was billed at Odometer's price, or "".
// If the meter has no price any more, that amount is credited in this currency. Reported has only the statements of
// previous connections, so lastBilledIn also looks at the last accepted statement.
func (b *Books) lastBilledIn(period Period, meter metering.MeterID) (currency string) {
	last := int64(0)
	for s := range b.ownOf(period, meter) {
		if billed := s.billed(); s.Number >= last && !billed.Amount.IsZero() && !billed.Theirs {
			currency, last = billed.Currency, s.Number
		}
	}
	statement := b.lastStatement(period, State.Taken)
	i := slices.IndexFunc(statement.Lines, Line{MeterID: meter}.about)
	if statement.Number < last || i < 0 || statement.Lines[i].Price != nil {
		return currency
	}
	return statement.Lines[i].Currency
}

// shown returns the calculations of an open period as the connected provider bills the period: in amounts, or in units
// with the provider's decimals.
func (b *Books) shown(period Period) []calculation {
	all, _ := b.calculations(period)
	if b.Connection == nil || b.Connection.Statements || b.Side == nil {
		return all
	}
	p := planner{Books: b}
	period.ClosedAt, period.Closed = nil, nil // the period that contains Now can be closed already
	for i, c := range all {
		if m := p.positionOf(period, c.meter, c.currency); m.inMoney() || m.isBilledHere() {
			all[i] = m.calculation
			all[i].trial = period.Subscription.Trial
		}
	}
	return all
}

// closedCalculation returns the calculation of a meter's line in a closed period.
func closedCalculation(m metering.Meter, then *ClosedLine) calculation {
	c := calculation{
		meter: m, version: then.MeterVersion, usage: then.Usage, events: then.Events, dimensions: then.Dimensions, currency: then.Currency, closed: then, trial: then.Trial,
		price: Price{MeterID: m.ID, Version: then.PriceVersion, Terms: then.Terms}, theirs: then.Price,
	}
	c.scale = then.Scale
	return c
}

// lateCalculation returns the calculation of a closed period's late usage. Its amount is charge(usage + late usage) −
// charge(usage billed so far), at the price of the closed period.
func (f *Facts) lateCalculation(closed Period, m metering.Meter, then *ClosedLine) calculation {
	c := closedCalculation(m, then)
	late, standing := f.late(closed, then)
	c.late = &lateUsage{closed: closed.Range, usage: late.Units, events: late.Events, dimensions: late.Dimensions, standing: standing}
	return c
}

// linesOf returns the line of each calculation, with its breakdown.
func linesOf(all []calculation) (lines []Line) {
	for i := range all {
		lines = append(lines, all[i].statementLine())
	}
	return lines
}

// statementLine returns the line with the breakdown of its amount.
func (c *calculation) statementLine() Line {
	l := c.line()
	l.Working = c.steps()
	return l
}
