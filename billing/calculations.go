package billing

import (
	"cmp"

	"github.com/odometer-metering/odometer/metering"
)

// calculation is what one line is worked out from: of a period, or of what late
// usage adds to a closed one. Whatever is reported, stated or shown of a meter
// is one of its results, and Explain shows them in their order.
type calculation struct {
	meter   metering.Meter
	version metering.MeterVersionID // that has counted the usage
	usage   metering.Decimal        // of a closed period: at its closing
	events  int64

	dimensions []DimensionUsage // of the usage, with prices by dimension

	price    Price
	theirs   ProviderPrice // that is charged instead; nil: none is
	currency string
	others   elsewhere

	scale       *int32 // decimals that usage is reported with, and charged; nil: all it has
	notNegative bool   // less than nothing cannot be reported
	noCredit    bool   // less than nothing cannot be charged
	trial       bool   // nothing is charged for the units

	closed *ClosedLine // nil: the period is open
	late   *lateUsage  // nil: the line is the period's own
}

// lateUsage is what arrived for a closed period.
type lateUsage struct {
	closed metering.Range
	usage  metering.Decimal
	events int64

	dimensions []DimensionUsage // of the usage

	onlyReported, onlyReportedCharge metering.Decimal // of the units and the charge, what the late policy leaves out
}

// total is all usage.
func (c *calculation) total() metering.Decimal {
	if c.late == nil {
		return c.usage
	}
	return c.usage.Add(c.late.usage)
}

// units are what the charge is for.
func (c *calculation) units() metering.Decimal {
	if c.scale != nil {
		return Units(c.total(), *c.scale)
	}
	return c.total()
}

// charge is for all units, in the currency's minor unit.
func (c *calculation) charge() metering.Decimal {
	if c.trial {
		return metering.Decimal{}
	}
	return c.chargeFor(c.measured())
}

// measured is the usage that the charge is for. Quantities have no number of events.
func (c *calculation) measured() Measured {
	if c.scale != nil {
		return c.first(c.units())
	}
	return c.allUsage()
}

func (c *calculation) allUsage() Measured {
	if c.late == nil {
		return Measured{c.usage, c.events, c.dimensions}
	}
	return Measured{c.total(), c.events + c.late.events, AddDimensions(c.dimensions, c.late.dimensions)}
}

// first returns the first units of the usage, without a number of events.
func (c *calculation) first(units metering.Decimal) Measured {
	return c.price.First(c.allUsage(), units)
}

// chargeFor is the charge for the usage, were it no trial.
func (c *calculation) chargeFor(of Measured) metering.Decimal {
	if c.theirs != nil {
		return chargeAt(c.theirs, of.Units)
	}
	return c.price.ChargeIn(c.currency, of)
}

// exact is the charge before it is rounded; a provider rounds each of its lines.
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

// source is the level that the price is set at; "": there is no price of ours.
func (c *calculation) source() PriceSource {
	if c.closed != nil {
		return c.closed.Source
	}
	return c.price.Source()
}

// priceAs has the units charged at the provider's own price.
func (c *calculation) priceAs(theirs ProviderPrice) {
	if theirs != nil {
		c.theirs, c.price, c.currency = theirs, Price{MeterID: c.meter.ID}, theirs.Currency()
	}
}

// otherScale is the decimals that what others have billed is rounded to; nil:
// it stays as it is, since of late usage it is a difference of rounded totals.
func (c *calculation) otherScale() *int32 {
	if c.late != nil {
		return nil
	}
	return c.scale
}

// quantity is what of the units nobody else has billed.
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

// amount is what of the charge nobody else has billed.
func (c *calculation) amount() metering.Decimal {
	if c.trial {
		return metering.Decimal{}
	}
	amount := c.charge().Sub(c.elsewhereAmount())
	if c.late != nil {
		amount = amount.Sub(c.closed.billedCharge()).Sub(c.late.onlyReportedCharge)
	} else if c.closed != nil {
		amount = c.closed.billedCharge()
	}
	if c.noCredit && amount.IsNegative() {
		return metering.Decimal{}
	}
	return amount
}

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

// ownUnits are what the closed period's charge is for.
func (l *ClosedLine) ownUnits() metering.Decimal {
	if l.Scale != nil {
		return Units(l.Usage, *l.Scale)
	}
	return l.Usage
}

func (l *ClosedLine) inAmounts() bool { return l.Bills == metering.BillsAmounts }

