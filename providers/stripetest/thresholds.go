package stripetest

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// quiet is how long before a period's end thresholds are not looked at:
// https://docs.stripe.com/billing/subscriptions/usage-based/thresholds
const quiet = 24 * time.Hour

// watchThresholds looks at a customer who has used something.
func (f *Fake) watchThresholds(a *account, customer string) {
	for _, s := range a.subscriptions {
		if s.Customer == customer {
			f.watchThreshold(a, s, f.at(a, customer))
		}
	}
}

// watchThreshold invoices what a subscription used until now where that costs
// as much as its threshold. That the invoice is a draft like any other, takes
// what is pending and isn't counted again is assumed: later usage is on the next.
func (f *Fake) watchThreshold(a *account, s *subscription, now time.Time) {
	if s.ThresholdAmount == 0 || s.Status != "active" || !now.Before(s.end.Add(-quiet)) {
		return
	}
	now = now.Truncate(time.Second)
	lines := a.linesOf(s, s.start, s.end)
	if total(lines).Cmp(metering.Whole(s.ThresholdAmount)) < 0 {
		return
	}
	f.note(step{Serial: f.serial})
	in := &invoice{customer: s.Customer, subscription: s, reason: "subscription_threshold", start: s.start, end: now}
	for _, l := range lines {
		if l.quantity.IsZero() {
			continue
		}
		s.billed[l.item.ID] = l.before.Add(l.quantity)
		l.counted, l.end = true, now
		in.metered = append(in.metered, l)
	}
	f.draft(a, in)
	if s.ResetAnchor {
		f.change(a, s, now, func() { s.turnOver(now) })
	}
}
