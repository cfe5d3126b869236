package billing_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// nextBorder returns the end of the newest period, or of the calendar month if that period is over or missing.
func (l *life) nextBorder() time.Time {
	if n := len(l.periods); n > 0 && l.periods[n-1].End.After(l.now) {
		return l.periods[n-1].End
	}
	return billing.CalendarPeriod(l.now, l.settings.Timezone).End
}

// someMeter returns a random meter of the tenant.
func (l *life) someMeter() metering.MeterID { return l.meters[l.rng.IntN(len(l.meters))].ID }

// priceStart draws the instant from which a new price of the meter is effective: the next period boundary. If all
// prices of the meter are in USD, it may also be now or up to 1000 hours ago.
func (l *life) priceStart(meter metering.MeterID) time.Time {
	if !l.inDollars(meter) {
		return l.nextBorder()
	}
	return []time.Time{l.now, l.nextBorder(), l.now.Add(-time.Duration(l.rng.IntN(1000)) * time.Hour)}[l.rng.IntN(3)]
}

// inDollars reports whether all versions of the meter's prices that have terms are in USD.
func (l *life) inDollars(meter metering.MeterID) bool {
	return !slices.ContainsFunc(l.versions(meter), func(p billing.Price) bool { return !p.Inherits && p.Currency != "USD" })
}

// billsYen reports whether the customer's contract is in JPY.
func (l *life) billsYen() bool {
	return l.side != nil && l.side.Currency == "JPY" || l.present() != nil && l.present().currency == "JPY"
}

// newPriceOfMeter sets a price of a meter.
func (l *life) newPriceOfMeter() bool {
	meter := l.someMeter()
	l.newPrice(meter, 0, l.priceStart(meter))
	if c := l.present(); c != nil && l.tape == nil && !l.steady && l.rng.IntN(4) == 0 { // the provider's price is swapped too, and its current invoice loses the usage so far
		l.farSide.priceNo[meter]++
		for _, taken := range l.farSide.calls {
			taken.lost = taken.lost || taken.invoice == c.last()
		}
	}
	return true
}

// newPriceOfPlan sets a price of the meter in plan 1. It sets no first price if that may change the currency of
// running periods, because a first price is effective from the beginning.
func (l *life) newPriceOfPlan() bool {
	meter := l.someMeter()
	first := !slices.ContainsFunc(l.prices[meter], func(p billing.Price) bool { return p.PlanID == 1 })
	if first && (!l.inDollars(meter) || l.billsYen()) {
		return false
	}
	l.newPrice(meter, 1, l.priceStart(meter))
	return true
}

// newPriceOfCustomer sets or ends the customer's own price of a meter. Like newPriceOfPlan, it sets no first
// price if that may change the currency of running periods.
func (l *life) newPriceOfCustomer() bool {
	meter := l.someMeter()
	from := l.priceStart(meter)
	price := billing.Price{MeterID: meter, CustomerID: l.customer.ID, EffectiveFrom: from}
	ends := func(p billing.Price) bool { return p.MeterID == meter && !p.Inherits && !p.EffectiveFrom.After(from) }
	first := !slices.ContainsFunc(l.customer.Prices, func(p billing.Price) bool { return p.MeterID == meter })
	switch {
	case first && (!l.inDollars(meter) || l.billsYen()):
		return false
	case slices.ContainsFunc(l.customer.Prices, ends) && l.rng.IntN(3) == 0:
		price.Version, price.Inherits = len(l.versions(meter))+1, true
	default:
		price = l.priced(price)
	}
	l.customer.Prices = append(slices.Clone(l.customer.Prices), price)
	l.notePrice(price)
	return true
}

// assigns assigns plan 1 or no plan to the customer, from now or from the next period boundary on.
func (l *life) assigns() bool {
	a := billing.Assignment{PlanID: metering.PlanID(l.rng.IntN(2)), EffectiveFrom: []time.Time{l.now, l.nextBorder()}[l.rng.IntN(2)]}
	l.customer.Plans = append(slices.Clone(l.customer.Plans), a)
	from := a.EffectiveFrom.UTC()
	l.note(lives.Action{Do: lives.Assign, Plan: a.PlanID, From: &from})
	return true
}

// made creates a meter that needs a backfill, up to anyMeters meters.
func (l *life) made() bool {
	if len(l.meters) == anyMeters {
		return false
	}
	l.newMeter(metering.Backfilling)
	return true
}

// completes ends the backfill of a meter.
func (l *life) completes() bool {
	for i, m := range l.meters {
		if m.Version.Status == metering.Backfilling {
			l.meters = slices.Clone(l.meters)
			l.meters[i].Version.Status = metering.Complete
			delete(l.filledFrom, m.ID)
			l.note(lives.Action{Do: lives.Counted, Meter: m.ID})
			return true
		}
	}
	return false
}

