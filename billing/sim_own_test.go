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

// Some simulated customers begin without a subscription, and every provider except receivers charges them
// amounts. At such a provider, a period without a subscription becomes a standalone invoice. These customers can be
// restored from backups and can change their connection, because they are billed in money only.

// own reports whether the simulated customer of a seed begins without a subscription and has standalone invoices.
func own(seed uint64) bool { return seed%8 == 5 }

// leavingSteps lists the steps that take a simulated customer away from its first connection. Customers that stay
// skip these steps: three of five customers with standalone invoices or with two subscriptions.
var leavingSteps = []string{"a new receiver", "the receiver moves", "a new counter", "another mode", "no connection", "an unlink"}

// stays reports whether a simulated customer with standalone invoices or with two subscriptions stays at its first
// connection.
func stays(seed uint64) bool { return seed%5 > 1 }

// beginOwn connects the simulated customer to a provider with invoices, without a subscription.
func (l *life) beginOwn(seed uint64) {
	l.stays = stays(seed)
	l.own, l.charging, l.farSides, l.known, l.tests = true, true, nil, nil, nil
	l.stated, l.dearest = make(map[int64]bool), make(map[usedKey]*big.Rat)
	l.connect(false, false)
}

// chargesAlone makes the connected provider charge amounts if the simulated customer has standalone invoices, unless
// the provider is a receiver. For every customer, it adds the provider to the known ones.
func (l *life) chargesAlone() {
	if l.own && !l.farSide.receiver {
		l.farSide.own, l.farSide.charging, l.connection.Bills = true, true, metering.BillsAmounts
	}
	if l.known = slices.Clone(l.known); !slices.Contains(l.known, l.farSide) {
		l.known = append(l.known, l.farSide)
	}
}

// invoiceOfOurs returns the standalone invoice of the period that begins at start, or nil.
func (f *farSide) invoiceOfOurs(start time.Time) *invoice {
	i := slices.IndexFunc(f.ours, func(in *invoice) bool { return in.Start.Equal(start) })
	if i < 0 {
		return nil
	}
	return f.ours[i]
}

// drafts returns the standalone invoice for a reported line, and creates the invoice if it does not exist.
func (f *farSide) drafts(r *storedReport) *invoice {
	in := f.invoiceOfOurs(r.Window.Start)
	if in == nil {
		in = &invoice{Range: r.Window}
		f.ours = append(f.ours, in)
	}
	return in
}

// finalizes makes the standalone invoice of an action report final. It returns false if the invoice does not exist.
func (f *farSide) finalizes(r *storedReport) (taken bool) {
	in := f.invoiceOfOurs(r.Window.Start)
	if in != nil {
		in.final = true
	}
	return in != nil
}

// foundItems returns the invoice lines that were created since an instant, or up to an hour before it, with
// the amounts that Odometer set last.
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

// countNamed marks the reports that charges at the provider name as counted.
func (l *ledger) countNamed(found []billing.FoundCharge, now time.Time) {
	for _, c := range found {
		for _, r := range l.reports {
			if r.id == c.ReportID && !r.state.Taken() {
				r.state, r.lease, r.settledAt = billing.Counted, time.Time{}, now
			}
		}
	}
}

// finalized returns the reports to the current connection that make standalone invoices of incomplete periods final.
func (l *ledger) finalized() (all []billing.Sent) {
	for _, r := range l.reports {
		if r.Kind == billing.ActionReport && l.reaches(r) && !l.period(r.Period).Complete {
			all = append(all, billing.Sent{ID: r.id, Period: r.Period, Number: r.number, Epoch: r.epoch, State: r.state})
		}
	}
	return all
}

// has reports whether the ledger has the report.
func (l *ledger) has(report uuid.UUID) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.id == report })
}

// sideOfConnection returns the simulated provider of a connection.
func (c *catalog) sideOfConnection(of metering.ConnectionID) *farSide {
	i := slices.IndexFunc(c.known, func(f *farSide) bool { return f.connection == of })
	return c.known[i]
}

