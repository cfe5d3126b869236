package billing_test

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
)

// life simulates one customer from its creation until all of its usage is billed. A life is deterministic. Each
// step has its own seed, so a life can be run again without some of its steps.
type life struct {
	*ledger
	rng        *rand.Rand // of the current step
	now        time.Time
	born       time.Time
	until      time.Time // time after the last step
	lazy       bool      // the steps include no syncs
	neighbour  *ledger   // another customer of the tenant; every call for it fails
	farSides   []*farSide
	passes     [2]*pass
	backup     *backup
	restoredAt time.Time
	recovering bool                 // some reports that a restore lost are still missing
	stays      bool                 // the life stays at its first connection
	charging   bool                 // the life began at a counter that charges amounts
	stated     map[int64]bool       // whether each period closed at a receiver, by its start
	dearest    map[usedKey]*big.Rat // the highest charge of each meter and period so far
	happened   []bool               // whether each kind of step happened
	followed   coverage             // pairs of kinds of which the second directly followed the first
	most       map[usedKey]mostUsed
	plans      int // number of plans checked by checkPrefix
	startedIn  billing.Settings
	monthly    bool                             // contracts have monthly periods
	steady     bool                             // provider prices do not change, since the time of a read decides which price applies
	tape       *tape                            // records the actions; nil: none are recorded
	counting   map[usedKey]metering.Aggregation // aggregation of each meter in closed periods

	closedGroups    map[usedKey][]referenceUsage // usage of each event that a period closed with, with dimension values
	dimensions      bool                         // prices may be by dimension
	nextByDimension bool                         // the next price is by dimension
	failure         string
}

// usedKey identifies the usage of a meter in one period.
type usedKey struct {
	meter  metering.MeterID
	period int64
	stream int
}

// key returns the key of a meter's usage in a period of the current billing schedule.
func (l *life) key(meter metering.MeterID, period time.Time) usedKey {
	return usedKey{meter, period.UnixMicro(), l.stream}
}

// mostUsed contains the current usage and the highest usage so far.
type mostUsed struct{ used, most metering.Decimal }

// step is one action in a life. Nothing happens if the action is impossible at that time.
type step struct {
	kind int
	seed uint64
	soon bool // no time passes before it
}

// script returns the steps of the life of a seed.
func script(seed uint64) []step { return led(byChance(seed), seed) }

// byChance returns random steps for the life of a seed.
func byChance(seed uint64) []step {
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := make([]step, 40)
	for i := range steps {
		steps[i] = step{kind: anyOf(usual, rng), seed: rng.Uint64()}
	}
	switch {
	case twofold(seed): // each step of these lives takes longer than in others
		return among(steps[:26], seed, streaming, len(kinds)-len(streaming), 2)
	case own(seed):
		return among(steps[:26], seed, slices.Concat(restoring, charging, owning), len(usual), 2)
	case seed%4 == 2:
		return among(steps, seed, restoring, len(usual), 4)
	case seed%4 == 3:
		return among(steps, seed, charging, len(usual)+len(restoring), 4)
	}
	return steps
}

// among inserts random steps of other kinds after each step. It inserts a step with probability 1/odds, and
// repeats this until it inserts none. place is the index in kinds of the first other kind.
func among(steps []step, seed uint64, others []kind, place, odds int) (all []step) {
	rng := rand.New(rand.NewPCG(seed, 4))
	for _, s := range steps {
		all = append(all, s)
		for rng.IntN(odds) == 0 {
			all = append(all, step{kind: place + anyOf(others, rng), seed: rng.Uint64()})
		}
	}
	return all
}

var simulatedTimezones = []string{"UTC", "Asia/Kathmandu", "America/New_York", "Europe/Zurich", "Australia/Lord_Howe", "America/Asuncion"}

