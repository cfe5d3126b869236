package stripetest

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// subscription is a subscription with the state of its current period.
type subscription struct {
	Subscription
	start, end time.Time
	anchor     time.Time // periods end on the day of the month, and at the time of day, of the anchor
	months     int       // length of a period
	renewals   int       // number of periods since the anchor
	trialEnd   time.Time
	since      map[string]time.Time        // time at which a call last added an item or changed its price, by item
	billed     map[string]metering.Decimal // an item's usage of the period on invoices of a threshold, by item
	collection pausedCollection
	canceledAt time.Time
	endedAt    time.Time
	latest     string // id of the latest invoice
}

// pausedCollection follows https://docs.stripe.com/billing/subscriptions/pause-payment
type pausedCollection struct {
	behavior string // "": not paused
	until    time.Time
}

// newSubscription returns a subscription with the first period of the seed. Later periods last one month, unless
// the caller sets months.
func newSubscription(in Subscription) *subscription {
	start, end := time.Unix(in.Start, 0).UTC(), time.Unix(in.End, 0).UTC()
	s := &subscription{
		Subscription: in, start: start, end: end, anchor: end,
		months: 1, since: map[string]time.Time{}, billed: map[string]metering.Decimal{},
	}
	if in.TrialEnd != 0 {
		s.trialEnd = time.Unix(in.TrialEnd, 0).UTC()
	}
	return s
}

// startSubscription returns a subscription with a first period that begins at start. The period lasts one month or,
// with a trial, until the end of the trial.
func startSubscription(in Subscription, start time.Time) *subscription {
	in.Start, in.End = start.Unix(), in.TrialEnd
	if in.TrialEnd != 0 {
		return newSubscription(in)
	}
	s := newSubscription(in)
	s.restartCycle(start)
	s.End = s.end.Unix()
	return s
}

// runs reports whether the subscription has current periods, which bill usage.
func (s *subscription) runs() bool {
	return s.Status == "active" || s.Status == "trialing" || s.Status == "past_due"
}

// inTrial reports whether a period with this end is free.
func (s *subscription) inTrial(end time.Time) bool {
	return !s.trialEnd.IsZero() && !end.After(s.trialEnd)
}

// pauseBehavior returns the behavior of paused collection (pause_collection) for an invoice that is created at
// the given time, or "" if collection is not paused then.
func (s *subscription) pauseBehavior(at time.Time) string {
	if !s.collection.until.IsZero() && !at.Before(s.collection.until) {
		return ""
	}
	return s.collection.behavior
}

// restartCycle begins a period and moves the anchor to its start.
func (s *subscription) restartCycle(at time.Time) {
	s.end, s.anchor, s.renewals = at, at, 0
	s.renew()
}

// renew begins the next period. The period ends on the anchor's day of the month or, in a shorter month, on the
// last day: https://docs.stripe.com/billing/subscriptions/billing-cycle
func (s *subscription) renew() {
	s.renewals++
	month := time.Date(s.anchor.Year(), s.anchor.Month()+time.Month(s.renewals*s.months), 1, 0, 0, 0, 0, time.UTC)
	last := month.AddDate(0, 1, -1).Day()
	clock := s.anchor.Sub(time.Date(s.anchor.Year(), s.anchor.Month(), s.anchor.Day(), 0, 0, 0, 0, time.UTC))
	s.start, s.end = s.end, month.AddDate(0, 0, min(s.anchor.Day(), last)-1).Add(clock)
	s.billed = map[string]metering.Decimal{}
}

// processDue ends the periods that are over, and creates and finalizes the invoices and error reports that are due.
func (f *Fake) processDue() {
	for _, a := range f.accounts {
		for _, s := range a.subscriptions {
			now := f.customerTime(a, s.Customer)
			for s.runs() && !now.Before(s.end) {
				f.note(step{Serial: f.serial})
				f.endPeriod(a, s)
			}
		}
		f.finalizeDue(a)
		f.reportErrors(a)
	}
}

// endPeriod creates the invoice of a period that is over. It then begins the next period, or ends the subscription if a
// call has canceled it for the period's end. The invoice of a trial costs nothing. The last period has an invoice too:
// https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func (f *Fake) endPeriod(a *account, s *subscription) {
	at := s.end
	in := &invoice{customer: s.Customer, subscription: s, reason: "subscription_cycle", start: s.start, end: at, spans: a.spansOf(s, s.start, at)}
	if s.CancelAtPeriodEnd {
		f.endSubscription(a, s, at)
		f.addDraft(a, in)
		f.finalizeLastInvoice(a, in)
		return
	}
	f.changeSubscription(a, s, at, func() {
		f.addDraft(a, in)
		s.renew()
		if s.Status == "trialing" {
			s.Status = "active"
		}
	})
}

// resetBillingAnchor invoices the usage until now, at the current prices, and begins a period:
// https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func (f *Fake) resetBillingAnchor(a *account, s *subscription, now time.Time) {
	f.addDraft(a, &invoice{
		customer: s.Customer, subscription: s, reason: "subscription_update", start: s.start, end: now, spans: a.spansOf(s, s.start, now),
	})
	s.restartCycle(now)
}

// endSubscription ends a subscription, and creates the event.
func (f *Fake) endSubscription(a *account, s *subscription, at time.Time) {
	s.Status, s.endedAt = "canceled", at
	if s.canceledAt.IsZero() {
		s.canceledAt = at
	}
	f.emitSubscription(a, s, at, "customer.subscription.deleted")
}

// finalizeLastInvoice finalizes a subscription's last invoice if the account has the setting FinalAtOnce.
func (f *Fake) finalizeLastInvoice(a *account, in *invoice) {
	if a.FinalAtOnce && in.status() == "draft" && in.autoAdvance {
		f.finalize(a, in, in.created)
	}
}
