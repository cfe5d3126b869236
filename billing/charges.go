package billing

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// elsewhere is what other series have billed of one meter. What may have
// arrived there counts until it is known that it has not.
type elsewhere struct {
	quantity metering.Decimal
	amounts  map[string]metering.Decimal // by currency; of what a provider charged its own price for, none
	parts    []elsewherePart
	invoiced struct{ reported, billed metering.Decimal } // of the quantity, what providers price
}

// elsewherePart is what one of them has billed.
type elsewherePart struct {
	series           Series
	quantity, amount metering.Decimal
	least            metering.Decimal // the part of the quantity that arrived in any case
	currency         string
	theirs           bool // a provider charged its own price for the quantity
}

// money is what the parts have billed of the calculation's charge: quantities that
// a provider charged its own price for as the charge for their units, before any
// others, and amounts as they were reported. So all that was reported in amounts
// comes to the charge for all units less that for theirs, in whatever order the
// parts were reported. If a report's outcome is unknown and fewer units may cost more,
// the units count at the highest charge that they may have: the rest waits.
func (c *calculation) money() (parts []elsewherePart) {
	var least, units metering.Decimal
	charge := func() (charge metering.Decimal) {
		if !units.IsZero() { // the base price goes with the first units
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

// highestFor returns the highest charge for any quantity from least to units, which are
// without a number of events.
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

// inScale is a quantity in the decimals that others' are rounded to.
func (c *calculation) inScale(quantity metering.Decimal) metering.Decimal {
	if scale := c.otherScale(); scale != nil {
		return Units(quantity, *scale)
	}
	return quantity
}

// elsewhereAmount is what others have billed of the charge. A provider that has
// its own price begins anew with the units that are left to it.
func (c *calculation) elsewhereAmount() (sum metering.Decimal) {
	if c.theirs != nil && c.late == nil && len(c.others.parts) > 0 {
		return c.charge().Sub(c.chargeFor(c.first(c.quantity())))
	}
	for _, p := range c.money() {
		sum = sum.Add(p.amount)
	}
	return sum
}

// add counts what a series was reported. Of what is added up all counts, of
// what is overwritten the last; of what is invoiced, what is on the invoices. Its
// amount is as it was reported, less that of what they lack.
func (e *elsewhere) add(r *Reported, price Price) {
	s := r.billed()
	if r.Line != nil { // whatever is known of the reports
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
	e.parts = append(e.parts, elsewherePart{series: r.Series, quantity: quantity, amount: amount, least: r.leastUnits(), currency: s.Currency, theirs: theirs})
}

// lacking is the charge for what invoices lack of a series' reported units.
func (e *elsewhere) lacking(reported, billed metering.Decimal, price Price, currency string) (charge metering.Decimal) {
	before := e.invoiced
	e.invoiced.reported, e.invoiced.billed = before.reported.Add(reported), before.billed.Add(billed)
	if price.Currency != currency {
		return charge
	}
	cost := func(units metering.Decimal) (cost metering.Decimal) {
		if units.IsZero() {
			return cost // the base price goes with the first units
		}
		return price.ChargeIn(currency, unitsAlone(units))
	}
	return cost(e.invoiced.reported).Sub(cost(before.reported)).Sub(cost(e.invoiced.billed).Sub(cost(before.billed)))
}

// billed is what the far side has at the most: of what is outstanding that may
// have arrived, or may not.
func (r *Reported) billed() Sums {
	s := r.Standing
	s.Value, s.Added = larger(s.Value, r.Taken.Value), larger(s.Added, r.Taken.Added)
	if !r.Taken.Any || s.Currency == r.Taken.Currency {
		s.Amount = larger(s.Amount, r.Taken.Amount)
	}
	return s
}

// least is what the far side has at the least.
func (r *Reported) least() Sums {
	s := r.Standing
	s.Value, s.Added = smaller(s.Value, r.Taken.Value), smaller(s.Added, r.Taken.Added)
	if !r.Taken.Any || s.Currency == r.Taken.Currency {
		s.Amount = smaller(s.Amount, r.Taken.Amount)
	}
	return s
}

// units are what the far side bills of the series: what final invoices do, else
// what it has at the most. Less than nothing of a quantity is billed as nothing.
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

// leastUnits returns the units that the provider bills of the series in any case.
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

// counted is what the far side has of the reports.
func (s Sums) counted(c Counting) metering.Decimal {
	if c == Adds {
		return s.Added
	}
	return s.Value
}

// billed adds up what series of the period have been reported of each meter.
func (b *Books) billed(period Period, counts func(*Reported) bool) map[metering.MeterID]elsewhere {
	all := make(map[metering.MeterID]elsewhere)
	for n := range b.Reported {
		r := &b.Reported[n]
		if r.about(period) && b.counts(r.Connection) && counts(r) {
			e := all[r.MeterID]
			e.add(r, b.priceIn(r.MeterID, period))
			all[r.MeterID] = e
		}
	}
	return all
}

// price is what the customer is charged for the meter in the period, if it has one.
func (f *Facts) price(meter metering.MeterID, period Period) (price Price, priced bool) {
	return f.Customer.PriceAt(meter, f.Prices[meter], period.Start)
}

// priceIn is price, of a closed period the one that it closed at.
func (f *Facts) priceIn(meter metering.MeterID, period Period) Price {
	if l := period.line(meter); l != nil {
		return Price{MeterID: meter, Version: l.PriceVersion, Terms: l.Terms}
	}
	price, _ := f.price(meter, period)
	return price
}

// usage is what the meter has counted in the period.
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

// here says whether the series is of the tenant's present connection.
func (f *Facts) here(s Series) bool { return f.connectedTo(s.Connection) }

func (f *Facts) connectedTo(c metering.ConnectionID) bool {
	return f.Connection != nil && c == f.Connection.ID
}

// counts says whether what a connection was reported counts now. What is
// reported in test mode is charged to nobody: for a connection in live mode it
// does not, nor the other way round. A provider that knows no modes is in live
// mode, and so is a tenant without one.
func (f *Facts) counts(c metering.ConnectionID) bool { return f.isTest(c) == f.inTest() }

func (f *Facts) isTest(c metering.ConnectionID) bool { return slices.Contains(f.InTest, c) }

func (f *Facts) inTest() bool { return f.Connection != nil && f.isTest(f.Connection.ID) }

// bills says whether the line was billed for all that counts now. To another
// mode the period is one that closed while there was no provider.
func (f *Facts) bills(l *ClosedLine) bool { return l.Billed && l.Test == f.inTest() }

// currencies are those of the meters' prices in the period.
func (f *Facts) currencies(period Period) (all []string) {
	for _, m := range f.metersIn(period) {
		if price, priced := f.price(m.ID, period); priced && m.Version.Status != metering.Backfilling {
			all = append(all, price.Currency)
		}
	}
	return all
}

// inCommon is the tenant's currency where these differ or are none.
func (f *Facts) inCommon(currencies []string) string {
	if len(slices.Compact(slices.Clone(currencies))) == 1 {
		return currencies[0]
	}
	return f.Settings.Currency
}

// CurrencyOf is the currency of a statement: the lines' where they have one in
// common, else the tenant's.
func CurrencyOf(lines []Line, s Settings) string {
	currencies := make([]string, len(lines))
	for i, l := range lines {
		currencies[i] = l.Currency
	}
	return (&Facts{Settings: s}).inCommon(currencies)
}
