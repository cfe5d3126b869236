package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// seriesTotals holds the units and amounts of one meter that some series have billed, usually all other series. A
// report with an unknown outcome is treated as billed until it is known that the report did not arrive.
type seriesTotals struct {
	quantity metering.Decimal
	amounts  map[string]metering.Decimal // by currency; excludes quantities that a provider charged at its own price
	parts    []seriesPart
	invoiced struct{ reported, billed metering.Decimal } // units of quantity reports: as reported, and as billed by invoices
}

// seriesPart is the part of a seriesTotals that one series has billed.
type seriesPart struct {
	series           Series
	quantity, amount metering.Decimal
	least            metering.Decimal // lowest quantity that the series may have billed, for any outcome of its reports
	currency         string
	theirs           bool // a provider charged its own price for the quantity
}

// money returns the amounts that the parts have billed of the calculation's charge. It excludes amounts that were
// reported in other currencies. A quantity that a provider charged at its own price is valued at the calculation's
// price. Such quantities are treated as the first units, before the units of all other parts. The sum of all reported
// amounts is therefore the charge for all units less the charge for those quantities, in any order of the reports. If
// the outcome of a report is unknown and fewer units may cost more, those quantities are valued at their highest
// possible charge. The rest is billed only once the outcome is known.
func (c *calculation) money() (parts []seriesPart) {
	var least, units metering.Decimal
	charge := func() (charge metering.Decimal) {
		if !units.IsZero() { // the charge for the first units includes the base price
			charge = c.highestFor(c.inScale(least), c.inScale(units))
		}
		return charge
	}
	for _, p := range c.others.parts {
		switch {
		case p.theirs:
			before := charge()
			least, units = least.Add(p.least), units.Add(p.quantity)
			p.amount, p.currency = charge().Sub(before), c.currency
			parts = append(parts, p)
		case p.currency == c.currency:
			parts = append(parts, p)
		}
	}
	return parts
}

// highestFor returns the highest charge for any quantity from least to units. Quantities have no event count.
func (c *calculation) highestFor(least, units metering.Decimal) metering.Decimal {
	highest := c.chargeFor(c.first(units))
	if c.theirs != nil || c.price.rises() || least.Equal(units) {
		return highest
	}
	for _, at := range c.price.peaks(c.allUsage(), least, units) {
		highest = larger(highest, c.chargeFor(c.first(at)))
	}
	return highest
}

// inScale returns the quantity billed by other series, rounded as otherScale determines.
func (c *calculation) inScale(quantity metering.Decimal) metering.Decimal {
	if scale := c.otherScale(); scale != nil {
		return Units(quantity, *scale)
	}
	return quantity
}

// otherAmount returns the part of the charge that other series have billed. A provider with its own price charges the
// remaining units as if they were the first ones. For such a price, otherAmount returns the charge less the charge for
// the remaining units.
func (c *calculation) otherAmount() (sum metering.Decimal) {
	if c.theirs != nil && c.late == nil && len(c.others.parts) > 0 {
		return c.charge().Sub(c.chargeFor(c.first(c.quantity())))
	}
	for _, p := range c.money() {
		sum = sum.Add(p.amount)
	}
	return sum
}

// add adds the units and the amount that a series has billed. The units of a quantity are the units on final invoices,
// if these are known. Otherwise they are the sum of all reports if the provider adds reports up, else the value of the
// last report. The amount is the reported one, less the charge for reported units that the invoices lack.
func (e *seriesTotals) add(r *Reported, price Price) {
	s := r.billed()
	if r.Line != nil { // the invoice line is billed, in any state of its reports
		s.Any, s.Currency = true, r.Line.Currency
	}
	if !s.Any {
		return
	}
	quantity, amount := r.units(), s.Amount
	switch r.Kind {
	case ChargeReport:
		quantity, amount = s.Value, r.money()
	case QuantityReport:
		amount = amount.Sub(e.lacking(s.counted(r.Counting), quantity, price, s.Currency))
	}
	if e.amounts == nil {
		e.amounts = make(map[string]metering.Decimal)
	}
	theirs := r.Kind == QuantityReport && s.Theirs
	if e.quantity = e.quantity.Add(quantity); !theirs {
		e.amounts[s.Currency] = e.amounts[s.Currency].Add(amount)
	}
	e.parts = append(e.parts, seriesPart{series: r.Series, quantity: quantity, amount: amount, least: r.leastUnits(), currency: s.Currency, theirs: theirs})
}

// lacking returns the charge for reported units of a series that the invoices do not bill. The units follow the units
// of earlier series, so that tiers and the base price apply once. It returns 0 if the price has another currency.
func (e *seriesTotals) lacking(reported, billed metering.Decimal, price Price, currency string) (charge metering.Decimal) {
	before := e.invoiced
	e.invoiced.reported, e.invoiced.billed = before.reported.Add(reported), before.billed.Add(billed)
	if price.Currency != currency {
		return charge
	}
	cost := func(units metering.Decimal) (cost metering.Decimal) {
		if units.IsZero() {
			return cost // the charge for the first units includes the base price
		}
		return price.ChargeIn(currency, unitsAlone(units))
	}
	return cost(e.invoiced.reported).Sub(cost(before.reported)).Sub(cost(e.invoiced.billed).Sub(cost(before.billed)))
}

