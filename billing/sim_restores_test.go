package billing_test

import (
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A restore sets the ledger back to a backup. The provider keeps its data, clients resend the events since
// the backup, and operators save their settings again. If a customer is connected, linked or subscribed anew,
// it gets a new ID at the provider, under which nothing is known. No life restores a backup from before such
// a change.

// backup is a copy of the ledger at one instant.
type backup struct {
	*ledger
	meters []metering.Meter // with their settings at that instant
	until  time.Time        // reports after this instant are not in the backup
}

// numbersOfEpoch is the number of report numbers per second between two epochs, which are Unix times. The
// report numbers of a later epoch are therefore higher.
const numbersOfEpoch = 1_000_000

// backsUp makes a backup, even while workers are in the middle of a pass.
func (l *life) backsUp() bool {
	if !l.mayBackUp() {
		return false
	}
	copied := l.clone()
	copied.events = slices.Clone(l.events)
	l.backup = &backup{copied, l.meters, l.now}
	for _, r := range l.reports {
		if l.backup.until = r.made; r.made.After(l.now) {
			l.backup.until = l.now
		}
	}
	return true
}

// mayBackUp reports whether the billing rules guarantee the result of a restore. The start of the first
// period must be decided, because it depends on when events arrived. No other program may have reported
// quantities to a provider, because they would be taken for Odometer's.
func (l *life) mayBackUp() bool {
	return l.connection != nil && len(l.periods) > 0 && l.customer.HeadOpenUntil == nil && !l.othersReport()
}

// othersReport reports whether another system has reported a quantity to a provider.
func (l *life) othersReport() bool {
	return slices.ContainsFunc(l.farSides, func(f *farSide) bool {
		return slices.ContainsFunc(f.calls, func(c *call) bool { return c.id == uuid.UUID{} })
	})
}

// reachesTo reports whether all reports since the backup can be found at the provider. The backup's last
// period must still have the same end. If a contract runs, the period must belong to its subscription and
// must not end before the subscription's current period begins. Reports of other periods cannot be found.
func (b *backup) reachesTo(periods []billing.Period, c *contract) bool {
	last := b.periods[len(b.periods)-1]
	uncut := slices.ContainsFunc(periods, func(p billing.Period) bool { return p.End.Equal(last.End) })
	return uncut && (c == nil || last.Subscription.ID == c.id && !last.End.Before(c.last().Start))
}

// restores sets the ledger back to the last backup.
func (l *life) restores() bool {
	if l.backup == nil {
		return false
	}
	l.passTime(l.now.Add(10 * time.Minute))
	b := l.backup
	if b == nil || l.othersReport() || !b.reachesTo(l.periods, l.present()) {
		return false
	}
	l.backup, l.passes = nil, [2]*pass{}
	since, lost := l.events[len(b.events):], len(l.reports) > len(b.reports)
	l.setBack(b)
	l.raise(l.now)
	l.restoredAt, l.recovering = l.now, l.recovering || lost || !l.farSide.receiver // a receiver can be replaced at once if no restore has lost a report
	for _, e := range since {
		l.ledger.ingest(e, l.now)
	}
	for _, f := range l.farSides {
		f.lag = min(f.lag, certain) // the provider counts a report within this time
		f.forget(l.invoices)
		f.forgetOurs(l.invoices)
	}
	return true
}

// setBack replaces the ledger's data by the backup's. Reports that arrived at the provider stay marked as
// arrived, and reports that are not in the backup are marked as lost.
func (l *life) setBack(b *backup) {
	for i, r := range l.reports {
		if i >= len(b.reports) {
			r.state, r.lost = billing.Rejected, true
			continue
		}
		arrived := r.arrived
		*r = *b.reports[i]
		r.arrived = arrived
	}
	known := b.until
	if b.ledger.unread() && b.knownUntil.Before(known) {
		known = b.knownUntil
	}
	restored := *b.ledger
	restored.catalog, restored.providerID, restored.filledFrom = l.catalog, l.providerID, l.filledFrom
	restored.customer.Plans, restored.customer.Prices = l.customer.Plans, l.customer.Prices
	restored.reports, restored.epoch, restored.knownUntil = slices.Clone(l.reports[:len(b.reports)]), l.epoch, known
	for n := range restored.events {
		e := &restored.events[n]
		then := slices.ContainsFunc(b.meters, func(m metering.Meter) bool { return m.ID == e.meter && m.Version.ID == l.versionOf(m.ID) })
		e.lost = e.lost || e.gone && !then // the current meter version cannot count a deleted event
	}
	*l.ledger = restored
	l.markInvoiced()
	closed := 0
	for _, p := range l.periods {
		if p.ClosedAt != nil {
			closed++
		}
	}
	l.ends = l.ends[:closed]
}

// versionOf returns the current version of the meter.
func (l *ledger) versionOf(id metering.MeterID) metering.MeterVersionID {
	return l.meter(id).Version.ID
}

// forget marks invoices as unread, except those in but. Odometer reads them again.
func (f *farSide) forget(but []storedInvoice) {
	for _, contracts := range f.contracts {
		for _, c := range contracts {
			for _, in := range c.invoices {
				in.heard = in.heard && slices.ContainsFunc(but, func(i storedInvoice) bool { return i.ID == in.idIn(c) || in.none && i.ID == c.id })
			}
		}
	}
}

// raise begins a new epoch of the ledger, as a restore does. Outstanding reports get an unknown outcome.
func (l *ledger) raise(now time.Time) {
	l.epoch = max(now.Unix(), l.epoch+1)
	l.epochs = append(slices.Clip(l.epochs), l.epoch)
	for _, r := range l.reports {
		if !r.state.Outstanding() {
			continue
		}
		r.state, r.lease, r.attempts = billing.InDoubt, time.Time{}, max(r.attempts, 1)
		if r.firstSent.IsZero() {
			r.firstSent = r.made
		}
	}
	l.look()
}

// unread reports whether the provider's totals must be read: the ledger was restored, and the totals were not
// read in the current epoch.
func (l *ledger) unread() bool {
	return l.connection != nil && !l.connection.Statements && l.isUnreadAt(l.link())
}

// isUnreadAt reports whether the totals of a link were not read since the last restore.
func (l *ledger) isUnreadAt(link string) bool { return l.epoch > 0 && l.readIn[link] != l.epoch }

// readAddedUp reads the provider's totals and charges after a restore. If there are totals, it waits until
// the provider has surely counted all earlier reports.
func (p *pass) readAddedUp(l *ledger) {
	if !l.unread() {
		return
	}
	f := l.facts(p.now, l.number)
	places := billing.NewBooks(f).AddedUp()
	if len(places) > 0 && p.now.Before(time.Unix(l.epoch, 0).Add(certain)) {
		return
	}
	var found []billing.Found
	for _, at := range places {
		counted := l.farSide.counted(at.Customer, at.Target, at.Counting, at.Window, p.now)
		if found = append(found, billing.Found{AddedUp: at, Counted: counted}); counted.Cmp(l.takenAt(at)) >= 0 {
			l.farSide.find(at, p.now)
		} else {
			l.farSide.overlook(at)
		}
	}
	all := l.farSide.charged(l.providerID, f.ChargedSince(l.knownUntil))
	charges := slices.DeleteFunc(slices.Clone(all), l.knowsCharge)
	lost := append(billing.NewBooks(f).Lost(found), billing.NewBooks(f).LostCharges(charges)...)
	plan, through := billing.NewBooks(f).Plan(), l.through
	plan.Reconciled = nil // the next plan reconciles
	l.store(plan, p.now)
	l.through = through
	for _, id := range append(billing.NewBooks(f).Forgotten(found), billing.NewBooks(f).ReportsWithoutLine(all)...) {
		r := l.report(id)
		r.state, r.lease, r.settledAt = billing.Rejected, time.Time{}, p.now
	}
	l.countNamed(all, p.now)
	for _, r := range lost {
		written := l.add(r, p.now)
		written.state, written.settledAt, p.found = billing.Counted, p.now, true
	}
	l.readIn = maps.Clone(l.readIn)
	if l.readIn == nil {
		l.readIn = make(map[string]int64)
	}
	l.readIn[l.link()] = l.epoch
	l.look()
}

// knowsCharge reports whether the ledger has the report of a charge.
func (l *ledger) knowsCharge(c billing.FoundCharge) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.id == c.ReportID })
}

