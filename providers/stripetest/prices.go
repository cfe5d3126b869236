package stripetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
)

var (
	amountPattern = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)
	wholePattern  = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// createPrice handles POST /v1/prices.
func (c *call) createPrice() answer {
	if problem := c.priceProblem(); problem != nil {
		return *problem
	}
	p := c.readPrice()
	p.ID = c.fake.id("price")
	c.prices = append(c.prices, p)
	return okAnswer(c.priceObject(p, c.view()))
}

// readPrice returns the price that the call creates. priceProblem validates the call.
func (c *call) readPrice() *Price {
	p := &Price{
		LookupKey: c.form.Get("lookup_key"), Metadata: c.pairs("metadata"), Currency: c.form.Get("currency"),
		UnitAmount: c.unitAmount(), UsageType: c.form.Get("recurring[usage_type]"),
		Meter: c.form.Get("recurring[meter]"), AggregateUsage: c.form.Get("recurring[aggregate_usage]"),
	}
	setDefault(&p.UsageType, "licensed")
	setDefault(&p.AggregateUsage, "sum")
	p.TiersMode, p.DivideRound = c.form.Get("tiers_mode"), c.form.Get("transform_quantity[round]")
	p.DivideBy, _ = strconv.ParseInt(c.form.Get("transform_quantity[divide_by]"), 10, 64)
	for n := 0; c.form.Has(fmt.Sprintf("tiers[%d][up_to]", n)); n++ {
		tier := fmt.Sprintf("tiers[%d]", n)
		p.Tiers = append(p.Tiers, Tier{c.form.Get(tier + "[up_to]"), c.decimal(tier + "[unit_amount"), c.decimal(tier + "[flat_amount")})
	}
	return p
}

// decimal returns an amount of a tier, given as a decimal or as an integer.
func (c *call) decimal(field string) string {
	if decimal := c.form.Get(field + "_decimal]"); decimal != "" {
		return decimal
	}
	return c.form.Get(field + "]")
}

// unitAmount returns the unit amount of the form, as a decimal in the smallest unit of the currency.
func (c *call) unitAmount() string {
	if decimal := c.form.Get("unit_amount_decimal"); decimal != "" {
		return decimal
	}
	return c.form.Get("unit_amount")
}

// priceProblem returns an error if the call cannot create a price.
func (c *call) priceProblem() *answer {
	var problem answer
	meter, key := c.form.Get("recurring[meter]"), c.form.Get("lookup_key")
	holder := slices.IndexFunc(c.prices, func(p *Price) bool { return key != "" && p.LookupKey == key })
	switch {
	case c.product(c.form.Get("product")) == nil:
		problem = refused(http.StatusBadRequest, "resource_missing", "product", "No such product: '%s'", c.form.Get("product"))
	case c.form.Get("recurring[interval]") != "month":
		problem = invalid("recurring[interval]", "This fake of Stripe bills by the month only.")
	case c.readPrice().check() != nil:
		problem = invalid("tiers", "Invalid price: %v.", c.readPrice().check())
	case c.form.Get("billing_scheme") != "tiered" && !amountPattern.MatchString(c.unitAmount()):
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

// updatePrice handles POST /v1/prices/{id}.
func (c *call) updatePrice() answer {
	p := c.price(c.request.PathValue("id"))
	if p == nil {
		return missing("price", c.request.PathValue("id"))
	}
	p.Inactive = c.form.Get("active") == "false"
	return okAnswer(c.priceObject(p, c.view()))
}

// getPrice handles GET /v1/prices/{id}.
func (c *call) getPrice() answer {
	p := c.price(c.request.PathValue("id"))
	if p == nil {
		return missing("price", c.request.PathValue("id"))
	}
	return okAnswer(c.priceObject(p, c.view()))
}

// listPrices handles GET /v1/prices.
func (c *call) listPrices() answer {
	var all []object
	for _, p := range c.prices {
		if c.matchesFilter("active", strconv.FormatBool(!p.Inactive)) {
			all = append(all, c.priceObject(p, c.view()))
		}
	}
	return c.page(all)
}

// priceObject returns the price in the form of the API.
func (a *account) priceObject(p *Price, v view) object {
	recurring := object{"interval": "month", "interval_count": max(1, p.Months), "usage_type": p.UsageType, "meter": nil, "aggregate_usage": nil}
	switch {
	case p.Meter != "":
		recurring["meter"] = p.Meter
	case p.UsageType == "metered":
		recurring["aggregate_usage"] = p.AggregateUsage
	}
	if p.Months == 12 {
		recurring["interval"], recurring["interval_count"] = "year", 1
	}
	body := object{
		"object": "price", "id": p.ID, "active": !p.Inactive, "currency": p.Currency, "livemode": a.livemode(),
		"lookup_key": nil, "metadata": object{}, "billing_scheme": "per_unit", "type": "recurring",
		"unit_amount_decimal": p.UnitAmount, "recurring": recurring,
	}
	if len(p.Tiers) > 0 {
		body["billing_scheme"], body["tiers_mode"], body["unit_amount_decimal"] = "tiered", p.TiersMode, nil
	}
	if len(p.Tiers) > 0 && v.tiers {
		body["tiers"] = p.tierObjects()
	}
	if p.DivideBy > 0 {
		body["transform_quantity"] = object{"divide_by": p.DivideBy, "round": p.DivideRound}
	}
	if p.LookupKey != "" {
		body["lookup_key"] = p.LookupKey
	}
	if p.Metadata != nil {
		body["metadata"] = p.Metadata
	}
	return body
}

// tierObjects returns the tiers in the form of the API.
func (p *Price) tierObjects() []object {
	var all []object
	for _, t := range p.Tiers {
		body := object{"up_to": nil, "unit_amount_decimal": nil, "flat_amount_decimal": nil}
		if t.UpTo != "inf" {
			body["up_to"] = json.Number(t.UpTo)
		}
		if t.UnitAmount != "" {
			body["unit_amount_decimal"] = t.UnitAmount
		}
		if t.FlatAmount != "" {
			body["flat_amount_decimal"] = t.FlatAmount
		}
		all = append(all, body)
	}
	return all
}
