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

// A restore sets the ledger back to a copy of itself. The far side keeps what it
// has, clients send again what came since, and operators save again what they
// had set. Whoever is connected, linked or subscribed anew gets another id there,
// under which nothing is known: no life goes back over that.

// backup is the ledger as it was at an instant.
type backup struct {
	*ledger
	meters []metering.Meter // as they were set then
	until  time.Time        // what was reported later is not known
}

// numbersOfEpoch are the numbers of the reports of each second: those of a later
// epoch are higher.
const numbersOfEpoch = 1_000_000

// backsUp makes a backup, whatever workers are at.
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

// mayBackUp says whether the rules promise anything of a restore: where the
// first period begins is decided, which depends on when events came, and nobody
// else reports at a counter, whose quantities would be taken for ours.
func (l *life) mayBackUp() bool {
	return l.connection != nil && len(l.periods) > 0 && l.customer.HeadOpenUntil == nil && !l.othersReport()
}

func (l *life) othersReport() bool {
	return slices.ContainsFunc(l.farSides, func(f *farSide) bool {
		return slices.ContainsFunc(f.calls, func(c *call) bool { return c.id == uuid.UUID{} })
	})
}

// reachesTo says whether the backup knows where its last period ends, which may
// have become shorter since, and the subscription's period before the present
// one: what was reported of others is not to be found.
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
	since := l.events[len(b.events):]
	l.setBack(b)
	l.raise(l.now)
	l.restoredAt, l.recovering = l.now, true
	for _, e := range since {
		l.ledger.ingest(e, l.now)
	}
	for _, f := range l.farSides {
		f.lag = min(f.lag, certain) // it counts within this time
		f.forget(l.invoices)
		f.forgetOurs(l.invoices)
	}
	return true
}

// setBack has the ledger be what it was. What is on the far side keeps that it
// has arrived there.
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
		e.lost = e.lost || e.gone && !then // nothing counts it any more
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

func (l *ledger) versionOf(id metering.MeterID) metering.MeterVersionID {
	return l.meter(id).Version.ID
}

// forget has the far side say again which invoices are final, but for these.
func (f *farSide) forget(but []storedInvoice) {
	for _, contracts := range f.contracts {
		for _, c := range contracts {
			for _, in := range c.invoices {
				in.heard = in.heard && slices.ContainsFunc(but, func(i storedInvoice) bool { return i.ID == in.idIn(c) || in.none && i.ID == c.id })
			}
		}
	}
}

// raise begins another epoch of the ledger.
func (l *ledger) raise(now time.Time) {
	l.epoch = max(now.Unix(), l.epoch+1)
	l.epochs = append(slices.Clip(l.epochs), l.epoch)
	for _, r := range l.reports {
		switch {
		case !r.state.Outstanding():
		case r.Kind != billing.QuantityReport && r.Counting != billing.Adds && l.reaches(r):
			r.state, r.lease, r.settledAt = billing.Rejected, time.Time{}, now
		default:
			r.state, r.lease, r.attempts = billing.InDoubt, time.Time{}, max(r.attempts, 1)
			if r.firstSent.IsZero() {
				r.firstSent = r.made
			}
		}
	}
	l.look()
}

// unread says whether what the far side has added up has to be read.
func (l *ledger) unread() bool {
	return l.connection != nil && !l.connection.Statements && l.epoch > 0 && l.readIn[l.link()] != l.epoch
}

// readAddedUp reads what the far side has added up, and was charged, once it has
// surely counted it.
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
	plan.Reconciled = nil // that is the next plan's
	l.store(plan, p.now)
	l.through = through
	for _, id := range billing.NewBooks(f).Forgotten(found) {
		r := l.report(id)
		r.state, r.lease, r.settledAt = billing.Rejected, time.Time{}, p.now
	}
	for _, r := range lost {
		written := l.add(r, p.now)
		written.state, written.settledAt, p.found = billing.Counted, p.now, true
	}
	l.keepFound(all, p.now)
	l.readIn = maps.Clone(l.readIn)
	if l.readIn == nil {
		l.readIn = make(map[string]int64)
	}
	l.readIn[l.link()] = l.epoch
	l.look()
}