// takenAt returns the sum of the accepted quantities for a target and window in the ledger. If the provider
// has counted less than this sum, it is unknown which quantities it has counted.
func (l *ledger) takenAt(at billing.AddedUp) (taken metering.Decimal) {
	for _, r := range l.reports {
		if r.Kind == billing.QuantityReport && r.state.Taken() && r.Customer == at.Customer && r.Target == at.Target && at.Window.Contains(r.Window.Start) {
			taken = taken.Add(r.Quantity)
		}
	}
	return taken
}

// find records that the total of a target was read. A call at least as old as the provider's lag is marked as
// found, or as missed if the provider dropped it. Newer calls are not in the total.
func (f *farSide) find(at billing.AddedUp, now time.Time) {
	for _, c := range f.calls {
		in := c.Kind == billing.QuantityReport && c.Customer == at.Customer && c.Target == at.Target && at.Window.Contains(c.timestamp)
		read := in && !c.at.After(now.Add(-f.lag))
		c.found, c.missed = c.found || read && !c.dropped, c.missed || read && c.dropped
	}
}

// overlook sets unknown on the calls to a target that belong to lost reports and were not found. The total
// does not show which of them the provider has counted.
func (f *farSide) overlook(at billing.AddedUp) {
	for _, c := range f.calls {
		in := c.Kind == billing.QuantityReport && c.Customer == at.Customer && c.Target == at.Target && at.Window.Contains(c.timestamp)
		c.unknown = c.unknown || in && c.storedReport.lost && !c.found
	}
}