// newVersion creates a new version of a meter, which may count events instead of adding up their values.
func (l *life) newVersion() bool {
	l.meters = slices.Clone(l.meters)
	m := &l.meters[l.rng.IntN(len(l.meters))]
	if m.Version.Status != metering.Complete {
		return false
	}
	m.Version.ID++
	if l.rng.IntN(2) == 0 {
		m.Version.Aggregation = metering.Count
	}
	l.note(lives.Action{Do: lives.Version, Meter: m.ID, Aggregation: m.Version.Aggregation})
	for _, of := range []*ledger{l.ledger, l.neighbour} {
		for n := 0; of != nil && n < len(of.events); n++ {
			e := &of.events[n]
			e.lost = e.lost || e.gone && e.meter == m.ID // retention has deleted the event: the new version cannot count it
		}
	}
	return true
}

// newScale sets a random usage scale of a meter.
func (l *life) newScale() bool {
	l.meters = slices.Clone(l.meters)
	m := &l.meters[l.rng.IntN(len(l.meters))]
	m.UsageScale = int32(l.rng.IntN(metering.MaxUsageScale + 1))
	l.note(lives.Action{Do: lives.Scale, Meter: m.ID, Scale: m.UsageScale})
	return true
}

// replaces replaces the tenant's connection by a new one: to a receiver of statements, or to a counter.
func (l *life) replaces(receiver bool) bool {
	if l.charging && !l.own || l.recovering {
		return false
	}
	l.connect(receiver, false)
	l.noteConnection()
	return true
}

// moves changes the receiver's URL. The connection stays the same, and a call in progress to the previous URL
// fails.
func (l *life) moves() bool {
	if l.recovering || l.connection == nil || !l.farSide.receiver || l.twofold {
		return false
	}
	l.farSide.moves++
	return true
}

// changesMode switches between live and test mode, as if the tenant saved an API key of the other mode. Each mode
// has its own connection, which keeps its reports.
func (l *life) changesMode() bool {
	if l.charging && !l.own || l.recovering || l.connection == nil || l.farSide.receiver {
		return false
	}
	f := l.farSide
	if f.other == nil {
		l.connect(false, !f.test)
		f.other, l.farSide.other = l.farSide, f
		return true
	}
	l.connectTo(f.other)
	if l.providerID != "" && l.farSide.contract(l.providerID) != nil {
		l.farSide.contract(l.providerID).roll(l.now)
	}
	return true
}

// disconnects removes the tenant's connection.
func (l *life) disconnects() bool {
	if l.recovering || l.connection == nil {
		return false
	}
	l.backup = nil
	l.connection = nil
	l.markInvoiced()
	return true
}

// links links the customer to its customer at the provider. Except in lives with standalone invoices, it begins a
// subscription if none runs.
func (l *life) links() bool {
	if l.recovering || l.connection == nil || l.connection.Statements || l.present() != nil || l.unsubscribed() {
		return false
	}
	l.backup = nil
	if l.providerID = "cus_1"; l.farSide.contract("cus_1") == nil && !l.own {
		l.farSide.subscribe("cus_1", l)
	}
	if c := l.farSide.contract("cus_1"); c != nil {
		c.roll(l.now)
	}
	l.note(lives.Action{Do: lives.Link})
	return true
}

// unlinks removes the customer's link to its customer at the provider.
func (l *life) unlinks() bool {
	if l.recovering || l.connection == nil || l.connection.Statements || l.providerID == "" {
		return false
	}
	l.backup = nil
	l.providerID = ""
	l.note(lives.Action{Do: lives.Unlink})
	return true
}

// present returns the customer's running contract at the current connection, or nil.
func (l *life) present() *contract {
	if l.connection == nil || l.connection.Statements || l.providerID == "" {
		return nil
	}
	return l.farSide.contract(l.providerID)
}

// cancelsAtTheEnd ends the contract at the end of its current period. Its last invoice is then a draft.
func (l *life) cancelsAtTheEnd(c *contract) {
	if l.twofold {
		l.passTime(c.last().End.Add(-time.Minute))
	}
	l.syncBefore(c.last())
	l.now, c.ended, c.had = c.last().End, true, l.farSide.targets(c)
	l.sync() // the provider's event starts a sync
	l.eachStream(func() { l.checkLast(c) })
}

// movesSubscription ends the customer's subscription with its period or at once. If it ends at once, another
// subscription begins.
func (l *life) movesSubscription() bool {
	c := l.present()
	if c == nil || l.recovering {
		return false
	}
	last := c.last()
	if !last.Start.Before(l.now.Add(-time.Hour)) {
		return false
	}
	l.backup = nil
	if l.tape == nil && l.rng.IntN(4) == 0 {
		l.cancelsAtTheEnd(c)
		return true
	}
	for _, in := range c.invoices {
		in.final = true
	}
	c.ended, c.had, last.End, last.cut = true, l.farSide.targets(c), l.now.Truncate(time.Second), true
	if l.tape == nil && l.rng.IntN(2) == 0 { // the subscription ends without a last invoice
		last.none = true
		for _, taken := range l.farSide.calls {
			taken.lost = taken.lost || taken.invoice == last
		}
	}
	l.farSide.subscribe(l.providerID, l)
	for _, taken := range l.farSide.calls {
		if taken.invoice == last && taken.Counting != billing.Replaces && !taken.timestamp.Before(last.End) {
			taken.invoice, taken.lost = l.farSide.contract(l.providerID).last(), false
		}
	}
	l.noteSubscription()
	l.hears()
	return true
}

