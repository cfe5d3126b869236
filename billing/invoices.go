package billing

import (
	"cmp"
	"iter"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Invoice is a final invoice of a provider's, with the lines that meters of ours
// have made. Only it says what is billed of quantities: that a provider has
// accepted or counted one does not. Where a subscription has ended and makes none
// any more, that stands in the place of the last one.
type Invoice struct {
	ID           string
	Connection   metering.ConnectionID // with which it was read
	Customer     string                // at the provider
	Subscription string
	Period       metering.Range // of the subscription's, whose usage it bills
	Renewal      bool           // it is the last one of the period
	Ended        bool           // it is none: the subscription has ended, and all invoices of its last period are final
	Void         bool           // nobody has to pay it
	Lines        []InvoiceLine
}

// InvoiceLine is what an invoice bills of one meter, before discounts and tax.
type InvoiceLine struct {
	MeterID  metering.MeterID
	Quantity metering.Decimal // units
	Amount   metering.Decimal // in the invoice's currency, at the provider's price
	Currency string           // ISO 4217
	Price    string           // the provider's, of all of its lines; "": they have several
	Lines    int              // how many it has of the meter, each rounded by itself
}

// invoiced is what the final invoices of one of a subscription's periods bill,
// once the last of them is final.
type invoiced struct {
	Invoice
	units map[metering.MeterID]metering.Decimal
	more  map[metering.MeterID]metering.Decimal // of them, beyond what was, or may have been, taken
	lines []InvoiceLine
}

// invoicedPeriods are those of which the last invoice is final.
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
					continue // it is another stream's
				}
				i.units[l.MeterID] = i.units[l.MeterID].Add(l.Quantity)
				i.lines = append(i.lines, l)
			}
		}
		all = append(all, i)
	}
	return all
}

// follower is the stream that has a subscription.
func (f *Facts) follower(subscription string) (stream int) {
	for _, of := range f.Followed {
		if of.Subscription == subscription {
			stream = of.Stream
		}
	}
	return stream
}

// answersFor says whether what nobody has reported of an invoice's meter is for the
// stream: it has the subscription, or the meter did not feed the one that has it.
func (f *Facts) answersFor(i Invoice, meter metering.MeterID) bool {
	follower := *f
	follower.Stream = f.follower(i.Subscription)
	return follower.Stream == f.Stream || follower.fed(meter, i.Period).Empty()
}

// concerns says whether the invoices of a subscription bill anything of the stream:
// it has the subscription, or had it, or was reported to it.
func (f *Facts) concerns(i Invoice) bool {
	return f.follower(i.Subscription) == f.Stream ||
		slices.ContainsFunc(f.Stored, func(p Period) bool { return p.Subscription.ID == i.Subscription }) ||
		containsAny(f.Reported, func(r *Reported) bool { return r.To.Subscription == i.Subscription })
}

// isReportedTo says whether usage of the meter was reported to the subscription.
func (f *Facts) isReportedTo(subscription string, meter metering.MeterID) bool {
	return containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && r.To.Subscription == subscription })
}

// hasEnded says whether the subscription has, and makes no invoice any more.
func (f *Facts) hasEnded(s Subscription) bool {
	return s.ID != "" && slices.ContainsFunc(f.Invoices, func(i Invoice) bool { return i.Ended && i.Subscription == s.ID })
}

// samePeriod says whether two invoices bill one of a subscription's periods.
func (i Invoice) samePeriod(o Invoice) bool {
	return i.Connection == o.Connection && i.Subscription == o.Subscription && i.Period.Start.Equal(o.Period.Start)
}

// isIn says whether an invoice bills the period that last is the last invoice of:
// of one that was cut short also where it names another part of it.
func (i Invoice) isIn(last Invoice) bool {
	cut := last.Ended && i.Connection == last.Connection && i.Subscription == last.Subscription && i.Period.Start.After(last.Period.Start)
	return cut || i.samePeriod(last)
}

