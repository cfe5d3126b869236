package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// clock is a test clock. It replaces the fake's clock for its customers:
// https://docs.stripe.com/billing/testing/test-clocks/api-advanced-usage
type clock struct {
	id     string
	frozen time.Time
}

// at returns the current time of a customer.
func (f *Fake) at(a *account, customer string) time.Time {
	if len(a.clocks) == 0 { // fast path, for accounts of many customers
		return f.now()
	}
	for _, c := range a.customers {
		if k := a.clock(c.TestClock); c.ID == customer && k != nil {
			return k.frozen
		}
	}
	return f.now()
}

func (a *account) clock(id string) *clock {
	for _, k := range a.clocks {
		if k.id == id {
			return k
		}
	}
	return nil
}

func (k *clock) object(status string) object {
	return object{"object": "test_helpers.test_clock", "id": k.id, "frozen_time": k.frozen.Unix(), "status": status, "livemode": false}
}

func (c *call) createClock() answer {
	if c.livemode() {
		return invalid("", "Test clocks are not available in live mode.")
	}
	seconds, err := strconv.ParseInt(c.form.Get("frozen_time"), 10, 64)
	if err != nil {
		return invalid("frozen_time", "Invalid timestamp")
	}
	k := &clock{c.fake.id("clock"), time.Unix(seconds, 0).UTC()}
	c.clocks = append(c.clocks, k)
	return found(k.object("ready"))
}

func (c *call) getClock() answer {
	k := c.clock(c.request.PathValue("id"))
	if k == nil {
		return missing("test clock", c.request.PathValue("id"))
	}
	return found(k.object("ready"))
}

// advanceClock advances the clock at once. Its response still has the status "advancing", so callers must
// poll.
func (c *call) advanceClock() answer {
	k := c.clock(c.request.PathValue("id"))
	if k == nil {
		return missing("test clock", c.request.PathValue("id"))
	}
	seconds, err := strconv.ParseInt(c.form.Get("frozen_time"), 10, 64)
	to := time.Unix(seconds, 0).UTC()
	if err != nil || !to.After(k.frozen) {
		return invalid("frozen_time", "A test clock can only be advanced.")
	}
	if to.After(c.furthest(k)) {
		return invalid("frozen_time", "A test clock can be advanced by at most two intervals of its shortest subscription.")
	}
	k.frozen = to
	c.fake.settle()
	return found(k.object("advancing"))
}

func (c *call) furthest(k *clock) time.Time { return k.frozen.AddDate(0, 2, 0) }

// deleteClock deletes the clock and its customers.
func (c *call) deleteClock() answer {
	k := c.clock(c.request.PathValue("id"))
	if k == nil {
		return missing("test clock", c.request.PathValue("id"))
	}
	for _, customer := range slices.Clone(c.customers) {
		if customer.TestClock == k.id {
			c.fake.forget(c.account, customer.ID)
		}
	}
	c.clocks = slices.DeleteFunc(c.clocks, func(other *clock) bool { return other == k })
	return found(object{"object": "test_helpers.test_clock", "id": k.id, "deleted": true})
}

func (c *call) createCustomer() answer {
	in := Customer{TestClock: c.form.Get("test_clock")}
	if in.TestClock != "" && c.clock(in.TestClock) == nil {
		return refused(http.StatusBadRequest, "resource_missing", "test_clock", "No such test clock: '%s'", in.TestClock)
	}
	in.ID, in.Email = c.fake.id("cus"), c.form.Get("email")
	c.customers = append(c.customers, in)
	body := object{"object": "customer", "id": in.ID, "livemode": c.livemode(), "created": c.fake.at(c.account, in.ID).Unix(), "test_clock": nil}
	if in.TestClock != "" {
		body["test_clock"] = in.TestClock
	}
	return found(body)
}

func (c *call) deleteCustomer() answer {
	id := c.request.PathValue("id")
	if !c.hasCustomer(id) {
		return missing("customer", id)
	}
	c.fake.forget(c.account, id)
	return found(object{"object": "customer", "id": id, "deleted": true})
}

// forget deletes a customer and ends its subscriptions.
func (f *Fake) forget(a *account, customer string) {
	for _, s := range a.subscriptions {
		if s.Customer == customer && s.live() {
			f.endSubscription(a, s, f.at(a, customer))
		}
	}
	a.customers = slices.DeleteFunc(a.customers, func(c Customer) bool { return c.ID == customer })
}
