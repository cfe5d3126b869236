package billing_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Some simulated customers have a second subscription at the same provider, with its own periods. The usage
// that it bills belongs to a second billing schedule. Each subscription has items, invoices and periods. A
// meter's item can move from one subscription to the other. If both have an item of a meter, the meter is
// excluded, because the subscription that bills its usage is unknown.

// twofold reports whether the simulated customer of a seed can have two subscriptions.
func twofold(seed uint64) bool { return seed%8 == 4 }

// beginTwofold connects the simulated customer to a provider with invoices, and ensures that there are two
// meters.
func (l *life) beginTwofold(seed uint64) {
	l.stays = stays(seed)
	l.twofold, l.farSides, l.tests, l.subscribedTo = true, nil, nil, make(map[metering.ConnectionID]string)
	for len(l.meters) < 2 {
		l.newMeter(metering.Complete)
	}
	l.connect(false, false)
}

// eachStream calls do once for each of the customer's billing schedules, with l.ledger set to the schedule's
// ledger.
func (l *life) eachStream(do func()) {
	first := l.ledger
	for _, of := range first.streams {
		l.ledger = of
		do()
	}
	l.ledger = first
}

// inSome calls do with l.ledger set to the ledger of one billing schedule. Successive values of n select the
// schedules in turn.
func (l *life) inSome(n int, do func()) {
	first := l.ledger
	l.ledger = first.streams[n%len(first.streams)]
	do()
	l.ledger = first
}

// withLedger calls do with p.ledger set to the ledger of a billing schedule. The life's ledger is set too, except in a
// pass for the neighbour.
func (p *pass) withLedger(of *ledger, do func()) {
	former, first := p.ledger, p.life.ledger
	if p.ledger = of; former == first {
		p.life.ledger = of
	}
	do()
	p.ledger, p.life.ledger = former, first
}

// allPeriods returns the periods of all of the customer's billing schedules.
func (l *ledger) allPeriods() (all []billing.Period) {
	if len(l.streams) == 1 {
		return l.periods
	}
	for _, of := range l.streams {
		all = append(all, of.periods...)
	}
	return all
}

// allReports returns the reports of all of the customer's billing schedules, by number.
func (l *ledger) allReports() (all []*storedReport) {
	if len(l.streams) == 1 {
		return l.reports
	}
	for _, of := range l.streams {
		all = append(all, of.reports...)
	}
	slices.SortFunc(all, func(a, b *storedReport) int { return int(a.number - b.number) })
	return all
}

// streamAt returns the billing schedule that the meter feeds at an instant.
func (a *account) streamAt(meter metering.MeterID, at time.Time) (stream int) {
	for _, f := range a.feeds {
		if f.MeterID == meter && !f.From.After(at) {
			stream = f.Stream
		}
	}
	return stream
}

// isFed reports whether the meter feeds this billing schedule at an instant.
func (l *ledger) isFed(meter metering.MeterID, at time.Time) bool {
	return len(l.feeds) == 0 || l.streamAt(meter, at) == l.stream
}

// isFedIn reports whether the meter feeds this billing schedule at any time in the range.
func (l *ledger) isFedIn(meter metering.MeterID, r metering.Range) bool {
	return l.isFed(meter, r.Start) || slices.ContainsFunc(l.feeds, func(f billing.Feed) bool { return f.MeterID == meter && r.Contains(f.From) && l.isFed(meter, f.From) })
}

// ofStream returns the customer's facts as the facts of this billing schedule.
func (l *ledger) ofStream(f billing.Facts) billing.Facts {
	if f.Feeds, f.Followed = l.feeds, l.following; l.stream > 0 {
		return f.OfStream(l.stream)
	}
	return f
}

// streamPlan is the plan of one billing schedule.
type streamPlan struct {
	*ledger
	facts billing.Facts
	billing.ReportPlan
}

// changes reports whether the plan requires any work or changes the stored periods or bookings.
func (p streamPlan) changes() bool {
	same := func(a, b billing.Period) bool {
		return a.Range == b.Range && a.Subscription.ID == b.Subscription.ID && a.Subscription.Range == b.Subscription.Range
	}
	return !p.Empty() || len(p.Bookings)+len(p.Complete) > 0 || !slices.EqualFunc(p.Periods, p.periods, same)
}

// plan determines the customer's billing schedules and plans each of them. A receiver gets the statements of
// one billing schedule at a time.
func (l *ledger) plan(now time.Time, ask func(*billing.Facts)) (all []streamPlan) {
	facts := l.regroup(now)
	busy := false
	for i, of := range l.streams {
		f := facts[i]
		ask(&f)
		p := streamPlan{of, f, billing.NewBooks(f).Plan()}
		if sends := len(p.Reports)+len(p.Resume) > 0; sends && f.Connection != nil && f.Connection.Statements && busy {
			p.Reports, p.Resume, p.Reported, p.More = nil, nil, nil, true
		} else {
			busy = busy || sends
		}
		all = append(all, p)
	}
	return all
}

