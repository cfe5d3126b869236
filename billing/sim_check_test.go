package billing_test

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// rational converts a decimal to a rational number.
func rational(d metering.Decimal) *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

// rounded returns r rounded half to even to the given number of decimals.
func rounded(r *big.Rat, digits int) *big.Rat {
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil))
	scaled := new(big.Rat).Mul(r, scale)
	whole, rest := new(big.Int).DivMod(scaled.Num(), scaled.Denom(), new(big.Int))
	switch rest.Mul(rest, big.NewInt(2)).Cmp(scaled.Denom()) {
	case 1:
		whole.Add(whole, big.NewInt(1))
	case 0:
		whole.Add(whole, big.NewInt(int64(whole.Bit(0))))
	}
	return new(big.Rat).Quo(new(big.Rat).SetInt(whole), scale)
}

// oracle returns the charge for usage at a version of the meter's price.
func (l *life) oracle(meter metering.MeterID, version int, usage countedUsage) *big.Rat {
	for _, p := range l.versions(meter) {
		if p.Version != version {
			continue
		}
		return usage.charge(p.Terms)
	}
	return new(big.Rat)
}

// versionAt returns the version and currency of the price that applies to the customer at start. Version 0: there
// is none.
func (l *life) versionAt(meter metering.MeterID, start time.Time) (version int, currency string) {
	var plan metering.PlanID
	var since time.Time
	for _, a := range l.customer.Plans {
		if !a.EffectiveFrom.After(start) && !a.EffectiveFrom.Before(since) {
			plan, since = a.PlanID, a.EffectiveFrom
		}
	}
	for _, of := range []billing.Price{{CustomerID: l.customer.ID}, {PlanID: plan}, {}} {
		best := billing.Price{}
		for _, p := range l.versions(meter) {
			if p.CustomerID == of.CustomerID && p.PlanID == of.PlanID && !p.EffectiveFrom.After(start) && !p.EffectiveFrom.Before(best.EffectiveFrom) {
				best = p
			}
		}
		if best.Version > 0 && !best.Inherits {
			return best.Version, best.Currency
		}
	}
	return 0, ""
}

// used returns the meter's usage in a range, computed from the events.
func (l *life) used(meter metering.MeterID, r metering.Range) (total metering.Decimal) {
	for _, e := range l.events {
		switch {
		case e.meter != meter || !r.Contains(e.at) || e.lost || !l.isFed(meter, e.at):
		case l.meter(meter).Version.Aggregation == metering.Count:
			total = total.Add(metering.Whole(1))
		default:
			total = total.Add(e.value)
		}
	}
	return total
}

// counted returns the number of events that the meter has counted in a range.
func (l *life) counted(meter metering.MeterID, r metering.Range) (n int64) {
	for _, e := range l.events {
		if e.meter == meter && r.Contains(e.at) && !e.lost && l.isFed(meter, e.at) {
			n++
		}
	}
	return n
}

// eventsOf returns the number of events that a closed line's charge is for: 0 for a line that is reported in
// quantities.
func (l *life) eventsOf(line billing.ClosedLine, events int64) int64 {
	if line.Scale != nil {
		return 0
	}
	return events
}

// check checks the invariants that hold after every step.
func (l *life) check() {
	f := l.facts(l.now, l.number)
	plan := billing.NewBooks(f).Plan()
	if l.twofold && l.stream == 0 && l.plans%8 == 0 {
		l.checkRegrouped()
	}
	begins, left := l.customer.BillingStartsAt, plan
	if l.connection == nil {
		left.Resolved = nil // outcomes from invoices are stored after the tenant connects a provider again
	}
	if !left.Empty() && !l.outOfSync(l.now) && (begins == nil || !begins.After(l.now)) {
		l.failf("there is something to report, and nobody looks: %+v", plan)
	}
	if l.plans%32 == 0 && !reflect.DeepEqual(plan, billing.NewBooks(f).Plan()) {
		l.failf("the same facts gave another plan")
	}
	l.checkMost()
	l.tracksMoney()
}

// checkSynced checks that a pass without failures leaves nothing to report. It checks nothing if a report is
// outstanding, or if the pass found lost reports after a restore. Three kinds of reports may be left:
//   - of destinations that bill the latest quantity, because a report of one period can change the quantity due for
//     another,
//   - that the provider refuses,
//   - of a meter for which the pass sent an older report of another series, because its outcome can change the
//     quantity due.
func (l *life) checkSynced(p *pass) {
	if l.connection == nil || len(l.open()) > 0 || p.found {
		return
	}
	for _, r := range billing.NewBooks(l.facts(l.now, l.number)).Plan().Reports {
		first := func(o *storedReport) bool {
			return p.tried[o.id] && o.number <= p.after && o.Series != r.Series && meterOf(o.Report) == meterOf(r)
		}
		if r.Counting != billing.Latest && !l.farSide.refuses(r) && !slices.ContainsFunc(l.reports, first) {
			l.failf("a pass is over, and there is something to report: %+v", r)
		}
	}
}

