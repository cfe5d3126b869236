package stripetest

import (
	"net/http"
	"slices"
)

// createCustomer handles POST /v1/customers.
func (c *call) createCustomer() answer {
	in := Customer{TestClock: c.form.Get("test_clock")}
	if in.TestClock != "" && c.clock(in.TestClock) == nil {
		return refused(http.StatusBadRequest, "resource_missing", "test_clock", "No such test clock: '%s'", in.TestClock)
	}
	in.ID, in.Email = c.fake.id("cus"), c.form.Get("email")
	c.customers = append(c.customers, in)
	body := object{"object": "customer", "id": in.ID, "livemode": c.livemode(), "created": c.fake.customerTime(c.account, in.ID).Unix(), "test_clock": nil}
	if in.TestClock != "" {
		body["test_clock"] = in.TestClock
	}
	return okAnswer(body)
}

// deleteCustomer handles DELETE /v1/customers/{id}.
func (c *call) deleteCustomer() answer {
	id := c.request.PathValue("id")
	if !c.hasCustomer(id) {
		return missing("customer", id)
	}
	c.fake.removeCustomer(c.account, id)
	return okAnswer(object{"object": "customer", "id": id, "deleted": true})
}

// removeCustomer deletes a customer and ends its running subscriptions.
func (f *Fake) removeCustomer(a *account, customer string) {
	for _, s := range a.subscriptions {
		if s.Customer == customer && s.runs() {
			f.endSubscription(a, s, f.customerTime(a, customer))
		}
	}
	a.customers = slices.DeleteFunc(a.customers, func(c Customer) bool { return c.ID == customer })
}
