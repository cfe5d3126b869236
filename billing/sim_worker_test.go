package billing_test

import (
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// certain is how long a provider surely remembers what it was told.
const certain = 23 * time.Hour

// readFor is how long what was read of the provider's side is planned with.
const readFor = 5 * time.Minute

// stage is what a pass does next.
type stage int

const (
	toBegin stage = iota
	toRead
	toPlan
	toLease
	toCall
	toSettle
)

// pass is one worker's, over one customer. It may end at any stage.
type pass struct {
	*life
	ledger   *ledger
	stage    stage
	after    int64
	excluded []metering.MeterID
	readAt   time.Time // when it last read the provider's side
	queue    []uuid.UUID
	idle     bool // the last plan changes nothing: another one would be the same
	tried    map[uuid.UUID]bool

	sending *storedReport // of the present call
	at      *ledger       // that has it
	farSide *farSide      // that it goes to
	moves   int           // where that is
	attempt int
	outcome billing.State
	newKey  bool
	overdue bool    // the invoice of its period is final
	armed   trouble // for the next call
	met     bool    // it was met
	found   bool    // it found what was reported before the ledger was restored
}

func (l *life) newPass(of *ledger) *pass {
	return &pass{life: l, ledger: of, tried: make(map[uuid.UUID]bool)}
}

// work does the next thing; false where the pass is over.
func (p *pass) work() bool {
	switch p.stage {
	case toBegin:
		if p.ledger.connection == nil {
			return false
		}
		if p.after, p.stage = p.ledger.number, toPlan; !p.ledger.connection.Statements {
			p.stage = toRead
		}
		p.note(lives.Action{Do: lives.Begin})
	case toRead:
		p.read()
		p.readAt, p.stage = p.now, toPlan
	case toPlan:
		if p.now.Sub(p.readAt) > readFor && p.ledger.connection != nil && !p.ledger.connection.Statements {
			p.stage = toRead
			return true
		}
		return p.plan()
	case toLease:
		p.lease()
	case toCall:
		p.call()
		p.stage = toSettle
		if p.farSide != p.ledger.farSide {
			return p.work() // what a former connection answers is recorded at once
		}
	case toSettle:
		p.settle()
		p.stage = toLease
	}
	return true
}

// read notes what the customer is at the provider, and what was counted there.
func (p *pass) read() {
	l := p.ledger
	if l.connection == nil || l.connection.Statements {
		return
	}
	p.note(lives.Action{Do: lives.ReadSide})
	side := &billing.Side{}
	if l.providerID != "" {
		if side = l.farSide.side(l.providerID, l.meters, p.now); l.twofold {
			side = l.farSide.sides(l, p.now)
		}
		side.Runs = l.farSide.runs(l.providerID)
	}
	for _, m := range l.meters {
		if l.providerID == "" {
			none := billing.Destination{MeterID: m.ID, Excluded: "the customer is linked to none"}
			side.Destinations, side.Charges = append(side.Destinations, none), append(side.Charges, none)
		}
	}
	if l.sideOf != l.link() || !reflect.DeepEqual(l.side, side) {
		l.look()
	}
	l.side, l.sideOf = side, l.link()
	l.keepRuns(side.Runs)
	p.readAddedUp(l)
	for _, of := range l.streams {
		p.confirm(of)
	}
}

func (p *pass) plan() bool {
	l := p.ledger
	if l.connection == nil {
		return false
	}
	plans := l.plan(p.now, func(f *billing.Facts) { f.After, f.Excluded = p.after, p.excluded })
	for _, of := range plans {
		p.in(of.ledger, func() {
			p.checkPrefix(of.ledger, of.facts, of.ReportPlan)
			p.checkReports(of.ReportPlan)
		})
	}
	if slices.ContainsFunc(plans, func(of streamPlan) bool { return of.ReadFirst }) {
		p.notePlan(nil, true)
		p.stage = toRead
		return true
	}
	p.idle = !slices.ContainsFunc(plans, streamPlan.changes)
	l.keep(plans, p.now)
	var queue []uuid.UUID
	for _, of := range plans {
		queue = append(queue, of.written(of.ReportPlan, p.now, len(of.Reports))...)
	}
	p.notePlan(queue, false)
	p.queue = slices.DeleteFunc(queue, func(id uuid.UUID) bool { return p.tried[id] })
	p.stage = toLease
	return len(p.queue) > 0
}

// checkReports holds that a pass reports each series once at most, and that a
// report is worth trying as long as the period is open in which it is billed.
func (p *pass) checkReports(plan billing.ReportPlan) {
	for _, r := range plan.Reports {
		billedUntil := r.Of.End
		if r.Kind == billing.ChargeReport && r.Late {
			billedUntil = r.Window.End
		}
		if want := billedUntil.Add(p.settings.Grace); !r.Deadline.Equal(want) {
			p.failf("a report of the period from %s is worth trying until %s instead of %s", r.Of.Start, r.Deadline, want)
		}
		again := slices.ContainsFunc(p.ledger.reports, func(o *storedReport) bool {
			series := o.Series
			series.Window.End = r.Window.End
			return series == r.Series && o.number > p.after && meterOf(o.Report) == meterOf(r)
		})
		if again && r.Kind != billing.StatementReport {
			p.failf("a pass reports a series again: %+v", r)
		}
		p.checkStatedOnce(r)
		if r.Kind == billing.QuantityReport {
			p.checkCharge(r)
		}
	}
}

// checkCharge holds that a quantity is charged as the provider can count it; of
// a closed period in the decimals that it closed with.
func (p *pass) checkCharge(r billing.Report) {
	line, scale := r.Lines[0], int(p.meter(r.Lines[0].MeterID).UsageScale)
	for _, of := range p.ledger.periods {
		if closed, known := of.Line(line.MeterID); known && of.Start.Equal(r.Period) && closed.Scale != nil {
			scale = int(*closed.Scale)
		}
	}
	if r.Destination.WholeUnits {
		scale = 0
	}
	want := p.charged(line.Price, line.MeterID, line.PriceVersion, unitsAlone(rounded(rational(line.Usage), scale)))
	if rational(line.Charge).Cmp(want) != 0 {
		p.failf("%s of meter %d are charged %s; the oracle says %s", line.Usage, line.MeterID, line.Charge, want.FloatString(4))
	}
}

// meterOf is whose usage a report to a counter is of; 0: it is of none.
func meterOf(r billing.Report) metering.MeterID {
	if len(r.Lines) == 0 {
		return 0
	}
	return r.Lines[0].MeterID
}

func (p *pass) lease() {
	if len(p.queue) == 0 {
		p.stage = toPlan
		return
	}
	id := p.queue[0]
	p.queue, p.tried[id] = p.queue[1:], true
	p.at = p.ledger.holding(id)
	r, ok := p.at.begin(id, p.now)
	p.note(lives.Action{Do: lives.Lease, Report: r.number, Busy: !ok})
	if !ok {
		return
	}
	p.sending, p.farSide, p.attempt, p.stage = r, p.ledger.farSide, r.attempts, toCall
	p.moves = p.farSide.moves
	p.overdue = r.Kind == billing.QuantityReport && p.at.period(r.Period).Subscription.Invoiced
}

// call sends the report, or finds that it was taken.
func (p *pass) call() {
	r := p.sending
	p.outcome, p.newKey = "", false
	if !p.now.Before(r.lease) || r.attempts != p.attempt {
		p.noteCall(lives.Late)
		return // its time is over
	}
	if p.overdue && p.attempt == 1 {
		p.outcome = billing.Rejected
		p.noteCall(lives.NoCall)
		return
	}
	adds := r.Counting == billing.Adds
	if adds && p.now.Sub(r.firstSent) > certain {
		if p.outcome = p.look(r); p.outcome != "" {
			p.noteCall(lives.NoCall)
			return
		}
	}
	what := p.trouble(r)
	answer := p.farSide.take(p.ledger.name, r, what, p.now)
	if answer.replayed || answer.duplicate && answer.taken || answer.refused && what != refusal {
		what = noTrouble // it did not come to that
	}
	p.noteCall(fates[what])
	switch {
	case answer.refused && r.Kind == billing.ActionReport:
		p.outcome = billing.Rejected
		if in := p.farSide.invoiceOfOurs(r.Window.Start); p.attempt > 1 && in != nil && in.final {
			p.outcome = billing.Accepted
		}
	case answer.refused && (adds || r.Kind == billing.ChargeReport) && p.attempt > 1:
		if p.outcome = p.look(r); p.outcome == "" { // it may have arrived before
			p.outcome = billing.InDoubt
			if r.Kind == billing.ChargeReport {
				p.outcome = billing.Rejected
			}
		}
	case answer.refused && p.attempt > 1 && r.Kind == billing.QuantityReport:
		p.outcome = billing.InDoubt // it may have arrived before
	case answer.refused:
		p.outcome = billing.Rejected
	case answer.duplicate && answer.taken:
		p.outcome = billing.Accepted
	case answer.taken && p.overdue && !answer.replayed && p.now.Sub(r.firstSent) <= certain:
		p.outcome = billing.Rejected // it is on no invoice
	case answer.taken:
		p.outcome = billing.Accepted
	case answer.replayed && !adds:
		p.newKey = true
	case answer.replayed:
		p.outcome = p.look(r)
		p.newKey = p.outcome == "" && r.Kind == billing.ChargeReport
		if p.outcome != billing.Accepted {
			p.outcome = ""
		}
	}
}

// look asks the provider whether it has what may have arrived.
func (p *pass) look(r *storedReport) billing.State {
	if r.Kind == billing.ChargeReport {
		if slices.ContainsFunc(p.farSide.calls, func(c *call) bool { return c.id == r.id }) {
			return billing.Accepted
		}
		return ""
	}
	of := p.at.period(r.Period) // it may have become shorter since the series' window was written down
	part := of.Intersect(of.Subscription.Range)
	var before metering.Decimal
	for _, o := range p.at.reports {
		if o.state.Taken() && (o.Series == r.Series || o.ended(r.Series, part)) {
			before = before.Add(o.Quantity)
		}
	}
	if p.at.resubscribed(r) {
		return billing.InDoubt
	}
	if counted := p.farSide.counted(r.Customer, r.Target, r.Counting, part, p.now); counted.Equal(before.Add(r.Quantity)) {
		return billing.Accepted
	}
	return billing.InDoubt // what is counted may be behind
}

// ended says whether the report is of a series of the same place that ended
// before the part began, and went out with a time in it.
func (r *storedReport) ended(s billing.Series, part metering.Range) bool {
	return r.Connection == s.Connection && r.Customer == s.Customer && r.Target == s.Target && r.Method == s.Method && r.Period.Equal(s.Period) &&
		s.Counting == billing.Adds && r.Window.Start.Before(part.Start) && !r.timestamp.Before(part.Start)
}

// trouble is what meets the call.
func (p *pass) trouble(r *storedReport) trouble {
	if p.ledger != p.life.ledger {
		return serverError // the neighbour's always fail
	}
	if p.moves != p.farSide.moves {
		return serverError // nobody is there any more
	}
	what := p.armed
	if !p.mayMeet(what, r) {
		what = noTrouble
	}
	if p.armed = noTrouble; what != noTrouble {
		p.met = true
	}
	return what
}

func (p *pass) settle() {
	p.noteSettling()
	if p.outcome != "" {
		p.at.settle(p.sending.id, p.outcome, p.now)
		return
	}
	p.at.release(p.sending, p.attempt, p.newKey)
}

// confirm looks for what was taken in what the provider has counted.
func (p *pass) confirm(l *ledger) {
	for _, at := range l.unconfirmed(p.now.Add(-certain)) {
		counted := l.farSide.counted(at.customer, at.target, at.counting, at.part, p.now)
		switch {
		case counted.Equal(at.total):
			l.saw(at.last)
		case len(at.lastOld) > 0 && counted.Equal(at.seen.Add(at.old)):
			l.saw(at.lastOld)
		}
	}
}

// place is where the provider has taken something that it was not seen to count.
type place struct {
	customer, target string
	counting         billing.Counting
	part             metering.Range
	total, seen, old metering.Decimal
	last, lastOld    []*storedReport
	underWay         bool
}

func (l *ledger) unconfirmed(cutoff time.Time) (open []*place) {
	var series []billing.Series
	for _, r := range l.reports {
		p := r.Kind == billing.QuantityReport && l.reaches(r) && l.isToBeCounted(r.Series)
		if p && !slices.Contains(series, r.Series) {
			series = append(series, r.Series)
		}
	}
	for _, s := range series {
		period := l.period(s.Period)
		part := period.Intersect(period.Subscription.Range)
		if period.Subscription.ID == "" || s.Window.Start.Before(part.Start) && s.Counting != billing.Adds {
			continue
		}
		if s.Counting == billing.Replaces {
			part = period.Subscription.Range
		}
		i := slices.IndexFunc(open, func(o *place) bool {
			return o.customer == s.Customer && o.target == s.Target && o.counting == s.Counting && o.part == part
		})
		if i < 0 {
			i, open = len(open), append(open, &place{customer: s.Customer, target: s.Target, counting: s.Counting, part: part})
		}
		open[i].add(l, s, period.Intersect(period.Subscription.Range).Start, cutoff)
	}
	return slices.DeleteFunc(open, func(o *place) bool { return len(o.last) == 0 || o.underWay })
}

// isToBeCounted says whether the series' period is not complete or, where one
// report takes the place of another, any of the same period of the subscription's.
func (l *ledger) isToBeCounted(s billing.Series) bool {
	of := l.period(s.Period)
	return slices.ContainsFunc(l.periods, func(p billing.Period) bool {
		together := s.Counting == billing.Replaces && p.Subscription.ID == of.Subscription.ID && p.Subscription.Start.Equal(of.Subscription.Start)
		return !p.Complete && (p.Start.Equal(of.Start) || together)
	})
}

// add counts a series; from is when its part of the subscription's period begins.
func (o *place) add(l *ledger, s billing.Series, from, cutoff time.Time) {
	var added, addedSeen, addedOld, quantity, quantitySeen metering.Decimal
	var last, old *storedReport
	ended := s.Window.Start.Before(from)
	for _, r := range l.reports {
		if r.Series != s || ended && r.timestamp.Before(from) {
			continue
		}
		o.underWay = o.underWay || r.state.Outstanding()
		if r.state.Taken() {
			added, quantity = added.Add(r.Quantity), r.Quantity
		}
		if r.state == billing.Counted || ended && r.state.Taken() {
			addedSeen, quantitySeen = addedSeen.Add(r.Quantity), r.Quantity
		}
		if r.state == billing.Accepted && !ended {
			last = r
			if r.settledAt.Before(cutoff) {
				addedOld, old = addedOld.Add(r.Quantity), r
			}
		}
	}
	if s.Counting != billing.Adds {
		added, addedSeen, addedOld = quantity, quantitySeen, metering.Decimal{}
		if old != nil && old == last {
			addedOld = quantity.Sub(quantitySeen)
		}
	}
	o.total, o.seen, o.old = o.total.Add(added), o.seen.Add(addedSeen), o.old.Add(addedOld)
	if last != nil {
		o.last = append(o.last, last)
	}
	if old != nil {
		o.lastOld = append(o.lastOld, old)
	}
}

// saw notes that these reports, and those of their series before them, were seen counted.
func (l *ledger) saw(last []*storedReport) {
	for _, of := range last {
		for _, r := range l.reports {
			if r.Series == of.Series && r.number <= of.number && r.state == billing.Accepted {
				r.state = billing.Counted
			}
		}
	}
}
