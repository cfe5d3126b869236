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

// life is one customer's, from its making until everything that it used is
// billed. It is the same whenever it is lived: each step has a seed of its own,
// so that others may be left out.
type life struct {
	*ledger
	rng        *rand.Rand // of the present step
	now        time.Time
	born       time.Time
	until      time.Time // when the last step was over
	lazy       bool      // it leaves syncs out
	neighbour  *ledger   // of the same tenant; every call for it fails
	farSides   []*farSide
	passes     [2]*pass
	backup     *backup
	restoredAt time.Time
	recovering bool                 // what was lost with the restore is not known again
	stays      bool                 // at its first connection
	charging   bool                 // in amounts, as a tenant has chosen who stays with its counter
	stated     map[int64]bool       // by start, periods that closed at a receiver
	dearest    map[usedKey]*big.Rat // the most that periods ever came to
	happened   []bool               // by kind
	followed   coverage             // which kinds happened at once after which
	most       map[usedKey]mostUsed
	plans      int // made so far
	startedIn  billing.Settings
	monthly    bool                             // contracts run in months
	steady     bool                             // providers' prices stay: when they are read says which hold
	tape       *tape                            // nil: nobody notes what is done
	counting   map[usedKey]metering.Aggregation // of closed periods

	closedGroups    map[usedKey][]referenceUsage // the usage that periods closed at, with dimension values
	dimensions      bool                         // prices may be by dimension
	nextByDimension bool                         // the next price is
	failure         string
}

// usedKey is a meter's usage of one period.
type usedKey struct {
	meter  metering.MeterID
	period int64
	stream int
}

func (l *life) key(meter metering.MeterID, period time.Time) usedKey {
	return usedKey{meter, period.UnixMicro(), l.stream}
}

// mostUsed is the usage now, and the most that it ever was.
type mostUsed struct{ used, most metering.Decimal }

// step is one thing that happens in a life, if it can.
type step struct {
	kind int
	seed uint64
	soon bool // no time passes before it
}

// script is what is to happen in the life of a seed.
func script(seed uint64) []step { return led(byChance(seed), seed) }

