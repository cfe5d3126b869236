package billing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// kind is a kind of step. happen returns false if the step cannot happen now.
type kind struct {
	name   string
	weight int
	happen func(*life) bool
}

// kinds lists all kinds of steps. Those that are not usual happen only to some simulated customers, chosen by
// the seed.
var kinds = slices.Concat(usual, restoring, charging, owning, streaming)

// usual lists the kinds of steps that can happen to every simulated customer.
var usual = []kind{
	{"usage", 10, (*life).usesNow},
	{"a correction", 3, (*life).corrects},
	{"usage at a border", 4, (*life).usesAtBorder},
	{"late usage", 8, (*life).usesLate},
	{"older usage", 4, (*life).usesOlder},
	{"an earlier month's usage", 1, (*life).usesBeforeTheFirst},
	{"a sync", 8, (*life).syncs},
	{"a worker goes on", 8, func(l *life) bool { return l.goOn(0, 1+l.rng.IntN(12), noTrouble) }},
	{"another worker goes on", 8, func(l *life) bool { return l.goOn(1, 1+l.rng.IntN(12), noTrouble) }},
	{"a worker dies after planning", 3, func(l *life) bool { return l.dies(toPlan) }},
	{"a worker dies before a call", 4, func(l *life) bool { return l.dies(toLease) }},
	{"a worker dies after a call", 4, func(l *life) bool { return l.dies(toCall) }},
	{"a worker dies after recording", 4, func(l *life) bool { return l.dies(toSettle) }},
	{"an answer is lost", 4, func(l *life) bool { return l.meets(answerLost) }},
	{"a server error", 4, func(l *life) bool { return l.meets(serverError) }},
	{"a saved error", 8, func(l *life) bool { return l.meets(savedError) }},
	{"a refusal", 4, func(l *life) bool { return l.meets(refusal) }},
	{"a silent drop", 9, func(l *life) bool { return l.meets(silentDrop) }},
	{"an old report comes again", 7, (*life).comesAgain},
	{"counts lag", 4, (*life).countsLag},
	{"a closing", 6, (*life).closes},
	{"days pass", 6, func(l *life) bool { l.passTime(l.now.Add(time.Duration(1+l.rng.IntN(120)) * time.Hour)); return true }},
	{"a border passes", 6, func(l *life) bool { return l.passBorder(0) }},
	{"a deadline passes", 8, func(l *life) bool { return l.passBorder(l.settings.Grace) }},
	{"a price", 3, (*life).newPriceOfMeter},
	{"a price of a plan", 3, (*life).newPriceOfPlan},
	{"a customer's own price", 3, (*life).newPriceOfCustomer},
	{"another plan", 3, (*life).assigns},
	{"a meter is made", 4, func(l *life) bool { return l.made() }},
	{"a meter is counted", 4, (*life).completes},
	{"a meter's version", 3, (*life).newVersion},
	{"a usage scale", 3, (*life).newScale},
	{"a sync without a meter", 4, (*life).syncsWithout},
	{"a new receiver", 3, func(l *life) bool { return l.replaces(true) }},
	{"the receiver moves", 6, (*life).moves},
	{"a new counter", 3, func(l *life) bool { return l.replaces(false) }},
	{"another mode", 4, (*life).changesMode},
	{"no connection", 2, (*life).disconnects},
	{"a link", 10, (*life).links},
	{"an unlink", 5, (*life).unlinks},
	{"another subscription", 4, (*life).movesSubscription},
	{"an item is removed", 5, (*life).removesItem},
	{"an item is added", 11, (*life).addsItem},
	{"a final invoice", 9, (*life).invoiceIsFinal},
	{"a missed invoice is read", 9, (*life).readsMissed},
	{"a late policy", 2, (*life).switchesPolicy},
	{"another grace", 2, (*life).changesGrace},
	{"retention", 8, (*life).retains},
}

// restoring lists the kinds of steps that restore the ledger from a backup.
var restoring = []kind{
	{"a backup", 3, (*life).backsUp},
	{"a restore", 2, (*life).restores},
}

// charging lists the kinds of steps of customers that a provider charges amounts.
var charging = []kind{
	{"a line is edited", 2, (*life).edits},
	{"another way of billing", 1, (*life).billsOtherwise},
}

// namesOf returns the names of kinds.
func namesOf(some ...[]kind) (names []string) {
	for _, k := range slices.Concat(some...) {
		names = append(names, k.name)
	}
	return names
}

// anyOf returns the index of a random kind, chosen by weight.
func anyOf(kinds []kind, rng *rand.Rand) int {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := rng.IntN(total)
	return slices.IndexFunc(kinds, func(k kind) bool { n -= k.weight; return n < 0 })
}

