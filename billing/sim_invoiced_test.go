package billing_test

import (
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// billedUnits returns the units of a closed line that are treated as billed with its period. They are the
// reconciled units if Odometer has compared the invoices, and else the units that providers bill as far as
// Odometer can know.
func (l *life) billedUnits(p billing.Period, line billing.ClosedLine) metering.Decimal {
	if line.Reconciled != nil {
		return line.Reconciled.Billed
	}
	return l.unitsAtProviders(line.MeterID, p.Place(), line.Test, (*call).known)
}

// lacking returns the closed line's charge minus the amount that is billed with its period. For a line in
// quantities, that amount is the charge for its billed units. For a line in statements, it is the stated amount
// plus, at Odometer's price, the charge for units that counters bill.
func (l *life) lacking(p billing.Period, line billing.ClosedLine) *big.Rat {
	all := l.costs(p, line, countedUsage{billable(line, rational(line.Usage)), l.eventsOf(line, line.Events), l.closedGroups[l.key(line.MeterID, p.Start)]})
	if line.Scale == nil && line.Reconciled == nil {
		own, _ := l.billedOf(p, line, line.Test)
		var priced metering.Decimal
		for _, f := range l.inMode(line.Test) {
			if !f.receiver {
				priced = priced.Add(f.billed(l.name, line.MeterID, p.Place(), (*call).known))
			}
		}
		if !priced.IsZero() {
			all.Sub(all, l.costs(p, line, unitsAlone(rational(priced))))
		}
		return all.Sub(all, rational(own[line.Currency]))
	}
	return all.Sub(all, l.costs(p, line, unitsAlone(rational(l.billedUnits(p, line)))))
}

// billable returns the units that the line charges for the usage: rounded to the line's usage scale, if it has
// one.
func billable(line billing.ClosedLine, usage *big.Rat) *big.Rat {
	if line.Scale == nil {
		return usage
	}
	return rounded(usage, int(*line.Scale))
}

// checkInvoiced compares lines with invoices, for groups of periods that share no invoice with other periods.
// Units that receivers and invoices bill must be treated as billed, or be disputed. If only Odometer reports, and
// to one connection, no unit is disputed while billed units are missing.
func (l *life) checkInvoiced() {
	if l.twofold {
		l.checkInvoicedTogether()
		return
	}
	for _, m := range l.meters {
		for _, test := range []bool{false, true} {
			for first := 0; first < len(l.periods); {
				n := l.together(m.ID, first, test)
				l.checkTogether(m.ID, l.periods[first:n], test)
				first = n
			}
		}
	}
}

// together returns the end index of the shortest run of periods that begins at first and shares no invoice with
// other periods.
func (l *life) together(meter metering.MeterID, first int, test bool) (end int) {
	end = first + 1
	for n := end; n < len(l.periods); n++ {
		for _, f := range l.inMode(test) {
			if slices.ContainsFunc(f.invoices(), func(in *invoice) bool {
				return f.bills(in, meter, l.periods[first:end]) && f.bills(in, meter, l.periods[n:n+1])
			}) {
				end = n + 1
			}
		}
	}
	return end
}

// invoices returns the invoices of all contracts, without standalone invoices.
func (f *farSide) invoices() (all []*invoice) {
	for _, contracts := range f.contracts {
		for _, c := range contracts {
			all = append(all, c.invoices...)
		}
	}
	return all
}

// bills reports whether an invoice bills usage of one of the periods, or overlaps one of them.
func (f *farSide) bills(in *invoice, meter metering.MeterID, periods []billing.Period) bool {
	return slices.ContainsFunc(periods, func(p billing.Period) bool {
		return !in.Intersect(p.Range).Empty() || slices.ContainsFunc(f.calls, func(c *call) bool {
			return c.invoice == in && c.Lines[0].MeterID == meter && c.isOf(p.Place())
		})
	})
}

// checkTogether compares the billed units of a meter in some periods with the units that receivers and invoices bill,
// as checkInvoiced describes. The periods share no invoice with other periods.
func (l *life) checkTogether(meter metering.MeterID, periods []billing.Period, test bool) {
	var counts, billed, disputed, units metering.Decimal
	for _, p := range periods {
		line, known := p.Line(meter)
		if p.ClosedAt == nil || !known || !line.Billed || line.Test != test || line.Bills == metering.BillsAmounts {
			return
		}
		if line.Reconciled == nil && (l.connection == nil || l.inTest() != test) {
			line = l.comparedLater(p, line)
		}
		if counts = counts.Add(l.billedUnits(p, line)); line.Reconciled != nil {
			disputed, units = disputed.Add(line.Reconciled.Unexplained), units.Add(line.Reconciled.Units)
		}
	}
	for _, f := range l.inMode(test) {
		if f.receiver {
			for _, p := range periods {
				billed = billed.Add(f.billed(l.name, meter, p.Place(), (*call).known))
			}
			continue
		}
		for _, in := range f.invoices() {
			if !l.isOn(f, in, meter, periods) {
				continue
			}
			if l.tape != nil && in.final && !in.heard {
				return // recorded lives do not read a subscription's last invoice
			}
			if in.heard {
				billed = billed.Add(f.onInvoice(in, meter))
			} else {
				billed = billed.Add(f.unheard(in, meter))
			}
		}
	}
	if !disputed.IsZero() && counts.Cmp(units) < 0 && !l.othersReport() && l.reportedAtOne(meter, periods) {
		l.failf("%s units of meter %d that invoices bill of the periods from %s to %s are disputed, and only %s of %s count as billed; in test mode: %t",
			disputed, meter, periods[0].Start, periods[len(periods)-1].End, counts, units, test)
	}
	if !billed.Equal(counts.Add(disputed)) {
		l.failf("%s units of meter %d are billed of the periods from %s to %s; %s count as billed, %s are disputed; in test mode: %t",
			billed, meter, periods[0].Start, periods[len(periods)-1].End, counts, disputed, test)
	}
}

// reportedAtOne reports whether all quantities of the meter's periods, if any, were reported to one connection.
func (l *life) reportedAtOne(meter metering.MeterID, periods []billing.Period) bool {
	at := 0
	for _, f := range l.farSides {
		if slices.ContainsFunc(f.calls, func(c *call) bool {
			of := func(p billing.Period) bool { return c.isOf(p.Place()) }
			return c.Kind == billing.QuantityReport && c.Lines[0].MeterID == meter && slices.ContainsFunc(periods, of)
		}) {
			at++
		}
	}
	return at <= 1
}

// comparedLater returns a closed line as it will be after the tenant connects a provider of the line's mode
// again, and operators have settled the reports with an unknown outcome. Until then, the line is not compared
// with the invoices. Lines that were compared earlier may already have their share of the units that an invoice
// lacks.
func (l *life) comparedLater(p billing.Period, line billing.ClosedLine) billing.ClosedLine {
	next, catalog, id := l.streams[p.Stream].clone(), *l.catalog, metering.ConnectionID(len(l.farSides)+1)
	next.catalog, catalog.connection = &catalog, &billing.Connection{ID: id, Invoices: true}
	if line.Test {
		catalog.tests = append(slices.Clone(l.tests), id)
	}
	for _, r := range next.reports {
		if r.state == billing.InDoubt {
			r.state = r.outcome()
		}
	}
	next.side, next.sideOf = newFarSide(id, false).side("", l.meters, l.now), next.link()
	next.markInvoiced()
	for _, of := range billing.NewBooks(next.facts(l.now, l.number)).Stored {
		if of.Start.Equal(p.Start) {
			line, _ = of.Line(line.MeterID)
		}
	}
	return line
}

// cutsWindows reports whether no usage window of the destination ends in the given part of a period. The part's
// usage is then charged as an amount instead of reported.
func cutsWindows(part metering.Range, d billing.Destination) bool {
	width := map[metering.Granularity]time.Duration{metering.Day: 24 * time.Hour, metering.Hour: time.Hour}[d.Window]
	end := part.Start.Add(2*time.Minute - 1).Truncate(width).Add(width)
	return width > 0 && end.After(part.End)
}

// checkLast checks that a subscription canceled at its period's end has received all usage of that period, if
// the outcomes of the reports are known. A subscription is no longer read if another one runs beside it.
func (l *life) checkLast(c *contract) {
	if len(l.presents()) > 0 || c.isBeside() {
		return
	}
	for _, p := range l.periods {
		for _, m := range l.meters {
			of, d := c, l.farSide.destination(c, m.ID)
			if l.twofold { // the other subscription's last invoice may be a draft too
				of, d = l.farSide.itemOf(m.ID, l.farSide.running(l.providerID, l.now))
			}
			last := p.ClosedAt == nil && p.Bills != metering.BillsAmounts && p.Subscription.ID == c.id && p.Subscription.Range == c.last().Range
			if !last || of != c || d.Excluded.Code != "" || cutsWindows(p.Intersect(p.Subscription.Range), d) || m.Version.Status == metering.Backfilling || l.uncertain(m.ID, p) {
				continue
			}
			lacking := l.used(m.ID, p.Range).Sub(l.unitsAtProviders(m.ID, p.Place(), l.inTest(), (*call).given))
			if lacking.Cmp(metering.Whole(1).Add(l.halves(l.inTest()))) >= 0 {
				l.failf("%s of meter %d were not reported of the last period of a subscription, from %s", lacking, m.ID, p.Start)
			}
		}
	}
}

// uncertain reports whether a report of the meter's period may not have arrived, or arrived after its invoice was
// final.
func (l *life) uncertain(meter metering.MeterID, p billing.Period) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool {
		of := func(l billing.Line) bool { return l.MeterID == meter && l.Closed.IsZero() }
		return r.Period.Equal(p.Start) && !r.state.Taken() && slices.ContainsFunc(r.Lines, of)
	}) || slices.ContainsFunc(l.farSides, func(f *farSide) bool {
		return slices.ContainsFunc(f.calls, func(c *call) bool {
			return c.Kind == billing.QuantityReport && c.Lines[0].MeterID == meter && c.isOf(p.Place()) && !c.given()
		})
	})
}

