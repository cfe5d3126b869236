package stripetest

import (
	"net/http"
	"regexp"
	"slices"
)

// product is what prices are of.
type product struct {
	id, name string
	active   bool
}

func (c *call) createProduct() answer {
	p := &product{c.fake.id("prod"), c.form.Get("name"), true}
	c.products = append(c.products, p)
	return found(p.object(c.livemode()))
}

func (c *call) updateProduct() answer {
	p := c.product(c.request.PathValue("id"))
	if p == nil {
		return missing("product", c.request.PathValue("id"))
	}
	p.active = c.form.Get("active") != "false"
	return found(p.object(c.livemode()))
}

func (a *account) product(id string) *product {
	for _, p := range a.products {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (p *product) object(livemode bool) object {
	return object{"object": "product", "id": p.id, "name": p.name, "active": p.active, "livemode": livemode, "type": "service"}
}

var amountPattern = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)

func (c *call) createPrice() answer {
	if problem := c.priceProblem(); problem != nil {
		return *problem
	}
	p := &Price{
		ID: c.fake.id("price"), LookupKey: c.form.Get("lookup_key"), Metadata: c.pairs("metadata"), Currency: c.form.Get("currency"),
		UnitAmount: c.unitAmount(), IncludedUnits: "0", FlatAmount: "0", UsageType: c.form.Get("recurring[usage_type]"),
		Meter: c.form.Get("recurring[meter]"), AggregateUsage: c.form.Get("recurring[aggregate_usage]"),
	}
	otherwise(&p.UsageType, "licensed")
	otherwise(&p.AggregateUsage, "sum")
	c.prices = append(c.prices, p)
	return found(c.priceObject(p))
}

func (c *call) unitAmount() string {
	if decimal := c.form.Get("unit_amount_decimal"); decimal != "" {
		return decimal
	}
	return c.form.Get("unit_amount")
}

func (c *call) priceProblem() *answer {
	var problem answer
	meter, key := c.form.Get("recurring[meter]"), c.form.Get("lookup_key")
	holder := slices.IndexFunc(c.prices, func(p *Price) bool { return key != "" && p.LookupKey == key })
	switch {
	case c.product(c.form.Get("product")) == nil:
		problem = refused(http.StatusBadRequest, "resource_missing", "product", "No such product: '%s'", c.form.Get("product"))
	case c.form.Get("recurring[interval]") != "month":
		problem = invalid("recurring[interval]", "This fake of Stripe bills by the month only.")
	case !amountPattern.MatchString(c.unitAmount()):
		problem = invalid("unit_amount_decimal", "Invalid decimal: %s", c.unitAmount())
	case holder >= 0:
		problem = invalid("lookup_key", "A price (`%s`) already uses that lookup key.", c.prices[holder].ID)
	case meter != "" && c.meter(meter) == nil:
		problem = refused(http.StatusBadRequest, "resource_missing", "recurring[meter]", "No such meter: '%s'", meter)
	case meter != "" && c.meter(meter).Status != "active":
		problem = invalid("recurring[meter]", "The meter %s is inactive.", meter)
	case meter == "" && c.form.Get("recurring[usage_type]") == "metered" && c.version >= basil:
		// https://docs.stripe.com/changelog/basil/2025-03-31/deprecate-legacy-usage-based-billing
		problem = invalid("recurring[meter]", "Metered prices must have a meter.")
	default:
		return nil
	}
	return &problem
}

func (c *call) updatePrice() answer {
	p := c.price(c.request.PathValue("id"))
	if p == nil {
		return missing("price", c.request.PathValue("id"))
	}
	p.Inactive = c.form.Get("active") == "false"
	return found(c.priceObject(p))
}

func (c *call) createMeter() answer {
	m := &Meter{
		ID: c.fake.id("mtr"), EventName: c.form.Get("event_name"), Formula: c.form.Get("default_aggregation[formula]"),
		EventTimeWindow: c.form.Get("event_time_window"), CustomerKey: c.form.Get("customer_mapping[event_payload_key]"),
		ValueKey: c.form.Get("value_settings[event_payload_key]"),
	}
	if err := c.fake.addMeter(c.account, m); err != nil {
		return invalid("event_name", "A meter with the event name %s exists already.", m.EventName)
	}
	return found(c.meterObject(m))
}

func (c *call) deactivateMeter() answer {
	m := c.meter(c.request.PathValue("id"))
	if m == nil {
		return missing("billing meter", c.request.PathValue("id"))
	}
	m.Status = "inactive"
	return found(c.meterObject(m))
}

func (c *call) getMeter() answer {
	m := c.meter(c.request.PathValue("id"))
	if m == nil {
		return missing("billing meter", c.request.PathValue("id"))
	}
	return found(c.meterObject(m))
}

func (c *call) listMeters() answer {
	var all []object
	for _, m := range slices.Backward(c.meters) {
		if c.wants("status", m.Status) {
			all = append(all, c.meterObject(m))
		}
	}
	return c.page(all)
}

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
