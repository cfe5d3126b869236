package billing_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// settlesOwn lets up to three more period boundaries pass for a simulated customer with standalone invoices. Late
// usage is billed on the invoice of a later period, which has to close first.
func (l *life) settlesOwn() {
	for range 3 {
		if !l.own || l.failure != "" {
			return
		}
		if l.passBorder(0); !l.passBorder(l.settings.Grace) {
			l.passTime(l.now.Add(25 * time.Hour))
		}
		for l.invoiceIsFinal() {
		}
		l.resolve()
		l.closePeriods()
		l.sync()
		l.readsMissed()
		l.sync()
	}
}

// checkMoney checks each closed line of a simulated customer with standalone invoices, which is billed in money
// only. All providers of the line's mode together must bill the line's total: never more than its highest
// total, and not less if its currency can be billed now. Amounts on a voided invoice are waived: they still
// count as billed. An edit at the provider does not change the amount that counts, which is the one that
// Odometer set.
func (l *life) checkMoney() {
	for _, p := range l.periods {
		for _, line := range p.Closed {
			if l.checkNotLate(p, line, !line.Test); !line.Billed {
				l.checkNotLate(p, line, line.Test)
				continue
			}
			here := l.connection != nil && l.inTest() == line.Test
			if here {
				l.checkBooked(p, line)
			}
			l.checkLineMoney(p, line, here)
		}
	}
	l.checkOurs()
}

// checkLineMoney checks one closed line as checkMoney describes. here reports whether the connection is in the line's
// mode now.
func (l *life) checkLineMoney(p billing.Period, line billing.ClosedLine, here bool) {
	out, others := l.moneyOf(p, line)
	for currency, amount := range others {
		if !amount.IsZero() {
			l.failf("%s %s are billed of meter %d in the period from %s; its currency is %s", amount, currency, line.MeterID, p.Start, line.Currency)
		}
	}
	worth := l.worth(p, line)
	want, most, billed := new(big.Rat).Set(worth[len(worth)-1]), new(big.Rat), rational(line.Charge)
	for _, b := range l.bookingsOf(p, line) {
		change := rational(b.Charge.Sub(b.ChargeBefore))
		if !b.Billed { // late usage that is reported but not billed
			want.Sub(want, change)
			continue
		}
		billed = new(big.Rat).Add(billed, change)
		most = upper(most, billed)
	}
	for _, w := range append(worth, l.dearest[l.key(line.MeterID, p.Start)]) {
		if w != nil {
			most = upper(most, w)
		}
	}
	switch due := out.Cmp(want); {
	case due < 0 && here && l.billable(line.Currency):
		l.failf("%s %s are billed of meter %d in the period from %s, which came to %s", out.FloatString(4), line.Currency, line.MeterID, p.Start, want.FloatString(4))
	case due > 0 && out.Cmp(most) > 0:
		l.failf("%s %s are billed of meter %d in the period from %s, which came to %s at the most", out.FloatString(4), line.Currency, line.MeterID, p.Start, most.FloatString(4))
	}
}

// closesAt records whether a closing period is billed by a receiver of statements, which charges Odometer's
// price.
func (l *life) closesAt(c billing.Closing) {
	if l.own {
		l.stated[c.Period.Start.UnixMicro()] = l.connection != nil && l.connection.Statements
	}
}

// chargedAmounts reports whether a provider with invoices charges the line as an amount. Such a provider
// charges nothing for a trial.
func (l *life) chargedAmounts(p billing.Period, line billing.ClosedLine) bool {
	return line.Bills == metering.BillsAmounts && !l.stated[p.Start.UnixMicro()]
}

// tracksMoney records the highest total of each period and meter of a simulated customer with standalone invoices.
// The total of a closed period includes its late usage. The highest total may stay billed: an amount on a
// final invoice is not given back, not even if a restore removed it from the ledger.
func (l *life) tracksMoney() {
	if !l.own {
		return
	}
	for _, p := range l.periods {
		for _, m := range l.meters {
			key := l.key(m.ID, p.Start)
			for _, worth := range l.worthNow(p, m) {
				if former := l.dearest[key]; former == nil || worth.Cmp(former) > 0 {
					l.dearest[key] = worth
				}
			}
		}
	}
}

// worthNow returns totals that were due for the meter in the period: of an open period, the oracle's charge now; of a
// closed period, the charge of each booking.
func (l *life) worthNow(p billing.Period, m metering.Meter) (all []*big.Rat) {
	if p.ClosedAt == nil {
		version, _ := l.versionAt(m.ID, p.Start)
		return []*big.Rat{l.oracle(m.ID, version, l.measuredNow(m.ID, p.Range))}
	}
	line, _ := p.Line(m.ID)
	for _, b := range l.bookingsOf(p, line) {
		all = append(all, rational(b.Charge))
	}
	return all
}