// factsOfAll returns the facts of each billing schedule.
func (l *ledger) factsOfAll(now time.Time) (facts []billing.Facts) {
	for _, of := range l.streams {
		facts = append(facts, of.facts(now, l.number))
	}
	return facts
}

// regroup stores changes of the customer's billing schedules and of the meters that feed them. It returns
// the facts of each schedule.
func (l *ledger) regroup(now time.Time) []billing.Facts {
	facts := l.factsOfAll(now)
	if !l.twofold {
		return facts
	}
	change := billing.Regroup(facts)
	if change.Empty() {
		return facts
	}
	for _, f := range change.Followed {
		for len(l.streams) <= f.Stream {
			l.streams = append(l.streams, &ledger{catalog: l.catalog, account: l.account, stream: len(l.streams), through: make(map[int64]int)})
		}
		l.following = append(slices.Clone(l.following), f)
	}
	l.feeds = append(slices.Clone(l.feeds), change.Feeds...)
	slices.SortStableFunc(l.feeds, func(a, b billing.Feed) int { return a.From.Compare(b.From) })
	l.look()
	return l.factsOfAll(now)
}

// keep stores the plans of all billing schedules, and the earliest time at which one of them has to be
// re-evaluated.
func (l *ledger) keep(all []streamPlan, now time.Time) {
	var again time.Time
	for _, p := range all {
		if p.store(p.ReportPlan, now); again.IsZero() || !p.ReplanAt.IsZero() && p.ReplanAt.Before(again) {
			again = p.ReplanAt
		}
	}
	l.replanAt = again
}

// holding returns the ledger of the billing schedule that has the report.
func (l *ledger) holding(id [16]byte) *ledger {
	i := slices.IndexFunc(l.streams, func(of *ledger) bool {
		return slices.ContainsFunc(of.reports, func(r *storedReport) bool { return r.id == id })
	})
	return l.streams[i]
}

// besides returns the key under which a provider has a customer's second subscriptions.
func besides(customer string) string { return customer + " beside" }

// isBeside reports whether the contract is a second subscription.
func (c *contract) isBeside() bool { return strings.Contains(c.id, "beside") }

// second returns the customer's running second subscription, or nil.
func (l *life) second() *contract {
	if l.connection == nil || l.connection.Statements || l.providerID == "" {
		return nil
	}
	return l.farSide.contract(besides(l.providerID))
}

// itemsOf returns the destinations of the meters that the contract bills.
func (f *farSide) itemsOf(c *contract) map[metering.MeterID]billing.Destination {
	if c.isBeside() {
		return f.beside
	}
	return f.places
}

// running returns the customer's running subscriptions. If there are none, it returns the ended ones with a
// draft as their last invoice.
func (f *farSide) running(customer string, now time.Time) (all []*contract) {
	var drafts []*contract
	for _, of := range []string{customer, besides(customer)} {
		if c := f.contract(of); c != nil {
			c.roll(now)
			all = append(all, c)
		} else if ended := f.contracts[of]; len(ended) > 0 && !ended[len(ended)-1].last().final {
			drafts = append(drafts, ended[len(ended)-1])
		}
	}
	if len(all) == 0 {
		return drafts
	}
	return all
}

// itemOf returns the contract and the destination of a meter's usage. c is nil if the subscriptions do not
// bill the usage, and d then has the reason.
func (f *farSide) itemOf(meter metering.MeterID, of []*contract) (c *contract, d billing.Destination) {
	for _, one := range of {
		if at, known := f.itemsOf(one)[meter]; !known {
			continue
		} else if c != nil {
			return nil, billing.Destination{MeterID: meter, Excluded: billing.NoTarget("two subscriptions have an item of it")}
		} else if c, d = one, at; d.OnlyWhileRun {
			d.Target = c.id + " " + d.Target
		}
	}
	switch {
	case c == nil:
		return nil, billing.Destination{MeterID: meter, Excluded: billing.NoTarget("nothing there has the meter's price")}
	case d.OnlyWhileRun && c.ended:
		return nil, billing.Destination{MeterID: meter, Excluded: billing.NoTarget("the subscription has ended")}
	}
	d.Price = f.tariff(meter, c)
	return c, d
}

// sideOf returns the state of the contract, without destinations.
func (c *contract) sideOf(customer string) billing.Side {
	return billing.Side{
		Customer: customer, Subscription: c.id, Period: c.last().Range, Trial: c.onTrial(c.last().Range), Ended: c.ended, Currency: c.currency,
	}
}

