package stripetest

// getAccount handles GET /v1/account.
func (c *call) getAccount() answer {
	return okAnswer(object{"object": "account", "id": c.ID, "country": "US", "default_currency": "usd"})
}

// embeddedItems is the maximum number of items in a subscription object. If there are more, has_more is true.
const embeddedItems = 10

// billingModes is the first version that shows billing modes:
// https://docs.stripe.com/changelog/basil/2025-06-30/billing-mode
const billingModes = "2025-06-30"

// subscriptionObject returns the subscription in the form of the API.
func (a *account) subscriptionObject(s *subscription, v view) object {
	body := object{
		"object": "subscription", "id": s.ID, "customer": s.Customer, "status": s.Status, "livemode": a.livemode(),
		"billing_thresholds": s.thresholds(), "created": s.Start, "start_date": s.Start, "currency": a.currency(s),
		"cancel_at_period_end": s.CancelAtPeriodEnd, "cancel_at": nil, "canceled_at": seconds(s.canceledAt), "ended_at": seconds(s.endedAt),
		"trial_start": nil, "trial_end": seconds(s.trialEnd), "pause_collection": nil, "latest_invoice": orNull(s.latest), "metadata": object{},
		"items": listObject(a.itemObjects(s, v), embeddedItems, "/v1/subscription_items?subscription="+s.ID),
	}
	if s.CancelAtPeriodEnd {
		body["cancel_at"] = s.end.Unix()
	}
	if !s.trialEnd.IsZero() {
		body["trial_start"] = s.Start
	}
	if s.collection.behavior != "" {
		body["pause_collection"] = object{"behavior": s.collection.behavior, "resumes_at": seconds(s.collection.until)}
	}
	if v.version >= billingModes {
		body["billing_mode"] = object{"type": s.BillingMode}
	}
	if v.version < basil {
		body["current_period_start"], body["current_period_end"] = s.start.Unix(), s.end.Unix()
	}
	return body
}

// thresholds returns the billing thresholds in the form of the API, or nil.
func (s *subscription) thresholds() any {
	if !s.BillingThresholds {
		return nil
	}
	amount := s.ThresholdAmount
	if amount == 0 {
		amount = 10_000
	}
	return object{"amount_gte": amount, "reset_billing_cycle_anchor": s.ResetAnchor}
}

// listItems handles GET /v1/subscription_items.
func (c *call) listItems() answer {
	s := c.subscription(c.form.Get("subscription"))
	if s == nil {
		return missing("subscription", c.form.Get("subscription"))
	}
	return c.page(c.itemObjects(s, c.view()))
}

// itemObjects returns the items in the form of the API.
func (a *account) itemObjects(s *subscription, v view) []object {
	var all []object
	for _, i := range s.Items {
		all = append(all, a.itemObject(s, i, v))
	}
	return all
}

// itemObject returns the item in the form of the API.
func (a *account) itemObject(s *subscription, i Item, v view) object {
	body := object{
		"object": "subscription_item", "id": i.ID, "subscription": s.ID, "created": s.Start,
		"billing_thresholds": nil, "metadata": object{}, "price": a.priceObject(a.price(i.Price), v),
	}
	if v.version >= basil {
		body["current_period_start"], body["current_period_end"] = s.start.Unix(), s.end.Unix()
	}
	return body
}