// begin creates the life of a seed, with a tenant and a customer.
func begin(seed uint64) *life {
	l := &life{
		rng: rand.New(rand.NewPCG(seed, 2)), happened: make([]bool, len(kinds)), followed: make(coverage),
		most: make(map[usedKey]mostUsed), counting: make(map[usedKey]metering.Aggregation), closedGroups: make(map[usedKey][]referenceUsage),
	}
	timezone, _ := metering.LoadLocation(simulatedTimezones[l.rng.IntN(len(simulatedTimezones))])
	l.born = time.Date(2025, time.Month(1+l.rng.IntN(12)), 1+l.rng.IntN(28), l.rng.IntN(24), l.rng.IntN(60), 0, 0, time.UTC)
	l.now = l.born
	c := &catalog{
		settings: billing.Settings{
			Timezone: timezone, Currency: "USD", LatePolicy: metering.AdjustLate,
			Grace: []time.Duration{0, time.Hour, 72 * time.Hour, 72 * time.Hour}[l.rng.IntN(4)],
		},
		prices: make(map[metering.MeterID][]billing.Price),
	}
	if l.rng.IntN(8) == 0 {
		c.settings.LatePolicy = metering.ReportLate
	}
	l.ledger = newLedger(c, "a customer", l.born)
	if l.rng.IntN(8) == 0 {
		starts := l.born.Add(time.Duration(l.rng.IntN(400)-200) * time.Hour)
		l.customer.BillingStartsAt = &starts
	}
	for range 1 + l.rng.IntN(2) {
		l.newMeter(metering.Complete)
	}
	l.connect(l.rng.IntN(2) == 0, false)
	l.providerID = "cus_1"
	return l
}

// newLedger returns the ledger of a new customer of the tenant.
func newLedger(c *catalog, name string, born time.Time) *ledger {
	l := &ledger{
		catalog: c, account: &account{name: name, customer: billing.Customer{ID: 1, ExternalID: name, CreatedAt: born}, createdIn: metering.WindowOf(born, metering.Month, c.settings.Timezone).Start, filledFrom: make(map[metering.MeterID]int), runs: make(map[string]billing.Run)},
		through: make(map[int64]int),
	}
	l.streams = []*ledger{l}
	return l
}

// anyMeters is the maximum number of meters in a life. Events may also name meters that do not exist yet.
const anyMeters = 3

// newMeter creates the next meter, in three of four cases with a price.
func (l *life) newMeter(status metering.MeterVersionStatus) {
	id := metering.MeterID(len(l.meters) + 1)
	l.meters = append(slices.Clone(l.meters), metering.Meter{
		ID: id, Slug: fmt.Sprintf("meter-%d", id), UsageScale: int32(l.rng.IntN(3)),
		Version: metering.MeterVersion{ID: metering.MeterVersionID(100 * id), Aggregation: metering.Sum, Status: status},
	})
	if status == metering.Backfilling {
		l.filledFrom[id] = len(l.events)
	}
	l.noteMeter(l.meters[len(l.meters)-1])
	if l.rng.IntN(4) > 0 {
		l.newPrice(id, 0, time.Time{})
	}
	for _, f := range l.farSides {
		f.newPlace(l, id)
	}
}

var currencies = []string{"USD", "USD", "JPY", "KWD"}

// newPrice sets the next version of the meter's price in the plan, or of the meter's own price if plan is 0. The
// first version of each is effective from the beginning.
func (l *life) newPrice(meter metering.MeterID, plan metering.PlanID, from time.Time) {
	if !slices.ContainsFunc(l.prices[meter], func(p billing.Price) bool { return p.PlanID == plan }) {
		from = time.Time{}
	}
	price := l.priced(billing.Price{MeterID: meter, PlanID: plan, EffectiveFrom: from})
	l.prices[meter] = append(slices.Clone(l.prices[meter]), price)
	l.notePrice(price)
}

// priced returns the price as the meter's next version, with terms of any model.
func (l *life) priced(p billing.Price) billing.Price {
	hundredths := func(most int64) metering.Decimal {
		return metering.Whole(l.rng.Int64N(most)).Mul(metering.MustDecimal("0.01"))
	}
	short := billing.Terms{BasePrice: hundredths(2000), IncludedUnits: metering.Whole(l.rng.Int64N(20)), OverageRate: hundredths(300).Mul(metering.MustDecimal("0.1")), Currency: "USD"}
	former := l.versions(p.MeterID)
	for _, version := range former {
		short.Currency = cmp.Or(version.Currency, short.Currency)
	}
	if p.EffectiveFrom.After(l.now) && l.rng.IntN(3) == 0 {
		short.Currency = currencies[l.rng.IntN(len(currencies))]
	}
	p.Version, p.Terms = len(former)+1, ofAnyModel(short, l.dimensions)
	if l.nextByDimension || l.dimensions && l.rng.IntN(4) == 0 {
		p.Terms, l.nextByDimension = l.byAnyDimension(p.Terms), false
	}
	return p
}

