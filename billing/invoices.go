package billing

import (
	"cmp"
	"iter"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Invoice is a provider's final invoice, with the lines of our meters. Only a final invoice shows which quantities
// are billed: a quantity that the provider has accepted or counted can remain unbilled. If an ended subscription gets
// no further invoice, an Invoice with Ended set takes the place of the last one.
type Invoice struct {
	ID           string
	Connection   metering.ConnectionID // the connection with which the invoice was read
	Customer     string                // at the provider
	Subscription string
	Period       metering.Range // the period of the subscription that the invoice bills
	Renewal      bool           // the invoice is the last one of the period
	Ended        bool           // not an invoice: the subscription ended, and all invoices of its last period are final
	Void         bool           // no payment is due
	Lines        []InvoiceLine
}

// InvoiceLine is the part of an invoice that bills one meter, before discounts and tax.
type InvoiceLine struct {
	MeterID  metering.MeterID
	Quantity metering.Decimal // units
	Amount   metering.Decimal // in the invoice's currency, at the provider's price
	Currency string           // ISO 4217
	Price    string           // the provider's price of all lines; "": the lines have several
	Lines    int              // number of the meter's lines on the invoice, each rounded separately
}

// invoiced combines all final invoices of one period of a subscription, once the period's last invoice is final.
type invoiced struct {
	Invoice
	units map[metering.MeterID]metering.Decimal // units on valid invoices; an entry for each meter that an invoice names
	more  map[metering.MeterID]metering.Decimal // units beyond those that the provider accepted or may have accepted
	lines []InvoiceLine
}

// invoicedPeriods returns the subscription periods with a final last invoice, if they concern this billing schedule.
func (f *Facts) invoicedPeriods() (all []invoiced) {
	for _, last := range f.Invoices {
		if !last.Renewal || !f.concerns(last) || slices.ContainsFunc(all, func(known invoiced) bool { return known.samePeriod(last) }) {
			continue
		}
		i := invoiced{Invoice: last, units: make(map[metering.MeterID]metering.Decimal), more: make(map[metering.MeterID]metering.Decimal)}
		for _, invoice := range f.Invoices {
			if !invoice.isIn(last) {
				continue
			}
			i.Void = i.Void || invoice.Void
			for _, l := range invoice.Lines {
				if f.fed(l.MeterID, invoice.Period).Empty() && !f.isReportedTo(invoice.Subscription, l.MeterID) {
					continue // the line belongs to another billing schedule
				}
				valid := l.Quantity
				if invoice.Void {
					valid = metering.Decimal{}
				}
				i.units[l.MeterID] = i.units[l.MeterID].Add(valid)
				i.lines = append(i.lines, l)
			}
		}
		all = append(all, i)
	}
	return all
}

// follower returns the number of a subscription's billing schedule: 0, unless the subscription has its own.
func (f *Facts) follower(at metering.ConnectionID, subscription string) (stream int) {
	for _, of := range f.Followed {
		if of.Connection == at && of.Subscription == subscription {
			stream = of.Stream
		}
	}
	return stream
}

// answersFor reports whether unreported units of a meter on an invoice belong to this billing schedule. They do if this
// schedule is the subscription's, or if the meter did not belong to the subscription's schedule in the invoice's
// period.
func (f *Facts) answersFor(i Invoice, meter metering.MeterID) bool {
	follower := *f
	follower.Stream = f.follower(i.Connection, i.Subscription)
	return follower.Stream == f.Stream || follower.fed(meter, i.Period).Empty()
}

// concerns reports whether an invoice's subscription may bill usage of this billing schedule. This is so if the
// schedule is the subscription's, if a stored period has the subscription, or if usage was reported to the
// subscription.
func (f *Facts) concerns(i Invoice) bool {
	return f.follower(i.Connection, i.Subscription) == f.Stream ||
		slices.ContainsFunc(f.Stored, func(p Period) bool { return p.Subscription.ID == i.Subscription }) ||
		containsAny(f.Reported, func(r *Reported) bool { return r.To.Subscription == i.Subscription })
}

// isReportedTo reports whether usage of the meter was reported to the subscription.
func (f *Facts) isReportedTo(subscription string, meter metering.MeterID) bool {
	return containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && r.To.Subscription == subscription })
}