// knowsCharge says whether the ledger has the report of a charge.
func (l *ledger) knowsCharge(c billing.FoundCharge) bool {
	return slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.id == c.ReportID })
}

// takenAt is what the ledger knows to have been taken in a place: where less is
// counted, nobody can tell what of it is.
func (l *ledger) takenAt(at billing.AddedUp) (taken metering.Decimal) {
	for _, r := range l.reports {
		if r.Kind == billing.QuantityReport && r.state.Taken() && r.Customer == at.Customer && r.Target == at.Target && at.Window.Contains(r.Window.Start) {
			taken = taken.Add(r.Quantity)
		}
	}
	return taken
}

// find notes that what was counted in a place is known, whatever became of the
// reports that brought it, and so is that the rest is not there.
func (f *farSide) find(at billing.AddedUp, now time.Time) {
	for _, c := range f.calls {
		in := c.Kind == billing.QuantityReport && c.Customer == at.Customer && c.Target == at.Target && at.Window.Contains(c.timestamp)
		read := in && !c.at.After(now.Add(-f.lag))
		c.found, c.missed = c.found || read && !c.dropped, c.missed || read && c.dropped
	}
}

// overlook notes that nobody knows what was lost of what was counted in a place.
func (f *farSide) overlook(at billing.AddedUp) {
	for _, c := range f.calls {
		in := c.Kind == billing.QuantityReport && c.Customer == at.Customer && c.Target == at.Target && at.Window.Contains(c.timestamp)
		c.unknown = c.unknown || in && c.storedReport.lost && !c.found
	}
}

// charged is what the customer was charged with since an instant.
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

// stands says whether the statement is the last one that its receiver has.
func (l *ledger) stands(r *storedReport) bool {
	of := l.period(r.Period)
	i := slices.IndexFunc(l.epochs, func(epoch int64) bool { return epoch > r.epoch })
	if i < 0 {
		return true
	}
	for _, o := range l.reports {
		if o.Kind == r.Kind && o.Period.Equal(r.Period) && o.Connection == r.Connection && o.number > r.number && o.state == billing.Rejected {
			return false // it may have arrived all the same
		}
	}
	return of.ClosedAt != nil && of.ClosedAt.Before(time.Unix(l.epochs[i], 0))
}

// inGraceOfRestore says whether what clients send again may come yet.
func (l *life) inGraceOfRestore() bool {
	return l.now.Before(l.restoredAt.Truncate(time.Second).Add(l.settings.Grace))
}

// recovered notes, once a pass is over, whether all is known again that was lost
// with the restore, or its period is complete. Until then nobody is connected,
// linked or subscribed anew: what was reported since the backup would not be found.
func (l *life) recovered() {
	if !l.recovering || l.unread() || len(l.open()) > 0 {
		return
	}
	l.recovering = slices.ContainsFunc(l.farSides, func(f *farSide) bool { return slices.ContainsFunc(f.calls, l.lacks) })
}

// lacks says whether the ledger does not know what was taken, nor what took its place.
func (l *life) lacks(c *call) bool {
	if c.Kind != billing.QuantityReport || !c.storedReport.lost || c.found {
		return false
	}
	return !slices.ContainsFunc(l.periods, func(p billing.Period) bool { return p.Start.Equal(c.Period) && p.Complete }) &&
		!slices.ContainsFunc(l.reports, func(r *storedReport) bool { return r.Series == c.Series && r.state.Taken() && r.epoch == l.epoch })
}

// foundOf is what a closed line was charged with as late usage that was found
// once the ledger was restored.
func (l *life) foundOf(p billing.Period, line billing.ClosedLine, currency string) *big.Rat {
	sum := new(big.Rat)
	for _, r := range l.reports {
		if r.Kind == billing.ChargeReport && r.Late && r.attempts == 0 && r.state == billing.Counted && r.Period.Equal(p.Start) && r.Lines[0].MeterID == line.MeterID && r.Currency == currency {
			sum.Add(sum, rational(r.Quantity))
		}
	}
	return sum
}
