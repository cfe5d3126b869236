package billing_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// tape records the actions of a simulated customer, so that the real components can replay them.
type tape struct {
	actions []lives.Action
	passes  map[*pass]int
	settled map[settlement]bool
	muted   bool // the current steps belong to an action that is recorded already
	aged    bool // a quantity was sent so long after its timestamp, or before it, that a provider may refuse it
}

// settlement is the outcome of a call, and the report's state before that outcome was stored.
type settlement struct {
	former, outcome billing.State
	reaches         bool // whether the report goes to the current connection
}

// newTape returns an empty tape.
func newTape() *tape { return &tape{passes: make(map[*pass]int), settled: make(map[settlement]bool)} }

// note records an action, unless no actions are recorded now.
func (l *life) note(a lives.Action) {
	if l.tape == nil || l.tape.muted {
		return
	}
	a.At = l.now.UTC()
	l.tape.actions = append(l.tape.actions, a)
}

// note records an action of a worker.
func (p *pass) note(a lives.Action) {
	if p.tape == nil {
		return
	}
	if _, known := p.tape.passes[p]; !known {
		p.tape.passes[p] = len(p.tape.passes) + 1
	}
	a.Pass = p.tape.passes[p]
	p.life.note(a)
}

// noteSync records a whole pass to a receiver as one action, unless another worker has leased a report. All
// other passes are recorded step by step. The caller must call end after the pass.
func (l *life) noteSync() (end func()) {
	leased := slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.lease.After(l.now) })
	if l.tape == nil || l.tape.muted || l.connection == nil || !l.connection.Statements || leased {
		return func() {}
	}
	l.note(lives.Action{Do: lives.Sync})
	l.tape.muted = true
	return func() { l.tape.muted = false }
}

// noteLook records whether the customer is out of sync.
func (l *life) noteLook() {
	if l.tape != nil {
		l.note(lives.Action{Do: lives.Look, OutOfSync: l.outOfSync(l.now)})
	}
}

// noteBeginning records the tenant's initial meters, prices and connection.
func (l *life) noteBeginning() {
	for _, m := range l.meters {
		l.noteMeter(m)
		for _, p := range l.prices[m.ID] {
			l.notePrice(p)
		}
	}
	l.noteConnection()
}

// noteMeter records that a meter is created.
func (l *life) noteMeter(m metering.Meter) {
	a := lives.Action{Do: lives.Meter, Meter: m.ID, Scale: m.UsageScale, Backfilling: m.Version.Status == metering.Backfilling}
	if l.dimensions {
		a.GroupBy = simulatedGroups
	}
	l.note(a)
}

// notePrice records that a price is set or ends.
func (l *life) notePrice(p billing.Price) {
	from := p.EffectiveFrom.UTC()
	a := lives.Action{Do: lives.Price, Meter: p.MeterID, Plan: p.PlanID, Own: p.CustomerID != 0, From: &from}
	if !p.Inherits {
		a.Price = &p.Terms
	}
	l.note(a)
}

func (l *life) noteConnection() {
	a := lives.Action{Do: lives.Receiver, Connection: int(l.connection.ID)}
	if !l.connection.Statements && !l.own {
		a.Do = lives.Counter
		l.farSide.noteContract(&a)
	}
	l.note(a)
}

func (l *life) noteSubscription() {
	a := lives.Action{Do: lives.Resubscribe, Connection: int(l.connection.ID)}
	l.farSide.noteContract(&a)
	l.note(a)
}

// noteContract adds to an action the currency and the trial of the running contract and the end of its first
// period.
func (f *farSide) noteContract(a *lives.Action) {
	c := f.contract("cus_1")
	end := c.invoices[0].End.UTC()
	a.Time, a.Currency, a.Trial = &end, c.currency, c.trial
}

// notePlaces adds the destinations of all meters to each action that connects a counter or begins a
// subscription.
func (l *life) notePlaces() {
	for i, a := range l.tape.actions {
		if a.Do != lives.Counter && a.Do != lives.Resubscribe {
			continue
		}
		places := l.farSides[a.Connection-1].places
		for _, meter := range slices.Sorted(maps.Keys(places)) {
			l.tape.actions[i].Places = append(l.tape.actions[i].Places, lives.Place{
				Meter: meter, Method: places[meter].Method, Window: places[meter].Window,
				Price: l.farSides[a.Connection-1].tariff(meter, &contract{currency: a.Currency}).Tariff,
			})
		}
	}
}

// noteUse records that an event is ingested.
func (l *life) noteUse(e usageEvent) {
	at := e.at.UTC()
	l.note(lives.Action{Do: lives.Use, Meter: e.meter, Time: &at, Value: &e.value, Properties: groupKey(e.values, simulatedGroups)})
}