// versions returns all versions of the meter's prices, the customer's own included, by number.
func (l *life) versions(meter metering.MeterID) []billing.Price {
	all := slices.Clone(l.prices[meter])
	for _, p := range l.customer.Prices {
		if p.MeterID == meter {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b billing.Price) int { return cmp.Compare(a.Version, b.Version) })
	return all
}

// connect replaces the tenant's connection by a new one.
func (l *life) connect(receiver, test bool) {
	f := newFarSide(metering.ConnectionID(len(l.farSides)+1), receiver)
	l.farSides = append(l.farSides, f)
	if f.test = test; test {
		l.tests = append(slices.Clone(l.tests), f.connection)
	}
	l.connectTo(f)
	for _, m := range l.meters {
		f.newPlace(l, m.ID)
	}
	if !receiver && !l.own {
		f.subscribe("cus_1", l)
	}
}

// connectTo connects the tenant to the provider f.
func (l *life) connectTo(f *farSide) {
	l.backup = nil
	l.farSide, l.connection = f, &billing.Connection{ID: f.connection, Statements: f.receiver, Invoices: !f.receiver}
	l.chargesAlone()
	l.markInvoiced()
}

// newPlace draws the destination of a meter's quantities at the provider.
func (f *farSide) newPlace(l *life, meter metering.MeterID) {
	d := billing.Destination{MeterID: meter, Target: fmt.Sprintf("account %d %d", f.connection, meter)}
	switch l.rng.IntN(4) {
	case 0:
		d.Method, d.Counting, d.WholeUnits, d.NotNegative, d.OnlyWhileRun = "record", billing.Replaces, true, true, true
	case 1:
		d.Method, d.Counting = "delta", billing.Adds
	case 2:
		d.Method, d.Counting, d.Window, d.NotNegative = "window", billing.Replaces, metering.Day, true
		if l.rng.IntN(8) == 0 {
			d.Window = metering.Hour
		}
	case 3:
		d.Method, d.Counting = "last", billing.Latest
	}
	d.Target += " " + string(d.Method) + string(d.Window)
	f.places[meter] = d
}

// subscribe begins a contract of the customer now.
func (f *farSide) subscribe(customer string, l *life) {
	length := []time.Duration{7 * 24 * time.Hour, 14 * 24 * time.Hour, 30 * 24 * time.Hour}[l.rng.IntN(3)]
	if l.twofold {
		length *= 2
	}
	start := l.now.Truncate(time.Second)
	c := &contract{
		id:       fmt.Sprintf("account %d sub_%d", f.connection, len(f.contracts[customer])+1),
		invoices: []*invoice{{Range: metering.Range{Start: start, End: start.Add(length)}}},
		trial:    l.rng.IntN(6) == 0,
		monthly:  l.monthly,
		currency: "USD",
	}
	if l.rng.IntN(8) == 0 {
		c.currency = "JPY"
	}
	f.contracts[customer] = append(f.contracts[customer], c)
}

// circumstances are the options of a life besides its steps.
type circumstances struct {
	neighbour bool  // the tenant has another customer, for which every call fails
	lazy      bool  // the steps include no syncs
	eager     bool  // a sync after each step
	known     bool  // a sync before the first step stores the periods, and provider prices do not change
	tape      *tape // records the actions; nil: none are recorded
	monthly   bool  // contracts have monthly periods after their first
	look      func(*life)
}

