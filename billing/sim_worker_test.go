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

// certain is how long a provider is sure to remember a report that it received.
const certain = 23 * time.Hour

// readFor is how long a worker uses the state that it read from the provider before it reads the state again.
const readFor = 5 * time.Minute

// stage is the next action of a pass.
type stage int

const (
	toBegin stage = iota
	toRead
	toPlan
	toLease
	toCall
	toSettle
)

// pass is one worker's sync of one customer. It can end at any stage.
type pass struct {
	*life
	ledger   *ledger
	stage    stage
	after    int64
	excluded []metering.MeterID
	readAt   time.Time // when the pass last read the customer's state at the provider
	queue    []uuid.UUID
	idle     bool // the last plan changed nothing, so the next one would be equal
	tried    map[uuid.UUID]bool

	sending *storedReport // the report of the current call
	at      *ledger       // the ledger of that report
	farSide *farSide      // the provider of that report
	moves   int           // the provider's moves at the lease
	attempt int
	outcome billing.State
	newKey  bool
	overdue bool    // the final invoice of the report's period was known at the lease
	armed   trouble // meets the next call
	met     bool    // a call has met the armed trouble
	found   bool    // the pass found reports that a restore had lost
}

// newPass begins a pass for the customer of a ledger.
func (l *life) newPass(of *ledger) *pass {
	return &pass{life: l, ledger: of, tried: make(map[uuid.UUID]bool)}
}

// work runs the next stage. It returns false if the pass is over.
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
			return p.work() // the answer of a previous connection is stored at once
		}
	case toSettle:
		p.settle()
		p.stage = toLease
	}
	return true
}

// read reads the customer's state and the counted quantities at the provider.
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
			none := billing.Destination{MeterID: m.ID, Excluded: billing.NoTarget("the customer is linked to none")}
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