// checkMost checks that the providers of one mode never bill more units than the highest usage so far, within the
// tolerances of halves, gross and fitTogether.
func (l *life) checkMost() {
	for _, p := range l.periods {
		for _, m := range l.meters {
			key := l.key(m.ID, p.Start)
			most := l.mostOf(key, l.used(m.ID, p.Range))
			for _, test := range []bool{false, true} {
				out := l.mostOut(m.ID, p.Place(), test).Add(l.chargedBelowZero(m.ID, p))
				if out.Cmp(most) > 0 && out.Cmp(most.Add(l.halves(test))) > 0 && out.Cmp(l.gross(m.ID, p.Range)) > 0 && !l.fitTogether(m.ID, p.Start, test) {
					l.failf("%s of meter %d are out for the period from %s, of %s used; in test mode: %t", out, m.ID, p.Start, most, test)
				}
			}
		}
	}
}

// mostOut returns the units of a meter's period that the providers of one mode bill, as far as Odometer can know.
// It returns the lowest of three totals: the provider may have dropped or lost a decrease, or received it after
// an unread invoice became final.
func (l *life) mostOut(meter metering.MeterID, period billing.PeriodPlace, test bool) metering.Decimal {
	out := l.unitsAtProviders(meter, period, test, (*call).bills).Sub(l.hidden(meter, period, test)).Sub(l.repeated(meter, period, test))
	for _, counts := range []func(*call) bool{(*call).given, (*call).known} {
		if other := l.unitsAtProviders(meter, period, test, counts); other.Cmp(out) < 0 {
			out = other
		}
	}
	return out
}

// chargedBelowZero returns the lowest negative quantity of an accepted charge for the period, or 0. The provider
// that bills the meter next bills that many units more.
func (l *life) chargedBelowZero(meter metering.MeterID, p billing.Period) (least metering.Decimal) {
	for _, r := range l.reports {
		if r.Kind == billing.ChargeReport && !r.Late && r.state.Taken() && r.Period.Equal(p.Start) && meterOf(r.Report) == meter && r.Lines[0].Quantity.Cmp(least) < 0 {
			least = r.Lines[0].Quantity
		}
	}
	return least
}

// fitTogether reports whether the providers bill no more units than were used in all periods that share an
// invoice with the given one. It is unknown which of these periods the shared invoice bills. It returns false if
// no other period shares an invoice with the given one.
func (l *life) fitTogether(meter metering.MeterID, start time.Time, test bool) bool {
	for first := 0; first < len(l.periods); {
		n := l.together(meter, first, test)
		var out, most metering.Decimal
		in := false
		for _, p := range l.periods[first:n] {
			in = in || p.Start.Equal(start)
			out = out.Add(l.mostOut(meter, p.Place(), test))
			most = most.Add(l.mostOf(l.key(meter, p.Start), l.used(meter, p.Range))).Add(l.halves(test))
		}
		if in {
			return n-first > 1 && out.Cmp(most) <= 0
		}
		first = n
	}
	return false
}

// notesMost updates the highest usage of each period with the current usage.
func (l *life) notesMost() {
	for _, p := range l.periods {
		for _, m := range l.meters {
			l.mostOf(l.key(m.ID, p.Start), l.used(m.ID, p.Range))
		}
	}
}

// mostOf returns the highest usage so far of a meter's period, unrounded or rounded to any usage scale. It takes
// used as the current usage.
func (l *life) mostOf(key usedKey, used metering.Decimal) metering.Decimal {
	m, known := l.most[key]
	if known && m.used.Equal(used) {
		return m.most
	}
	for scale := range int32(metering.MaxUsageScale + 1) {
		if rounded := billing.Units(used, scale); rounded.Cmp(m.most) > 0 {
			m.most = rounded
		}
	}
	if m.used = used; used.Cmp(m.most) > 0 {
		m.most = used
	}
	l.most[key] = m
	return m.most
}