// sides returns the customer's state at the provider, for a customer with one or two subscriptions. The main
// subscription of the previous read stays the main one while it bills a meter.
func (f *farSide) sides(l *ledger, now time.Time) *billing.Side {
	side := &billing.Side{Customer: l.providerID}
	running := f.running(l.providerID, now)
	for _, former := range []bool{true, false} {
		for _, m := range l.meters {
			c, _ := f.itemOf(m.ID, running)
			if c != nil && side.Subscription == "" && (c.id == l.subscribedTo[f.connection] || !former && !l.hasStream(c.id)) {
				*side = c.sideOf(l.providerID)
			}
		}
	}
	for _, m := range l.meters {
		c, d := f.itemOf(m.ID, running)
		if c != nil && c.id != side.Subscription && (side.Subscription == "" || c.last().Range != side.Period || l.hasStream(c.id)) {
			beside(side, c, d)
			d = billing.Destination{MeterID: m.ID, Excluded: billing.NoTarget("its subscription has other periods")}
		}
		side.Destinations = append(side.Destinations, d)
	}
	l.subscribedTo[f.connection] = side.Subscription
	return side
}

// hasStream reports whether the subscription has its own billing schedule.
func (l *ledger) hasStream(subscription string) bool {
	return slices.ContainsFunc(l.following, func(f billing.Followed) bool { return f.Subscription == subscription })
}

// beside adds a second subscription's destination of a meter to the side. If one subscription's period begins
// when the other's ends, beside does nothing: only one of them has begun its next period.
func beside(side *billing.Side, c *contract, d billing.Destination) {
	at, own := c.last().Range, side.Period
	if side.Subscription != "" && (at.Start.Equal(own.End) || at.End.Equal(own.Start)) {
		return
	}
	n := slices.IndexFunc(side.Others, func(s billing.Side) bool { return s.Subscription == c.id })
	if n < 0 {
		n, side.Others = len(side.Others), append(side.Others, c.sideOf(side.Customer))
	}
	side.Others[n].Destinations = append(side.Others[n].Destinations, d)
}

// streamContract returns the running contract that bills the current billing schedule, or nil.
func (l *life) streamContract() *contract {
	if !l.twofold {
		return l.present()
	}
	if l.connection == nil || l.connection.Statements || l.providerID == "" {
		return nil
	}
	side := l.farSide.sides(l.ledger, l.now)
	id := side.Subscription
	if l.stream > 0 {
		id = ""
		for _, other := range side.Others {
			if slices.Contains(l.following, billing.Followed{Connection: l.connection.ID, Subscription: other.Subscription, Stream: l.stream}) {
				id = other.Subscription
			}
		}
	}
	if c := l.farSide.byID(id); c != nil && !c.ended {
		return c
	}
	return nil
}

// presents returns the customer's running contracts.
func (l *life) presents() (all []*contract) {
	for _, c := range []*contract{l.present(), l.second()} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// names reports whether an invoice has a line for the meter: its contract has an item of the meter, or the
// invoice received usage of the meter.
func (f *farSide) names(c *contract, in *invoice, meter metering.MeterID) bool {
	_, known := f.itemsOf(c)[meter]
	return known || f.took(in, meter)
}

// took reports whether the invoice received a quantity of the meter.
func (f *farSide) took(in *invoice, meter metering.MeterID) bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool {
		return c.Kind == billing.QuantityReport && c.invoice == in && c.Lines[0].MeterID == meter
	})
}

// streaming lists the kinds of steps that happen to simulated customers with two subscriptions.
var streaming = []kind{
	{"a second subscription begins", 8, (*life).beginsSecond},
	{"a second subscription ends", 4, (*life).endsSecond},
	{"a second subscription is swapped", 5, (*life).swapsSecond},
	{"a second subscription's period changes", 5, (*life).changesPeriodOfSecond},
	{"an item moves", 6, (*life).movesItem},
	{"an item is added beside another", 5, (*life).addsItemBeside},
	{"a border of a second subscription passes", 6, (*life).passBorderOfSecond},
}

// beginsSecond begins a second subscription and moves the items of some meters.
func (l *life) beginsSecond() bool {
	if !l.twofold || l.present() == nil || l.second() != nil {
		return false
	}
	l.farSide.subscribeBeside(l)
	for _, m := range l.meters {
		if l.rng.IntN(2) == 0 {
			l.movesItemOf(m.ID)
		}
	}
	return true
}