var values = []string{"1", "2.5", "0.5", "0.005", "7", "1.005", "13.37", "0.000000000001", "100", "0", "3.3333"}

// value returns a random value of an event.
func (l *life) value() metering.Decimal { return metering.MustDecimal(values[l.rng.IntN(len(values))]) }

// anyMeter returns a random meter ID. The meter may not exist yet.
func (l *life) anyMeter() metering.MeterID { return metering.MeterID(1 + l.rng.IntN(anyMeters)) }

// usesNow ingests an event of the last two hours.
func (l *life) usesNow() bool {
	at := l.now.Add(-time.Duration(l.rng.IntN(7200)) * time.Second)
	return l.use(at, l.anyMeter(), l.value())
}

// corrects ingests an event of the last two days with a negative value.
func (l *life) corrects() bool {
	at := l.now.Add(-time.Duration(l.rng.IntN(48)) * time.Hour)
	return l.use(at, l.anyMeter(), metering.Whole(0).Sub(l.value()))
}

// usesAtBorder ingests an event at the start of a period, or a microsecond before it.
func (l *life) usesAtBorder() bool {
	periods := l.allPeriods()
	if len(periods) == 0 {
		return false
	}
	at := periods[l.rng.IntN(len(periods))].Start
	if l.rng.IntN(2) == 0 {
		at = at.Add(-time.Microsecond)
	}
	return l.use(at, l.anyMeter(), l.value())
}

// usesLate ingests an event of a closed period.
func (l *life) usesLate() bool {
	var closed []metering.Range
	for _, p := range l.allPeriods() {
		if p.ClosedAt != nil {
			closed = append(closed, p.Range)
		}
	}
	if len(closed) == 0 {
		return false
	}
	r := closed[l.rng.IntN(len(closed))]
	at := r.Start.Add(time.Duration(l.rng.Int64N(int64(r.End.Sub(r.Start)))))
	value := l.value()
	if l.rng.IntN(4) == 0 {
		value = metering.Whole(0).Sub(value)
	}
	return l.use(at, l.anyMeter(), value)
}

// usesOlder ingests an event of the last 40 days.
func (l *life) usesOlder() bool {
	at := l.now.Add(-time.Duration(l.rng.IntN(40*24*60)) * time.Minute)
	return l.use(at, l.anyMeter(), l.value())
}

// usesBeforeTheFirst ingests an event in a month before the customer's creation. If the event arrives in
// time, the first period begins earlier and bills it. Usage before the first period is not billed.
func (l *life) usesBeforeTheFirst() bool {
	at := billing.CalendarPeriod(l.born, l.settings.Timezone).Start.Add(-time.Duration(1+l.rng.IntN(200)) * time.Hour)
	if l.rng.IntN(2) == 0 {
		at = at.AddDate(0, -2, 0)
	}
	return l.use(at, l.anyMeter(), l.value())
}

// syncs runs a sync, and some steps of the neighbour's pass. It does nothing in a lazy life.
func (l *life) syncs() bool {
	if l.lazy {
		return false
	}
	l.sync()
	l.shiver()
	return l.connection != nil
}

// goOn runs some steps of a worker's pass, and begins a pass if there is none.
func (l *life) goOn(worker, steps int, what trouble) bool {
	if l.connection == nil {
		return false
	}
	if l.passes[worker] == nil {
		l.passes[worker] = l.newPass(l.ledger)
	}
	p := l.passes[worker]
	p.armed = what
	for range steps {
		if !p.work() {
			l.passes[worker] = nil
			break
		}
	}
	l.shiver()
	return true
}

// dies runs a worker's pass until it has completed the stage, and then abandons the pass.
func (l *life) dies(after stage) bool {
	if l.connection == nil {
		return false
	}
	p := l.passes[0]
	if p == nil {
		p = l.newPass(l.ledger)
	}
	l.passes[0] = nil
	for range 50 {
		stage := p.stage
		more := p.work()
		if stage == after && p.stage != after {
			p.note(lives.Action{Do: lives.Dies})
			return true
		}
		if !more {
			return false
		}
	}
	return false
}

// meets ingests usage and runs a worker until a call has met the trouble and its outcome is stored.
func (l *life) meets(what trouble) bool {
	if l.connection == nil {
		return false
	}
	l.use(l.now.Add(-time.Minute), l.someMeter(), l.value())
	p := l.newPass(l.ledger)
	p.armed = what
	for n := 0; n < 50 && p.work(); n++ {
		if p.met && p.stage == toLease {
			break
		}
	}
	return p.met
}

