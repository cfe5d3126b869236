package stripetest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// acacia is the first API version that returns the finalization time of a draft. scheduled is the first API
// version that accepts this time as a parameter:
// https://docs.stripe.com/changelog/acacia/2024-09-30/automatically-finalizes-at-invoice and
// https://docs.stripe.com/changelog/acacia/2024-10-28/schedule-invoice-finalization
const (
	acacia    = "2024-09-30"
	scheduled = "2024-10-28"
)

// listInvoices handles GET /v1/invoices.
func (c *call) listInvoices() answer {
	between, problem := c.parseRange("created")
	if problem != nil {
		return *problem
	}
	var all []object
	for _, in := range slices.Backward(c.invoices) {
		wanted := c.matchesFilter("customer", in.customer) && c.matchesFilter("subscription", in.subscriptionID()) && c.matchesFilter("status", in.status())
		if wanted && between(in.created.Unix()) {
			all = append(all, c.invoiceObject(in, c.view()))
		}
	}
	return c.page(all)
}

// createInvoice creates an invoice without a subscription. It attaches the customer's pending invoice items
// only if the call includes them: https://docs.stripe.com/api/invoices/create
func (c *call) createInvoice() answer {
	customer := c.form.Get("customer")
	if !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	if c.form.Has("subscription") {
		return invalid("subscription", "This fake of Stripe makes the invoices of subscriptions by itself.")
	}
	collection, days, problem := c.readCollection()
	if problem != nil {
		return *problem
	}
	now := c.fake.customerTime(c.account, customer).Truncate(time.Second)
	in := c.fake.addDraft(c.account, &invoice{
		customer: customer, reason: "manual", currency: strings.ToLower(c.form.Get("currency")), collection: collection, daysUntilDue: days, start: now, end: now, autoAdvance: c.form.Get("auto_advance") == "true",
		excluding: c.form.Get("pending_invoice_items_behavior") != "include", metadata: c.pairs("metadata"),
	})
	return okAnswer(c.invoiceObject(in, c.view()))
}

// readCollection returns the collection method and the days until the invoice is due. It follows
// https://docs.stripe.com/api/invoices/create. The error messages are assumed.
func (c *call) readCollection() (method string, days int64, problem *answer) {
	method = cmp.Or(c.form.Get("collection_method"), "charge_automatically")
	refuse := func(field, format string, args ...any) (string, int64, *answer) {
		a := invalid(field, format, args...)
		return "", 0, &a
	}
	if method != "charge_automatically" && method != "send_invoice" {
		return refuse("collection_method", "Invalid collection_method: must be one of charge_automatically or send_invoice")
	}
	if !c.form.Has("days_until_due") {
		if method == "send_invoice" {
			return refuse("days_until_due", "If collection_method is send_invoice, you must pass days_until_due or due_date.")
		}
		return method, 0, nil
	}
	days, err := strconv.ParseInt(c.form.Get("days_until_due"), 10, 64)
	switch {
	case err != nil || days < 0:
		return refuse("days_until_due", "Invalid integer: %s", c.form.Get("days_until_due"))
	case method != "send_invoice":
		return refuse("days_until_due", "You can only set days_until_due if collection_method is send_invoice.")
	}
	return method, days, nil
}

// getInvoice handles GET /v1/invoices/{id}.
func (c *call) getInvoice() answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	return okAnswer(c.invoiceObject(in, c.view()))
}

// listInvoiceLines handles GET /v1/invoices/{id}/lines.
func (c *call) listInvoiceLines() answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	return c.page(c.lineObjects(in, c.view()))
}

// invoiceInPath returns the invoice that the path names, or the error if there is none.
func (c *call) invoiceInPath() (*invoice, *answer) {
	id := c.request.PathValue("id")
	in := c.invoice(id)
	if in == nil {
		problem := missing("invoice", id)
		return nil, &problem
	}
	return in, nil
}

