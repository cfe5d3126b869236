package billing_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// checkLate holds what adjustments carry: all that was booked to be billed, if
// it can be; else what was at some time, or nothing.
func (l *life) checkLate(p billing.Period, line billing.ClosedLine, late map[string]metering.Decimal) {
	for currency, amount := range late {
		if currency != line.Currency && !amount.IsZero() {
			l.failf("%s %s of late usage are billed; the closed period's currency is %s", amount, currency, line.Currency)
		}
	}
	carried, found, here := rational(late[line.Currency]), new(big.Rat), l.connection != nil && l.inTest() == line.Test
	if here {
		l.checkBooked(p, line)
	}
	lacking := l.lacking(p, line)
	billed := new(big.Rat).Set(lacking)
	if !here || !l.reachable(line.Currency) { // nobody can give back what was found, and is not due any more
		found = l.foundOf(p, line, line.Currency)
	}
	ok := false
	came := func(amount *big.Rat) {
		ok = ok || carried.Cmp(amount) == 0 || carried.Cmp(new(big.Rat).Add(amount, found)) == 0
	}
	came(new(big.Rat))
	came(lacking)
	least, most := lower(new(big.Rat), lacking), upper(new(big.Rat), lacking)
	for _, b := range l.bookingsOf(p, line) {
		if b.Billed {
			billed.Add(billed, rational(b.Charge.Sub(b.ChargeBefore)))
		}
		came(billed)
		came(new(big.Rat).Sub(billed, lacking))
		least, most = lower(least, new(big.Rat).Set(billed)), upper(most, new(big.Rat).Set(billed))
	}
	lost := new(big.Rat)
	if !here || !l.reachable(line.Currency) { // nor can anybody charge what was accepted and carried so, and then lost
		lost = l.lostLater(p, line)
		least, most = new(big.Rat).Add(least, lower(new(big.Rat), lost)), new(big.Rat).Add(most, upper(new(big.Rat), lost))
	}
	if lost.Sign() != 0 || l.carriedInDoubt(p, line.MeterID) { // a part of it, as far as that was sure
		ok = ok || carried.Cmp(least) >= 0 && carried.Cmp(most) <= 0
	}
	if !here { // what is in doubt there counts as billed as long as nobody looks
		ok = ok || slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.state == billing.InDoubt && r.Period.Equal(p.Start) })
	} else if l.reachable(line.Currency) {
		ok = carried.Cmp(billed) == 0 || line.Reconciled == nil && carried.Cmp(new(big.Rat).Add(billed, l.overwrittenLate(p, line))) == 0
	}
	ok = ok || l.charging && carried.Cmp(billed) >= 0 && carried.Cmp(most) <= 0 // no line is below nothing
	if !ok {
		l.failf("%s %s of late usage are billed of meter %d in the period from %s; %s are booked",
			carried.FloatString(4), line.Currency, line.MeterID, p.Start, billed.FloatString(4))
	}
}

// lostLater is what less of a closed line's charge is lacking if all that was
// accepted of its units is billed, though some of it came once the invoice was final.
func (l *life) lostLater(p billing.Period, line billing.ClosedLine) *big.Rat {
	if line.Scale == nil {
		return new(big.Rat)
	}
	accepted := l.costs(p, line, unitsAlone(rational(l.out(line.MeterID, p.Place(), line.Test, func(c *call) bool { return c.given() || c.state.Taken() }))))
	return accepted.Sub(l.costs(p, line, unitsAlone(rational(l.billedUnits(p, line)))), accepted)
}

// overwrittenLate is what more of a closed line's charge is lacking if invoices
// bill what was taken last, though some of it came once they were final: where
// nobody compared them, what they have more is in nobody's dispute.
func (l *life) overwrittenLate(p billing.Period, line billing.ClosedLine) *big.Rat {
	if line.Scale == nil {
		return new(big.Rat)
	}
	last := l.out(line.MeterID, p.Place(), line.Test, func(c *call) bool { return c.known() || c.onNone && c.Counting != billing.Adds })
	more := l.costs(p, line, unitsAlone(rational(l.billedUnits(p, line))))
	return more.Sub(more, l.costs(p, line, unitsAlone(rational(last))))
}