// hidden returns the units of a meter's period that the invoices of one mode accepted and do not bill. If an
// invoice bills the latest quantity, that quantity may have been created before the quantity of an earlier period
// was. The newest period lacks the units first.
func (l *life) hidden(meter metering.MeterID, period billing.PeriodPlace, test bool) (units metering.Decimal) {
	for _, f := range l.inMode(test) {
		for _, in := range f.invoices() {
			taken, billed := f.lastOn(in, meter)
			lacking := metering.Decimal{}.Sub(billed)
			for _, value := range taken {
				lacking = lacking.Add(value)
			}
			if lacking.IsZero() || lacking.IsNegative() {
				continue
			}
			starts := slices.SortedFunc(maps.Keys(taken), func(a, b billing.PeriodPlace) int { return b.Compare(a) })
			for _, start := range starts {
				cut := taken[start]
				if lacking.Cmp(cut) < 0 {
					cut = lacking
				}
				if cut.IsNegative() {
					continue
				}
				if lacking = lacking.Sub(cut); start.Compare(period) == 0 {
					units = units.Add(cut)
				}
			}
		}
	}
	return units
}

// lastOn returns the quantity of each period that an invoice accepted at destinations that bill the latest
// quantity, and that latest quantity.
func (f *farSide) lastOn(in *invoice, meter metering.MeterID) (taken map[billing.PeriodPlace]metering.Decimal, billed metering.Decimal) {
	taken = make(map[billing.PeriodPlace]metering.Decimal)
	var at time.Time
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || c.Counting != billing.Latest || c.invoice != in || !c.bills() || c.Lines[0].MeterID != meter {
			continue
		}
		if taken[c.place()] = c.Lines[0].Quantity; !c.timestamp.Before(at) {
			billed, at = c.Quantity, c.timestamp
		}
	}
	return taken, billed
}

