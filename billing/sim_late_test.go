package billing_test

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// checkLate checks the adjustments of a closed line. If late usage can be billed now, they bill the line's
// lacking charge and all bookings that are to be billed. Otherwise they bill the amount that was due at an
// earlier moment, or nothing.
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
	if !here || !l.reachable(line.Currency) { // an amount that was found after a restore and is no longer due cannot be refunded now
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
	changed := false
	if !here || !l.reachable(line.Currency) { // accepted units that were lost, or reported after the adjustment, cannot be charged now
		less, more := l.changedLater(p, line)
		least, most, changed = new(big.Rat).Add(least, less), new(big.Rat).Add(most, more), less.Cmp(more) != 0
	}
	if changed || l.carriedInDoubt(p, line.MeterID) { // adjustments bill the part that was certain
		ok = ok || carried.Cmp(least) >= 0 && carried.Cmp(most) <= 0
	}
	if !here { // reports with an unknown outcome are treated as billed while the mode is not connected
		ok = ok || slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.state == billing.InDoubt && r.Period.Equal(p.Start) })
	} else if l.reachable(line.Currency) {
		ok = carried.Cmp(billed) == 0 || line.Reconciled == nil && carried.Cmp(new(big.Rat).Add(billed, l.overwrittenLate(p, line))) == 0
	}
	ok = ok || l.charging && carried.Cmp(billed) >= 0 && carried.Cmp(most) <= 0 // an item is never below 0
	if !ok {
		l.failf("%s %s of late usage are billed of meter %d in the period from %s; %s are booked",
			carried.FloatString(4), line.Currency, line.MeterID, p.Start, billed.FloatString(4))
	}
}

// changedLater returns how much lower and how much higher the lacking charge of a closed line can be, if other accepted
// units count as billed: the units that were accepted before one of the line's adjustments, or those that are accepted
// now. Since an adjustment, some of these units may have arrived after the invoice was final, and others may have been
// replaced by a later report.
func (l *life) changedLater(p billing.Period, line billing.ClosedLine) (least, most *big.Rat) {
	least, most = new(big.Rat), new(big.Rat)
	if line.Scale == nil {
		return least, most
	}
	billed := l.costs(p, line, unitsAlone(rational(l.billedUnits(p, line))))
	for _, adjusting := range append(l.adjustmentsOf(p, line), math.MaxInt64) {
		accepted := l.costs(p, line, unitsAlone(rational(l.unitsAtProviders(line.MeterID, p.Place(), line.Test, func(c *call) bool {
			return c.number < adjusting && (c.given() || c.state.Taken())
		}))))
		change := accepted.Sub(billed, accepted)
		least, most = lower(least, change), upper(most, change)
	}
	return least, most
}

// adjustmentsOf returns the numbers of the reports that adjust a closed line.
func (l *life) adjustmentsOf(p billing.Period, line billing.ClosedLine) (numbers []int64) {
	for _, r := range l.reports {
		if slices.ContainsFunc(r.Lines, func(of billing.Line) bool { return of.MeterID == line.MeterID && of.Closed.Equal(p.Start) }) {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}

// overwrittenLate returns by how much the lacking charge of a closed line rises if invoices bill the quantities
// accepted last. Some of these arrived after the invoices were final. If the invoices were not compared, their
// excess is not disputed.
func (l *life) overwrittenLate(p billing.Period, line billing.ClosedLine) *big.Rat {
	if line.Scale == nil {
		return new(big.Rat)
	}
	last := l.unitsAtProviders(line.MeterID, p.Place(), line.Test, func(c *call) bool { return c.known() || c.onNone && c.Counting != billing.Adds })
	more := l.costs(p, line, unitsAlone(rational(l.billedUnits(p, line))))
	return more.Sub(more, l.costs(p, line, unitsAlone(rational(last))))
}

// lower returns the lower number.
func lower(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// upper returns the higher number.
func upper(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// carriedInDoubt reports whether usage of a closed period was rolled forward while the outcome of an earlier report
// of the period's usage was unknown.
func (l *life) carriedInDoubt(p billing.Period, meter metering.MeterID) bool {
	of := func(r *storedReport, closed time.Time) bool {
		return slices.ContainsFunc(r.Lines, func(line billing.Line) bool { return line.MeterID == meter && line.Closed.Equal(closed) })
	}
	return slices.ContainsFunc(l.reports, func(carrying *storedReport) bool {
		return of(carrying, p.Start) && slices.ContainsFunc(l.reports, func(r *storedReport) bool {
			isOfPeriod := r.Period.Equal(p.Start) && of(r, time.Time{}) || of(r, p.Start)
			return r.number < carrying.number && isOfPeriod && (r.settledAt.IsZero() || !r.settledAt.Before(carrying.made))
		})
	})
}

// checkBooked checks that all late usage of a closed line is booked at the oracle's charge. Each booking
// continues from the previous one, and no event is booked twice. If a provider bills the line's units at a price
// that Odometer does not know, the late units must be billed.
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

// worth returns the oracle's charges for a closed line: element n is the charge with the first n late events.
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

// costs returns the oracle's charge for usage of a closed line. It is 0 if a counter bills the line and the
// period is a trial.
func (l *life) costs(p billing.Period, line billing.ClosedLine, usage countedUsage) *big.Rat {
	if (line.Scale != nil || l.chargedAmounts(p, line)) && l.onTrial(p) {
		return new(big.Rat)
	}
	return l.charged(line.Price, line.MeterID, line.PriceVersion, usage)
}

// lateTotal returns the usage of a closed line with its late usage.
func (l *life) lateTotal(p billing.Period, line billing.ClosedLine) metering.Decimal {
	total := line.Usage
	for _, value := range l.lateValues(line.MeterID, p) {
		total = total.Add(value)
	}
	return total
}

// bookingsOf returns the bookings of the closed line, in order.
func (l *life) bookingsOf(p billing.Period, line billing.ClosedLine) (all []billing.Booking) {
	for _, b := range l.bookings {
		if b.MeterID == line.MeterID && b.Period.Equal(p.Start) {
			all = append(all, b)
		}
	}
	return all
}

// late returns the period's late events of the meter.
func (l *life) late(meter metering.MeterID, p billing.Period) (late []usageEvent) {
	for _, e := range l.events {
		if e.meter == meter && e.late && p.Contains(e.at) && l.isFed(meter, e.at) {
			late = append(late, e)
		}
	}
	return late
}

// lateValues returns the usage of each late event of the meter, by the aggregation with which the period closed.
func (l *life) lateValues(meter metering.MeterID, p billing.Period) (values []metering.Decimal) {
	for _, e := range l.late(meter, p) {
		values = append(values, l.counting[l.key(meter, p.Start)].Usage(e.value, 1))
	}
	return values
}

// contractOf returns the contract of the period's subscription, or nil.
func (l *life) contractOf(p billing.Period) *contract {
	for _, f := range l.farSides {
		if c := f.byID(p.Subscription.ID); c != nil {
			return c
		}
	}
	return nil
}

// onTrial reports whether the period is a free trial of its contract.
func (l *life) onTrial(p billing.Period) bool {
	c := l.contractOf(p)
	return c != nil && c.onTrial(p.Subscription.Range)
}

// reachable reports whether late usage in the currency can be billed now.
func (l *life) reachable(currency string) bool {
	c := l.streamContract()
	return l.connection.Statements || c != nil && c.currency == currency
}