// byChance are the steps that nothing leads to.
func byChance(seed uint64) []step {
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := make([]step, 40)
	for i := range steps {
		steps[i] = step{kind: anyOf(usual, rng), seed: rng.Uint64()}
	}
	switch {
	case twofold(seed): // such lives cost more with each step than others do
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

// among are the steps, and after each of them others at these odds, of kinds whose
// first one has this place among all.
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

// begin makes the customer of a seed.
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

func newLedger(c *catalog, name string, born time.Time) *ledger {
	l := &ledger{
		catalog: c, account: &account{name: name, customer: billing.Customer{ID: 1, ExternalID: name, CreatedAt: born}, createdIn: metering.WindowOf(born, metering.Month, c.settings.Timezone).Start, filledFrom: make(map[metering.MeterID]int), runs: make(map[string]billing.Run)},
		through: make(map[int64]int),
	}
	l.streams = []*ledger{l}
	return l
}

// anyMeters is how many meters a life may have; events name any of them.
const anyMeters = 3

// newMeter makes the next meter, mostly with a price.
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

// newPrice sets the next version of the meter's price in the plan, or of its own (0). The first
// version of each holds from the beginning.
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

// connectTo has the tenant billed at f.
func (l *life) connectTo(f *farSide) {
	l.backup = nil
	l.farSide, l.connection = f, &billing.Connection{ID: f.connection, Statements: f.receiver, Invoices: !f.receiver}
	l.chargesAlone()
	l.markInvoiced()
}

// newPlace says what the far side does with a meter's quantities.
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

// subscribe begins a contract at now.
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

// circumstances are what a life is lived in beside its steps.
type circumstances struct {
	neighbour bool  // another customer of the tenant's, for whom every call fails
	lazy      bool  // no sync among the steps
	eager     bool  // a sync after each of them
	known     bool  // it was synced before anything happened, so that its periods are known
	tape      *tape // what is done is noted on it
	monthly   bool  // contracts run in months
	look      func(*life)
}

// live lives the life of a seed with these steps, until something is wrong.
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
		if l.twofold { // not all of its streams are looked at now
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

// never is the kind of no step.
const never = -1

// step has a step happen, if it can, after one of another kind. It returns its own.
func (l *life) step(s step, former int) int {
	if l.stays && slices.Contains(leading, kinds[s.kind].name) || !kinds[s.kind].happen(l) {
		return never
	}
	l.happened[s.kind] = true
	if former != never {
		l.followed[[2]int{former, s.kind}] = 1
	}
	return s.kind
}

func (l *life) failf(format string, args ...any) {
	if l.failure == "" {
		l.failure = fmt.Sprintf(format, args...)
	}
}

// passTime lets time pass. What runs every day does so before a subscription's
// period ends, if nothing else did.
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

// nextToRoll is the contract that runs whose period ends first.
func (l *life) nextToRoll() (next *contract) {
	for _, c := range []*contract{l.farSide.contract(l.providerID), l.farSide.contract(besides(l.providerID))} {
		if c != nil && (next == nil || c.last().End.Before(next.last().End)) {
			next = c
		}
	}
	return next
}

// syncBefore has a subscription's period known before it ends.
func (l *life) syncBefore(last *invoice) {
	stored := slices.ContainsFunc(l.allPeriods(), func(p billing.Period) bool { return p.Subscription.Range == last.Range })
	if before := last.End.Add(-time.Minute); !stored && before.After(l.now) {
		l.now = before
		l.sync()
		l.tracksMoney() // its price may be another one before the step is over
	}
}

// sync is a pass that meets no trouble.
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

// shiver lets the neighbour's worker try, in vain.
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

func (l *life) useOf(e usageEvent) bool {
	e.at = metering.Instant(e.at)
	l.noteUse(e)
	if e.value.IsNegative() { // the usage may have been reported since the step began
		l.eachStream(l.notesMost)
	}
	for _, of := range []*ledger{l.ledger, l.neighbour} {
		if of != nil && !of.ingest(e, l.now) {
			return false
		}
	}
	return true
}

func (l *ledger) ingest(sent usageEvent, now time.Time) bool {
	e := usageEvent{at: sent.at, ingestedAt: now, meter: sent.meter, value: sent.value, values: sent.values}
	for _, p := range l.streams[l.streamAt(e.meter, e.at)].periods {
		if p.Contains(e.at) && p.ClosedAt != nil {
			if e.late = true; slices.ContainsFunc(p.Closed, func(c billing.ClosedLine) bool { return c.LateEvents != nil }) {
				return false // too old
			}
		}
	}
	e.hour, e.month = metering.WindowOf(e.at, metering.Hour, l.settings.Timezone).Start, metering.WindowOf(e.at, metering.Month, l.settings.Timezone).Start
	l.events = append(l.events, e)
	return true
}

// resolve has operators find out what a former connection, or subscription, has
// of what is in doubt there and counts.
func (l *life) resolve() { l.eachStream(l.resolveInStream) }

func (l *life) resolveInStream() {
	for _, r := range l.reports {
		counts := l.connection != nil && slices.Contains(l.tests, r.Connection) == l.inTest()
		if r.state != billing.InDoubt || !counts || l.reaches(r) && !l.resubscribed(r) && r.Customer == l.providerID {
			continue
		}
		outcome := billing.Rejected
		if r.arrived {
			outcome = billing.Accepted
		}
		l.note(lives.Action{Do: lives.Resolve, Report: r.number, State: outcome})
		l.settle(r.id, outcome, l.now)
	}
}

// closePeriods closes what is due.
func (l *life) closePeriods() int {
	l.note(lives.Action{Do: lives.Close})
	plans := l.plan(l.now, func(f *billing.Facts) { f.MayClose = true })
	l.keep(plans, l.now)
	closed := 0
	l.eachStream(func() {
		for _, c := range plans[l.stream].Closings {
			l.closesAt(c)
			l.checkClosing(c)
			l.checkOwnClosing(c)
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