// hears syncs the customer after an event from the provider. It syncs again if the plan requires a re-evaluation
// at once, because the reports just sent are on another invoice.
func (l *life) hears() {
	if l.sync(); !l.replanAt.After(l.now) {
		l.sync()
	}
}

// removesItem removes a meter's item from the subscription.
func (l *life) removesItem() bool {
	if l.present() == nil || l.recovering || l.own { // amounts need no subscription item
		return false
	}
	id := l.someMeter()
	if _, known := l.farSide.places[id]; !known {
		return false
	}
	l.backup = nil
	delete(l.farSide.places, id)
	l.farSide.priceNo[id]++ // the item may be added again with another price
	return true
}

// addsItem adds an item to the subscription for a meter without one.
func (l *life) addsItem() bool {
	if l.present() == nil {
		return false
	}
	for _, m := range l.meters {
		if _, known := l.farSide.places[m.ID]; !known {
			l.farSide.newPlace(l, m.ID)
			return true
		}
	}
	return false
}

// contracts returns the customer's contracts at the current connection, whether or not the customer is linked.
func (l *life) contracts() []*contract {
	if l.connection == nil {
		return nil
	}
	return slices.Concat(l.farSide.contracts["cus_1"], l.farSide.contracts[besides("cus_1")])
}

// invoiceIsFinal finalizes the oldest draft of a contract, at least one hour after its period ended. The provider
// sends the event at once, but Odometer may miss it.
func (l *life) invoiceIsFinal() bool {
	for _, c := range l.contracts() {
		i := slices.IndexFunc(c.invoices, func(in *invoice) bool { return !in.final })
		if i < 0 || l.now.Before(c.invoices[i].End.Add(time.Hour)) || l.tape != nil && c != l.present() {
			continue
		}
		in := c.invoices[i]
		if in.final = true; l.providerID == "" || l.tape == nil && l.rng.IntN(4) == 0 {
			return true // the customer is not linked, or Odometer misses the event
		}
		l.hearsOf(c, in)
		l.sync()
		return true
	}
	return false
}

// idIn returns the id of the invoice, which belongs to contract c.
func (in *invoice) idIn(c *contract) string { return fmt.Sprint(c.id, in.Start) }

// hearsOf stores a final invoice that Odometer reads. If the subscription was canceled at once, it also stores
// that the subscription has ended. If the subscription ended without this invoice, it stores only the end.
func (l *life) hearsOf(c *contract, in *invoice) {
	in.heard = true
	end := in.End.UTC()
	l.note(lives.Action{Do: lives.Invoice, Connection: int(l.connection.ID), Time: &end})
	i := storedInvoice{
		billing.Invoice{ID: in.idIn(c), Connection: l.connection.ID, Customer: "cus_1", Subscription: c.id, Period: in.Range, Renewal: !in.cut},
		make(map[metering.MeterID]int32),
	}
	if in.cut {
		last := i
		last.ID, last.Renewal, last.Ended = c.id, true, true
		l.invoices = append(slices.Clone(l.invoices), last)
	}
	if in.none {
		l.look()
		return
	}
	for _, m := range l.meters {
		if m.UsageScale > 0 {
			i.scales[m.ID] = m.UsageScale
		}
		if !l.twofold || l.farSide.names(c, in, m.ID) {
			i.Lines = append(i.Lines, l.farSide.lineOf(c, in, m.ID))
		}
	}
	l.invoices = append(slices.Clone(l.invoices), i)
	l.markInvoiced()
	l.look()
}

// readsMissed reads the final invoices that Odometer has missed. It reports whether a contract had any.
func (l *life) readsMissed() bool {
	if l.tape != nil {
		return false
	}
	missed := false
	for _, c := range l.contracts() {
		for _, in := range c.invoices {
			if in.final && !in.heard {
				l.hearsOf(c, in)
				missed = true
			}
		}
	}
	if l.readsOurs() || missed {
		l.sync()
	}
	return missed
}

// switchesPolicy switches the late policy between AdjustLate and ReportLate.
func (l *life) switchesPolicy() bool {
	next := metering.AdjustLate
	if l.settings.LatePolicy == next {
		next = metering.ReportLate
	}
	l.settings.LatePolicy = next
	l.note(lives.Action{Do: lives.LatePolicy, LatePolicy: next})
	return true
}

// mostGrace is an upper bound of the grace that changesGrace sets.
const mostGrace = 96 * time.Hour

// changesGrace sets a random grace.
func (l *life) changesGrace() bool {
	l.settings.Grace = time.Duration(l.rng.Int64N(int64(mostGrace))).Truncate(time.Second)
	l.note(lives.Action{Do: lives.Grace, Seconds: int64(l.settings.Grace / time.Second)})
	return true
}
