package stripe

import (
	"context"

	"github.com/odometer-metering/odometer/billing"
)

// longestDraft is the maximum age, in seconds, of an ended subscription that may still have a draft
// invoice. The age is relative to the newest end of the customer's subscriptions.
const longestDraft = 35 * 24 * 60 * 60

// runs reports whether Stripe bills the subscription now.
func (s subscription) runs() bool {
	return s.Status == "active" || s.Status == "trialing" || s.Status == "past_due"
}

// stopped reports whether the subscription neither runs nor has ended:
// https://docs.stripe.com/api/subscriptions/object#subscription_object-status
func (s subscription) stopped() bool {
	return !s.runs() && s.Status != "canceled" && s.Status != "incomplete_expired"
}

// run returns the start and end of the subscription, and the targets of the usage that it bills.
func (s subscription) run() billing.Run {
	run := billing.Run{Subscription: s.ID, BeganAt: instant(s.StartDate)}
	for _, item := range s.items() {
		if item.UsageType == metered {
			run.Targets = append(run.Targets, item.target())
		}
	}
	if s.EndedAt != 0 {
		at := instant(s.EndedAt)
		run.EndedAt = &at
	}
	return run
}

// billedSubscriptions returns the subscriptions that run. If no subscription runs, it reads the last invoice of each
// subscription that ended recently, and returns the subscriptions with a draft as their last invoice. They can still
// bill usage, because Stripe counts the usage again when it finalizes the draft.
func (c *Client) billedSubscriptions(ctx context.Context, key string, all []subscription) (billed []subscription, err error) {
	for _, s := range all {
		if s.runs() {
			billed = append(billed, s)
		}
	}
	if len(billed) > 0 {
		return billed, nil
	}
	newest := int64(0)
	for _, s := range all {
		newest = max(newest, s.EndedAt)
	}
	for _, s := range all {
		if s.EndedAt == 0 || s.EndedAt < newest-longestDraft || s.LatestInvoice == "" {
			continue
		}
		last, err := c.readInvoice(ctx, key, string(s.LatestInvoice))
		if err != nil {
			return nil, err
		}
		if last.Status == "draft" && last.Created >= s.EndedAt {
			billed = append(billed, s)
		}
	}
	return billed, nil
}