// updateInvoice follows https://docs.stripe.com/invoicing/scheduled-finalization
func (c *call) updateInvoice() answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	automatic, at := in.autoAdvance, in.finalizesAt
	now := c.fake.customerTime(c.account, in.customer).Truncate(time.Second)
	if c.form.Has("auto_advance") {
		automatic = c.form.Get("auto_advance") == "true"
	}
	switch draft := in.status() == "draft"; {
	case !automatic:
		at = time.Time{}
	case draft && !in.autoAdvance:
		at = now.Add(grace)
	}
	if c.form.Has("automatically_finalizes_at") {
		if at, problem = c.readFinalizationTime(in, automatic, now); problem != nil {
			return *problem
		}
	}
	if status := in.status(); status != "draft" && status != "open" && automatic {
		return invalid("auto_advance", "auto_advance is always false for %s invoices.", status)
	}
	in.autoAdvance, in.finalizesAt = automatic, at
	c.updateMetadata(&in.metadata)
	c.fake.emitInvoice(c.account, in, now, "invoice.updated")
	return okAnswer(c.invoiceObject(in, c.view()))
}

// readFinalizationTime parses the time at which a draft is finalized. automatic is the draft's auto_advance after the
// call. If automatic is false, readFinalizationTime returns an error. The error messages are assumed.
func (c *call) readFinalizationTime(in *invoice, automatic bool, now time.Time) (time.Time, *answer) {
	const field = "automatically_finalizes_at"
	var problem answer
	unix, err := strconv.ParseInt(c.form.Get(field), 10, 64)
	at := time.Unix(unix, 0).UTC()
	switch {
	case c.version < scheduled:
		problem = refused(http.StatusBadRequest, "parameter_unknown", field, "Received unknown parameter: %s", field)
	case in.status() != "draft":
		problem = invalid(field, "You can only set %s on draft invoices.", field)
	case !automatic:
		problem = invalid(field, "You can only set %s when auto_advance is true.", field)
	case err != nil:
		problem = invalid(field, "Invalid integer: %s", c.form.Get(field))
	case !at.After(now) || at.After(now.AddDate(5, 0, 0)):
		problem = invalid(field, "%s must be in the future, by at most 5 years.", field)
	default:
		return at, nil
	}
	return time.Time{}, &problem
}

// finalizeInvoice handles POST /v1/invoices/{id}/finalize.
func (c *call) finalizeInvoice() answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	if in.status() != "draft" {
		return refused(http.StatusBadRequest, "invoice_not_editable", "", "This invoice is already finalized, you can't re-finalize a non-draft invoice.")
	}
	if c.form.Has("auto_advance") {
		in.autoAdvance = c.form.Get("auto_advance") == "true"
	}
	c.fake.finalize(c.account, in, c.fake.customerTime(c.account, in.customer).Truncate(time.Second))
	return okAnswer(c.invoiceObject(in, c.view()))
}

// payInvoice handles POST /v1/invoices/{id}/pay.
func (c *call) payInvoice() answer { return c.endInvoice("paid", "open", "uncollectible") }

// voidInvoice follows https://docs.stripe.com/api/invoices/void
func (c *call) voidInvoice() answer { return c.endInvoice("void", "open", "uncollectible") }

// markUncollectible handles POST /v1/invoices/{id}/mark_uncollectible.
func (c *call) markUncollectible() answer { return c.endInvoice("uncollectible", "open") }

// endInvoice gives the invoice the status outcome. It returns an error if the invoice does not have one of the statuses
// in from.
func (c *call) endInvoice(outcome string, from ...string) answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	if !slices.Contains(from, in.status()) {
		return invalid("", "You can only pass in invoices that are %v. This invoice is %s.", from, in.status())
	}
	c.fake.conclude(c.account, in, outcome, c.fake.customerTime(c.account, in.customer).Truncate(time.Second))
	return okAnswer(c.invoiceObject(in, c.view()))
}
