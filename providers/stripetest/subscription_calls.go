package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// listSubscriptions handles GET /v1/subscriptions.
func (c *call) listSubscriptions() answer {
	customer := c.form.Get("customer")
	if customer != "" && !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	var all []object
	for _, s := range c.subscriptions {
		status := c.form.Get("status")
		ended := s.Status == "canceled"
		shown := status == s.Status || status == "all" || status == "ended" && ended || status == "" && !ended
		if shown && c.matchesFilter("customer", s.Customer) {
			all = append(all, c.subscriptionObject(s, c.view()))
		}
	}
	slices.Reverse(all) // newest first
	return c.page(all)
}

// getSubscription handles GET /v1/subscriptions/{id}.
func (c *call) getSubscription() answer {
	s, problem := c.subscriptionInPath()
	if problem != nil {
		return *problem
	}
	return okAnswer(c.subscriptionObject(s, c.view()))
}

// subscriptionInPath returns the subscription that the path names, or the error if there is none.
func (c *call) subscriptionInPath() (*subscription, *answer) {
	id := c.request.PathValue("id")
	s := c.subscription(id)
	if s == nil {
		problem := missing("subscription", id)
		return nil, &problem
	}
	return s, nil
}

// createSubscription creates a subscription with an empty first invoice, because usage is billed at the end of
// a period.
func (c *call) createSubscription() answer {
	in := Subscription{ID: c.fake.id("sub"), Customer: c.form.Get("customer"), Status: "active", BillingMode: c.billingMode()}
	for n := 0; c.form.Has(itemField(n)); n++ {
		in.Items = append(in.Items, Item{c.fake.id("si"), c.form.Get(itemField(n))})
	}
	if problem := c.subscriptionProblem(&in); problem != nil {
		return *problem
	}
	now := c.fake.customerTime(c.account, in.Customer).Truncate(time.Second)
	trialEnd, problem := c.trialEnd(now)
	if problem != nil {
		return *problem
	}
	if trialEnd.After(now) {
		in.Status, in.TrialEnd = "trialing", trialEnd.Unix()
	}
	in.CancelAtPeriodEnd = c.form.Get("cancel_at_period_end") == "true"
	if problem := c.readThreshold(&in); problem != nil {
		return *problem
	}
	s := startSubscription(in, now)
	c.subscriptions = append(c.subscriptions, s)
	first := c.fake.addDraft(c.account, &invoice{customer: s.Customer, subscription: s, reason: "subscription_create", start: s.start, end: s.start})
	if first.status() == "draft" {
		c.fake.finalize(c.account, first, s.start)
	}
	if first.status() == "open" && totalAmount(first.lines).IsZero() {
		c.fake.conclude(c.account, first, "paid", s.start)
	}
	c.fake.emitSubscription(c.account, s, now, "customer.subscription.created")
	return okAnswer(c.subscriptionObject(s, c.view()))
}

// billingMode returns the billing mode of the call. The default is flexible since 2025-09-30:
// https://docs.stripe.com/changelog/clover/2025-09-30/billing-mode-default-flexible
func (c *call) billingMode() string {
	mode := c.form.Get("billing_mode[type]")
	standard := "classic"
	if c.version >= "2025-09-30" {
		standard = "flexible"
	}
	setDefault(&mode, standard)
	return mode
}

// trialEnd returns the end of the trial that the call sets, or the zero time if the call sets no trial.
func (c *call) trialEnd(now time.Time) (time.Time, *answer) {
	switch days, text := c.form.Get("trial_period_days"), c.form.Get("trial_end"); {
	case text == "now":
		return now, nil
	case text != "":
		unix, err := strconv.ParseInt(text, 10, 64)
		at := time.Unix(unix, 0).UTC()
		if err != nil || !at.After(now) {
			problem := invalid("trial_end", "Invalid timestamp: must be an integer Unix timestamp in the future.")
			return time.Time{}, &problem
		}
		return at, nil
	case days != "":
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > 730 {
			problem := invalid("trial_period_days", "Trials last at least one day and at most 730.")
			return time.Time{}, &problem
		}
		return now.AddDate(0, 0, n), nil
	}
	return time.Time{}, nil
}

// readThreshold sets the subscription's billing threshold from the call. Without the parameter, it is unchanged.
func (c *call) readThreshold(in *Subscription) *answer {
	const field = "billing_thresholds[amount_gte]"
	if !c.form.Has(field) {
		return nil
	}
	amount, err := strconv.ParseInt(c.form.Get(field), 10, 64)
	if err != nil || amount < 50 { // https://docs.stripe.com/billing/subscriptions/usage-based/thresholds
		problem := invalid(field, "The billing threshold must be at least 50.")
		return &problem
	}
	in.BillingThresholds, in.ThresholdAmount = true, amount
	in.ResetAnchor = c.form.Get("billing_thresholds[reset_billing_cycle_anchor]") == "true"
	return nil
}

// itemField returns the name of the field for the price of the n-th item.
func itemField(n int) string { return "items[" + strconv.Itoa(n) + "][price]" }