// moneyOf returns the amounts that all providers of a closed line's mode bill for the line, with its own
// period or with later ones: out is in the line's currency, others has the other currencies.
func (l *life) moneyOf(p billing.Period, line billing.ClosedLine) (out *big.Rat, others map[string]metering.Decimal) {
	others, late := l.billedOf(p, line, line.Test)
	for _, f := range l.inMode(line.Test) {
		for _, it := range f.items {
			if !it.line.late && it.line.meter == line.MeterID && it.line.period == p.Start.UnixMicro() {
				others[it.currency] = others[it.currency].Add(it.set)
			}
		}
	}
	for currency, amount := range late {
		others[currency] = others[currency].Add(amount)
	}
	out = rational(others[line.Currency])
	delete(others, line.Currency)
	return out, others
}

// billable reports whether late usage in the currency can be billed now: by a receiver, on a subscription in
// that currency, or on a standalone invoice in that currency. The charges of the last closed period, else of all
// periods, determine the currency of a standalone invoice. If they have no currency or several, it is the tenant's.
func (l *life) billable(currency string) bool {
	if l.connection.Statements {
		return true
	}
	if c := l.present(); c != nil || l.providerID == "" {
		return c != nil && c.currency == currency
	}
	last := slices.IndexFunc(l.periods, func(p billing.Period) bool { return p.ClosedAt == nil }) - 1
	if last < 0 {
		last = len(l.periods) - 1
	}
	in := currenciesOf(l.periods[last : last+1])
	if len(in) == 0 {
		in = currenciesOf(l.periods)
	}
	if len(in) == 1 {
		return in[0] == currency
	}
	return currency == l.settings.Currency
}

// currenciesOf returns the currencies of the nonzero charges of the periods' closed lines.
func currenciesOf(periods []billing.Period) (all []string) {
	for _, p := range periods {
		for _, line := range p.Closed {
			if !line.Charge.IsZero() && !slices.Contains(all, line.Currency) {
				all = append(all, line.Currency)
			}
		}
	}
	return all
}

// checkOurs checks the standalone invoices while the customer is linked at a provider with invoices. A standalone
// invoice with an amount must be final and, unless it is void, belong to a period. A closed period with a standalone
// invoice must be complete once the next period is closed too. Exceptions are a period that was billed in the other
// mode, and one with a report of unknown outcome.
//
// A draft may remain if a restore reopened its period and the period then closed in the other mode. This mode
// bills nothing for such a period, and an operator has to handle the draft.
func (l *life) checkOurs() {
	if l.connection == nil || l.connection.Statements || l.providerID == "" {
		return
	}
	for _, it := range l.farSide.items {
		if it.line.contract != billing.OwnInvoice || it.set.IsZero() {
			continue
		}
		of := slices.IndexFunc(l.periods, func(p billing.Period) bool { return p.Start.Equal(it.invoice.Start) })
		if !it.invoice.final && !(l.epoch > 0 && of >= 0 && l.closedInOtherMode(l.periods[of])) {
			l.failf("the invoice of ours from %s has %s of meter %d, and stays a draft", it.invoice.Start, it.set, it.line.meter)
		}
		if !it.invoice.void && of < 0 {
			l.failf("the invoice of ours from %s has %s of meter %d, and is of no period", it.invoice.Start, it.set, it.line.meter)
		}
	}
	for n, p := range l.periods {
		open := n+1 == len(l.periods) || l.periods[n+1].ClosedAt == nil
		waits := l.closedInOtherMode(p) ||
			slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.state == billing.InDoubt && r.Period.Equal(p.Start) })
		if p.ClosedAt != nil && p.IsStandalone() && !p.Complete && !open && !waits {
			l.failf("the period from %s is closed, and never complete: %+v", p.Start, p)
		}
	}
}

// closedInOtherMode reports whether a line of the period was billed in another mode (test or live) than the
// current connection's.
func (l *life) closedInOtherMode(p billing.Period) bool {
	return slices.ContainsFunc(p.Closed, func(line billing.ClosedLine) bool { return line.Billed && line.Test != l.inTest() })
}

// checkStandaloneClosing checks that a closing period with a standalone invoice bills all of its charges. If the charges
// have several currencies, only those in the tenant's currency must be billed.
func (l *life) checkStandaloneClosing(c billing.Closing) {
	if !c.Period.IsStandalone() || !l.unsubscribed() || l.sideOf != l.link() {
		return
	}
	in := currenciesOf([]billing.Period{{Closed: c.Lines}})
	for _, line := range c.Lines {
		if !line.Billed && !line.Charge.IsZero() && (len(in) == 1 || line.Currency == l.settings.Currency) {
			l.failf("%s %s of meter %d in the period from %s are billed by nobody", line.Charge, line.Currency, line.MeterID, c.Period.Start)
		}
	}
}
