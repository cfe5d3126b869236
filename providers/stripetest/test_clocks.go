package stripetest

import (
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

// customerTime returns the current time of a customer: the time of its test clock, or the fake's time without one.
func (f *Fake) customerTime(a *account, customer string) time.Time {
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

// clock returns the test clock with an id, or nil.
func (a *account) clock(id string) *clock {
	for _, k := range a.clocks {
		if k.id == id {
			return k
		}
	}
	return nil
}

// object returns the test clock in the form of the API.
func (k *clock) object(status string) object {
	return object{"object": "test_helpers.test_clock", "id": k.id, "frozen_time": k.frozen.Unix(), "status": status, "livemode": false}
}

// createClock handles POST /v1/test_helpers/test_clocks.
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
	return okAnswer(k.object("ready"))
}

// getClock handles GET /v1/test_helpers/test_clocks/{id}.
func (c *call) getClock() answer {
	k := c.clock(c.request.PathValue("id"))
	if k == nil {
		return missing("test clock", c.request.PathValue("id"))
	}
	return okAnswer(k.object("ready"))
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
	c.fake.processDue()
	return okAnswer(k.object("advancing"))
}

// furthest returns the latest time to which one call can advance the clock. It assumes that the shortest interval is a
// month.
func (c *call) furthest(k *clock) time.Time { return k.frozen.AddDate(0, 2, 0) }

// deleteClock deletes the clock and its customers.
func (c *call) deleteClock() answer {
	k := c.clock(c.request.PathValue("id"))
	if k == nil {
		return missing("test clock", c.request.PathValue("id"))
	}
	for _, customer := range slices.Clone(c.customers) {
		if customer.TestClock == k.id {
			c.fake.removeCustomer(c.account, customer.ID)
		}
	}
	c.clocks = slices.DeleteFunc(c.clocks, func(other *clock) bool { return other == k })
	return okAnswer(object{"object": "test_helpers.test_clock", "id": k.id, "deleted": true})
}