// plan plans the next reports, checks the plans and stores them, unless the customer has to be read first. It returns
// false if there is no connection, or no report to send.
func (p *pass) plan() bool {
	l := p.ledger
	if l.connection == nil {
		return false
	}
	plans := l.plan(p.now, func(f *billing.Facts) { f.After, f.Excluded = p.after, p.excluded })
	for _, of := range plans {
		p.withLedger(of.ledger, func() {
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

// checkReports checks that a pass reports each series at most once, except statements. It also checks that a
// report's deadline is the deadline of the period that bills it.
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

// checkCharge compares the charge of a quantity with the oracle. The units are rounded to the meter's usage
// scale, or to the scale at which a closed period closed. If the provider accepts whole units only, they are
// rounded to whole units.
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

// meterOf returns the meter of a report's first line, or 0 if the report has no lines.
func meterOf(r billing.Report) metering.MeterID {
	if len(r.Lines) == 0 {
		return 0
	}
	return r.Lines[0].MeterID
}

// lease leases the next report of the queue. If the queue is empty, the pass plans again.
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

// call sends the leased report, unless the lease has ended or the outcome is known without a call.
func (p *pass) call() {
	r := p.sending
	p.outcome, p.newKey = "", false
	if !p.now.Before(r.lease) || r.attempts != p.attempt {
		p.noteCall(lives.Late)
		return // the lease has ended, or another attempt has begun
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
		what = noTrouble // the call did not meet the trouble
	}
	p.noteCall(fates[what])
	switch {
	case answer.refused && r.Kind == billing.ActionReport:
		p.outcome = billing.Rejected
		if in := p.farSide.invoiceOfOurs(r.Window.Start); p.attempt > 1 && in != nil && in.final {
			p.outcome = billing.Accepted
		}
	case answer.refused && (adds || r.Kind == billing.ChargeReport) && p.attempt > 1:
		if p.outcome = p.look(r); p.outcome == "" { // an earlier attempt may have arrived
			p.outcome = billing.InDoubt
			if r.Kind == billing.ChargeReport {
				p.outcome = billing.Rejected
			}
		}
	case answer.refused && p.attempt > 1 && (r.Kind == billing.QuantityReport || r.Kind == billing.StatementReport):
		p.outcome = billing.InDoubt // an earlier attempt may have arrived
	case answer.refused:
		p.outcome = billing.Rejected
	case answer.duplicate && answer.taken:
		p.outcome = billing.Accepted
	case answer.taken && p.overdue && !answer.replayed && p.now.Sub(r.firstSent) <= certain:
		p.outcome = billing.Rejected // no invoice bills the quantity
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

// look checks at the provider whether an earlier attempt of the report has arrived. It returns the empty
// state for a charge that has not arrived.
func (p *pass) look(r *storedReport) billing.State {
	if r.Kind == billing.ChargeReport {
		if slices.ContainsFunc(p.farSide.calls, func(c *call) bool { return c.id == r.id }) {
			return billing.Accepted
		}
		return ""
	}
	of := p.at.period(r.Period) // the period may have become shorter since the series' window was stored
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
		p.farSide.mistake(r, p.now)
		return billing.Accepted
	}
	return billing.InDoubt // the count may be behind
}

// ended reports whether the report's series is of the same target and period as s, and began before the part.
// The report's timestamp must not precede the part. It returns false for quantities that do not add up.
func (r *storedReport) ended(s billing.Series, part metering.Range) bool {
	return r.Connection == s.Connection && r.Customer == s.Customer && r.Target == s.Target && r.Method == s.Method && r.Period.Equal(s.Period) &&
		s.Counting == billing.Adds && r.Window.Start.Before(part.Start) && !r.timestamp.Before(part.Start)
}

// trouble returns the failure that the call meets.
func (p *pass) trouble(r *storedReport) trouble {
	if p.ledger != p.life.ledger {
		return serverError // calls for the neighbour always fail
	}
	if p.moves != p.farSide.moves {
		return serverError // the receiver has moved to another URL since the lease
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

// settle stores the outcome of the call. Without an outcome, it ends the lease.
func (p *pass) settle() {
	p.noteSettling()
	switch {
	case p.outcome == billing.Accepted, p.outcome != "" && p.sending.attempts == p.attempt:
		p.at.settle(p.sending.id, p.outcome, p.now)
		return
	case p.outcome != "":
		return // another attempt has begun, and may arrive
	}
	p.at.release(p.sending, p.attempt, p.newKey)
}

// confirm compares the accepted quantities with the provider's totals, and marks those that are counted.
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

// place is a total at the provider, for one target and the range part. It includes accepted quantities that
// were not seen counted yet.
type place struct {
	customer, target string
	counting         billing.Counting
	part             metering.Range
	total, seen, old metering.Decimal
	last, lastOld    []*storedReport
	underWay         bool
}

// unconfirmed returns the totals at the current connection with quantities that were accepted and not seen counted yet.
func (l *ledger) unconfirmed(cutoff time.Time) (open []*place) {
	var series []billing.Series
	for _, r := range l.reports {
		p := r.Kind == billing.QuantityReport && l.reaches(r) && l.hasIncompletePeriod(r.Series)
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

// hasIncompletePeriod reports whether the series' period is incomplete. If reports replace earlier ones, it is
// enough that any period in the same subscription period is incomplete.
func (l *ledger) hasIncompletePeriod(s billing.Series) bool {
	of := l.period(s.Period)
	return slices.ContainsFunc(l.periods, func(p billing.Period) bool {
		together := s.Counting == billing.Replaces && p.Subscription.ID == of.Subscription.ID && p.Subscription.Start.Equal(of.Subscription.Start)
		return !p.Complete && (p.Start.Equal(of.Start) || together)
	})
}

// add adds the quantities of a series to the place. from is the later start of the billing period and the
// subscription's period. Reports that were settled before cutoff also count as old.
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

// saw marks the given reports, and the accepted earlier ones of their series, as counted.
func (l *ledger) saw(last []*storedReport) {
	for _, of := range last {
		for _, r := range l.reports {
			if r.Series == of.Series && r.number <= of.number && r.state == billing.Accepted {
				r.state = billing.Counted
			}
		}
	}
}