// gross returns an upper bound of the billed units of a meter that a destination counts in usage windows. It is
// the usage without corrections, plus one unit for each event. When usage moves between windows, one of the two
// reports may be late. It returns 0 if no destination of the meter has windows.
func (l *life) gross(meter metering.MeterID, r metering.Range) (sum metering.Decimal) {
	windowed := func(f *farSide) bool {
		return slices.ContainsFunc(f.calls, func(c *call) bool { return c.Destination.MeterID == meter && c.Destination.Window != "" })
	}
	if !slices.ContainsFunc(l.farSides, windowed) {
		return metering.Decimal{}
	}
	for _, e := range l.events {
		if e.meter == meter && r.Contains(e.at) && l.isFed(meter, e.at) {
			if sum = sum.Add(metering.Whole(1)); !e.value.IsNegative() {
				sum = sum.Add(e.value)
			}
		}
	}
	return sum
}

// halves returns the rounding tolerance of one mode: half a unit for each further provider and for each contract,
// because each destination rounds its units separately.
func (l *life) halves(test bool) (sum metering.Decimal) {
	for i, f := range l.inMode(test) {
		if i > 0 {
			sum = sum.Add(metering.MustDecimal("0.5"))
		}
		for range len(f.contracts["cus_1"]) + len(f.contracts[besides("cus_1")]) {
			sum = sum.Add(metering.MustDecimal("0.5"))
		}
	}
	return sum
}

// unitsAtProviders returns the units of a meter's period that all providers of one mode bill with the calls for which
// counts is true.
func (l *life) unitsAtProviders(meter metering.MeterID, period billing.PeriodPlace, test bool, counts func(*call) bool) (units metering.Decimal) {
	for _, f := range l.inMode(test) {
		units = units.Add(f.billed(l.name, meter, period, counts))
	}
	return units
}

// checkPrefix checks planning after an interruption. If only the first reports of a plan were stored, a new plan
// resumes these and plans the others unchanged.
func (l *life) checkPrefix(of *ledger, f billing.Facts, plan billing.ReportPlan) {
	if len(plan.Reports) == 0 || of != l.ledger {
		return
	}
	if l.changesSubscription(plan) {
		return
	}
	l.plans++
	written := l.plans % (len(plan.Reports) + 1)
	c := of.clone()
	c.write(plan, l.now, written)
	again := c.facts(l.now, f.After)
	again.Excluded = f.Excluded
	rest := billing.NewBooks(again).Plan()
	if len(rest.Resume) != len(plan.Resume)+written {
		l.failf("%d reports are resumed after %d of a plan that resumes %d", len(rest.Resume), written, len(plan.Resume))
	}
	if f.Connection.Statements && written > 0 {
		return // an outstanding statement delays the next ones
	}
	same := slices.EqualFunc(rest.Reports, plan.Reports[written:], sameReport)
	if full := len(plan.Resume)+len(plan.Reports) >= 200; !same && !full {
		l.failf("after %d reports of a plan the rest is another:\n%+v\n%+v", written, rest.Reports, plan.Reports[written:])
	}
}

// sameReport reports whether two reports would be stored equally. Their JSON is compared only if they differ in memory,
// because there equal decimals can have different scales, such as 7 and 7.000.
func sameReport(a, b billing.Report) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	inJSON := func(r billing.Report) string {
		encoded, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		return string(encoded)
	}
	return inJSON(a) == inJSON(b)
}

// checkClosing compares a closing with the oracle, and checks that the grace of the period is over.
func (l *life) checkClosing(c billing.Closing) {
	if l.now.Before(c.Period.End.Add(l.settings.Grace)) || l.inGraceOfRestore() {
		l.failf("the period from %s closes at %s, before its grace is over", c.Period.Start, l.now)
	}
	for _, m := range l.meters {
		if _, known := (billing.Period{Closed: c.Lines}).Line(m.ID); l.twofold && known != l.isFedIn(m.ID, c.Period.Range) {
			l.failf("meter %d has a line of the period from %s of stream %d: %t", m.ID, c.Period.Start, l.stream, known)
		}
	}
	for _, line := range c.Lines {
		l.counting[l.key(line.MeterID, c.Period.Start)] = l.meter(line.MeterID).Version.Aggregation
		used := l.used(line.MeterID, c.Period.Range)
		version, currency := l.versionAt(line.MeterID, c.Period.Start)
		if line.Price != nil {
			version, currency = 0, line.Price.Currency()
		}
		if then := c.Period.Subscription.Prices[line.MeterID]; line.Scale != nil && then != nil && line.Price != then {
			l.failf("the period from %s closed at the price %v of meter %d, which cost %v", c.Period.Start, line.Price, line.MeterID, then)
		}
		groups := l.groups(line.MeterID, c.Period.Range)
		l.closedGroups[l.key(line.MeterID, c.Period.Start)] = groups
		l.checkUnrated(line, groups)
		charge := l.charged(line.Price, line.MeterID, version, countedUsage{billable(line, rational(used)), l.eventsOf(line, l.counted(line.MeterID, c.Period.Range)), groups})
		if (line.Scale != nil || line.Billed && l.chargedAmounts(c.Period, line)) && l.onTrial(c.Period) {
			charge = new(big.Rat)
		}
		if !line.Usage.Equal(used) || line.PriceVersion != version || currency != "" && line.Currency != currency || rational(line.Charge).Cmp(charge) != 0 {
			l.failf("the period from %s closed at %+v; the oracle says %s for %s at price %d", c.Period.Start, line, charge.FloatString(4), used, version)
		}
	}
}

