package stripetest

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

type subscription struct {
	Subscription
	start, end time.Time
	anchor     time.Time // whose day of the month and time of day the periods end on
	months     int       // of a period
	renewals   int       // periods since the anchor
	trialEnd   time.Time
	since      map[string]time.Time        // when an item got its price, where that was in the period
	billed     map[string]metering.Decimal // an item's usage of the period on invoices of a threshold
	collection pausedCollection
	canceledAt time.Time
	endedAt    time.Time
	latest     string // invoice
}

// pausedCollection is https://docs.stripe.com/billing/subscriptions/pause-payment
type pausedCollection struct {
	behavior string // "" is not paused
	until    time.Time
}

// newSubscription returns one that renews a month after its first period's end.
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

// begin returns one that renews a month after its start, or when its trial ends.
func begin(in Subscription, start time.Time) *subscription {
	in.Start, in.End = start.Unix(), in.TrialEnd
	if in.TrialEnd != 0 {
		return newSubscription(in)
	}
	s := newSubscription(in)
	s.turnOver(start)
	s.End = s.end.Unix()
	return s
}

func (s *subscription) live() bool {
	return s.Status == "active" || s.Status == "trialing" || s.Status == "past_due"
}

// inTrial says whether a period that ends then is free.
func (s *subscription) inTrial(end time.Time) bool {
	return !s.trialEnd.IsZero() && !end.After(s.trialEnd)
}

// paused is what becomes of an invoice that is made then.
func (s *subscription) paused(at time.Time) string {
	if !s.collection.until.IsZero() && !at.Before(s.collection.until) {
		return ""
	}
	return s.collection.behavior
}

// turnOver begins a period, and with it a new day for the periods' ends.
func (s *subscription) turnOver(at time.Time) {
	s.end, s.anchor, s.renewals = at, at, 0
	s.renew()
}

// renew begins the next period. It ends on the anchor's day of the next month,
// or on that month's last: https://docs.stripe.com/billing/subscriptions/billing-cycle
func (s *subscription) renew() {
	s.renewals++
	month := time.Date(s.anchor.Year(), s.anchor.Month()+time.Month(s.renewals*s.months), 1, 0, 0, 0, 0, time.UTC)
	last := month.AddDate(0, 1, -1).Day()
	clock := s.anchor.Sub(time.Date(s.anchor.Year(), s.anchor.Month(), s.anchor.Day(), 0, 0, 0, 0, time.UTC))
	s.start, s.end = s.end, month.AddDate(0, 0, min(s.anchor.Day(), last)-1).Add(clock)
	s.billed = map[string]metering.Decimal{}
}

// settle makes and finalizes the invoices that are due, and the reports of errors.
func (f *Fake) settle() {
	for _, a := range f.accounts {
		for _, s := range a.subscriptions {
			now := f.at(a, s.Customer)
			for s.live() && !now.Before(s.end) {
				f.note(step{Serial: f.serial})
				f.endPeriod(a, s)
			}
		}
		f.finalizeDue(a)
		f.reportErrors(a)
	}
}

// endPeriod makes the invoice of a period that is over, and begins the next: a
// trial's is one that costs nothing. A subscription that ends has this invoice
// too: https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func (f *Fake) endPeriod(a *account, s *subscription) {
	at := s.end
	in := &invoice{customer: s.Customer, subscription: s, reason: "subscription_cycle", start: s.start, end: at, spans: a.spansOf(s, s.start, at)}
	if s.CancelAtPeriodEnd {
		f.endSubscription(a, s, at)
		f.draft(a, in)
		f.finishLast(a, in)
		return
	}
	f.change(a, s, at, func() {
		f.draft(a, in)
		s.renew()
		if s.Status == "trialing" {
			s.Status = "active"
		}
	})
}

// beginAnew invoices what was used until now, at the prices until now, and
// begins a period: https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func (f *Fake) beginAnew(a *account, s *subscription, now time.Time) {
	f.draft(a, &invoice{
		customer: s.Customer, subscription: s, reason: "subscription_update", start: s.start, end: now, spans: a.spansOf(s, s.start, now),
	})
	s.turnOver(now)
}

func (f *Fake) endSubscription(a *account, s *subscription, at time.Time) {
	s.Status, s.endedAt = "canceled", at
	if s.canceledAt.IsZero() {
		s.canceledAt = at
	}
	f.emitSubscription(a, s, at, "customer.subscription.deleted")
}

// finishLast finalizes a subscription's last invoice where the account's aren't drafts.
func (f *Fake) finishLast(a *account, in *invoice) {
	if a.FinalAtOnce && in.status() == "draft" && in.autoAdvance {
		f.finalize(a, in, in.created)
	}
}