func lower(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func upper(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// carriedInDoubt says whether something was carried of a closed period while
// nobody knew what came of one of its own reports.
func (l *life) carriedInDoubt(p billing.Period, meter metering.MeterID) bool {
	of := func(r *storedReport, closed time.Time) bool {
		return slices.ContainsFunc(r.Lines, func(line billing.Line) bool { return line.MeterID == meter && line.Closed.Equal(closed) })
	}
	return slices.ContainsFunc(l.reports, func(carrying *storedReport) bool {
		return of(carrying, p.Start) && slices.ContainsFunc(l.reports, func(r *storedReport) bool {
			return r.number < carrying.number && r.Period.Equal(p.Start) && of(r, time.Time{}) && (r.settledAt.IsZero() || !r.settledAt.Before(carrying.firstSent))
		})
	})
}

// checkBooked holds that all that came for a closed period's meter is booked at
// what it is worth, from where the booking before ended, and no event twice.
func (l *life) checkBooked(p billing.Period, line billing.ClosedLine) {
	charge, events, worth := line.Charge, int64(-1), l.worth(p, line)
	for _, b := range l.bookingsOf(p, line) {
		if !b.ChargeBefore.Equal(charge) || b.Events <= events {
			l.failf("a booking does not follow the one before it: %+v, after %s of %d events", b, charge, events)
		}
		charge, events = b.Charge, b.Events
		if rational(b.Charge).Cmp(worth[b.Events-line.Events]) != 0 {
			l.failf("%+v is booked; the oracle says %s", b, worth[b.Events-line.Events].FloatString(4))
		}
	}
	if all := worth[len(worth)-1]; rational(charge).Cmp(all) != 0 {
		l.failf("%s are booked of meter %d in the period from %s; it came to %s", charge, line.MeterID, p.Start, all.FloatString(4))
	}
	priced := slices.ContainsFunc(l.inMode(line.Test), func(f *farSide) bool { return f.has(line.MeterID, p.Place()) })
	if !priced || line.PriceVersion > 0 || line.Price != nil || line.Scale == nil {
		return
	}
	if lacking := billing.Units(l.lateTotal(p, line), *line.Scale).Sub(l.billedUnits(p, line)); lacking.Cmp(l.halves(line.Test)) > 0 {
		l.failf("%s late units of meter %d in the period from %s go nowhere", lacking, line.MeterID, p.Start)
	}
}

// worth is what a closed period's meter has come to, by how many events came late.
func (l *life) worth(p billing.Period, line billing.ClosedLine) (all []*big.Rat) {
	key := l.key(line.MeterID, p.Start)
	usage, groups, late := line.Usage, l.closedGroups[key], l.late(line.MeterID, p)
	for n := range len(late) + 1 {
		if n > 0 {
			group := late[n-1].group(l.counting[key])
			usage, groups = usage.Add(group.units), append(slices.Clip(groups), group)
		}
		all = append(all, l.costs(p, line, countedUsage{billable(line, rational(usage)), l.eventsOf(line, line.Events+int64(n)), groups}))
	}
	return all
}

// costs is the oracle's charge for usage of a closed line: a trial's is free.
func (l *life) costs(p billing.Period, line billing.ClosedLine, usage countedUsage) *big.Rat {
	if (line.Scale != nil || l.chargedAmounts(p, line)) && l.onTrial(p) {
		return new(big.Rat)
	}
	return l.charged(line.Price, line.MeterID, line.PriceVersion, usage)
}

// lateTotal is the usage of a closed period with what came late.
func (l *life) lateTotal(p billing.Period, line billing.ClosedLine) metering.Decimal {
	total := line.Usage
	for _, value := range l.came(line.MeterID, p) {
		total = total.Add(value)
	}
	return total
}

// bookingsOf are those of the closed period's meter, in order.
func (l *life) bookingsOf(p billing.Period, line billing.ClosedLine) (all []billing.Booking) {
	for _, b := range l.bookings {
		if b.MeterID == line.MeterID && b.Period.Equal(p.Start) {
			all = append(all, b)
		}
	}
	return all
}

// late returns the events that came late for the meter.
func (l *life) late(meter metering.MeterID, p billing.Period) (late []usageEvent) {
	for _, e := range l.events {
		if e.meter == meter && e.late && p.Contains(e.at) && l.isFed(meter, e.at) {
			late = append(late, e)
		}
	}
	return late
}

// came returns the value of each event that came late for the meter, as the period was counted when
// it closed.
func (l *life) came(meter metering.MeterID, p billing.Period) (values []metering.Decimal) {
	for _, e := range l.late(meter, p) {
		values = append(values, l.counting[l.key(meter, p.Start)].Usage(e.value, 1))
	}
	return values
}

// contractOf is the contract that the period lies in.
func (l *life) contractOf(p billing.Period) *contract {
	for _, f := range l.farSides {
		if c := f.byID(p.Subscription.ID); c != nil {
			return c
		}
	}
	return nil
}

func (l *life) onTrial(p billing.Period) bool {
	c := l.contractOf(p)
	return c != nil && c.onTrial(p.Subscription.Range)
}

// reachable says whether late usage in the currency can be billed now.
func (l *life) reachable(currency string) bool {
	c := l.streamContract()
	return l.connection.Statements || c != nil && c.currency == currency
}
