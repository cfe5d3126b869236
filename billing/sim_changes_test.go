package billing_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// nextBorder is the end of the newest period, or of the calendar's.
func (l *life) nextBorder() time.Time {
	if n := len(l.periods); n > 0 && l.periods[n-1].End.After(l.now) {
		return l.periods[n-1].End
	}
	return billing.CalendarPeriod(l.now, l.settings.Timezone).End
}

func (l *life) someMeter() metering.MeterID { return l.meters[l.rng.IntN(len(l.meters))].ID }

// from is when a price of the meter begins: at the next border, or, where that
// changes no currency, now or some time ago.
func (l *life) from(meter metering.MeterID) time.Time {
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

func (l *life) newPriceOfMeter() bool {
	meter := l.someMeter()
	l.newPrice(meter, 0, l.from(meter))
	if c := l.present(); c != nil && l.tape == nil && !l.steady && l.rng.IntN(4) == 0 { // there, too, in the mode in which that loses what came before
		l.farSide.priceNo[meter]++
		for _, taken := range l.farSide.calls {
			taken.lost = taken.lost || taken.invoice == c.last()
		}
	}
	return true
}

// newPriceOfPlan leaves out a first one, which holds for periods that run,
// where it may change their currency.
func (l *life) newPriceOfPlan() bool {
	meter := l.someMeter()
	first := !slices.ContainsFunc(l.prices[meter], func(p billing.Price) bool { return p.PlanID == 1 })
	if first && (!l.inDollars(meter) || l.billsYen()) {
		return false
	}
	l.newPrice(meter, 1, l.from(meter))
	return true
}

// newPriceOfCustomer sets a price of the customer's own, or ends the one that there is. As with a
// plan's price, it skips a first one that may change the currency of periods that run.
func (l *life) newPriceOfCustomer() bool {
	meter := l.someMeter()
	from := l.from(meter)
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

func (l *life) assigns() bool {
	a := billing.Assignment{PlanID: metering.PlanID(l.rng.IntN(2)), EffectiveFrom: []time.Time{l.now, l.nextBorder()}[l.rng.IntN(2)]}
	l.customer.Plans = append(slices.Clone(l.customer.Plans), a)
	from := a.EffectiveFrom.UTC()
	l.note(lives.Action{Do: lives.Assign, Plan: a.PlanID, From: &from})
	return true
}

func (l *life) made() bool {
	if len(l.meters) == anyMeters {
		return false
	}
	l.newMeter(metering.Backfilling)
	return true
}

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

// newVersion has a meter counted in another way: by other groups, or by events.
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
			e.lost = e.lost || e.gone && e.meter == m.ID // retention has taken it
		}
	}
	return true
}

func (l *life) newScale() bool {
	l.meters = slices.Clone(l.meters)
	m := &l.meters[l.rng.IntN(len(l.meters))]
	m.UsageScale = int32(l.rng.IntN(metering.MaxUsageScale + 1))
	l.note(lives.Action{Do: lives.Scale, Meter: m.ID, Scale: m.UsageScale})
	return true
}

func (l *life) replaces(receiver bool) bool {
	if l.charging && !l.own || l.recovering {
		return false
	}
	l.connect(receiver, false)
	l.noteConnection()
	return true
}

// moves has the receiver move to another URL: its connection stays, and what is
// being sent to the former one reaches nobody.
func (l *life) moves() bool {
	if l.recovering || l.connection == nil || !l.farSide.receiver || l.twofold {
		return false
	}
	l.farSide.moves++
	return true
}

// changesMode saves a key of the other mode: back and forth, each has what it
// was reported.
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

func (l *life) disconnects() bool {
	if l.recovering || l.connection == nil {
		return false
	}
	l.backup = nil
	l.connection = nil
	l.markInvoiced()
	return true
}

// links links the customer, who has a subscription then.
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

func (l *life) unlinks() bool {
	if l.recovering || l.connection == nil || l.connection.Statements || l.providerID == "" {
		return false
	}
	l.backup = nil
	l.providerID = ""
	l.note(lives.Action{Do: lives.Unlink})
	return true
}

// present is the customer's contract, where there is one.
func (l *life) present() *contract {
	if l.connection == nil || l.connection.Statements || l.providerID == "" {
		return nil
	}
	return l.farSide.contract(l.providerID)
}

// cancelsAtTheEnd has the customer's subscription end with its period. Its last
// invoice is a draft then.
func (l *life) cancelsAtTheEnd(c *contract) {
	if l.twofold {
		l.passTime(c.last().End.Add(-time.Minute))
	}
	l.syncBefore(c.last())
	l.now, c.ended, c.had = c.last().End, true, l.farSide.targets(c)
	l.sync() // the provider says so
	l.eachStream(func() { l.checkLast(c) })
}

// movesSubscription ends the customer's subscription, and begins another one if
// it did not end with its period.
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
	if l.tape == nil && l.rng.IntN(2) == 0 { // without an invoice
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

// hears is what is done where the provider says so: a sync, and another one where
// that says to look again at once, since what was sent just now is on another invoice.
func (l *life) hears() {
	if l.sync(); !l.lookAgain.After(l.now) {
		l.sync()
	}
}

func (l *life) removesItem() bool {
	if l.present() == nil || l.recovering || l.own { // what is charged as an amount depends on no item
		return false
	}
	id := l.someMeter()
	if _, known := l.farSide.places[id]; !known {
		return false
	}
	l.backup = nil
	delete(l.farSide.places, id)
	l.farSide.priceNo[id]++ // who adds it again may take another price
	return true
}

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

// contracts are the customer's at the present connection, linked or not.
func (l *life) contracts() []*contract {
	if l.connection == nil {
		return nil
	}
	return slices.Concat(l.farSide.contracts["cus_1"], l.farSide.contracts[besides("cus_1")])
}

// invoiceIsFinal makes the oldest draft final, which the provider says at once.
func (l *life) invoiceIsFinal() bool {
	for _, c := range l.contracts() {
		i := slices.IndexFunc(c.invoices, func(in *invoice) bool { return !in.final })
		if i < 0 || l.now.Before(c.invoices[i].End.Add(time.Hour)) || l.tape != nil && c != l.present() {
			continue
		}
		in := c.invoices[i]
		if in.final = true; l.providerID == "" || l.tape == nil && l.rng.IntN(4) == 0 {
			return true // the event is about nobody, or missed
		}
		l.hearsOf(c, in)
		l.sync()
		return true
	}
	return false
}

// idIn is the invoice's id, of a contract.
func (in *invoice) idIn(c *contract) string { return fmt.Sprint(c.id, in.Start) }

// hearsOf reads an invoice that is final.
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

// readsMissed asks the provider for the invoices that have become final unheard.
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

func (l *life) switchesPolicy() bool {
	next := metering.AdjustLate
	if l.settings.LatePolicy == next {
		next = metering.ReportLate
	}
	l.settings.LatePolicy = next
	l.note(lives.Action{Do: lives.LatePolicy, LatePolicy: next})
	return true
}

const mostGrace = 96 * time.Hour

func (l *life) changesGrace() bool {
	l.settings.Grace = time.Duration(l.rng.Int64N(int64(mostGrace))).Truncate(time.Second)
	l.note(lives.Action{Do: lives.Grace, Seconds: int64(l.settings.Grace / time.Second)})
	return true
}
