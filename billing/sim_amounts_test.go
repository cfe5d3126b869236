package billing_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// In some lives the tenant's counters are charged amounts: each line is one
// pending item of the subscription, which is set to what the line comes to. The
// invoice of the period in which it was made takes it. Such a life stays with its
// first counter: it is not billed anywhere else, so that all is in money.

// item is a line of an invoice that is set from here.
type item struct {
	line     itemKey
	currency string
	set      metering.Decimal
	amount   metering.Decimal // somebody else may have made another of it
	invoice  *invoice
	by       uuid.UUID        // the report that set it last
	units    metering.Decimal // that it says it is for
	madeAt   time.Time
}

// itemKey is what a line is of: a meter in a period, as its own or with a later one.
type itemKey struct {
	contract       string
	meter          metering.MeterID
	period, window int64
	late           bool
}

func lineOf(r *storedReport) itemKey {
	return itemKey{r.Target, r.Lines[0].MeterID, r.Period.UnixMicro(), r.Window.Start.UnixMicro(), r.Late}
}

// setsItem sets, or makes, the line of a report. An invoice that is final takes nothing.
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

// nextInvoice is the one that a line that is made now goes on; nil: none takes it.
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

// chargeLine is what a final invoice that was heard of has of a line; nil: none has it.
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

// refuses says whether the line of a report is on a final invoice of which nobody
// has heard: it is set in vain until then.
func (f *farSide) refuses(r billing.Report) bool {
	if in := f.invoiceOfOurs(r.Window.Start); r.Kind == billing.ChargeReport && r.Target == billing.OwnInvoice && in != nil && in.final && !in.heard {
		return true
	}
	return r.Kind == billing.ChargeReport && slices.ContainsFunc(f.items, func(i *item) bool {
		return i.line == lineOf(&storedReport{Report: r}) && i.invoice.final && !i.invoice.heard
	})
}

// noteLines notes in series of charges what final invoices have of them.
func (l *ledger) noteLines(all []billing.Reported) {
	for n := range all {
		r := &all[n]
		if r.Kind == billing.ChargeReport && r.Counting == billing.Replaces {
			r.Line = l.sideOfConnection(r.Connection).chargeLine(l, itemKey{r.Target, r.MeterID, r.Period.UnixMicro(), r.Window.Start.UnixMicro(), r.Late})
		}
	}
}

// charges is where the meters' charges go of who has the contract.
func (f *farSide) charges(c *contract, meters []metering.Meter) []billing.Destination {
	all := []billing.Destination{}
	for _, m := range meters {
		d := billing.Destination{MeterID: m.ID, Excluded: "the customer has no subscription"}
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

// edits has somebody change a line of a draft, which stands until it is set again.
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

// billsOtherwise has the tenant bill in another way: each customer's next period.
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

// checkCharged holds, for a closed line in amounts, that what its own line and
// those of later periods bill, and what is waived or in dispute, is its charge.
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
		if !b.Billed { // it is only reported
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

// mostLate is the most that was due later at any time: what is charged is not given back.
func (l *life) mostLate(p billing.Period, line billing.ClosedLine, own *big.Rat, worth []*big.Rat) *big.Rat {
	most := new(big.Rat)
	for _, w := range worth {
		if due := new(big.Rat).Sub(w, own); due.Cmp(most) > 0 {
			most = due
		}
	}
	return most
}
