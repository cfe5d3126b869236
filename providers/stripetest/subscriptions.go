package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// embeddedItems is how many items a subscription shows before it says has_more.
const embeddedItems = 10

type subscription struct {
	Subscription
	start, end time.Time
	anchor     time.Time // the end of the first period
	renewals   int
}

func newSubscription(in Subscription) *subscription {
	start, end := time.Unix(in.Start, 0).UTC(), time.Unix(in.End, 0).UTC()
	return &subscription{Subscription: in, start: start, end: end, anchor: end}
}

func (s *subscription) live() bool {
	return s.Status == "active" || s.Status == "trialing" || s.Status == "past_due"
}

// renew begins the next period. It ends on the anchor's day of the next month,
// or on that month's last: https://docs.stripe.com/billing/subscriptions/billing-cycle
func (s *subscription) renew() {
	s.renewals++
	month := time.Date(s.anchor.Year(), s.anchor.Month()+time.Month(s.renewals), 1, 0, 0, 0, 0, time.UTC)
	last := month.AddDate(0, 1, -1).Day()
	clock := s.anchor.Sub(time.Date(s.anchor.Year(), s.anchor.Month(), s.anchor.Day(), 0, 0, 0, 0, time.UTC))
	s.start, s.end = s.end, month.AddDate(0, 0, min(s.anchor.Day(), last)-1).Add(clock)
}

// settle makes and finalizes the invoices that are due.
func (f *Fake) settle() {
	now := f.now()
	for _, a := range f.accounts {
		for _, s := range a.subscriptions {
			for s.live() && !now.Before(s.end) {
				a.invoices = append(a.invoices, f.draft(s))
				s.renew()
				a.finalize(now)
			}
		}
		a.finalize(now)
	}
}

func (c *call) getAccount() answer {
	if c.key.restricted {
		return refused(http.StatusForbidden, "", "", "The provided key does not have the required permissions for this endpoint.").notSaved()
	}
	return found(map[string]any{"object": "account", "id": c.ID, "country": "US", "default_currency": "usd"})
}

func (c *call) listPrices() answer {
	var all []object
	for _, p := range c.prices {
		if c.wants("active", "true") {
			all = append(all, c.priceObject(p))
		}
	}
	return c.page(all)
}

func (c *call) listSubscriptions() answer {
	customer := c.form.Get("customer")
	if customer != "" && !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	var all []object
	for _, s := range c.subscriptions {
		status := c.form.Get("status")
		shown := status == s.Status || status == "all" || status == "" && s.Status != "canceled"
		if shown && c.wants("customer", s.Customer) {
			all = append(all, c.subscriptionObject(s, c.version))
		}
	}
	slices.Reverse(all) // the newest first
	return c.page(all)
}

func (c *call) getSubscription() answer {
	id := c.request.PathValue("id")
	s := c.subscription(id)
	if s == nil {
		return missing("subscription", id)
	}
	return found(c.subscriptionObject(s, c.version))
}

func (c *call) listItems() answer {
	s := c.subscription(c.form.Get("subscription"))
	if s == nil {
		return missing("subscription", c.form.Get("subscription"))
	}
	return c.page(c.itemObjects(s, c.version))
}

func (c *call) getMeter() answer {
	id := c.request.PathValue("id")
	m := c.meter(id)
	if m == nil {
		return missing("billing meter", id)
	}
	body := object{
		"object": "billing.meter", "id": m.ID, "display_name": m.EventName, "event_name": m.EventName,
		"status": m.Status, "livemode": c.livemode(), "event_time_window": nil,
		"default_aggregation": object{"formula": m.Formula},
		"customer_mapping":    object{"type": "by_id", "event_payload_key": m.CustomerKey},
		"value_settings":      object{"event_payload_key": m.ValueKey},
	}
	if m.EventTimeWindow != "" {
		body["event_time_window"] = m.EventTimeWindow
	}
	if m.Metadata != nil {
		body["metadata"] = m.Metadata
	}
	return found(body)
}

// object is one of Stripe's, as it is answered.
type object = map[string]any

// wants says whether a filter lets a value through.
func (c *call) wants(filter, value string) bool {
	return c.form.Get(filter) == "" || c.form.Get(filter) == value
}

// page is the part of a list that the call asks for.
func (c *call) page(all []object) answer {
	limit := 10
	if n, err := strconv.Atoi(c.form.Get("limit")); err == nil && n >= 1 && n <= 100 {
		limit = n
	}
	if after := c.form.Get("starting_after"); after != "" {
		at := slices.IndexFunc(all, func(o object) bool { return o["id"] == after })
		if at < 0 {
			return invalid("starting_after", "No such object: '%s'", after)
		}
		all = all[at+1:]
	}
	return found(listObject(all, limit, c.request.URL.Path))
}

func listObject(all []object, limit int, url string) object {
	shown := all[:min(limit, len(all))]
	if shown == nil {
		shown = []object{}
	}
	return object{"object": "list", "url": url, "has_more": len(all) > len(shown), "data": shown}
}

func (a *account) subscriptionObject(s *subscription, version string) object {
	body := object{
		"object": "subscription", "id": s.ID, "customer": s.Customer, "status": s.Status, "livemode": a.livemode(),
		"billing_thresholds": s.thresholds(), "created": s.Start,
		"items": listObject(a.itemObjects(s, version), embeddedItems, "/v1/subscription_items?subscription="+s.ID),
	}
	if version < basil {
		body["current_period_start"], body["current_period_end"] = s.start.Unix(), s.end.Unix()
	}
	return body
}

func (s *subscription) thresholds() any {
	if !s.BillingThresholds {
		return nil
	}
	return object{"amount_gte": 10_000, "reset_billing_cycle_anchor": false}
}

func (a *account) itemObjects(s *subscription, version string) []object {
	var all []object
	for _, i := range s.Items {
		body := object{
			"object": "subscription_item", "id": i.ID, "subscription": s.ID, "created": s.Start,
			"billing_thresholds": nil, "metadata": object{}, "price": a.priceObject(a.price(i.Price)),
		}
		if version >= basil {
			body["current_period_start"], body["current_period_end"] = s.start.Unix(), s.end.Unix()
		}
		all = append(all, body)
	}
	return all
}

func (a *account) priceObject(p *Price) object {
	recurring := object{"interval": "month", "interval_count": 1, "usage_type": p.UsageType, "meter": nil, "aggregate_usage": nil}
	switch {
	case p.Meter != "":
		recurring["meter"] = p.Meter
	case p.UsageType == "metered":
		recurring["aggregate_usage"] = p.AggregateUsage
	}
	body := object{
		"object": "price", "id": p.ID, "active": true, "currency": p.Currency, "livemode": a.livemode(),
		"lookup_key": nil, "metadata": object{}, "billing_scheme": "per_unit", "type": "recurring",
		"unit_amount_decimal": p.UnitAmount, "recurring": recurring,
	}
	if p.LookupKey != "" {
		body["lookup_key"] = p.LookupKey
	}
	if p.Metadata != nil {
		body["metadata"] = p.Metadata
	}
	return body
}