// unsubscribed reports whether a simulated customer with standalone invoices is linked at a provider with invoices
// and has no running subscription.
func (l *life) unsubscribed() bool {
	return l.own && l.connection != nil && !l.connection.Statements && l.providerID != "" && l.farSide.contract(l.providerID) == nil
}

// seenBefore advances time over the month ends up to an instant while the customer has no subscription. A
// minute before each end it syncs, as the daily run would, unless the month is known already.
func (l *life) seenBefore(to time.Time) {
	for l.unsubscribed() {
		border := billing.CalendarPeriod(l.now, l.settings.Timezone).End
		if border.After(to) {
			return
		}
		known := slices.ContainsFunc(l.periods, func(p billing.Period) bool { return p.End.Equal(border) && (p.IsStandalone() || p.ClosedAt != nil) })
		if before := border.Add(-time.Minute); !known && before.After(l.now) {
			l.now = before
			l.sync()
		}
		l.now = border
	}
}

// owning lists the kinds of steps that happen to simulated customers with standalone invoices.
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

// billsMonth lets the month and its grace period pass, closes the month and runs some steps of a worker. The
// worker may not finish its pass.
func (l *life) billsMonth() bool {
	if !l.unsubscribed() || !l.passBorder(l.settings.Grace) {
		return false
	}
	l.use(l.now.Add(-l.settings.Grace-time.Duration(l.rng.IntN(200))*time.Hour), l.someMeter(), l.value())
	l.tracksMoney()
	l.closePeriods()
	return l.goOn(l.rng.IntN(2), 3+l.rng.IntN(12), noTrouble)
}

// subscribes begins a subscription of a customer with standalone invoices.
func (l *life) subscribes() bool {
	if !l.unsubscribed() || l.recovering {
		return false
	}
	l.backup = nil
	l.farSide.subscribe(l.providerID, l)
	if l.rng.IntN(2) == 0 {
		l.sync() // the provider sends an event
	}
	return true
}

// unsubscribes ends the subscription, at once or with its period. No other subscription begins.
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

// readsOurs reads the standalone invoices that became final or void since Odometer last read them, and then syncs.
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

// idOfOurs returns the ID of a standalone invoice.
func (f *farSide) idOfOurs(in *invoice) string {
	return fmt.Sprint("account ", f.connection, " own ", in.Start.UnixMicro())
}

// hearsOfOurs reads a final standalone invoice. An earlier copy of the invoice is cleared.
func (l *life) hearsOfOurs(in *invoice) {
	in.heard, in.heardVoid = true, in.void
	read := storedInvoice{Invoice: billing.Invoice{
		ID: l.farSide.idOfOurs(in), Connection: l.connection.ID, Customer: "cus_1", Subscription: billing.OwnInvoice, Period: in.Range, Renewal: true, Void: in.void,
	}}
	l.invoices = slices.Clone(l.invoices)
	for i := range l.invoices {
		if l.invoices[i].ID == read.ID {
			l.invoices[i].Invoice = billing.Invoice{} // an empty invoice belongs to no period
		}
	}
	l.invoices = append(l.invoices, read)
	l.markInvoiced()
	l.look()
}

// forgetOurs resets which standalone invoices Odometer has read: only those in but stay read. The others can be read
// again.
func (f *farSide) forgetOurs(but []storedInvoice) {
	for _, in := range f.ours {
		i := slices.IndexFunc(but, func(i storedInvoice) bool { return i.ID == f.idOfOurs(in) })
		in.heard, in.heardVoid = i >= 0, i >= 0 && but[i].Void
	}
}

// finalizesByHand makes an own draft final as an operator can do at the provider, even if lines are missing.
func (l *life) finalizesByHand() bool {
	return l.changesOurs(func(in *invoice) bool { return !in.final }, func(in *invoice) { in.final = true })
}

// voids voids a standalone invoice that is final, as an operator can do at the provider.
func (l *life) voids() bool {
	return l.changesOurs(func(in *invoice) bool { return in.final && !in.void }, func(in *invoice) { in.void = true })
}

// changesOurs changes the first standalone invoice for which can is true. It returns false if there is none.
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

// cancel ends the contract at once. If none is set, its last period gets no invoice.
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
