package billing_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// In some lives the tenant's provider bills amounts instead of quantities. Each line is one pending item of the
// subscription, set to the line's amount. The item goes onto the invoice of the subscription's period in which it
// was created. Such a life keeps its first connection, so no other provider bills its usage.

// item is a line of an invoice with an amount that Odometer sets.
type item struct {
	line     itemKey
	currency string
	set      metering.Decimal
	amount   metering.Decimal // on the invoice: a person may have edited it
	invoice  *invoice
	by       uuid.UUID        // the last report that set it
	units    metering.Decimal // of that report's line
	madeAt   time.Time
}

// itemKey identifies an item: its contract, the meter, the period of the usage, the window, and whether it is an
// adjustment for late usage.
type itemKey struct {
	contract       string
	meter          metering.MeterID
	period, window int64
	late           bool
}

// lineOf returns the key of the item that a report sets.
func lineOf(r *storedReport) itemKey {
	return itemKey{r.Target, r.Lines[0].MeterID, r.Period.UnixMicro(), r.Window.Start.UnixMicro(), r.Late}
}

// setsItem sets the item of a report to the report's amount, and creates the item if it does not exist. It
// returns false if the invoice is final, or if no invoice accepts the item.
func (f *farSide) setsItem(r *storedReport, now time.Time) (taken bool) {
	line := lineOf(r)
	i := slices.IndexFunc(f.items, func(i *item) bool { return i.line == line })
	if i < 0 {
		in := f.nextInvoice(r, now)
		if in == nil || in.final && f.own && r.Target == billing.OwnInvoice {
			return false
		}
		i, f.items = len(f.items), append(f.items, &item{line: line, currency: r.Currency, invoice: in, madeAt: now})
	}
	it := f.items[i]
	if it.invoice.final {
		return false
	}
	it.set, it.amount, it.by, it.units = r.Quantity, r.Quantity, r.id, r.Lines[0].Quantity
	return true
}

// nextInvoice returns the invoice for an item that is created now, or nil if the contract does not accept the
// charge.
func (f *farSide) nextInvoice(r *storedReport, now time.Time) *invoice {
	if r.Target == billing.OwnInvoice {
		return f.drafts(r)
	}
	c := f.byID(r.Target)
	if !c.charges(r.Currency) {
		return nil
	}
	c.roll(now)
	return c.last()
}

// chargeLine returns the item's amounts on a final invoice that Odometer has read. It returns nil if there is no
// such invoice, or if the ledger lacks the report that last set the item.
func (f *farSide) chargeLine(l *ledger, line itemKey) *billing.ChargeLine {
	i := slices.IndexFunc(f.items, func(i *item) bool { return i.line == line })
	if i < 0 || !f.items[i].invoice.heard || f.items[i].invoice.none {
		return nil
	}
	it := f.items[i]
	if !l.has(it.by) {
		return nil
	}
	return &billing.ChargeLine{Amount: it.amount, Set: it.set, Currency: it.currency, Void: it.invoice.heardVoid}
}

// refuses reports whether the report sets an item of a final invoice that Odometer has not read yet. The provider
// refuses such a report.
func (f *farSide) refuses(r billing.Report) bool {
	if in := f.invoiceOfOurs(r.Window.Start); r.Kind == billing.ChargeReport && r.Target == billing.OwnInvoice && in != nil && in.final && !in.heard {
		return true
	}
	return r.Kind == billing.ChargeReport && slices.ContainsFunc(f.items, func(i *item) bool {
		return i.line == lineOf(&storedReport{Report: r}) && i.invoice.final && !i.invoice.heard
	})
}

// noteLines sets Line of each series that charges an item: the amounts on the final invoice, or nil.
func (l *ledger) noteLines(all []billing.Reported) {
	for n := range all {
		r := &all[n]
		if r.Kind == billing.ChargeReport && r.Counting == billing.Replaces {
			r.Line = l.sideOfConnection(r.Connection).chargeLine(l, itemKey{r.Target, r.MeterID, r.Period.UnixMicro(), r.Window.Start.UnixMicro(), r.Late})
		}
	}
}

