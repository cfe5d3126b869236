package stripetest

import (
	"slices"
)

// product is a product, to which prices refer.
type product struct {
	id, name string
	active   bool
}

// createProduct handles POST /v1/products.
func (c *call) createProduct() answer {
	p := &product{c.fake.id("prod"), c.form.Get("name"), true}
	c.products = append(c.products, p)
	return okAnswer(p.object(c.livemode()))
}

// updateProduct supports only the parameter active.
func (c *call) updateProduct() answer {
	p := c.product(c.request.PathValue("id"))
	if p == nil {
		return missing("product", c.request.PathValue("id"))
	}
	p.active = c.form.Get("active") != "false"
	return okAnswer(p.object(c.livemode()))
}

// product returns the product with an id, or nil.
func (a *account) product(id string) *product {
	for _, p := range a.products {
		if p.id == id {
			return p
		}
	}
	return nil
}

// object returns the product in the form of the API.
func (p *product) object(livemode bool) object {
	return object{"object": "product", "id": p.id, "name": p.name, "active": p.active, "livemode": livemode}
}

// createMeter handles POST /v1/billing/meters.
func (c *call) createMeter() answer {
	m := &Meter{
		ID: c.fake.id("mtr"), EventName: c.form.Get("event_name"), Formula: c.form.Get("default_aggregation[formula]"),
		EventTimeWindow: c.form.Get("event_time_window"), CustomerKey: c.form.Get("customer_mapping[event_payload_key]"),
		ValueKey: c.form.Get("value_settings[event_payload_key]"),
	}
	if err := c.fake.addMeter(c.account, m); err != nil {
		return invalid("event_name", "A meter with the event name %s exists already.", m.EventName)
	}
	return okAnswer(c.meterObject(m))
}

// deactivateMeter handles POST /v1/billing/meters/{id}/deactivate.
func (c *call) deactivateMeter() answer {
	m := c.meter(c.request.PathValue("id"))
	if m == nil {
		return missing("billing meter", c.request.PathValue("id"))
	}
	m.Status = "inactive"
	return okAnswer(c.meterObject(m))
}

// getMeter handles GET /v1/billing/meters/{id}.
func (c *call) getMeter() answer {
	m := c.meter(c.request.PathValue("id"))
	if m == nil {
		return missing("billing meter", c.request.PathValue("id"))
	}
	return okAnswer(c.meterObject(m))
}

// listMeters handles GET /v1/billing/meters.
func (c *call) listMeters() answer {
	var all []object
	for _, m := range slices.Backward(c.meters) {
		if c.matchesFilter("status", m.Status) {
			all = append(all, c.meterObject(m))
		}
	}
	return c.page(all)
}

// meterObject returns the meter in the form of the API.
func (a *account) meterObject(m *Meter) object {
	body := object{
		"object": "billing.meter", "id": m.ID, "display_name": m.EventName, "event_name": m.EventName,
		"status": m.Status, "livemode": a.livemode(), "event_time_window": nil,
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
	return body
}
