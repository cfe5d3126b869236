package billing_test

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// In some lives the customer has no subscription to begin with, and every counter
// charges amounts: each closed period becomes an invoice of ours. Such a life goes
// on from backups, and from one connection to another, as all of it is in money.

// own says whether the life of a seed is one of those.
func own(seed uint64) bool { return seed%8 == 5 }

// leading are the steps that lead a life away from its connection: three of five
// lives with invoices of ours stay.
var leading = []string{"a new receiver", "the receiver moves", "a new counter", "another mode", "no connection", "an unlink"}

// stays says whether the life of a seed that is one of some stays where it began.
func stays(seed uint64) bool { return seed%5 > 1 }

// beginOwn has the life begin at a counter, without a subscription.
func (l *life) beginOwn(seed uint64) {
	l.stays = stays(seed)
	l.own, l.charging, l.farSides, l.known, l.tests = true, true, nil, nil, nil
	l.stated, l.dearest = make(map[int64]bool), make(map[usedKey]*big.Rat)
	l.connect(false, false)
}

// chargesAlone has who is connected in such a life charge amounts.
func (l *life) chargesAlone() {
	if l.own && !l.farSide.receiver {
		l.farSide.own, l.farSide.charging, l.connection.Bills = true, true, metering.BillsAmounts
	}
	if l.known = slices.Clone(l.known); !slices.Contains(l.known, l.farSide) {
		l.known = append(l.known, l.farSide)
	}
}

// invoiceOfOurs is the one of the period that begins then; nil: there is none.
func (f *farSide) invoiceOfOurs(start time.Time) *invoice {
	i := slices.IndexFunc(f.ours, func(in *invoice) bool { return in.Start.Equal(start) })
	if i < 0 {
		return nil
	}
	return f.ours[i]
}

// drafts finds the invoice of ours that a line goes on, or makes it.
func (f *farSide) drafts(r *storedReport) *invoice {
	in := f.invoiceOfOurs(r.Window.Start)
	if in == nil {
		in = &invoice{Range: r.Window}
		f.ours = append(f.ours, in)
	}
	return in
}

// finalizes makes the invoice of ours final that an action is about, if there is one.
func (f *farSide) finalizes(r *storedReport) (taken bool) {
	in := f.invoiceOfOurs(r.Window.Start)
	if in != nil {
		in.final = true
	}
	return in != nil
}

// foundItems are the lines that were made since an instant, as they stand.
func (f *farSide) foundItems(since time.Time) (all []billing.FoundCharge) {
	for _, it := range f.items {
		if it.madeAt.Before(since.Add(-time.Hour)) {
			continue
		}
		all = append(all, billing.FoundCharge{
			ReportID: it.by, MeterID: it.line.meter, Subscription: it.line.contract, Object: "item", Method: "item",
			Closed: time.UnixMicro(it.line.period).UTC().Truncate(time.Second), Target: time.UnixMicro(it.line.window).UTC().Truncate(time.Second),
			Late: it.line.late, Units: it.units, Amount: it.set, Currency: it.currency,
		})
	}
	return all
}

// keepFound notes of the lines that were found and are known that they were taken.
func (l *ledger) keepFound(found []billing.FoundCharge, now time.Time) {
	for _, c := range found {
		for _, r := range l.reports {
			if c.Object != "" && r.id == c.ReportID && r.state == billing.Rejected {
				r.state, r.settledAt = billing.Counted, now
			}
		}
	}
}

// finalized are the reports that make invoices of ours final, of periods that are
// not complete.
func (l *ledger) finalized() (all []billing.Sent) {
	for _, r := range l.reports {
		if r.Kind == billing.ActionReport && l.reaches(r) && !l.period(r.Period).Complete {
			all = append(all, billing.Sent{ID: r.id, Period: r.Period, Number: r.number, Epoch: r.epoch, State: r.state})
		}
	}
	return all
}

// has says whether the ledger has the report.
func (l *ledger) has(report uuid.UUID) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.id == report })
}

// sideOfConnection is the far side of a connection.
func (c *catalog) sideOfConnection(of metering.ConnectionID) *farSide {
	i := slices.IndexFunc(c.known, func(f *farSide) bool { return f.connection == of })
	return c.known[i]
}

// unsubscribed says whether the customer is linked, and no subscription runs.
func (l *life) unsubscribed() bool {
	return l.own && l.connection != nil && !l.connection.Statements && l.providerID != "" && l.farSide.contract(l.providerID) == nil
}

// seenBefore has each month of who has no subscription known before it ends, as
// what runs every day would.
func (l *life) seenBefore(to time.Time) {
	for l.unsubscribed() {
		border := billing.CalendarPeriod(l.now, l.settings.Timezone).End
		if border.After(to) {
			return
		}
		known := slices.ContainsFunc(l.periods, func(p billing.Period) bool { return p.End.Equal(border) && (p.Own() || p.ClosedAt != nil) })
		if before := border.Add(-time.Minute); !known && before.After(l.now) {
			l.now = before
			l.sync()
		}
		l.now = border
	}
}

