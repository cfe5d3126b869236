package billing

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// A customer without a subscription gets no invoice from the provider to which amounts could be added. Odometer
// therefore creates a standalone invoice for each of the customer's periods. After a period is closed, Odometer puts
// the period's lines, and late usage of earlier periods, on a draft. Odometer then finalizes the draft.

// OwnInvoice is the subscription ID of a period of billing schedule 0 that is billed with a standalone invoice.
const OwnInvoice = "own_invoice"

// OwnInvoiceOf returns the subscription ID of a billing schedule's periods that are billed with a standalone invoice, and
// the target of the invoice's lines. Periods of several schedules can begin at the same instant. Each of them has an
// invoice of its own.
func OwnInvoiceOf(stream int) string {
	if stream == 0 {
		return OwnInvoice
	}
	return OwnInvoice + "/" + strconv.Itoa(stream)
}

// IsOwnInvoice reports whether the subscription ID is a result of OwnInvoiceOf.
func IsOwnInvoice(subscription string) bool {
	return subscription == OwnInvoice || strings.HasPrefix(subscription, OwnInvoice+"/")
}

// IsStandalone reports whether a standalone invoice bills the period.
func (p Period) IsStandalone() bool { return IsOwnInvoice(p.Subscription.ID) }

// ownInvoice returns the target of the lines of the billing schedule's standalone invoices.
func (f *Facts) ownInvoice() string { return OwnInvoiceOf(f.Stream) }

// markStandalone marks an open period for a standalone invoice if the period is billed in amounts, the customer has no
// subscription at the provider, and a meter can be charged. The period keeps its standalone invoice unless a
// subscription's period overlaps it.
func (p *Period) markStandalone(f *Facts) {
	if p.ClosedAt != nil || p.Bills != metering.BillsAmounts || f.Side == nil {
		return
	}
	begins := p.Subscription.ID == "" && !f.subscribed() && slices.ContainsFunc(f.Side.Charges, Destination.takes)
	if begins || p.IsStandalone() { // after a restore, the invoice of an open period may already be final
		p.Subscription = Subscription{ID: f.ownInvoice(), Range: p.Range, Connection: f.Connection.ID, Invoiced: p.IsStandalone() && p.Subscription.Invoiced}
	}
}

// rollsForward reports whether the unbilled part of a period of an ended subscription rolls forward: onto the invoice
// of the next subscription, or onto a standalone invoice.
func (f *Facts) rollsForward(p Period) bool {
	return p.Subscription.ID != "" && !(f.subscribed() && p.Intersect(p.Subscription.Range).Empty())
}

// finalization returns the last report that finalizes the period's standalone invoice, or a zero Sent if there is none.
func (f *Facts) finalization(p Period) (last Sent) {
	for _, s := range f.Finalized {
		if s.Period.Equal(p.Start) && s.Number > last.Number {
			last = s
		}
	}
	return last
}

// finalizes reports whether the period's standalone invoice is, or may be, final.
func (b *Books) finalizes(p Period) bool {
	s := b.finalization(p).State
	return p.Subscription.Invoiced || s.Taken() || s.Outstanding()
}

// isOnStandalone reports whether the series is a line of the period's standalone invoice, under the customer's current
// ID at the provider.
func (f *Facts) isOnStandalone(s Series, p Period) bool {
	return f.isStandaloneLine(s, p) && s.Customer == f.Side.Customer
}

// isStandaloneLine reports whether the series is a line of the period's standalone invoice, under any ID of the
// customer at the provider.
func (f *Facts) isStandaloneLine(s Series, p Period) bool {
	return s.Kind == ChargeReport && s.Target == f.ownInvoice() && f.here(s) && s.Window.Start.Equal(p.Start)
}

// hasLines reports whether a series that matches the predicate may have a line with an amount other than 0.
func (f *Facts) hasLines(p Period, matches func(Series, Period) bool) bool {
	return containsAny(f.Reported, func(r *Reported) bool {
		return matches(r.Series, p) && r.Standing.Any && !r.Standing.Amount.IsZero()
	})
}

