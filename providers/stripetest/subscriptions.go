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
	anchor     time.Time // whose day of the month and time of day the periods end on
	renewals   int       // months since the anchor
}

// newSubscription returns one that renews a month after its first period's end.
func newSubscription(in Subscription) *subscription {
	start, end := time.Unix(in.Start, 0).UTC(), time.Unix(in.End, 0).UTC()
	return &subscription{Subscription: in, start: start, end: end, anchor: end}
}

// begin returns one that renews a month after its start.
func begin(in Subscription, start time.Time) *subscription {
	s := &subscription{Subscription: in, end: start, anchor: start}
	s.renew()
	s.Start, s.End = s.start.Unix(), s.end.Unix()
	return s
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
	for _, a := range f.accounts {
		for _, s := range a.subscriptions {
			for now := f.at(a, s.Customer); s.live() && !now.Before(s.end); {
				f.note(step{Serial: f.serial})
				f.draft(a, s)
				s.renew()
				f.finalize(a)
			}
		}
		f.finalize(a)
	}
}

func (c *call) getAccount() answer {
	return found(map[string]any{"object": "account", "id": c.ID, "country": "US", "default_currency": "usd"})
}

func (c *call) listPrices() answer {
	var all []object
	for _, p := range c.prices {
		if c.wants("active", strconv.FormatBool(!p.Inactive)) {
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

// createSubscription begins to bill, with an invoice of nothing: usage is
// billed when its period has ended.
func (c *call) createSubscription() answer {
	in := Subscription{ID: c.fake.id("sub"), Customer: c.form.Get("customer"), Status: "active"}
	for n := 0; c.form.Has(itemField(n)); n++ {
		in.Items = append(in.Items, Item{c.fake.id("si"), c.form.Get(itemField(n))})
	}
	if problem := c.subscriptionProblem(&in); problem != nil {
		return *problem
	}
	s := begin(in, c.fake.at(c.account, in.Customer).Truncate(time.Second))
	c.subscriptions = append(c.subscriptions, s)
	c.invoices = append(c.invoices, &invoice{
		id: c.fake.id("in"), subscription: s, start: s.start, end: s.start, finalizedAt: s.start, first: true,
	})
	return found(c.subscriptionObject(s, c.version))
}

func itemField(n int) string { return "items[" + strconv.Itoa(n) + "][price]" }

func (c *call) subscriptionProblem(in *Subscription) *answer {
	var problem answer
	customer := slices.IndexFunc(c.customers, func(customer Customer) bool { return customer.ID == in.Customer })
	odd := slices.IndexFunc(in.Items, func(i Item) bool { return c.price(i.Price) == nil || c.price(i.Price).Inactive })
	switch {
	case customer < 0:
		problem = refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", in.Customer)
	case len(in.Items) == 0:
		problem = refused(http.StatusBadRequest, "parameter_missing", "items", "Missing required param: items.")
	case odd >= 0 && c.price(in.Items[odd].Price) == nil:
		problem = refused(http.StatusBadRequest, "resource_missing", itemField(odd), "No such price: '%s'", in.Items[odd].Price)
	case odd >= 0:
		problem = invalid(itemField(odd), "The price specified is inactive. This field only accepts active prices.")
	case c.clash(in) != "":
		problem = otherCurrency(c.clash(in))
	case c.form.Get("collection_method") != "send_invoice":
		problem = refused(http.StatusBadRequest, "resource_missing", "", "This customer has no attached payment source or default payment method.")
	case c.customers[customer].Email == "":
		problem = refused(http.StatusBadRequest, "parameter_missing", "", "Missing email. In order to create invoices that are sent to the customer, "+
			"the customer must have a valid email.")
	default:
		return nil
	}
	return &problem
}

func (c *call) cancelSubscription() answer {
	s := c.subscription(c.request.PathValue("id"))
	if s == nil || !s.live() {
		return missing("subscription", c.request.PathValue("id"))
	}
	s.Status = "canceled"
	return found(c.subscriptionObject(s, c.version))
}

func (c *call) listItems() answer {
	s := c.subscription(c.form.Get("subscription"))
	if s == nil {
		return missing("subscription", c.form.Get("subscription"))
	}
	return c.page(c.itemObjects(s, c.version))
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
	if text := c.form.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return invalid("limit", "This value must be from 1 to 100 (it currently is '%s').", text)
		}
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
		"object": "price", "id": p.ID, "active": !p.Inactive, "currency": p.Currency, "livemode": a.livemode(),
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