// owning are the kinds of steps of lives with invoices of ours.
var owning = []kind{
	{"a month is billed", 10, (*life).billsMonth},
	{"a subscription begins", 3, (*life).subscribes},
	{"a subscription ends", 6, (*life).unsubscribes},
	{"an invoice of ours is read", 5, (*life).readsOurs},
	{"a draft of ours is made final by hand", 16, (*life).finalizesByHand},
	{"an invoice of ours is voided", 4, (*life).voids},
	{"a price by dimension", 5, (*life).newPriceByDimension},
	{"usage without a price by dimension", 5, (*life).usesUnrated},
}

// billsMonth lets the month end, and its grace, and a worker bill it, as far as it comes.
func (l *life) billsMonth() bool {
	if !l.unsubscribed() || !l.passBorder(l.settings.Grace) {
		return false
	}
	l.use(l.now.Add(-l.settings.Grace-time.Duration(l.rng.IntN(200))*time.Hour), l.someMeter(), l.value())
	l.tracksMoney()
	l.closePeriods()
	return l.goOn(l.rng.IntN(2), 3+l.rng.IntN(12), noTrouble)
}

func (l *life) subscribes() bool {
	if !l.unsubscribed() || l.recovering {
		return false
	}
	l.backup = nil
	l.farSide.subscribe(l.providerID, l)
	if l.rng.IntN(2) == 0 {
		l.sync() // the provider says so
	}
	return true
}

// unsubscribes ends the subscription, at once or with its period, and no other begins.
func (l *life) unsubscribes() bool {
	c := l.present()
	if !l.own || c == nil || l.recovering || !c.last().Start.Before(l.now.Add(-time.Hour)) {
		return false
	}
	l.backup = nil
	if l.rng.IntN(2) == 0 {
		l.cancelsAtTheEnd(c)
		return true
	}
	l.farSide.cancel(c, l.now, l.rng.IntN(2) == 0)
	l.sync()
	return true
}

// readsOurs reads the invoices of ours that have become final, or void, unheard.
func (l *life) readsOurs() bool {
	if !l.own || l.connection == nil || l.connection.Statements {
		return false
	}
	unread := false
	for _, in := range l.farSide.ours {
		if in.final && (!in.heard || in.void && !in.heardVoid) {
			l.hearsOfOurs(in)
			unread = true
		}
	}
	if unread {
		l.sync()
	}
	return unread
}

// idOfOurs is the invoice's id.
func (f *farSide) idOfOurs(in *invoice) string {
	return fmt.Sprint("account ", f.connection, " own ", in.Start.UnixMicro())
}

// hearsOfOurs reads an invoice of ours that is final, in the place of what was
// read of it before.
func (l *life) hearsOfOurs(in *invoice) {
	in.heard, in.heardVoid = true, in.void
	read := storedInvoice{Invoice: billing.Invoice{
		ID: l.farSide.idOfOurs(in), Connection: l.connection.ID, Customer: "cus_1", Subscription: billing.OwnInvoice, Period: in.Range, Renewal: true, Void: in.void,
	}}
	l.invoices = slices.Clone(l.invoices)
	for i := range l.invoices {
		if l.invoices[i].ID == read.ID {
			l.invoices[i].Invoice = billing.Invoice{} // of no period
		}
	}
	l.invoices = append(l.invoices, read)
	l.markInvoiced()
	l.look()
}

// forgetOurs has the far side say again which invoices of ours are final, but for these.
func (f *farSide) forgetOurs(but []storedInvoice) {
	for _, in := range f.ours {
		i := slices.IndexFunc(but, func(i storedInvoice) bool { return i.ID == f.idOfOurs(in) })
		in.heard, in.heardVoid = i >= 0, i >= 0 && but[i].Void
	}
}

// finalizesByHand has somebody make a draft of ours final, whatever it lacks.
func (l *life) finalizesByHand() bool {
	return l.changesOurs(func(in *invoice) bool { return !in.final }, func(in *invoice) { in.final = true })
}

// voids has somebody void an invoice of ours.
func (l *life) voids() bool {
	return l.changesOurs(func(in *invoice) bool { return in.final && !in.void }, func(in *invoice) { in.void = true })
}

func (l *life) changesOurs(can func(*invoice) bool, change func(*invoice)) bool {
	for _, f := range l.farSides {
		for _, in := range f.ours {
			if can(in) {
				change(in)
				return true
			}
		}
	}
	return false
}

// cancel ends the contract at once, with an invoice or without one.
func (f *farSide) cancel(c *contract, now time.Time, none bool) {
	for _, in := range c.invoices {
		in.final = true
	}
	last := c.last()
	c.ended, c.had, last.End, last.cut, last.none = true, f.targets(c), now.Truncate(time.Second), true, none
	for _, taken := range f.calls {
		taken.lost = taken.lost || none && taken.invoice == last
	}
}