// live runs the life of a seed with these steps, and stops at the first failure.
func live(seed uint64, steps []step, in circumstances) *life {
	l := begin(seed)
	l.lazy, l.tape, l.startedIn, l.monthly, l.steady = in.lazy, in.tape, l.settings, in.monthly, in.known
	if own(seed) && in.tape == nil {
		l.beginOwn(seed)
	}
	l.dimensions = l.own || in.tape != nil && recordsDimensions(seed)
	if twofold(seed) && in.tape == nil {
		l.beginTwofold(seed)
	}
	l.noteBeginning()
	if seed%4 == 3 && in.tape == nil && !l.farSide.receiver {
		l.charging, l.farSide.charging, l.connection.Bills = true, true, metering.BillsAmounts
	}
	for _, c := range l.farSide.contracts["cus_1"] {
		c.monthly = in.monthly
	}
	if in.neighbour {
		l.neighbour = newLedger(l.catalog, "the neighbour", l.born)
		l.neighbour.providerID = "cus_2"
	}
	if in.known {
		l.sync()
	}
	former := never
	for n, s := range steps {
		l.rng = rand.New(rand.NewPCG(s.seed, 3))
		if more := time.Duration(l.rng.IntN(240)) * time.Minute; !s.soon {
			l.passTime(l.now.Add(more))
		}
		former = l.step(s, former)
		if in.eager {
			l.sync()
		}
		if in.look != nil {
			in.look(l)
		}
		l.noteLook()
		if l.twofold { // check covers only one billing schedule after each step
			l.eachStream(l.notesMost)
		}
		if l.inSome(n, l.check); l.failure != "" {
			l.failure = kinds[s.kind].name + ": " + l.failure
			return l
		}
	}
	if l.end(); l.failure != "" {
		l.failure = "at the end: " + l.failure
	}
	return l
}

// never is the kind of a step that did not happen.
const never = -1

// step runs a step if it is possible, and returns its kind. Otherwise it returns never. It records that the
// step's kind directly followed the kind of the previous step.
func (l *life) step(s step, former int) int {
	if l.stays && slices.Contains(leavingSteps, kinds[s.kind].name) || !kinds[s.kind].happen(l) {
		return never
	}
	l.happened[s.kind] = true
	if former != never {
		l.followed[[2]int{former, s.kind}] = 1
	}
	return s.kind
}

// failf records the first failure of the life.
func (l *life) failf(format string, args ...any) {
	if l.failure == "" {
		l.failure = fmt.Sprintf(format, args...)
	}
}

// passTime advances the clock. If a period is not stored yet, it runs a sync one minute before the period ends,
// as the daily schedule would.
func (l *life) passTime(to time.Time) {
	l.seenBefore(to)
	for l.connection != nil && !l.connection.Statements && l.providerID != "" {
		c := l.nextToRoll()
		if c == nil {
			break
		}
		last := c.last()
		if last.End.After(to) {
			break
		}
		l.syncBefore(last)
		if last.End.After(l.now) {
			l.now = last.End
		}
		c.roll(l.now)
	}
	if to.After(l.now) {
		l.now = to
	}
}

// nextToRoll returns the running contract with the earliest period end, or nil.
func (l *life) nextToRoll() (next *contract) {
	for _, c := range []*contract{l.farSide.contract(l.providerID), l.farSide.contract(besides(l.providerID))} {
		if c != nil && (next == nil || c.last().End.Before(next.last().End)) {
			next = c
		}
	}
	return next
}

// syncBefore runs a sync one minute before a subscription's period ends, if the period is not stored yet.
func (l *life) syncBefore(last *invoice) {
	stored := slices.ContainsFunc(l.allPeriods(), func(p billing.Period) bool { return p.Subscription.Range == last.Range })
	if before := last.End.Add(-time.Minute); !stored && before.After(l.now) {
		l.now = before
		l.sync()
		l.tracksMoney() // record the charge before the step may change the price
	}
}

// sync runs a pass without failures until it is over.
func (l *life) sync() {
	defer l.noteSync()()
	p := l.newPass(l.ledger)
	for range 4000 {
		if !p.work() {
			if l.recovered(); !p.idle {
				l.eachStream(func() { l.checkSynced(p) })
			}
			return
		}
	}
	l.failf("a pass does not end")
}

// shiver runs some steps of a pass for the neighbour. All of its calls fail.
func (l *life) shiver() {
	if l.neighbour != nil {
		p := l.newPass(l.neighbour)
		for n := 0; n < 20 && p.work(); n++ {
		}
	}
}

// use ingests an event.
func (l *life) use(at time.Time, meter metering.MeterID, value metering.Decimal) bool {
	return l.useOf(usageEvent{at: at, meter: meter, value: value, values: l.someValues()})
}

