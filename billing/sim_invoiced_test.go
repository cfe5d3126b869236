package billing_test

import (
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// billedUnits are what of a closed line counts as billed with its period: what
// its invoices were seen to bill, else what everybody bills.
func (l *life) billedUnits(p billing.Period, line billing.ClosedLine) metering.Decimal {
	if line.Reconciled != nil {
		return line.Reconciled.Billed
	}
	return l.out(line.MeterID, p.Place(), line.Test, (*call).known)
}

// lacking is what a closed line's charge is more than what is billed with its
// period: that for the units, or what statements said and, at our price, the
// charge for the units that providers price.
func (l *life) lacking(p billing.Period, line billing.ClosedLine) *big.Rat {
	all := l.costs(p, line, countedUsage{billable(line, rational(line.Usage)), l.eventsOf(line, line.Events), nil})
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

// billable are the units that so much usage of the line is charged for.
func billable(line billing.ClosedLine, usage *big.Rat) *big.Rat {
	if line.Scale == nil {
		return usage
	}
	return rounded(usage, int(*line.Scale))
}

// checkInvoiced holds, for periods whose usage is on invoices of their own, that
// what counts as billed with them is what receivers and invoices bill, and that
// what these bill beyond that is disputed; where nobody else reports, nothing is while
// units are missing.
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

// together is the end of the shortest run of periods from the first on of which
// no invoice bills another period too.
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

func (f *farSide) invoices() (all []*invoice) {
	for _, contracts := range f.contracts {
		for _, c := range contracts {
			all = append(all, c.invoices...)
		}
	}
	return all
}

// bills says whether an invoice bills usage of one of the periods, or touches it.
func (f *farSide) bills(in *invoice, meter metering.MeterID, periods []billing.Period) bool {
	return slices.ContainsFunc(periods, func(p billing.Period) bool {
		return !in.Intersect(p.Range).Empty() || slices.ContainsFunc(f.calls, func(c *call) bool {
			return c.invoice == in && c.Lines[0].MeterID == meter && c.isOf(p.Place())
		})
	})
}

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
				return // on a tape nobody hears of a subscription's last invoice
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

// reportedAtOne says whether all that was reported of the meter's periods, if anything
// was, went to one connection.
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

// comparedLater is a closed line as it is once somebody is connected in its mode again:
// until then nobody compares it with the invoices, and of what one of them lacks,
// lines that were compared with it before may have had their share.
func (l *life) comparedLater(p billing.Period, line billing.ClosedLine) billing.ClosedLine {
	next, catalog, id := l.streams[p.Stream].clone(), *l.catalog, metering.ConnectionID(len(l.farSides)+1)
	next.catalog, catalog.connection = &catalog, &billing.Connection{ID: id, Invoices: true}
	if line.Test {
		catalog.tests = append(slices.Clone(l.tests), id)
	}
	next.side, next.sideOf = newFarSide(id, false).side("", l.meters, l.now), next.link()
	next.markInvoiced()
	for _, of := range next.facts(l.now, l.number).Stored {
		if of.Start.Equal(p.Start) {
			line, _ = of.Line(line.MeterID)
		}
	}
	return line
}

// cutsWindows says whether none of a destination's windows ends in a part of a
// period: its usage is charged, not reported.
func cutsWindows(part metering.Range, d billing.Destination) bool {
	width := map[metering.Granularity]time.Duration{metering.Day: 24 * time.Hour, metering.Hour: time.Hour}[d.Window]
	end := part.Start.Add(2*time.Minute - 1).Truncate(width).Add(width)
	return width > 0 && end.After(part.End)
}

// checkLast holds that a subscription which was cancelled at its period's end
// has got all that was used in that, as far as it is known what came of reports.
// One beside which another runs is not read any more.
func (l *life) checkLast(c *contract) {
	if len(l.presents()) > 0 || c.isBeside() {
		return
	}
	for _, p := range l.periods {
		for _, m := range l.meters {
			of, d := c, l.farSide.destination(c, m.ID)
			if l.twofold { // the other one's may be a draft too
				of, d = l.farSide.itemOf(m.ID, l.farSide.running(l.providerID, l.now))
			}
			last := p.ClosedAt == nil && p.Bills != metering.BillsAmounts && p.Subscription.ID == c.id && p.Subscription.Range == c.last().Range
			if !last || of != c || d.Excluded != "" || cutsWindows(p.Intersect(p.Subscription.Range), d) || m.Version.Status == metering.Backfilling || l.uncertain(m.ID, p) {
				continue
			}
			lacking := l.used(m.ID, p.Range).Sub(l.out(m.ID, p.Place(), l.inTest(), (*call).given))
			if lacking.Cmp(metering.Whole(1).Add(l.halves(l.inTest()))) >= 0 {
				l.failf("%s of meter %d were not reported of the last period of a subscription, from %s", lacking, m.ID, p.Start)
			}
		}
	}
}

// uncertain says whether anything that was reported of a meter's period may not
// have arrived, or came too late.
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

// hidden is what the invoices of one mode do not bill of what they took of a
// meter's period: where the last quantity counts, it may have been made before
// that of an earlier period was. The newest period lacks it first.
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

// lastOn is what an invoice took of each period where the last quantity counts,
// and that last one.
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

// repeated is what two subscriptions' invoices both bill of a meter's period where the
// last quantity counts: one that went out at the instant at which the second one began
// is on its invoice, and has what the first one's bills. Less is reported there only
// where the period becomes the second one's; else it is taken back in money.
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