// repeated returns the units of a meter's period that the invoices of two subscriptions both bill, at destinations that
// bill the latest quantity. A report sent at the instant at which the second subscription began is on that
// subscription's invoice. Its quantity includes the units that the first subscription's invoice bills. A lower quantity
// is reported to the second subscription only if the period becomes its own. Otherwise Odometer credits the amount.
func (l *life) repeated(meter metering.MeterID, period billing.PeriodPlace, test bool) (units metering.Decimal) {
	type place struct {
		target string
		*invoice
	}
	for _, f := range l.inMode(test) {
		last := make(map[place]*call)
		for _, c := range f.calls {
			if c.Kind == billing.QuantityReport && c.Counting == billing.Latest && c.bills() && c.Lines[0].MeterID == meter && c.isOf(period) {
				last[place{c.Target, c.invoice}] = c
			}
		}
		for at, c := range last {
			if _, to := l.windowOf(c.storedReport); to == c.To || to.Subscription == l.period(c.Period).Subscription.ID {
				continue
			}
			for of, former := range last {
				value := former.Lines[0].Quantity
				if value.Cmp(c.Lines[0].Quantity) > 0 {
					value = c.Lines[0].Quantity
				}
				if of.target == at.target && of.invoice != at.invoice && former.To == c.To && !value.IsNegative() {
					units = units.Add(value)
				}
			}
		}
	}
	return units
}