// subscribeBeside creates a second contract that begins now.
func (f *farSide) subscribeBeside(l *life) {
	length := time.Duration([]int{10, 20, 40}[l.rng.IntN(3)]) * 24 * time.Hour
	start, of := l.now.Truncate(time.Second), besides(l.providerID)
	f.contracts[of] = append(f.contracts[of], &contract{
		id:       fmt.Sprintf("account %d beside_%d", f.connection, len(f.contracts[of])+1),
		invoices: []*invoice{{Range: metering.Range{Start: start, End: start.Add(length)}}},
		trial:    l.rng.IntN(8) == 0, currency: "USD",
	})
}

// endsSecond ends the second subscription with its period, or at once.
func (l *life) endsSecond() bool {
	c := l.second()
	if c == nil || !c.last().Start.Before(l.now.Add(-time.Hour)) {
		return false
	}
	if l.rng.IntN(3) > 0 {
		l.cancelsAtTheEnd(c)
		return true
	}
	l.farSide.cancel(c, l.now, l.rng.IntN(2) == 0)
	l.sync() // the provider sends an event
	return true
}

// swapsSecond ends the second subscription at once, and begins another one.
func (l *life) swapsSecond() bool {
	c := l.second()
	if c == nil || !c.last().Start.Before(l.now.Add(-time.Hour)) {
		return false
	}
	l.farSide.cancel(c, l.now, l.rng.IntN(2) == 0)
	l.farSide.subscribeBeside(l)
	l.farSide.goOnWith(c.last(), l.second())
	l.hears()
	return true
}

// goOnWith moves the quantities with a timestamp at or after the end of a contract's last invoice to the next
// contract. Quantities that replace earlier ones are not moved.
func (f *farSide) goOnWith(last *invoice, next *contract) {
	for _, taken := range f.calls {
		if taken.invoice == last && taken.Counting != billing.Replaces && !taken.timestamp.Before(last.End) {
			taken.invoice, taken.lost = next.last(), false
		}
	}
}

// changesPeriodOfSecond shortens the current period of the second subscription, and so its later periods. The
// provider sends no event if the subscription bills no meter.
func (l *life) changesPeriodOfSecond() bool {
	c := l.second()
	if c == nil {
		return false
	}
	left := c.last().End.Sub(l.now)
	if left < 6*24*time.Hour {
		return false
	}
	c.last().End = l.now.Add(3 * 24 * time.Hour).Add(time.Duration(l.rng.Int64N(int64(left - 4*24*time.Hour)))).Truncate(time.Second)
	if l.farSide.billsAny(l.meters, c, l.presents()) {
		l.sync() // the provider sends an event
	}
	return true
}

// movesItem moves a meter's item from one subscription to the other.
func (l *life) movesItem() bool { return l.second() != nil && l.movesItemOf(l.someMeter()) }

// movesItemOf moves the item of the given meter. It returns false if no subscription has such an item.
func (l *life) movesItemOf(meter metering.MeterID) bool {
	f := l.farSide
	_, first := f.places[meter]
	_, second := f.beside[meter]
	switch {
	case first:
		delete(f.places, meter)
		f.newPlaceBeside(l, meter)
	case second:
		f.newPlace(l, meter)
	}
	if second {
		delete(f.beside, meter)
	}
	return first || second
}

// billsAny reports whether the contract bills any of the meters, given all running contracts.
func (f *farSide) billsAny(meters []metering.Meter, c *contract, running []*contract) bool {
	return slices.ContainsFunc(meters, func(m metering.Meter) bool {
		of, _ := f.itemOf(m.ID, running)
		return of == c
	})
}

// newPlaceBeside draws the destination of the meter's quantities in the second subscription. The destination in the
// first subscription stays unchanged.
func (f *farSide) newPlaceBeside(l *life, meter metering.MeterID) {
	before, had := f.places[meter]
	f.newPlace(l, meter)
	d := f.places[meter]
	d.Target += " beside"
	if f.places[meter] = before; !had {
		delete(f.places, meter)
	}
	if f.beside == nil {
		f.beside = make(map[metering.MeterID]billing.Destination)
	}
	f.beside[meter] = d
}

// addsItemBeside adds an item to the second subscription, or removes one from it.
func (l *life) addsItemBeside() bool {
	if l.second() == nil {
		return false
	}
	meter := l.someMeter()
	if _, known := l.farSide.beside[meter]; known {
		delete(l.farSide.beside, meter)
		return true
	}
	l.farSide.newPlaceBeside(l, meter)
	return true
}

// passBorderOfSecond advances time past the end of the second subscription's current period, and in half of
// the cases past its grace period.
func (l *life) passBorderOfSecond() bool {
	c := l.second()
	if c == nil {
		return false
	}
	l.passTime(c.last().End.Add(time.Duration(l.rng.IntN(2)) * l.settings.Grace).Add(time.Duration(l.rng.IntN(3)) * time.Hour))
	return true
}
