package billing

import (
	"iter"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// ReconciliationState is the state of the comparison of a closed period's meter with the provider's invoices.
type ReconciliationState string

const (
	ReconciliationOpen       ReconciliationState = "open"        // the last invoice of the period is not final
	ReconciliationAgreed     ReconciliationState = "agreed"      // the total of the period is billed
	ReconciliationCarried    ReconciliationState = "carried"     // a target period bills or credits the difference
	ReconciliationWaived     ReconciliationState = "waived"      // not billed because of a change at the provider, or by an operator's decision
	ReconciliationDisputed   ReconciliationState = "disputed"    // more is billed than was reported, or another amount: an operator has to act
	ReconciliationWrittenOff ReconciliationState = "written_off" // an operator gave up the difference
)

// Values returns all states of a reconciliation.
func (ReconciliationState) Values() []ReconciliationState {
	return []ReconciliationState{
		ReconciliationOpen, ReconciliationAgreed, ReconciliationCarried, ReconciliationWaived, ReconciliationDisputed, ReconciliationWrittenOff,
	}
}

// ReconciliationReason is the reason why the invoices bill something other than the total of the closed period.
type ReconciliationReason string

const (
	ReasonAgreed            ReconciliationReason = "" // there is no difference
	ReasonUnreported        ReconciliationReason = "unreported"
	ReasonNotBilled         ReconciliationReason = "not_billed"
	ReasonSubscriptionEnded ReconciliationReason = "subscription_ended" // as ReasonNotBilled, after an immediate cancellation
	ReasonUsageDecreased    ReconciliationReason = "usage_decreased"    // Billed exceeds Units
	ReasonVoid              ReconciliationReason = "invoice_void"
	ReasonBilledMore        ReconciliationReason = "billed_more"
	ReasonLineEdited        ReconciliationReason = "line_edited"
	ReasonOtherAmount       ReconciliationReason = "other_amount"
)

// Values returns all reasons for a difference.
func (ReconciliationReason) Values() []ReconciliationReason { return reconciliationReasons.codes() }

// Text returns the reason in words, or the zero Text if there is no difference.
func (r ReconciliationReason) Text() Text { return reconciliationReasons.textOf(r) }

// Reconciliation is the comparison of a closed period's meter with the final invoices. If the period is billed in
// amounts, all figures are money. A new Reconciliation is stored when the comparison or an operator's decision
// changes the result. A stored one never changes.
type Reconciliation struct {
	Period  time.Time // start of the closed period
	MeterID metering.MeterID

	Units       metering.Decimal // total of the closed period, in the decimals that the provider accepts
	Reported    metering.Decimal // units that providers have accepted
	Invoiced    metering.Decimal // units that final invoices bill, without void ones
	Unexplained metering.Decimal // invoiced units that Odometer did not report
	Elsewhere   metering.Decimal // units that are billed without a final invoice to read
	Billed      metering.Decimal // units that are treated as billed, including Elsewhere: they are never charged again

	State  ReconciliationState
	Reason ReconciliationReason
}

// rejectWithdrawn treats unsent reports to a previous subscription as rejected, because the plan withdraws them.
func (b *Books) rejectWithdrawn() {
	for _, o := range b.Open {
		if !b.isForPreviousSubscription(o) {
			continue
		}
		for i := range b.Reported {
			if r := &b.Reported[i]; r.Last == o.ID {
				r.Outstanding, r.State, r.Standing = false, Rejected, r.Taken
			}
		}
	}
}

// isForPreviousSubscription reports whether a quantity report to the current connection was never sent, and was made
// for a subscription that the customer no longer has. That subscription's last invoice may be final, unknown to
// Odometer, and would then not bill the quantity. The result is false for a report from before a restore, because it
// may have been sent after the backup. It is also false before the customer's state at the provider is read.
func (f *Facts) isForPreviousSubscription(o Open) bool {
	if o.State != Planned || !f.connectedTo(o.Connection) || f.Side == nil || o.Epoch < f.Epoch {
		return false
	}
	return containsAny(f.Reported, func(r *Reported) bool {
		return r.Last == o.ID && r.Kind == QuantityReport && r.To.Subscription != "" && r.To.Subscription != f.Side.Subscription
	})
}

// shareInvoices stores in each series of quantities how many of its units final invoices bill. It returns these
// invoices.
func (b *Books) shareInvoices() (invoices []invoiced) {
	invoices = b.invoicedPeriods()
	for r := range b.quantities() {
		r.Invoiced, r.Void = nil, metering.Decimal{}
	}
	for _, i := range invoices {
		for _, m := range b.Meters {
			if b.coversMeter(i, m.ID, i.Period, invoices) {
				b.share(i, m.ID)
			}
		}
	}
	return invoices
}

// resolveReports settles outstanding reports with an outcome that invoices show, except reports that are being sent.
// found reports whether there were any. Reports that were never sent are settled first, because invoices bill nothing
// of them. The other reports are settled only if no such report is found.
func (b *Books) resolveReports() (found bool) {
	return b.resolveOpen(true) || b.resolveOpen(false)
}

// resolveOpen settles the reports that were never sent if planned is true, and all other outstanding reports if it is
// false.
func (b *Books) resolveOpen(planned bool) (found bool) {
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

// outcome returns the outcome of a report that final invoices show, and sets it in the report's series. It returns ""
// if the invoices do not show the outcome. Invoices bill the quantity either with the report or without it. A report
// that was never sent is on no invoice.
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

// reconcile compares the closed lines of a period with the invoices. It sets and returns the result of a line only if
// the invoices differ from those of the previous result (see sameInvoices).
func (b *Books) reconcile(p *Period, invoices []invoiced) (changed []Reconciliation) {
	for n := range p.Closed {
		l := &p.Closed[n]
		r, known := b.reconciliation(*p, l, invoices)
		if known && !r.sameInvoices(l.Reconciled) {
			l.Reconciled, l.phase, changed = &r, phaseCompared, append(changed, r)
		}
	}
	return changed
}

// sameInvoices reports whether the final invoices bill the same as at the previous reconciliation, if there is one. A
// change to or from ReasonVoid or ReasonOtherAmount is also treated as a change of the invoices.
func (r Reconciliation) sameInvoices(previous *Reconciliation) bool {
	return previous != nil && r.Invoiced.Equal(previous.Invoiced) && (r.Reason == ReasonVoid) == (previous.Reason == ReasonVoid) &&
		(r.Reason == ReasonOtherAmount) == (previous.Reason == ReasonOtherAmount)
}

// reconciliation compares a closed line with the invoices that bill it. known is false in these cases:
//   - The tenant has no connection, or no provider bills the line in the connection's mode.
//   - The rest of the line is billed with its own period.
//   - The facts lack invoices or reports of the period. Those that they contain would seem to be all.
//   - reconciledAmount or reconciledUnits cannot compare the line yet.
func (b *Books) reconciliation(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	switch {
	case b.Connection == nil, p.Omitted, !b.bills(l), l.phase == phaseReported, l.phase == phaseWaiting:
		return r, false
	case l.inAmounts():
		return b.reconciledAmount(p, l, invoices)
	}
	return b.reconciledUnits(p, l, invoices)
}

// reconciledUnits compares a closed line that is billed in quantities with the final invoices. known is false in these
// cases:
//   - A quantity that the current connection accepted is not on a final invoice yet.
//   - The outcome of a report is not known, and no final invoice shows its series.
//   - No final invoice bills, or would bill, the meter in the period.
func (b *Books) reconciledUnits(p Period, l *ClosedLine, invoices []invoiced) (r Reconciliation, known bool) {
	r = Reconciliation{Period: p.Start, MeterID: l.MeterID, Units: l.ownUnits()}
	for s := range b.ownOf(p, l.MeterID) {
		if b.awaitsInvoiceOf(s) {
			return r, false
		}
		r.add(s)
	}
	covering := b.covering(p, l.MeterID, invoices)
	for _, i := range covering {
		if b.answersFor(i.Invoice, l.MeterID) {
			b.addSurplus(&r, p, i)
		}
	}
	void := slices.ContainsFunc(covering, func(i invoiced) bool { return i.Void })
	r.Invoiced = r.Invoiced.Add(r.Unexplained)
	r.State, r.Reason = r.judged(void)
	switch {
	case r.Reason == ReasonNotBilled && slices.ContainsFunc(covering, func(i invoiced) bool { return i.Ended }):
		r.Reason = ReasonSubscriptionEnded
	case r.State == ReconciliationAgreed && b.amountDiffers(p, l, r, invoices):
		r.State, r.Reason = ReconciliationDisputed, ReasonOtherAmount
	}
	return r, len(covering) > 0
}

// awaitsInvoiceOf reports whether a series of the closed period is on no final invoice, and its outcome is unknown or
// the current connection's invoice follows.
func (f *Facts) awaitsInvoiceOf(s *Reported) bool {
	accepted := s.Kind == QuantityReport && f.here(s.Series) && s.Taken.Any
	return s.Invoiced == nil && (f.awaitsOutcome(s) || accepted)
}

// add adds the units of one series of the closed period to the figures of the reconciliation.
func (r *Reconciliation) add(s *Reported) {
	r.Reported = r.Reported.Add(s.Taken.counted(s.Counting))
	r.Billed = r.Billed.Add(s.units())
	if s.Invoiced == nil {
		r.Elsewhere = r.Elsewhere.Add(s.units())
		return
	}
	r.Invoiced = r.Invoiced.Add(s.Invoiced.Sub(s.Void))
}

// covering returns the invoices that bill the meter's usage of the closed period, or would bill it.
func (f *Facts) covering(p Period, meter metering.MeterID, invoices []invoiced) []invoiced {
	return slices.DeleteFunc(slices.Clone(invoices), func(i invoiced) bool {
		return i.Period.Intersect(p.Range).Empty() || !f.coversMeter(i, meter, p.Range, invoices) || !f.isAbout(i.Invoice, p)
	})
}

// addSurplus adds the invoice's surplus to the reconciliation: the units that it bills beyond the accepted ones
// (i.more). Up to the number of units that the period lacks, units are moved from the surplus to the billed units. In
// the last period that the invoice concerns, the rest is added to the unexplained units.
func (b *Books) addSurplus(r *Reconciliation, p Period, i invoiced) {
	mine := smaller(b.missing(i.Invoice, p, *r), notNegative(i.more[r.MeterID]))
	r.Billed, r.Invoiced, i.more[r.MeterID] = r.Billed.Add(mine), r.Invoiced.Add(mine), i.more[r.MeterID].Sub(mine)
	if b.isLastOf(i.Invoice, p, r.MeterID) {
		r.Unexplained = r.Unexplained.Add(i.more[r.MeterID])
	}
}

// ownOf iterates over the series of a meter's period in the current mode, except those of late usage.
func (f *Facts) ownOf(p Period, meter metering.MeterID) iter.Seq[*Reported] {
	return func(yield func(*Reported) bool) {
		for n := range f.Reported {
			s := &f.Reported[n]
			if !s.Late && s.MeterID == meter && s.about(p) && f.isInCurrentMode(s.Connection) && !yield(s) {
				return
			}
		}
	}
}

// missing returns the units of a reconciliation that are not billed yet and that the invoice may bill. It excludes
// units that other connections accepted but did not bill on their own invoices.
func (b *Books) missing(i Invoice, p Period, r Reconciliation) metering.Decimal {
	missing := r.Units.Sub(r.Billed)
	for s := range b.ownOf(p, r.MeterID) {
		if s.Connection != i.Connection && s.Invoiced != nil {
			missing = missing.Sub(notNegative(s.Taken.counted(s.Counting).Sub(*s.Invoiced)))
		}
	}
	return notNegative(missing)
}

// partlyKnown returns the starts of the closed periods that must be compared with final invoices again.
func (b *Books) partlyKnown() (starts []time.Time) {
	for _, p := range b.Stored {
		if containsAny(p.Closed, func(l *ClosedLine) bool { return b.isPartlyKnown(p, l) }) {
			starts = append(starts, p.Start)
		}
	}
	return starts
}

// isPartlyKnown reports whether a closed line must be compared with final invoices again, even if no further invoice
// arrives. This is necessary in four cases:
//   - Final invoices show some of the line's series, but not all series at the current connection.
//   - Final invoices show some of the line's series, and the tenant has no connection.
//   - The line was billed in the other mode.
//   - The line was billed in amounts, and the totals were not read since the last restore (see reconciledAmount).
//
// A further invoice would start the comparison, but none is expected after a tenant has replaced its connection.
func (b *Books) isPartlyKnown(p Period, l *ClosedLine) bool {
	if b.isIncomparable(l) {
		return true
	}
	hasSeries := func(shown bool) bool {
		return containsAny(b.Reported, func(r *Reported) bool {
			isOfLine := !r.Late && r.MeterID == l.MeterID && r.about(p) && r.Standing.Any
			return isOfLine && (r.Invoiced != nil || r.Line != nil) == shown && (shown || b.here(r.Series))
		})
	}
	return hasSeries(true) && (b.Connection == nil || hasSeries(false))
}

// isIncomparable reports whether a billed line cannot be compared yet: it was billed in the other mode, or in amounts
// while the provider's totals were not read since the last restore.
func (b *Books) isIncomparable(l *ClosedLine) bool {
	return l.Billed && (l.Test != b.inTest() || b.Unread && l.inAmounts())
}

// awaitsOutcome reports whether the outcome of a report of the series is not known yet. A report to a previous
// connection that was never sent is excluded, because the plan withdraws it.
func (f *Facts) awaitsOutcome(r *Reported) bool {
	return r.Outstanding && (r.State != Planned || f.here(r.Series))
}

// isAbout reports whether an invoice concerns a period that it overlaps. The end of a subscription concerns only the
// periods of that subscription, and periods with a series for which showsBilled returns true.
func (f *Facts) isAbout(i Invoice, p Period) bool {
	return !i.Ended || i.Subscription == p.Subscription.ID ||
		containsAny(f.Reported, func(r *Reported) bool { return r.about(p) && f.showsBilled(i, r) })
}

// isLastOf reports whether the invoice concerns no later period of the meter.
func (f *Facts) isLastOf(i Invoice, p Period, meter metering.MeterID) bool {
	return !slices.ContainsFunc(f.Stored, func(o Period) bool {
		return o.Start.After(p.Start) && !o.Intersect(i.Period).Empty() && f.isAbout(i, o) && !f.fed(meter, o.Range).Empty()
	})
}

// judged returns the state and the reason of the comparison.
func (r Reconciliation) judged(void bool) (ReconciliationState, ReconciliationReason) {
	switch {
	case !r.Unexplained.IsZero():
		return ReconciliationDisputed, ReasonBilledMore
	case void:
		return ReconciliationWaived, ReasonVoid
	case r.Billed.Equal(r.Units):
		return ReconciliationAgreed, ReasonAgreed
	case r.Billed.Cmp(r.Units) > 0:
		return ReconciliationCarried, ReasonUsageDecreased
	case r.Billed.Cmp(r.Reported) < 0:
		return ReconciliationCarried, ReasonNotBilled
	}
	return ReconciliationCarried, ReasonUnreported
}