// hasEnded reports whether the subscription has ended and gets no further invoice.
func (f *Facts) hasEnded(s Subscription) bool {
	return s.ID != "" && slices.ContainsFunc(f.Invoices, func(i Invoice) bool { return i.Ended && i.Subscription == s.ID })
}

// samePeriod reports whether two invoices bill the same period of a subscription.
func (i Invoice) samePeriod(o Invoice) bool {
	return i.Connection == o.Connection && i.Subscription == o.Subscription && i.Period.Start.Equal(o.Period.Start)
}

// isIn reports whether an invoice bills the subscription period of a given last invoice. If the end of a subscription
// cut its period short, invoices that name a later part of the period are included.
func (i Invoice) isIn(last Invoice) bool {
	cut := last.Ended && i.Connection == last.Connection && i.Subscription == last.Subscription && i.Period.Start.After(last.Period.Start)
	return cut || i.samePeriod(last)
}

// coversMeter reports whether the invoices of a subscription's period bill a meter's usage in a range, or would bill
// it. The first case that applies decides:
//   - true: the invoices name the meter, or stand for the end of a subscription.
//   - false: the invoices of an overlapping subscription name the meter in that range, and cover every report of the
//     meter that these invoices cover.
//   - false: a stored period that overlaps the invoices follows another subscription, and the last invoice of that
//     subscription's period is not final. Its invoices would cover every report of the meter that these invoices cover.
//   - true: all other cases.
func (f *Facts) coversMeter(i invoiced, meter metering.MeterID, of metering.Range, all []invoiced) bool {
	if _, named := i.units[meter]; named || i.Ended { // for an ended subscription, showsBilled decides
		return true
	}
	named := func(o invoiced) bool {
		_, named := o.units[meter]
		return named && f.replaces(o.Invoice, i.Invoice, meter) && !o.Period.Intersect(of).Empty()
	}
	if slices.ContainsFunc(all, named) {
		return false
	}
	return !slices.ContainsFunc(f.Stored, func(p Period) bool {
		s := p.Subscription
		own := invoiced{Invoice: Invoice{Connection: i.Connection, Customer: i.Customer, Subscription: s.ID, Period: s.Range}}
		toCome := s.ID != "" && !slices.ContainsFunc(all, func(o invoiced) bool { return o.samePeriod(own.Invoice) })
		return toCome && f.replaces(own.Invoice, i.Invoice, meter) && !p.Intersect(s.Range).Intersect(i.Period).Empty()
	})
}

// replaces reports whether invoice o is of another subscription, overlaps invoice i, and covers every report of the
// meter that i covers.
func (f *Facts) replaces(o, i Invoice, meter metering.MeterID) bool {
	beside := o.Connection == i.Connection && o.Customer == i.Customer && o.Subscription != i.Subscription && !o.Period.Intersect(i.Period).Empty()
	return beside && !containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && f.isOn(i, r) && !f.isOn(o, r) })
}

// isOn reports whether the invoice covers the quantities of the series. They were reported to the invoice's
// subscription, to an unrecorded one, or to one with the same periods. A subscription with its own billing schedule
// never has the same periods as another one, even if both start at the same time.
func (f *Facts) isOn(i Invoice, r *Reported) bool {
	same := r.To.Start.Equal(i.Period.Start) && f.follower(r.Connection, r.To.Subscription) == 0 && f.follower(i.Connection, i.Subscription) == 0
	to := r.To.Subscription == "" || r.To.Subscription == i.Subscription || same
	return to && r.Kind == QuantityReport && r.Connection == i.Connection && r.Customer == i.Customer && i.Period.Contains(r.Window.Start)
}

// showsBilled reports whether an invoice shows how much of the series is billed. The end of a subscription shows this
// only for a series that was reported to that subscription. If the series records no subscription, it must not lie in
// the period of another subscription at the connection.
func (f *Facts) showsBilled(i Invoice, r *Reported) bool {
	if i.Ended && r.To.Subscription != "" {
		return f.isOn(i, r) && r.To.Subscription == i.Subscription
	}
	another := func(p Period) bool {
		return r.about(p) && p.Subscription.ID != i.Subscription && p.Subscription.isAt(i.Connection) && p.Subscription.Contains(r.Window.Start)
	}
	return f.isOn(i, r) && (!i.Ended || !slices.ContainsFunc(f.Stored, another))
}