// billed returns the highest totals that the provider may have. A report with an unknown outcome may have arrived or
// not.
func (r *Reported) billed() Sums {
	s := r.Standing
	s.Value, s.Added = larger(s.Value, r.Taken.Value), larger(s.Added, r.Taken.Added)
	if !r.Taken.Any || s.Currency == r.Taken.Currency {
		s.Amount = larger(s.Amount, r.Taken.Amount)
	}
	return s
}

// least returns the lowest totals that the provider may have.
func (r *Reported) least() Sums {
	s := r.Standing
	s.Value, s.Added = smaller(s.Value, r.Taken.Value), smaller(s.Added, r.Taken.Added)
	if !r.Taken.Any || s.Currency == r.Taken.Currency {
		s.Amount = smaller(s.Amount, r.Taken.Amount)
	}
	return s
}

// units returns the units that the provider bills of the series: the units on final invoices or, before these are
// known, the highest total that the provider may have. A negative quantity is billed as 0.
func (r *Reported) units() metering.Decimal {
	if r.Invoiced != nil {
		return *r.Invoiced
	}
	units := r.billed().counted(r.Counting)
	if r.Kind == QuantityReport {
		return notNegative(units)
	}
	return units
}

// leastUnits returns the units on final invoices or, before these are known, the lowest total that the provider may
// have, and at least 0.
func (r *Reported) leastUnits() metering.Decimal {
	if r.Invoiced != nil {
		return *r.Invoiced
	}
	return notNegative(r.least().counted(r.Counting))
}

func larger(a, b metering.Decimal) metering.Decimal {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// counted returns the total that the provider computes from the reports: their sum if the provider adds reports up,
// else the value of the last report.
func (s Sums) counted(c Counting) metering.Decimal {
	if c == Adds {
		return s.Added
	}
	return s.Value
}

// billed returns, for each meter, the units and amounts that the series of the period have billed. It includes the
// series that match the predicate and belong to the current mode (test or live).
func (b *Books) billed(period Period, matches func(*Reported) bool) map[metering.MeterID]seriesTotals {
	all := make(map[metering.MeterID]seriesTotals)
	for n := range b.Reported {
		r := &b.Reported[n]
		if r.about(period) && b.isInCurrentMode(r.Connection) && matches(r) {
			e := all[r.MeterID]
			e.add(r, b.priceIn(r.MeterID, period))
			all[r.MeterID] = e
		}
	}
	return all
}

// price returns Odometer's price of the meter for the customer at the start of the period, if there is one.
func (f *Facts) price(meter metering.MeterID, period Period) (price Price, priced bool) {
	return f.Customer.PriceAt(meter, f.Prices[meter], period.Start)
}

// priceIn returns the price of the meter in the period. For a closed period, it is the price at the close.
func (f *Facts) priceIn(meter metering.MeterID, period Period) Price {
	if l := period.line(meter); l != nil {
		return Price{MeterID: meter, Version: l.PriceVersion, Terms: l.Terms}
	}
	price, _ := f.price(meter, period)
	return price
}

// usage returns the usage of the meter in the period.
func (f *Facts) usage(meter metering.MeterID, period Period) Usage {
	for _, u := range f.Usage {
		if u.MeterID == meter && u.Period.Equal(period.Start) {
			return u
		}
	}
	return Usage{}
}

// charges returns a line for each meter of the period as of now, and the excluded meters with the reason.
func (b *Books) charges(period Period) (lines []Line, excluded []Exclusion) {
	all, excluded := b.calculations(period)
	return linesOf(all), excluded
}

// here reports whether the series belongs to the tenant's current connection.
func (f *Facts) here(s Series) bool { return f.connectedTo(s.Connection) }

// connectedTo reports whether c is the tenant's current connection.
func (f *Facts) connectedTo(c metering.ConnectionID) bool {
	return f.Connection != nil && c == f.Connection.ID
}

// isInCurrentMode reports whether a connection has the same mode as the current one. Only reports to such connections
// are treated as billed: reports in test mode charge no customer. A provider without modes is in live mode, and so is a
// tenant without a provider.
func (f *Facts) isInCurrentMode(c metering.ConnectionID) bool { return f.isTest(c) == f.inTest() }

// isTest reports whether the connection is in test mode.
func (f *Facts) isTest(c metering.ConnectionID) bool { return slices.Contains(f.InTest, c) }

// inTest reports whether the tenant's current connection is in test mode.
func (f *Facts) inTest() bool { return f.Connection != nil && f.isTest(f.Connection.ID) }

// bills reports whether a provider bills the closed line in the current mode. In the other mode, the period is treated
// as if it closed while there was no provider.
func (f *Facts) bills(l *ClosedLine) bool { return l.Billed && l.Test == f.inTest() }

// currencies returns the currencies of the prices of the meters in the period. It skips meters during their first
// backfill.
func (f *Facts) currencies(period Period) (all []string) {
	for _, m := range f.metersIn(period) {
		if price, priced := f.price(m.ID, period); priced && m.Version.Status != metering.Backfilling {
			all = append(all, price.Currency)
		}
	}
	return all
}

// inCommon returns the common currency, or the tenant's currency if the currencies differ or there are none.
func (f *Facts) inCommon(currencies []string) string {
	if len(slices.Compact(slices.Clone(currencies))) == 1 {
		return currencies[0]
	}
	return f.Settings.Currency
}

// CurrencyOf returns the currency of a statement: the common currency of its lines, or the tenant's currency if they
// have none in common.
func CurrencyOf(lines []Line, s Settings) string {
	currencies := make([]string, len(lines))
	for i, l := range lines {
		currencies[i] = l.Currency
	}
	return (&Facts{Settings: s}).inCommon(currencies)
}