// charges returns the destinations of the meters' charges for a customer with contract c. If c is nil, the
// charges go to standalone invoices. If f has no standalone invoices either, they are excluded.
func (f *farSide) charges(c *contract, meters []metering.Meter) []billing.Destination {
	all := []billing.Destination{}
	for _, m := range meters {
		d := billing.Destination{MeterID: m.ID, Excluded: billing.NoTarget("the customer has no subscription")}
		if c == nil && f.own {
			d = billing.Destination{MeterID: m.ID, Method: "item", Counting: billing.Replaces, NotNegative: true}
		}
		if c != nil {
			d = billing.Destination{MeterID: m.ID, Target: c.id, Method: "item", Counting: billing.Replaces, NotNegative: true}
		}
		all = append(all, d)
	}
	return all
}

// edits changes the amount of one item of a draft, as a person does at the provider. The amount remains until
// Odometer sets the item again.
func (l *life) edits() bool {
	for _, f := range l.farSides {
		for _, it := range f.items {
			if !it.invoice.final && it.amount.Equal(it.set) && !it.set.IsZero() && l.now.After(it.invoice.End) {
				it.amount = it.set.Add(metering.Whole(int64(l.rng.IntN(9) - 4)))
				return true
			}
		}
	}
	return false
}

// billsOtherwise switches the connection between amounts and quantities, for periods that begin from now on.
func (l *life) billsOtherwise() bool {
	if !l.charging || l.own || l.connection == nil {
		return false
	}
	c := *l.connection
	c.BillsBefore, c.BillsSince, c.Bills = c.Bills, l.now, metering.BillsAmounts
	if c.BillsBefore == metering.BillsAmounts {
		c.Bills = metering.BillsQuantities
	}
	l.connection = &c
	l.look()
	return true
}

// checkCharged checks a closed line that is billed in amounts. Its own item and the adjustments of later periods
// add up to its charge, with late usage unless that is only reported. The sum may be lower if adjustments cannot
// be billed now, and higher if usage decreased after it was charged. Waived and disputed amounts are treated as
// billed.
func (l *life) checkCharged(p billing.Period, line billing.ClosedLine) {
	own := new(big.Rat)
	for _, it := range l.farSides[0].items {
		if !it.line.late && it.line.meter == line.MeterID && it.line.period == p.Start.UnixMicro() {
			own.Add(own, rational(it.set))
		}
	}
	_, charged := l.billedOf(p, line, line.Test)
	late := rational(charged[line.Currency])
	worth := l.worth(p, line)
	want := new(big.Rat).Sub(worth[len(worth)-1], own)
	for _, b := range l.bookingsOf(p, line) {
		if !b.Billed { // the late usage is only reported
			want.Sub(want, rational(b.Charge.Sub(b.ChargeBefore)))
		}
	}
	switch least := late.Cmp(want); {
	case least < 0 && l.reachable(line.Currency):
		l.failf("%s %s are charged of meter %d in the period from %s, and %s later; %s are due later", own.FloatString(4), line.Currency, line.MeterID, p.Start, late.FloatString(4), want.FloatString(4))
	case least > 0 && late.Cmp(l.mostLate(p, line, own, worth)) > 0:
		l.failf("%s %s are charged of meter %d in the period from %s, and %s later, which never were due", own.FloatString(4), line.Currency, line.MeterID, p.Start, late.FloatString(4))
	}
}

// mostLate returns the highest amount that was ever due with later periods. A charged amount is not refunded.
func (l *life) mostLate(p billing.Period, line billing.ClosedLine, own *big.Rat, worth []*big.Rat) *big.Rat {
	most := new(big.Rat)
	for _, w := range worth {
		if due := new(big.Rat).Sub(w, own); due.Cmp(most) > 0 {
			most = due
		}
	}
	return most
}