// checkDue checks that no period is open after its grace, in any state of the provider. Only the first
// backfill of a meter or the grace after a restore delays the close.
func (l *life) checkDue() {
	backfilling := slices.ContainsFunc(l.meters, func(m metering.Meter) bool { return m.Version.Status == metering.Backfilling })
	for _, p := range l.periods {
		if p.ClosedAt == nil && !l.now.Before(p.End.Add(l.settings.Grace)) && !backfilling && !l.inGraceOfRestore() {
			l.failf("the period from %s is due and does not close", p.Start)
		}
	}
}

// checkStatedOnce checks that a pass states no closed period again after the receiver has accepted a statement
// with all of its closed lines. A statement that a restore may have superseded is ignored.
func (p *pass) checkStatedOnce(r billing.Report) {
	i := slices.IndexFunc(p.ledger.periods, func(of billing.Period) bool { return of.Start.Equal(r.Period) })
	if r.Kind != billing.StatementReport || i < 0 || p.ledger.periods[i].ClosedAt == nil {
		return
	}
	for _, o := range p.ledger.reports {
		all := p.ledger.stands(o) && o.Connection == r.Connection && o.Kind == r.Kind && o.Period.Equal(r.Period) && o.state.Taken()
		for _, line := range p.ledger.periods[i].Closed {
			all = all && slices.ContainsFunc(o.Lines, func(of billing.Line) bool {
				return of.Closed.IsZero() && of.MeterID == line.MeterID && of.Usage.Equal(line.Usage) && of.Events == line.Events && of.Charge.Equal(line.Charge)
			})
		}
		if all {
			p.failf("a closed period is stated again: %+v", r)
		}
	}
}

// end continues the life until everything is billed, and checks the final state.
func (l *life) end() {
	l.passTime(l.now.Add(time.Minute)) // all leases expire
	for l.completes() {
	}
	for _, f := range l.farSides {
		f.lag = 0
	}
	latest := l.now
	l.until = latest
	for _, e := range l.events {
		if e.at.After(latest) {
			latest = e.at
		}
	}
	for range l.rounds() {
		l.sync()
		l.passTime(l.now.Add(25 * time.Hour))
		l.sync()
		for l.invoiceIsFinal() {
		}
		l.readsMissed()
		l.resolve()
		l.closePeriods()
		l.sync()
		if l.allClosed(latest) || l.failure != "" {
			break
		}
		if !l.passBorder(0) && !l.passBorder(l.settings.Grace) {
			l.passTime(l.now.Add(25 * time.Hour))
		}
	}
	l.settlesOwn()
	l.passTime(l.lastInvoice().Add(25 * time.Hour))
	for l.invoiceIsFinal() {
	}
	l.readsMissed()
	l.sync()
	if !l.allClosed(latest) {
		l.failf("its periods do not close")
	}
	l.checkHead()
	l.checkInvoiced()
	l.eachStream(l.checkEnd)
	l.checkFed(latest)
}

// checkEnd checks the invariants that hold at the end of a life, for one billing schedule.
func (l *life) checkEnd() {
	if plan := billing.NewBooks(l.facts(l.now, l.number)).Plan(); !plan.Empty() && l.failure == "" {
		l.failf("something is left to do: %+v", plan)
	}
	l.check()
	l.checkBilled()
	for _, r := range l.reports {
		if r.bytes() != r.closed {
			l.failf("report %d was changed after it was written down", r.number)
		}
		unknown := r.state == billing.InDoubt && l.period(r.Period).ClosedAt != nil // the period's invoice has shown the billed units
		if r.state.Outstanding() && !unknown && l.connection != nil {
			l.failf("report %d to %s is on its way for ever", r.number, r.Connection)
		}
	}
	for n := range l.ends {
		p := l.periods[n]
		if l.ends[n] != closedText(p.Range, p.Closed) {
			l.failf("a closed period was changed: %s, %s", l.ends[n], closedText(p.Range, p.Closed))
		}
	}
}

