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
	spans := a.spansOf(s, s.start, s.end)
	if unbilled(spans).Cmp(metering.Whole(s.ThresholdAmount)) < 0 {
		return
	}
	f.note(step{Serial: f.serial})
	in := &invoice{customer: s.Customer, subscription: s, reason: "subscription_threshold", start: s.start, end: now}
	for _, u := range spans {
		quantity := used(u.lines)
		if quantity.IsZero() {
			continue
		}
		s.billed[u.item.ID] = u.before.Add(quantity)
		u.counted, u.end = true, now
		in.spans = append(in.spans, u)
	}
	f.draft(a, in)
	if s.ResetAnchor {
		f.change(a, s, now, func() { s.turnOver(now) })
	}
}

func unbilled(spans []*span) metering.Decimal {
	var sum metering.Decimal
	for _, u := range spans {
		sum = sum.Add(total(u.lines))
	}
	return sum
}