// whose says whether the invoices of one of a subscription's periods bill a meter's
// usage of some time, or would. Of several subscriptions it is the one whose invoices
// of that time name the meter; where none does, any but one whose period another one
// has, which the customer's period is of and which is still to bill it.
func (f *Facts) whose(i invoiced, meter metering.MeterID, of metering.Range, all []invoiced) bool {
	if _, named := i.units[meter]; named || i.Ended { // of the end of one, says decides
		return true
	}
	instead := func(o invoiced) bool { // it bills, or would, all of the meter that this one does
		beside := o.Connection == i.Connection && o.Customer == i.Customer && o.Subscription != i.Subscription && !o.Period.Intersect(i.Period).Empty()
		return beside && !containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && f.isOn(i.Invoice, r) && !f.isOn(o.Invoice, r) })
	}
	named := func(o invoiced) bool {
		_, named := o.units[meter]
		return named && instead(o) && !o.Period.Intersect(of).Empty()
	}
	if slices.ContainsFunc(all, named) {
		return false
	}
	return !slices.ContainsFunc(f.Stored, func(p Period) bool {
		s := p.Subscription
		own := invoiced{Invoice: Invoice{Connection: i.Connection, Customer: i.Customer, Subscription: s.ID, Period: s.Range}}
		toCome := s.ID != "" && !slices.ContainsFunc(all, func(o invoiced) bool { return o.samePeriod(own.Invoice) })
		return toCome && instead(own) && !p.Intersect(s.Range).Intersect(i.Period).Empty()
	})
}

// isOn says whether what the series was reported is on the invoice: on one of the
// subscription that it was reported to, or of another with the same periods. One that
// has a stream of its own has other ones, also if they begin with those of another.
func (f *Facts) isOn(i Invoice, r *Reported) bool {
	same := r.To.Start.Equal(i.Period.Start) && f.follower(r.To.Subscription) == 0 && f.follower(i.Subscription) == 0
	to := r.To.Subscription == "" || r.To.Subscription == i.Subscription || same
	return to && r.Kind == QuantityReport && r.Connection == i.Connection && r.Customer == i.Customer && i.Period.Contains(r.Window.Start)
}

// says says whether an invoice shows what is billed of the series. That another
// subscription has ended says nothing of one there in whose period the series lies.
func (f *Facts) says(i Invoice, r *Reported) bool {
	if i.Ended && r.To.Subscription != "" {
		return f.isOn(i, r) && r.To.Subscription == i.Subscription
	}
	another := func(p Period) bool {
		return r.about(p) && p.Subscription.ID != i.Subscription && p.Subscription.isAt(i.Connection) && p.Subscription.Contains(r.Window.Start)
	}
	return f.isOn(i, r) && (!i.Ended || !slices.ContainsFunc(f.Stored, another))
}

// isAt says whether the subscription is, or may be, one at the connection.
func (s Subscription) isAt(c metering.ConnectionID) bool {
	return s.Connection == 0 || s.Connection == c
}

// share notes in each series what of the invoiced units is its own: what was
// taken, less, from the newest on, what the invoices lack. What they have more
// was in doubt, or comes from somebody else. What the invoices of another
// subscription were found to bill of the series is added. A void invoice bills
// what was taken, from nobody.
func (b *Books) share(of invoiced, meter metering.MeterID) {
	var series []*Reported
	var taken metering.Decimal
	units := of.units[meter]
	for r := range b.quantities() {
		if r.MeterID != meter || !b.says(of.Invoice, r) {
			continue
		}
		value := r.Taken.counted(r.Counting)
		if r.Invoiced != nil {
			units = units.Add(*r.Invoiced)
		}
		r.Invoiced, taken = &value, taken.Add(value)
		series = append(series, r)
	}
	if of.Void && (taken.IsNegative() || units.Cmp(taken) <= 0) {
		return // what was accepted counts as on it, whatever it lists
	}
	slices.SortFunc(series, func(a, b *Reported) int { // in the same order, of whichever stream the facts are
		return cmp.Or(a.Window.Start.Compare(b.Window.Start), cmp.Compare(a.Number, b.Number))
	})
	lacking := taken.Sub(units)
	if taken.IsNegative() { // which is billed as nothing; where something is billed, a decrease has not arrived
		for _, r := range slices.Backward(series) {
			gone := smaller(notNegative(negative(lacking)), notNegative(negative(*r.Invoiced)))
			*r.Invoiced, lacking = r.Invoiced.Add(gone), lacking.Add(gone)
		}
	}
	for _, r := range slices.Backward(series) {
		cut := smaller(notNegative(lacking), notNegative(*r.Invoiced))
		*r.Invoiced, lacking = r.Invoiced.Sub(cut), lacking.Sub(cut)
	}
	for _, r := range series {
		inDoubt := notNegative(r.Standing.counted(r.Counting).Sub(*r.Invoiced))
		arrived := smaller(inDoubt, notNegative(negative(lacking)))
		*r.Invoiced, lacking = r.Invoiced.Add(arrived), lacking.Add(arrived)
	}
	if !of.Void { // the invoice that replaces it lists the same units once more
		of.more[meter] = negative(lacking)
	}
}

// quantities are what the stream was reported, and what others were that may be on
// the same invoices.
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