// billedUnits are what of these is billed with the period: what final invoices
// say, else what providers were reported, or still will be.
func (l *ClosedLine) billedUnits() metering.Decimal {
	switch {
	case l.inAmounts():
		return l.Usage
	case l.Reconciled != nil:
		return l.Reconciled.Billed
	case l.so != nil:
		return l.so.units
	}
	return l.ownUnits()
}

// billedCharge is the charge for these, at the closed period's price; what
// statements said is the amount that they said, and of what is billed in amounts
// what of the charge is.
func (l *ClosedLine) billedCharge() metering.Decimal {
	switch {
	case l.inAmounts() && l.Reconciled != nil:
		return l.Reconciled.Billed
	case l.Reconciled == nil && l.so != nil && l.Scale == nil:
		return l.so.amount
	}
	if units := l.billedUnits(); !l.Trial && !units.Equal(l.ownUnits()) {
		return l.chargeFor(units)
	}
	return l.Charge
}

// chargeFor is the charge for so many units of a provider's, were it no trial.
func (l *ClosedLine) chargeFor(units metering.Decimal) metering.Decimal {
	if l.Price != nil {
		return chargeAt(l.Price, units)
	}
	return l.Terms.ChargeIn(l.Currency, l.Terms.First(Measured{l.Usage, l.Events, l.Dimensions}, units))
}

// calculations are what every meter of the period comes to now, as usage is
// counted, and those that are left out with the reason.
func (b *Books) calculations(period Period) (all []calculation, excluded []Exclusion) {
	others := b.billed(period, func(r *Reported) bool { return !r.Late && !b.here(r.Series) })
	common, meters := b.inCommon(b.currencies(period)), b.metersIn(period)
	all = make([]calculation, 0, len(meters))
	for _, m := range meters {
		if m.Version.Status == metering.Backfilling {
			excluded = append(excluded, Exclusion{m.ID, m.Slug, ExcludedBackfilling})
			continue
		}
		c := b.calculation(period, m, common)
		c.others = others[m.ID]
		all = append(all, c)
	}
	return all, excluded
}

// calculation returns what a meter comes to in an open period now, whoever has billed it. common is the currency of
// meters without a price.
func (b *Books) calculation(period Period, m metering.Meter, common string) calculation {
	price, _ := b.price(m.ID, period)
	usage := b.usage(m.ID, period)
	return calculation{
		meter: m, version: m.Version.ID, usage: usage.Total, events: usage.Events, dimensions: usage.Dimensions,
		price: price, currency: cmp.Or(price.Currency, common),
	}
}

// shown are the calculations of an open period as its provider bills it, which
// may count units and not usage.
func (b *Books) shown(period Period) []calculation {
	all, _ := b.calculations(period)
	if b.Connection == nil || b.Connection.Statements || b.Side == nil {
		return all
	}
	p := planner{Books: b}
	for i, c := range all {
		if m := p.positionOf(period, c.meter, c.currency); m.inMoney() || m.isBilledHere() {
			all[i] = m.calculation
			all[i].trial = period.Subscription.Trial
		}
	}
	return all
}

// closedCalculation is what the closed period came to for a meter.
func closedCalculation(m metering.Meter, then *ClosedLine) calculation {
	c := calculation{
		meter: m, version: then.MeterVersion, usage: then.Usage, events: then.Events, dimensions: then.Dimensions, currency: then.Currency, closed: then, trial: then.Trial,
		price: Price{MeterID: m.ID, Version: then.PriceVersion, Terms: then.Terms}, theirs: then.Price,
	}
	c.scale = then.Scale
	return c
}

// lateCalculation is charge(usage with what came late) − charge(usage billed so
// far), at the closed period's price.
func (f *Facts) lateCalculation(closed Period, m metering.Meter, then *ClosedLine) calculation {
	c := closedCalculation(m, then)
	c.late = &lateUsage{closed: closed.Range}
	late := f.late(closed, then)
	c.late.usage, c.late.events, c.late.dimensions = late.Units, late.Events, late.Dimensions
	return c
}

// linesOf returns the line of each calculation, with its breakdown.
func linesOf(all []calculation) (lines []Line) {
	for i := range all {
		lines = append(lines, all[i].statementLine())
	}
	return lines
}

// statementLine returns a line with the breakdown of its amount.
func (c *calculation) statementLine() Line {
	l := c.line()
	l.Working = c.steps()
	return l
}