// subscriptionProblem returns an error if the call cannot create the subscription.
func (c *call) subscriptionProblem(in *Subscription) *answer {
	var problem answer
	customer := slices.IndexFunc(c.customers, func(customer Customer) bool { return customer.ID == in.Customer })
	odd := slices.IndexFunc(in.Items, func(i Item) bool { return c.price(i.Price) == nil || c.price(i.Price).Inactive })
	switch {
	case customer < 0:
		problem = refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", in.Customer)
	case len(in.Items) == 0:
		problem = refused(http.StatusBadRequest, "parameter_missing", "items", "Missing required param: items.")
	case odd >= 0:
		problem = c.priceRefused(itemField(odd), in.Items[odd].Price)
	case c.conflictingCurrency(in) != "":
		problem = otherCurrency(c.conflictingCurrency(in))
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

// priceRefused returns the error for a price that does not exist or is inactive.
func (c *call) priceRefused(field, price string) answer {
	if c.price(price) == nil {
		return refused(http.StatusBadRequest, "resource_missing", field, "No such price: '%s'", price)
	}
	return invalid(field, "The price specified is inactive. This field only accepts active prices.")
}

// updateSubscription handles POST /v1/subscriptions/{id}.
func (c *call) updateSubscription() answer {
	s, problem := c.subscriptionInPath()
	if problem != nil {
		return *problem
	}
	if !s.runs() {
		return invalid("", "A canceled subscription can only update its cancellation_details and metadata.")
	}
	now := c.fake.customerTime(c.account, s.Customer).Truncate(time.Second)
	changes, problem := c.itemChanges(s)
	if problem != nil {
		return *problem
	}
	trialEnd, problem := c.newTrialEnd(s, now)
	if problem != nil {
		return *problem
	}
	collection, problem := c.newCollection(s)
	if problem != nil {
		return *problem
	}
	if problem := c.readThreshold(&s.Subscription); problem != nil {
		return *problem
	}
	c.fake.changeSubscription(c.account, s, now, func() {
		s.collection = collection
		if !trialEnd.IsZero() {
			s.trialEnd, s.end, s.anchor, s.renewals = trialEnd, trialEnd, trialEnd, 0
		}
		if c.form.Get("billing_cycle_anchor") == "now" {
			c.fake.resetBillingAnchor(c.account, s, now)
		}
		c.changeItems(s, changes, now)
		if c.form.Has("cancel_at_period_end") {
			c.cancelLater(s, c.form.Get("cancel_at_period_end") == "true", now)
		}
	})
	c.fake.processDue() // ends the trial if it ends now
	return okAnswer(c.subscriptionObject(s, c.view()))
}

// cancelLater sets whether the subscription is canceled at the end of its period.
func (c *call) cancelLater(s *subscription, later bool, now time.Time) {
	s.CancelAtPeriodEnd, s.canceledAt = later, time.Time{}
	if later {
		s.canceledAt = now
	}
}

// newTrialEnd returns the new end of a running trial, or the zero time if the call does not change the trial.
func (c *call) newTrialEnd(s *subscription, now time.Time) (time.Time, *answer) {
	end, problem := c.trialEnd(now)
	if problem == nil && !end.IsZero() && s.Status != "trialing" {
		refusal := invalid("trial_end", "This fake of Stripe gives no trial to a subscription that had none.")
		return time.Time{}, &refusal
	}
	return end, problem
}

// newCollection returns the subscription's paused collection after the call.
func (c *call) newCollection(s *subscription) (pausedCollection, *answer) {
	const until = "pause_collection[resumes_at]"
	if c.form.Has("pause_collection") { // without a value, collection resumes
		return pausedCollection{}, nil
	}
	if !c.form.Has("pause_collection[behavior]") {
		return s.collection, nil
	}
	paused := pausedCollection{behavior: c.form.Get("pause_collection[behavior]")}
	if !c.form.Has(until) {
		return paused, nil
	}
	unix, err := strconv.ParseInt(c.form.Get(until), 10, 64)
	if err != nil {
		problem := invalid(until, "Invalid integer: %s", c.form.Get(until))
		return paused, &problem
	}
	paused.until = time.Unix(unix, 0).UTC()
	return paused, nil
}

// cancelSubscription ends the subscription at once. Without invoice_now, no invoice bills the usage since
// the last one: https://docs.stripe.com/api/subscriptions/cancel
func (c *call) cancelSubscription() answer {
	s, problem := c.subscriptionInPath()
	if problem != nil || !s.runs() {
		return missing("subscription", c.request.PathValue("id"))
	}
	now := c.fake.customerTime(c.account, s.Customer).Truncate(time.Second)
	in := &invoice{customer: s.Customer, subscription: s, reason: "manual", start: s.start, end: now} // assumed reason
	in.spans = c.spansOf(s, s.start, now)
	c.fake.endSubscription(c.account, s, now)
	if c.form.Get("invoice_now") == "true" {
		c.fake.addDraft(c.account, in)
		c.fake.finalizeLastInvoice(c.account, in)
	}
	return okAnswer(c.subscriptionObject(s, c.view()))
}
