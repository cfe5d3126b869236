package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// A customer without a subscription has no invoice of the provider's that its
// amounts would be lines of. Each of its periods becomes an invoice of ours: once
// the period is closed its lines are put on a draft, and what came late for
// earlier ones, and then the draft is made final.

// OwnInvoice stands in the place of the subscription where a period's invoice is
// one of ours, and is the target of its lines.
const OwnInvoice = "own_invoice"

// Own says whether the period's invoice is one of ours.
func (p Period) Own() bool { return p.Subscription.ID == OwnInvoice }

// own notes that an open period's invoice will be one of ours: it is billed in
// amounts, and the customer was seen without a subscription while it was open.
// It stays so, unless a subscription's period turns out to touch it.
func (p *Period) own(f *Facts) {
	if p.ClosedAt != nil || p.Bills != metering.BillsAmounts || f.Side == nil {
		return
	}
	begins := p.Subscription.ID == "" && !f.subscribed() && slices.ContainsFunc(f.Side.Charges, func(d Destination) bool { return d.Excluded == "" })
	if begins || p.Own() { // whose invoice may be final before it closes, once the ledger was restored
		p.Subscription = Subscription{ID: OwnInvoice, Range: p.Range, Connection: f.Connection.ID, Invoiced: p.Own() && p.Subscription.Invoiced}
	}
}

// leavesRest says whether what the invoices of a subscription that has ended lack
// of a period is carried: onto the next one's, or onto one of ours.
func (f *Facts) leavesRest(p Period) bool {
	return p.Subscription.ID != "" && !(f.subscribed() && p.Intersect(p.Subscription.Range).Empty())
}

// finalization is the last report that makes the period's invoice final; zero:
// there is none.
func (f *Facts) finalization(p Period) (last Sent) {
	for _, s := range f.Finalized {
		if s.Period.Equal(p.Start) && s.Number > last.Number {
			last = s
		}
	}
	return last
}

// finalizes says whether the period's invoice is, or may be, final.
func (b *Books) finalizes(p Period) bool {
	s := b.finalization(p).State
	return p.Subscription.Invoiced || s.Taken() || s.Outstanding()
}

// isOnOwn says whether the series is a line of the period's own invoice, as the
// customer that it is there now.
func (f *Facts) isOnOwn(s Series, p Period) bool {
	return f.isOwnLine(s, p) && s.Customer == f.Side.Customer
}

// isOwnLine says the same of any customer that it was there.
func (f *Facts) isOwnLine(s Series, p Period) bool {
	return s.Kind == ChargeReport && s.Target == OwnInvoice && f.here(s) && s.Window.Start.Equal(p.Start)
}

// hasLines says whether there is a line of something among some of the series.
func (f *Facts) hasLines(p Period, is func(Series, Period) bool) bool {
	return containsAny(f.Reported, func(r *Reported) bool {
		return is(r.Series, p) && r.Standing.Any && !r.Standing.Amount.IsZero()
	})
}

// isToInvoice says whether a closed period is to have, or has, an invoice of
// ours: it comes to something, or what came late for earlier ones does.
func (b *Books) isToInvoice(p Period) bool {
	return b.isCharged(p) || !p.Subscription.Invoiced && slices.ContainsFunc(b.lateOnOwn(p), func(l Line) bool {
		return !l.Amount.IsZero() && b.excludedIn(l.Currency, OwnInvoice, p) == ""
	})
}

// isCharged says whether what the closed period itself came to is to be put on an
// invoice of ours, or is on one that is not final.
func (b *Books) isCharged(p Period) bool {
	if b.finalizes(p) || b.hasLines(p, b.isOwnLine) {
		return !p.Subscription.Invoiced
	}
	billed := b.billedOf(p)
	return containsAny(p.Closed, func(l *ClosedLine) bool {
		return b.stated(l) && !b.isCarried(p, l) && l.Charge.Cmp(l.billedIn(billed).amount) > 0 && b.excludedIn(l.Currency, OwnInvoice, p) == ""
	})
}

// lateOnOwn are the lines of what came late for earlier periods that go onto the
// period's own invoice.
func (b *Books) lateOnOwn(p Period) []Line {
	at, takes := b.lateTarget(b.Stored, p)
	if !takes {
		return nil
	}
	return b.adjustments(b.Stored, at, nil)
}

// takesLate says whether what came late goes onto the own invoice of a closed
// period: it is the last one that is not final.
func (b *Books) takesLate(periods []Period, target Period) bool {
	takes := func(p Period) bool { return p.Own() && p.pending() && !b.finalizes(p) }
	return takes(target) && !slices.ContainsFunc(periods, func(p Period) bool { return p.Start.After(target.Start) && takes(p) })
}

// ownCurrency is that of the period's own invoice: the one of all that it comes
// to, or, where that is nothing, of what comes late; the tenant's where these differ.
func (b *Books) ownCurrency(p Period) string {
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
		at := Series{Kind: ChargeReport, Connection: b.Connection.ID, Customer: b.Side.Customer, Target: OwnInvoice, Window: p.Range}
		for _, l := range b.adjustments(Periods(b.Facts), at, nil) {
			if !l.Amount.IsZero() {
				charged = append(charged, l.Currency)
			}
		}
	}
	slices.Sort(charged)
	return b.inCommon(charged)
}

// finalize plans that a closed period's own invoice becomes final, once nothing
// is to be put on it any more. Without a line there is none.
func (p *planner) finalize(period Period) {
	if !period.Own() || period.ClosedAt == nil {
		return
	}
	last := p.finalization(period)
	onIt := func(r Report) bool { return p.isOnOwn(r.Series, period) }
	switch {
	case last.State.Outstanding(), p.Unread:
		p.open = true
	case p.finalizes(period):
	case slices.ContainsFunc(p.plan.Reports, onIt):
		p.open, p.plan.More = true, true
	case p.open, !p.hasLines(period, p.isOnOwn):
	case last.Number > p.After: // it was refused in this pass
		p.open = true
	case len(p.plan.Resume)+len(p.plan.Reports) >= reportsAtOnce:
		p.open, p.plan.More = true, true
	default:
		p.plan.Reports = append(p.plan.Reports, Report{
			Series: Series{
				Kind: ActionReport, Connection: p.Connection.ID, Customer: p.Side.Customer, Target: OwnInvoice + "/" + period.Start.UTC().Format(time.RFC3339Nano),
				Counting: Replaces, Period: period.Start, Window: period.Range,
			},
			Of: period.Range, Deadline: period.Deadline(p.Settings.Grace),
		})
		p.Finalized = append(slices.Clip(p.Finalized), Sent{Period: period.Start, Number: last.Number + 1, State: Planned})
	}
}
