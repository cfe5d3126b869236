package billing

import (
	"iter"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// ReconciliationState is where the comparison of a closed period's meter with
// the provider's invoices stands.
type ReconciliationState string

const (
	ReconciliationOpen       ReconciliationState = "open"        // the last invoice of the period is not final
	ReconciliationAgreed     ReconciliationState = "agreed"      // the invoices bill what was reported, which is all
	ReconciliationCarried    ReconciliationState = "carried"     // what they lack is billed in a target period
	ReconciliationWaived     ReconciliationState = "waived"      // what they lack is not billed, because of what happened at the provider, unless an operator says so
	ReconciliationDisputed   ReconciliationState = "disputed"    // they bill more than was reported, or another amount: somebody has to look
	ReconciliationWrittenOff ReconciliationState = "written_off" // an operator has given up what they lack
)

// Values are all states of a reconciliation.
func (ReconciliationState) Values() []ReconciliationState {
	return []ReconciliationState{
		ReconciliationOpen, ReconciliationAgreed, ReconciliationCarried, ReconciliationWaived, ReconciliationDisputed, ReconciliationWrittenOff,
	}
}

// Why the invoices bill something else than the period came to.
const (
	ReasonAgreed     = ""                                                       // they do not
	ReasonUnreported = "not reported"                                           // nobody reported it before the last invoice was final
	ReasonNotBilled  = "accepted, not billed"                                   // the provider accepted it, and it is on no final invoice
	ReasonEnded      = "the subscription ended, and no invoice bills the usage" // of what was accepted: it was cancelled at once
	ReasonTakenBack  = "usage decreased after it was reported"                  // usage went down once it was reported
	ReasonVoid       = "the invoice was voided"                                 // nobody has to pay what it bills
	ReasonMore       = "billed more than reported"                              // something else reports there, or the invoice line was edited
	ReasonEdited     = "the invoice line was edited"                            // it bills less than it was set to
	ReasonAmount     = "billed at a different amount"                           // the quantity agrees, and the amount is not the provider's price of it
)

// Reconciliation is what the final invoices bill of a closed period's meter,
// beside what it came to. It is written down when an invoice says something else
// than the one before it did, and never changes.
type Reconciliation struct {
	Period  time.Time // start of the closed one
	MeterID metering.MeterID

	Units       metering.Decimal // that the period closed at, in the decimals that the provider takes
	Reported    metering.Decimal // of them, what providers have accepted
	Invoiced    metering.Decimal // that final invoices bill
	Unexplained metering.Decimal // of these, what nobody has reported from here
	Elsewhere   metering.Decimal // that were billed where no such invoice is read
	Billed      metering.Decimal // that count as billed, elsewhere too: they are never charged again

	State  ReconciliationState
	Reason string // one of the Reason constants
}

// leaveSubscriptions notes that what a plan withdraws, since its subscription is not
// the customer's any more, counts for nothing.
func (b *Books) leaveSubscriptions() {
	for _, o := range b.Open {
		if !b.leavesSubscription(o) {
			continue
		}
		for i := range b.Reported {
			if r := &b.Reported[i]; r.Last == o.ID {
				r.Outstanding, r.State, r.Standing = false, Rejected, r.Taken
			}
		}
	}
}

// leavesSubscription says whether a quantity was never sent, and made for a subscription
// that is not the customer's any more. Its last invoice may be final although nobody
// has heard of that, and would not bill what is taken now. One that was made before a
// restore may have been sent since.
func (f *Facts) leavesSubscription(o Open) bool {
	if o.State != Planned || !f.connectedTo(o.Connection) || f.Side == nil || o.Epoch < f.Epoch {
		return false
	}
	return containsAny(f.Reported, func(r *Reported) bool {
		return r.Last == o.ID && r.Kind == QuantityReport && r.To.Subscription != "" && r.To.Subscription != f.Side.Subscription
	})
}

// shareInvoices notes in each series what of it is on final invoices, which it returns.
func (b *Books) shareInvoices() (invoices []invoiced) {
	invoices = b.invoicedPeriods()
	for r := range b.quantities() {
		r.Invoiced = nil
	}
	for _, i := range invoices {
		for _, m := range b.Meters {
			if b.whose(i, m.ID, i.Period, invoices) {
				b.share(i, m.ID)
			}
		}
	}
	return invoices
}

// resolve notes what invoices show of reports that are on their way, and that
// nobody is sending at this moment; found says that it was anything. Those that were
// never sent go first: what they would have added is no part of what invoices bill.
func (b *Books) resolve() (found bool) {
	return b.resolveThose(true) || b.resolveThose(false)
}

func (b *Books) resolveThose(planned bool) (found bool) {
	b.Open = slices.DeleteFunc(slices.Clone(b.Open), func(o Open) bool {
		shown := State("")
		if (o.State == Planned) == planned && (o.LeaseUntil == nil || !o.LeaseUntil.After(b.Now)) {
			shown = b.outcome(o)
		}
		if shown != "" {
			b.Resolved, found = append(b.Resolved, Resolved{o.ID, shown}), true
		}
		return shown != ""
	})
	return found
}

// outcome is what final invoices show of a report: they bill what was taken with
// it, or without it. What was never sent is on none. "": nothing.
func (b *Books) outcome(o Open) State {
	for i := range b.Reported {
		if r := &b.Reported[i]; r.Last == o.ID && r.Line != nil {
			return r.outcomeOnInvoice(o.State)
		}
		switch r := &b.Reported[i]; {
		case r.Last != o.ID || r.Invoiced == nil:
		case o.State == Planned, r.Invoiced.Equal(r.Taken.counted(r.Counting)):
			r.Outstanding, r.State, r.Standing = false, Rejected, r.Taken
			return Rejected
		case r.Invoiced.Equal(r.Standing.counted(r.Counting)):
			r.Outstanding, r.State, r.Taken = false, Accepted, r.Standing
			return Accepted
		}
	}
	return ""
}

// reconcile compares the lines of a period, if it is closed, with the invoices
// that bill it. What they say as before is not written down again.
func (b *Books) reconcile(p *Period, invoices []invoiced) (changed []Reconciliation) {
	p.Closed = slices.Clone(p.Closed)
	for n := range p.Closed {
		l := &p.Closed[n]
		r, known := b.reconciliation(*p, l, invoices)
		if known && !r.says(l.Reconciled) {
			l.Reconciled, changed = &r, append(changed, r)
		}
	}
	return changed
}

// says says whether the invoices say the same as at a reconciliation before.
func (r Reconciliation) says(before *Reconciliation) bool {
	return before != nil && r.Invoiced.Equal(before.Invoiced) && (r.Reason == ReasonVoid) == (before.Reason == ReasonVoid) &&
		(r.Reason == ReasonAmount) == (before.Reason == ReasonAmount)
}

// reconciliation is what the invoices bill of a closed period's meter; it is
// known once all that the present connection was reported of it is invoiced, and
// nothing is on its way elsewhere.
func (b *Books) reconciliation(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	r = Reconciliation{Period: p.Start, MeterID: l.MeterID, Units: l.ownUnits()}
	if b.Connection == nil || !b.bills(l) || b.reportedOn(p, l) {
		return r, false
	}
	if l.inAmounts() {
		return b.reconciledAmount(p, l, invoices)
	}
	void, ended := false, false
	for s := range b.ownOf(p, l.MeterID) {
		invoiceToCome := s.Kind == QuantityReport && b.here(s.Series) && s.Taken.Any
		if s.Invoiced == nil && (b.isOnItsWay(s) || invoiceToCome) {
			return r, false
		}
		r.Reported = r.Reported.Add(s.Taken.counted(s.Counting))
		r.Billed = r.Billed.Add(s.units())
		if s.Invoiced == nil {
			r.Elsewhere = r.Elsewhere.Add(s.units())
		} else {
			r.Invoiced = r.Invoiced.Add(*s.Invoiced)
		}
	}
	for _, i := range invoices {
		if i.Period.Intersect(p.Range).Empty() || !b.whose(i, l.MeterID, p.Range, invoices) || !b.isAbout(i.Invoice, p) {
			continue
		}
		known, void, ended = true, void || i.Void, ended || i.Ended
		if !b.answersFor(i.Invoice, l.MeterID) {
			continue
		}
		mine := smaller(b.missing(i.Invoice, p, r), notNegative(i.more[l.MeterID])) // it arrived after all
		r.Billed, r.Invoiced, i.more[l.MeterID] = r.Billed.Add(mine), r.Invoiced.Add(mine), i.more[l.MeterID].Sub(mine)
		if b.isLastOf(i.Invoice, p, l.MeterID) {
			r.Unexplained = r.Unexplained.Add(i.more[l.MeterID])
		}
	}
	if r.Invoiced = r.Invoiced.Add(r.Unexplained); void {
		r.Invoiced = metering.Decimal{}
	}
	r.State, r.Reason = r.judged(void)
	switch {
	case ended && r.Reason == ReasonNotBilled:
		r.Reason = ReasonEnded
	case r.State == ReconciliationAgreed && b.amountDiffers(p, l, r, invoices):
		r.State, r.Reason = ReconciliationDisputed, ReasonAmount
	}
	return r, known
}

// ownOf are the series of what was reported of a meter's period while it was open.
func (f *Facts) ownOf(p Period, meter metering.MeterID) iter.Seq[*Reported] {
	return func(yield func(*Reported) bool) {
		for n := range f.Reported {
			s := &f.Reported[n]
			if !s.Late && s.MeterID == meter && s.about(p) && f.counts(s.Connection) && !yield(s) {
				return
			}
		}
	}
}

// missing is what of a reconciliation's units, billed nowhere so far, the invoice may
// bill: not what others have accepted, and their own invoices lack.
func (b *Books) missing(i Invoice, p Period, r Reconciliation) metering.Decimal {
	missing := r.Units.Sub(r.Billed)
	for s := range b.ownOf(p, r.MeterID) {
		if s.Connection != i.Connection && s.Invoiced != nil {
			missing = missing.Sub(notNegative(s.Taken.counted(s.Counting).Sub(*s.Invoiced)))
		}
	}
	return notNegative(missing)
}

// partlyKnown are the starts of the closed periods that final invoices are to be
// compared with again.
func (b *Books) partlyKnown() (starts []time.Time) {
	for _, p := range b.Stored {
		if containsAny(p.Closed, func(l *ClosedLine) bool { return b.isPartlyKnown(p, l) }) {
			starts = append(starts, p.Start)
		}
	}
	return starts
}

// isPartlyKnown says whether final invoices show what is billed of something that was
// reported of a closed line, and not of all that may be on one, or nobody can tell:
// there is no connection, or one of the other mode. What they show is looked at again,
// also if no other invoice follows: whoever replaces the connection awaits none.
func (b *Books) isPartlyKnown(p Period, l *ClosedLine) bool {
	if l.Billed && l.Test != b.inTest() {
		return true
	}
	is := func(shown bool) bool {
		return containsAny(b.Reported, func(r *Reported) bool {
			may := !r.Late && r.MeterID == l.MeterID && r.about(p) && r.Standing.Any && (r.Invoiced != nil || r.Line != nil) == shown
			return may && (shown || b.here(r.Series))
		})
	}
	return is(true) && (b.Connection == nil || is(false))
}

// isOnItsWay says whether a report of the series is. What was never sent to a
// former connection is not: whoever plans withdraws it.
func (f *Facts) isOnItsWay(r *Reported) bool {
	return r.Outstanding && (r.State != Planned || f.here(r.Series))
}

// isAbout says whether an invoice is about a period that it touches. That a
// subscription has ended is about those that lie in its period, or were reported to it.
func (f *Facts) isAbout(i Invoice, p Period) bool {
	return !i.Ended || i.Subscription == p.Subscription.ID ||
		containsAny(f.Reported, func(r *Reported) bool { return r.about(p) && f.says(i, r) })
}

// isLastOf says whether the invoice is about no later period of the meter's.
func (f *Facts) isLastOf(i Invoice, p Period, meter metering.MeterID) bool {
	return !slices.ContainsFunc(f.Stored, func(o Period) bool {
		return o.Start.After(p.Start) && !o.Intersect(i.Period).Empty() && f.isAbout(i, o) && !f.fed(meter, o.Range).Empty()
	})
}

// judged is what is done about a difference.
func (r Reconciliation) judged(void bool) (ReconciliationState, string) {
	switch {
	case void:
		return ReconciliationWaived, ReasonVoid
	case !r.Unexplained.IsZero():
		return ReconciliationDisputed, ReasonMore
	case r.Billed.Equal(r.Units):
		return ReconciliationAgreed, ReasonAgreed
	case r.Billed.Cmp(r.Units) > 0:
		return ReconciliationCarried, ReasonTakenBack
	case r.Billed.Cmp(r.Reported) < 0:
		return ReconciliationCarried, ReasonNotBilled
	}
	return ReconciliationCarried, ReasonUnreported
}