// mayMeet reports whether the call that sends a report can meet the trouble.
func (l *life) mayMeet(what trouble, r *storedReport) bool {
	here := l.connection != nil && r.Connection == l.connection.ID && r.Customer == l.providerID
	switch what {
	case refusal:
		return !r.arrived || r.Counting == billing.Adds || r.Kind == billing.StatementReport
	case savedError:
		return r.Kind != billing.StatementReport
	case silentDrop:
		events := r.Kind == billing.QuantityReport && !r.Destination.OnlyWhileRun
		return events && here && r.attempts == 1
	}
	return true
}

// comesAgain delivers an earlier report to the provider once more.
func (l *life) comesAgain() bool {
	for _, r := range l.allReports() {
		if r.arrived && r.Connection == l.farSide.connection && l.connection != nil && l.rng.IntN(3) == 0 && l.now.Sub(r.firstSent) < certain {
			l.farSide.take(l.name, r, noTrouble, l.now)
			l.note(lives.Action{Do: lives.Again, Report: r.number})
			return true
		}
	}
	return false
}

// countsLag changes the time after which the provider shows an accepted quantity as counted. In some cases, another
// system then reports a quantity too.
func (l *life) countsLag() bool {
	if l.connection == nil || l.farSide.receiver {
		return false
	}
	if l.farSide.lag = time.Duration(l.rng.IntN(200)) * time.Hour; l.unread() {
		l.farSide.lag = min(l.farSide.lag, certain)
	}
	if n := len(l.farSide.calls) - 1; n >= 0 && l.farSide.calls[n].Kind == billing.QuantityReport && l.farSide.calls[n].Counting == billing.Adds && l.rng.IntN(4) == 0 && l.epoch == 0 {
		l.farSide.calls = append(l.farSide.calls, l.farSide.calls[n].fromOtherSystem(l.now))
	}
	return true
}

// closes closes the periods that are due. Before that, operators may resolve reports with an unknown outcome.
func (l *life) closes() bool {
	if l.rng.IntN(2) == 0 {
		l.resolve()
	}
	return l.closePeriods() > 0
}

// passBorder advances time to the end of an open period plus more, or up to two hours further. It takes the
// first period for which that instant is still ahead, and returns false if there is none.
func (l *life) passBorder(more time.Duration) bool {
	for _, p := range l.periods {
		if end := p.End.Add(more); p.ClosedAt == nil && end.After(l.now) {
			l.passTime(end.Add(time.Duration(l.rng.IntN(3)) * time.Hour))
			return true
		}
	}
	return false
}

// syncsWithout runs a pass that excludes a meter.
func (l *life) syncsWithout() bool {
	if l.connection == nil {
		return false
	}
	p := l.newPass(l.ledger)
	p.excluded = []metering.MeterID{l.anyMeter()}
	for n := 0; n < 4000 && p.work(); n++ {
	}
	return true
}

// retains applies retention to one closed period of any billing schedule that ended at least 14 days ago: the
// period's events are deleted. A period is skipped if an open period begins before its end.
func (l *life) retains() (taken bool) {
	l.eachStream(func() {
		for i := range l.periods {
			taken = taken || l.retainsOf(&l.periods[i])
		}
	})
	return taken
}

// retainsOf applies retention to the period, if that is possible. It first stores the late usage of the closed lines.
func (l *life) retainsOf(p *billing.Period) bool {
	open := func(o billing.Period) bool { return o.ClosedAt == nil && o.Start.Before(p.End) }
	if p.ClosedAt == nil || len(p.Closed) == 0 || p.Closed[0].LateEvents != nil || l.now.Before(p.End.AddDate(0, 0, 14)) || slices.ContainsFunc(l.allPeriods(), open) {
		return false
	}
	by := billing.Facts{Customer: l.customer, Prices: l.prices, Stored: l.periods}.ByDimension()
	usage := l.usage([]metering.Range{p.Range}, by)
	p.Closed = slices.Clone(p.Closed)
	for n := range p.Closed {
		i := slices.IndexFunc(usage, func(u billing.Usage) bool { return u.MeterID == p.Closed[n].MeterID })
		p.Closed[n].LateUsage, p.Closed[n].LateEvents, p.Closed[n].LateDimensions = &usage[i].Late, &usage[i].LateEvents, usage[i].LateDimensions
	}
	for n, e := range l.events {
		l.events[n].gone = e.gone || p.Contains(e.at) && l.isFed(e.meter, e.at)
	}
	return true
}

func (l *life) String() string {
	return fmt.Sprintf("%s, %s, grace %s, %s", l.now.Format(time.DateTime), l.settings.Timezone, l.settings.Grace, l.settings.LatePolicy)
}