// notePlan records a plan, with the numbers of the reports to send.
func (p *pass) notePlan(queue []uuid.UUID, readFirst bool) {
	var numbers []int64
	for _, id := range queue {
		numbers = append(numbers, p.ledger.holding(id).report(id).number)
	}
	p.note(lives.Action{Do: lives.Plan, Excluded: p.excluded, Sends: numbers, ReadFirst: readFirst})
}

// fates maps each trouble to the fate of the call in a recorded life.
var fates = map[trouble]lives.Fate{
	noTrouble: lives.Taken, answerLost: lives.AnswerLost, serverError: lives.ServerError, refusal: lives.Refused,
	savedError: lives.SavedError, silentDrop: lives.Dropped,
}

// noteSettling records that the outcome of a call is stored.
func (p *pass) noteSettling() {
	p.note(lives.Action{Do: lives.Settle})
	if p.tape != nil {
		p.tape.settled[settlement{p.sending.state, p.outcome, p.ledger.reaches(p.sending)}] = true
	}
}

// counterTakes is the age of a timestamp up to which a provider accepts a quantity for certain.
const counterTakes = 34 * 24 * time.Hour

// noteCall records a call with its fate.
func (p *pass) noteCall(fate lives.Fate) {
	a := lives.Action{Do: lives.Call, Fate: fate}
	if p.sending.Kind != billing.StatementReport {
		a.Method = cmp.Or(p.sending.Destination.Method, "charge")
	}
	ahead := p.sending.Destination.OnlyWhileRun && p.sending.timestamp.After(p.now)
	if p.tape != nil && (ahead || p.now.Sub(p.sending.timestamp) > counterTakes) && p.sending.Kind == billing.QuantityReport {
		p.tape.aged = true
	}
	p.note(a)
}

// recorded returns the settings, the actions and the outcome of a simulated customer.
func (l *life) recorded(seed uint64) lives.Life {
	l.notePlaces()
	r := lives.Life{
		Seed: seed, Born: l.born, Timezone: l.startedIn.Timezone.String(), GraceSeconds: int64(l.startedIn.Grace / time.Second),
		LatePolicy: l.startedIn.LatePolicy, BillingStartsAt: l.customer.BillingStartsAt, Actions: l.tape.actions,
	}
	r.Reports = []lives.Report{} // an empty list if there are no reports
	for _, report := range l.reports {
		r.Reports = append(r.Reports, recordedReport(report))
	}
	for _, p := range l.periods {
		r.Periods = append(r.Periods, recordedPeriod(p))
	}
	for _, f := range l.farSides {
		for period, last := range f.latest[l.name] {
			r.Received = append(r.Received, lives.Statement{Connection: int(f.connection), Period: period.Start.UTC(), Number: last.number})
		}
	}
	slices.SortFunc(r.Received, func(a, b lives.Statement) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), a.Period.Compare(b.Period))
	})
	return r
}

// recordedReport returns the report as a recorded life contains it.
func recordedReport(r *storedReport) lives.Report {
	report := lives.Report{
		Number: r.number, Kind: r.Kind, Connection: int(r.Connection), Period: r.Period.UTC(), State: r.state, Attempts: r.attempts,
	}
	if r.Kind != billing.StatementReport {
		report.Quantity = &r.Quantity
	}
	for _, l := range r.Lines {
		line := lives.Line{
			Meter: l.MeterID, Usage: l.Usage, Events: l.Events, Quantity: l.Quantity, PriceVersion: l.PriceVersion,
			UnitPrice: l.UnitPrice, Charge: l.Charge, Amount: l.Amount, Currency: l.Currency,
		}
		if !l.Closed.IsZero() {
			closed := l.Closed.UTC()
			line.Closed = &closed
		}
		report.Lines = append(report.Lines, line)
	}
	lives.SortLines(report.Lines)
	return report
}

// recordedPeriod returns the period as a recorded life contains it.
func recordedPeriod(p billing.Period) lives.Period {
	period := lives.Period{Start: p.Start.UTC(), End: p.End.UTC()}
	if p.ClosedAt != nil {
		at := p.ClosedAt.UTC()
		period.ClosedAt = &at
	}
	for _, c := range p.Closed {
		period.Lines = append(period.Lines, lives.ClosedLine{
			Meter: c.MeterID, Usage: c.Usage, Events: c.Events, PriceVersion: c.PriceVersion, Charge: c.Charge, Currency: c.Currency,
			Billed: c.Billed, Scale: c.Scale,
		})
	}
	slices.SortFunc(period.Lines, func(a, b lives.ClosedLine) int { return cmp.Compare(a.Meter, b.Meter) })
	return period
}
