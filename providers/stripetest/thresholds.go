package stripetest

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// quiet is the time before a period's end in which thresholds are not checked:
// https://docs.stripe.com/billing/subscriptions/usage-based/thresholds
const quiet = 24 * time.Hour

// watchThresholds checks the thresholds of a customer's subscriptions after new usage.
func (f *Fake) watchThresholds(a *account, customer string) {
	for _, s := range a.subscriptions {
		if s.Customer == customer {
			f.watchThreshold(a, s, f.customerTime(a, customer))
		}
	}
}

// watchThreshold invoices the usage of a subscription until now if its amount has reached the threshold. The
// fake assumes that the invoice is a normal draft with the pending items. It also assumes that the usage of
// this invoice is not counted again: later usage is on the next invoice.
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
		quantity := totalQuantity(u.lines)
		if quantity.IsZero() {
			continue
		}
		s.billed[u.item.ID] = u.before.Add(quantity)
		u.counted, u.end = true, now
		in.spans = append(in.spans, u)
	}
	f.addDraft(a, in)
	if s.ResetAnchor {
		f.changeSubscription(a, s, now, func() { s.restartCycle(now) })
	}
}

// unbilled returns the amount of the spans, without earlier invoices of the period.
func unbilled(spans []*span) metering.Decimal {
	var sum metering.Decimal
	for _, u := range spans {
		sum = sum.Add(totalAmount(u.lines))
	}
	return sum
}