// isAt reports whether the subscription is, or may be, at the connection.
func (s Subscription) isAt(c metering.ConnectionID) bool {
	return s.Connection == 0 || s.Connection == c
}

// share stores in each series of a meter the units that the invoices bill of it, and in the invoices the units that they
// bill beyond that (invoiced.more). The units include those that the invoices of another subscription bill of the series.
func (b *Books) share(of invoiced, meter metering.MeterID) {
	var series []*Reported
	units, void := of.units[meter], of.Void
	for r := range b.quantities() {
		if r.MeterID != meter || !b.showsBilled(of.Invoice, r) {
			continue
		}
		if r.Invoiced != nil {
			units, void = units.Add(r.Invoiced.Sub(r.Void)), void || !r.Void.IsZero()
		}
		series = append(series, r)
	}
	slices.SortFunc(series, func(a, b *Reported) int { // the same order for the facts of every billing schedule
		return cmp.Or(a.Window.Start.Compare(b.Window.Start), cmp.Compare(a.Number, b.Number))
	})
	shares, more := allocate(units, void, series)
	for n, r := range series {
		r.Invoiced, r.Void = &shares[n].units, shares[n].void
	}
	of.more[meter] = more
}

// invoicedShare is the part of the invoiced units of a meter that belongs to one series.
type invoicedShare struct {
	units metering.Decimal
	void  metering.Decimal // part of units for which no payment is due
}

// allocate divides the units that valid invoices bill of one meter among its series, oldest window first:
//  1. Each series gets the quantity that the provider has accepted, as long as there are units.
//  2. If the units do not suffice, the newest series lack them. If an invoice is void, these series get their quantity
//     as void units instead, because a valid invoice may replace the void one.
//  3. If there are more units, the oldest series with an outstanding report get them, up to its quantity.
//  4. The rest has another source. It is returned in more.
//
// A negative quantity is billed as 0. allocate changes no series.
func allocate(units metering.Decimal, void bool, series []*Reported) (shares []invoicedShare, more metering.Decimal) {
	shares = make([]invoicedShare, len(series))
	var taken metering.Decimal
	for n, r := range series {
		shares[n].units = r.Taken.counted(r.Counting)
		taken = taken.Add(shares[n].units)
	}
	more = units.Sub(taken)
	if taken.IsNegative() { // the invoices bill 0; if they bill more, a decrease has not arrived
		for n := range slices.Backward(shares) {
			s := &shares[n]
			gone := smaller(notNegative(more), notNegative(negative(s.units)))
			s.units, more = s.units.Add(gone), more.Sub(gone)
		}
	}
	for n := range slices.Backward(shares) {
		s := &shares[n]
		cut := smaller(notNegative(negative(more)), notNegative(s.units))
		if more = more.Add(cut); void {
			s.void = cut
		} else {
			s.units = s.units.Sub(cut)
		}
	}
	for n, r := range series {
		s := &shares[n]
		arrived := smaller(notNegative(r.Standing.counted(r.Counting).Sub(s.units)), notNegative(more))
		s.units, more = s.units.Add(arrived), more.Sub(arrived)
	}
	return shares, more
}

// quantities iterates over the series of this billing schedule, and over the series of the customer's other schedules
// that may be on the same invoices.
func (b *Books) quantities() iter.Seq[*Reported] {
	return func(yield func(*Reported) bool) {
		for _, all := range [][]Reported{b.Reported, b.Beside} {
			for n := range all {
				if !yield(&all[n]) {
					return
				}
			}
		}
	}
}

func negative(d metering.Decimal) metering.Decimal { return metering.Decimal{}.Sub(d) }

func notNegative(d metering.Decimal) metering.Decimal { return larger(d, metering.Decimal{}) }

func smaller(a, b metering.Decimal) metering.Decimal {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}