// charged returns the charges of the customer at the provider since an instant.
func (f *farSide) charged(customer string, since time.Time) (all []billing.FoundCharge) {
	if f.charging {
		return f.foundItems(since)
	}
	for _, c := range f.calls {
		if c.Kind == billing.ChargeReport && c.Customer == customer && !c.at.Before(since) {
			all = append(all, billing.FoundCharge{
				ReportID: c.id, MeterID: c.Lines[0].MeterID, Subscription: c.Target, Closed: c.Period.Truncate(time.Second), Target: c.Window.Start.Truncate(time.Second),
				Late: true, Units: c.Lines[0].Quantity, Amount: c.Quantity, Currency: c.Currency,
			})
		}
	}
	return all
}

// stands reports whether no restore can have lost a later statement of the period that arrived. A restore may
// have lost one if, in the backup, the period was still open, or r was outstanding or not its last statement.
func (l *ledger) stands(r *storedReport) bool {
	of := l.period(r.Period)
	i := slices.IndexFunc(l.epochs, func(epoch int64) bool { return epoch > r.epoch })
	if i < 0 {
		return true
	}
	for _, o := range l.reports {
		if o.Kind == r.Kind && o.Period.Equal(r.Period) && o.Connection == r.Connection && o.number > r.number {
			return false
		}
	}
	restored := time.Unix(l.epochs[i], 0)
	return r.settledAt.Before(restored) && of.ClosedAt != nil && of.ClosedAt.Before(restored)
}

// inGraceOfRestore reports whether clients may still resend events after the restore.
func (l *life) inGraceOfRestore() bool {
	return l.now.Before(l.restoredAt.Truncate(time.Second).Add(l.settings.Grace))
}

// recovered updates l.recovering after a pass. Recovery ends once the provider's totals are read, no report is
// outstanding, and each lost quantity is found or replaced, or its period is complete. Until then no step
// connects, links or subscribes the customer anew, because the reports since the backup would not be found.
func (l *life) recovered() {
	if !l.recovering || l.unread() || len(l.open()) > 0 {
		return
	}
	l.recovering = slices.ContainsFunc(l.farSides, func(f *farSide) bool { return slices.ContainsFunc(f.calls, l.lacks) })
}

// lacks reports whether the ledger knows neither the lost report of a quantity nor an accepted report of the
// same series in the current epoch. It returns false if the period is complete.
func (l *life) lacks(c *call) bool {
	if c.Kind != billing.QuantityReport || !c.storedReport.lost || c.found {
		return false
	}
	return !slices.ContainsFunc(l.periods, func(p billing.Period) bool { return p.Start.Equal(c.Period) && p.Complete }) &&
		!slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.Series == c.Series && r.state.Taken() && r.epoch == l.epoch })
}

// foundOf returns the charges for late usage of a closed line that were found at the provider after a
// restore.
func (l *life) foundOf(p billing.Period, line billing.ClosedLine, currency string) *big.Rat {
	sum := new(big.Rat)
	for _, r := range l.reports {
		if r.Kind == billing.ChargeReport && r.Late && r.attempts == 0 && r.state == billing.Counted && r.Period.Equal(p.Start) && r.Lines[0].MeterID == line.MeterID && r.Currency == currency {
			sum.Add(sum, rational(r.Quantity))
		}
	}
	return sum
}