// useOf ingests an event for the customer and the neighbour. It returns false if retention has deleted the events of
// the event's period.
func (l *life) useOf(e usageEvent) bool {
	e.at = metering.Instant(e.at)
	l.noteUse(e)
	if e.value.IsNegative() { // the usage before the correction may have been reported
		l.eachStream(l.notesMost)
	}
	for _, of := range []*ledger{l.ledger, l.neighbour} {
		if of != nil && !of.ingest(e, l.now) {
			return false
		}
	}
	return true
}

// ingest stores an event. It returns false if retention has deleted the events of the event's period.
func (l *ledger) ingest(sent usageEvent, now time.Time) bool {
	e := usageEvent{at: sent.at, ingestedAt: now, meter: sent.meter, value: sent.value, values: sent.values}
	for _, p := range l.streams[l.streamAt(e.meter, e.at)].periods {
		if p.Contains(e.at) && p.ClosedAt != nil {
			if e.late = true; slices.ContainsFunc(p.Closed, func(c billing.ClosedLine) bool { return c.LateEvents != nil }) {
				return false // retention has deleted the period's events
			}
		}
	}
	e.hour, e.month = metering.WindowOf(e.at, metering.Hour, l.settings.Timezone).Start, metering.WindowOf(e.at, metering.Month, l.settings.Timezone).Start
	l.events = append(l.events, e)
	return true
}

// resolve settles the reports with an unknown outcome that a sync cannot settle, as operators do: those to a
// previous connection, customer or subscription, if they are in the current mode.
func (l *life) resolve() { l.eachStream(l.resolveInStream) }

// resolveInStream does the work of resolve for the current billing schedule.
func (l *life) resolveInStream() {
	for _, r := range l.reports {
		counts := l.connection != nil && slices.Contains(l.tests, r.Connection) == l.inTest()
		if r.state != billing.InDoubt || !counts || l.reaches(r) && !l.resubscribed(r) && r.Customer == l.providerID {
			continue
		}
		l.note(lives.Action{Do: lives.Resolve, Report: r.number, State: r.outcome()})
		l.settle(r.id, r.outcome(), l.now)
	}
}

// outcome returns the state in which an operator settles the report.
func (r *storedReport) outcome() billing.State {
	if r.arrived {
		return billing.Accepted
	}
	return billing.Rejected
}

// closePeriods closes the periods that are due, checks the closings, and returns their number.
func (l *life) closePeriods() int {
	l.note(lives.Action{Do: lives.Close})
	plans := l.plan(l.now, func(f *billing.Facts) { f.MayClose = true })
	due := l.replanAt
	if l.keep(plans, l.now); !due.IsZero() && due.Before(l.replanAt) {
		l.replanAt = due // a closing sends nothing, so it postpones no re-evaluation
	}
	closed := 0
	l.eachStream(func() {
		for _, c := range plans[l.stream].Closings {
			l.closesAt(c)
			l.checkClosing(c)
			l.checkStandaloneClosing(c)
			l.ends = append(l.ends, closedText(c.Period.Range, c.Lines))
		}
		closed += len(plans[l.stream].Closings)
		l.checkDue()
	})
	if l.neighbour != nil {
		f := l.neighbour.facts(l.now, l.neighbour.number)
		f.MayClose = true
		l.neighbour.store(billing.NewBooks(f).Plan(), l.now)
	}
	return closed
}

// closedText returns the content of a closed period as text.
func closedText(of metering.Range, lines []billing.ClosedLine) string {
	var text strings.Builder
	fmt.Fprint(&text, of.Start, of.End)
	for _, c := range lines {
		fmt.Fprint(&text, " ", c.MeterID, c.MeterVersion, c.Usage, c.Events, c.PriceVersion, c.Terms, c.Charge, c.Currency, c.Billed, c.Test, c.Trial)
		if c.Price != nil {
			fmt.Fprint(&text, " at ", c.Price.ID())
		}
		if c.Scale != nil {
			fmt.Fprint(&text, " to ", *c.Scale)
		}
		for _, u := range c.Dimensions {
			fmt.Fprint(&text, " ", string(u.Key), u.Units, u.Events)
		}
	}
	return text.String()
}