// checkHead checks that the periods begin with the earliest month of which an event was ingested in time, and at
// the latest with the month in which the customer was created. The times of the syncs must not matter.
func (l *life) checkHead() {
	counter := slices.ContainsFunc(l.farSides, func(f *farSide) bool { return !f.receiver })
	if counter || l.customer.BillingStartsAt != nil || l.settings.Grace != l.startedIn.Grace {
		return // a subscription or an operator decides the start, or the grace has changed
	}
	first := billing.CalendarPeriod(l.born, l.settings.Timezone).Start
	for _, e := range l.events {
		if month := metering.WindowOf(e.at, metering.Month, l.settings.Timezone); month.Start.Before(first) && e.ingestedAt.Before(month.End.Add(l.settings.Grace)) {
			first = month.Start
		}
	}
	if !l.periods[0].Start.Equal(first) {
		l.failf("the periods begin at %s; the oracle says %s", l.periods[0].Start, first)
	}
}

// lastInvoice returns when the last invoice that bills closed periods is drafted. It includes invoices of other
// subscriptions to which usage of these periods was reported. Until Odometer has read all of these invoices,
// their billed units are unknown.
func (l *life) lastInvoice() (last time.Time) {
	for _, c := range l.presents() {
		for _, p := range l.allPeriods() {
			if p.ClosedAt != nil && p.Subscription.ID == c.id && p.Subscription.End.After(last) {
				last = p.Subscription.End
			}
		}
		for _, taken := range l.farSide.calls {
			if in := taken.invoice; slices.Contains(c.invoices, in) && in.End.After(last) && l.isOfClosed(taken) {
				last = in.End
			}
		}
	}
	return last
}

// isOfClosed reports whether an accepted quantity is of a closed period.
func (l *life) isOfClosed(c *call) bool {
	return slices.ContainsFunc(l.allPeriods(), func(p billing.Period) bool { return p.ClosedAt != nil && c.isOf(p.Place()) })
}

// closed reports whether at least two periods are closed, including each that begins at or before latest, the
// time of the last usage.
func (l *life) closed(latest time.Time) bool {
	n := 0
	for _, p := range l.periods {
		if p.ClosedAt != nil {
			n++
		} else if !p.Start.After(latest) {
			return false
		}
	}
	return n >= 2
}

// checkBilled compares each closed line with the oracle, by currency: the amounts that providers bill, the
// adjustments, and the amounts that are only reported or excluded. It compares units if the provider has its own
// price.
func (l *life) checkBilled() {
	l.checkAmounts()
	if l.own {
		l.checkMoney()
		return
	}
	for _, p := range l.periods {
		for _, line := range p.Closed {
			l.checkLine(p, line)
		}
	}
}

// checkNotLate checks that one mode bills no late usage of a line that it did not bill. The exception is late
// usage that was found after a restore: the period was first closed in this mode, and after the restore in the
// other mode or unbilled.
func (l *life) checkNotLate(p billing.Period, line billing.ClosedLine, test bool) {
	_, late := l.billedOf(p, line, test)
	for currency, amount := range late {
		found := (test != line.Test || !line.Billed) && rational(amount).Cmp(l.foundOf(p, line, currency)) == 0
		if !amount.IsZero() && !found {
			l.failf("%s %s of late usage are billed of meter %d in the period from %s, which was billed to nobody; in test mode: %t",
				amount, currency, line.MeterID, p.Start, test)
		}
	}
}

// checkLine compares the billing of one closed line with the oracle, as checkBilled describes.
func (l *life) checkLine(p billing.Period, line billing.ClosedLine) {
	if l.checkNotLate(p, line, !line.Test); !line.Billed {
		l.checkNotLate(p, line, line.Test)
		return
	}
	own, late := l.billedOf(p, line, line.Test)
	priced := slices.ContainsFunc(l.inMode(line.Test), func(f *farSide) bool { return f.has(line.MeterID, p.Place()) }) // a provider prices the units
	if line.Scale == nil && !priced {
		for currency, amount := range own {
			if currency != line.Currency && !amount.IsZero() {
				l.failf("%s %s are billed of meter %d in the period from %s; its currency is %s", amount, currency, line.MeterID, p.Start, line.Currency)
			}
		}
	}
	if line.Bills == metering.BillsAmounts {
		if l.connection != nil {
			l.checkBooked(p, line)
			l.checkCharged(p, line)
		}
		return
	}
	l.checkLate(p, line, late)
}