// isToInvoice reports whether the connection may still create the standalone invoice of a closed period, and the period
// needs or has one. The invoice bills the period's charges, or late usage of earlier periods.
func (b *Books) isToInvoice(p Period) bool {
	if !p.IsStandalone() || b.Connection == nil || !b.Connection.Invoices || b.Side == nil || p.Subscription.Invoiced {
		return false
	}
	at, takes := b.lateTarget(b.Stored, p)
	return b.isCharged(p) || takes && slices.ContainsFunc(b.adjustments(b.Stored, at, nil), func(l Line) bool {
		return !l.Amount.IsZero() && b.excludedIn(l.Currency, b.ownInvoice(), p) == ""
	})
}

// isCharged reports whether the charges of the closed period itself must be put on a standalone invoice, or may be on
// one.
func (b *Books) isCharged(p Period) bool {
	return b.finalizes(p) || b.hasLines(p, b.isStandaloneLine) || containsAny(p.Closed, func(l *ClosedLine) bool {
		return l.phase.isOpen() && l.phase != phaseCarried && l.Charge.Cmp(l.billedTotals.amount) > 0 && b.excludedIn(l.Currency, b.ownInvoice(), p) == ""
	})
}

// billsLateOnStandalone reports whether the period's standalone invoice bills late usage of earlier periods. It does if
// the period is the latest closed, incomplete period with a standalone invoice that is neither final nor being
// finalized.
func (b *Books) billsLateOnStandalone(periods []Period, period Period) bool {
	canBill := func(p Period) bool { return p.IsStandalone() && p.pending() && !b.finalizes(p) }
	return canBill(period) && !slices.ContainsFunc(periods, func(p Period) bool { return p.Start.After(period.Start) && canBill(p) })
}

// standaloneCurrency returns the currency of the period's standalone invoice: that of all charges other than 0 or, if
// there are none, of all adjustments. If these have several currencies or none, it returns the tenant's currency.
func (b *Books) standaloneCurrency(p Period) string {
	var charged []string
	for _, l := range p.Closed {
		if !l.Charge.IsZero() {
			charged = append(charged, l.Currency)
		}
	}
	if p.ClosedAt == nil {
		all, _ := b.calculations(p)
		for i := range all {
			if !all[i].charge().IsZero() {
				charged = append(charged, all[i].currency)
			}
		}
	}
	if len(charged) == 0 {
		at := Series{Kind: ChargeReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: b.ownInvoice(), Window: p.Range}
		for _, l := range b.adjustments(Periods(b.Facts), at, nil) {
			if !l.Amount.IsZero() {
				charged = append(charged, l.Currency)
			}
		}
	}
	slices.Sort(charged)
	return b.inCommon(charged)
}

// planFinalization plans the finalization of a closed period's standalone invoice, once no more lines are added to it.
// It sets open while the finalization has to wait, is outstanding, or was refused in this pass. A period without lines
// has no standalone invoice.
func (p *planner) planFinalization(period Period) {
	if !period.IsStandalone() || period.ClosedAt == nil {
		return
	}
	last := p.finalization(period)
	onIt := func(r Report) bool { return p.isOnStandalone(r.Series, period) }
	switch {
	case last.State.Outstanding(), p.Unread:
		p.open = true
	case p.finalizes(period):
	case slices.ContainsFunc(p.plan.Reports, onIt):
		p.open, p.plan.More = true, true
	case p.open, !p.hasLines(period, p.isOnStandalone):
	case last.Number > p.After: // the provider refused the finalization in this pass
		p.open = true
	case len(p.plan.Resume)+len(p.plan.Reports) >= reportsAtOnce:
		p.open, p.plan.More = true, true
	default:
		p.plan.Reports = append(p.plan.Reports, Report{
			Series: Series{
				Kind: ActionReport, Connection: p.Connection.ID, Customer: p.Side.Customer, Target: p.ownInvoice() + "/" + period.Start.UTC().Format(time.RFC3339Nano),
				Counting: Replaces, Period: period.Start, Window: period.Range,
			},
			Of: period.Range, Deadline: period.Deadline(p.Settings.Grace),
		})
		p.Finalized = append(slices.Clip(p.Finalized), Sent{Period: period.Start, Number: last.Number + 1, State: Planned})
	}
}
