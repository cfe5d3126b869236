package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// record is the usage of an item at one second.
type record struct {
	at       time.Time
	quantity metering.Decimal
}

// createUsageRecord handles POST /v1/subscription_items/{id}/usage_records.
func (c *call) createUsageRecord() answer {
	id := c.request.PathValue("id")
	if c.version >= basil {
		// https://docs.stripe.com/changelog/basil/2025-03-31/deprecate-legacy-usage-based-billing
		return refused(http.StatusNotFound, "", "", "Unrecognized request URL (POST: %s).", c.request.URL.Path).notSaved()
	}
	s, price := c.item(id)
	if s == nil {
		return missing("subscription_item", id)
	}
	quantity, err := strconv.ParseInt(c.form.Get("quantity"), 10, 64)
	if err != nil || quantity < 0 {
		return invalid("quantity", "Invalid non-negative integer").notSaved()
	}
	at := c.fake.customerTime(c.account, s.Customer)
	if text := c.form.Get("timestamp"); text != "" && text != "now" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return invalid("timestamp", "Invalid timestamp").notSaved()
		}
		at = time.Unix(seconds, 0)
	}
	if problem := c.usageProblem(s, price, id, at); problem != nil {
		return *problem
	}
	c.setRecord(id, at, metering.Whole(quantity))
	c.fake.watchThresholds(c.account, s.Customer)
	return okAnswer(object{
		"object": "usage_record", "id": c.fake.id("mbur"), "livemode": c.livemode(),
		"quantity": quantity, "subscription_item": id, "timestamp": at.Unix(),
	})
}

// usageProblem returns an error if an item does not accept a usage record at the given time:
// https://docs.stripe.com/api/usage_records/create. A period excludes its start
// (https://docs.stripe.com/api/usage-record-summary). Stripe accepts usage of the previous period for some
// minutes after its end; the fake does not.
func (c *call) usageProblem(s *subscription, price *Price, item string, at time.Time) *answer {
	var problem answer
	switch {
	case !s.runs():
		problem = invalid("", "Usage records cannot be created for a canceled subscription.")
	case price.UsageType != "metered":
		problem = invalid("", "Usage records can only be created for metered subscription items.")
	case price.Meter != "":
		problem = invalid("", "Cannot create a usage record for `%s` because it is not on the legacy metered billing system. "+
			"Call /v1/billing/meter_events instead.", item)
	case s.BillingThresholds && c.form.Get("action") == "set":
		problem = invalid("action", "Usage records on subscriptions with billing thresholds can only be incremented.")
	case !at.After(s.start):
		problem = invalid("timestamp", "Cannot create the usage record with this timestamp because timestamps must be after "+
			"the subscription's last invoice period (or current period start time).")
	case at.After(c.fake.customerTime(c.account, s.Customer)):
		problem = invalid("timestamp", "Cannot create the usage record with this timestamp because timestamps must not be in the future.")
	default:
		return nil
	}
	return &problem
}

// setRecord stores the item's quantity at a second. It replaces an existing quantity if the call's action is set, and
// adds to it otherwise.
func (c *call) setRecord(item string, at time.Time, quantity metering.Decimal) {
	all := c.records[item]
	same := slices.IndexFunc(all, func(r record) bool { return r.at.Equal(at) })
	switch {
	case same < 0:
		c.records[item] = append(all, record{at, quantity})
	case c.form.Get("action") == "set":
		all[same].quantity = quantity
	default:
		all[same].quantity = all[same].quantity.Add(quantity)
	}
}

// recorded returns an item's usage after start, up to and including end. With the aggregate last_ever,
// earlier usage counts too.
func (a *account) recorded(item, aggregate string, start, end time.Time) metering.Decimal {
	var total metering.Decimal
	var latest time.Time
	for _, r := range a.records[item] {
		ahead := r.at.After(end)
		if ahead || !r.at.After(start) && aggregate != "last_ever" {
			continue
		}
		switch aggregate {
		case "max":
			if r.quantity.Cmp(total) > 0 {
				total = r.quantity
			}
		case "last_during_period", "last_ever":
			if r.at.After(latest) {
				total, latest = r.quantity, r.at
			}
		default:
			total = total.Add(r.quantity)
		}
	}
	return total
}

// listUsageRecordSummaries handles GET /v1/subscription_items/{id}/usage_record_summaries.
func (c *call) listUsageRecordSummaries() answer {
	id := c.request.PathValue("id")
	s, price := c.item(id)
	if s == nil {
		return missing("subscription_item", id)
	}
	all := []object{c.summaryObject(id, price, s.start, s.end, nil)}
	for _, in := range slices.Backward(c.invoices) {
		if in.subscription == s && in.reason != "subscription_create" {
			all = append(all, c.summaryObject(id, price, in.start, in.end, in.id))
		}
	}
	return c.page(all)
}

// summaryObject returns the summary in the form of the API.
func (c *call) summaryObject(item string, price *Price, start, end time.Time, invoice any) object {
	return object{
		"object": "usage_record_summary", "id": "sis_" + item + "_" + strconv.FormatInt(start.Unix(), 10), "livemode": c.livemode(),
		"invoice": invoice, "subscription_item": item, "period": object{"start": start.Unix(), "end": end.Unix()},
		"total_usage": c.recorded(item, price.AggregateUsage, start, end),
	}
}
