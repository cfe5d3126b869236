package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// maxInvoiceItems is how many one invoice takes: https://docs.stripe.com/api/invoiceitems/create
const maxInvoiceItems = 250

// invoiceItem is money that waits for an invoice, or is on one.
type invoiceItem struct {
	id           string
	customer     string
	subscription string
	currency     string
	amount       metering.Decimal // in the currency's smallest unit
	description  string
	metadata     map[string]string
	start, end   int64
	made         time.Time
	invoice      *invoice // nil while it is pending
}

// attach puts on a new invoice what is pending for it, the oldest first.
func (a *account) attach(in *invoice) {
	n := 0
	for _, i := range a.invoiceItems {
		ours := i.customer == in.subscription.Customer && (i.subscription == "" || i.subscription == in.subscription.ID)
		if ours && i.invoice == nil && n < maxInvoiceItems {
			i.invoice = in
			n++
		}
	}
}

func (a *account) itemLines(in *invoice) []line {
	var lines []line
	for _, i := range a.invoiceItems {
		if i.invoice == in {
			lines = append(lines, line{invoiceItem: i, quantity: metering.Whole(1), amount: i.amount})
		}
	}
	return lines
}

func (c *call) createInvoiceItem() answer {
	i, problem := c.readInvoiceItem()
	if problem != nil {
		return *problem
	}
	i.id = c.fake.id("ii")
	c.invoiceItems = append(c.invoiceItems, i)
	return found(i.object(c.livemode()))
}

func (c *call) readInvoiceItem() (*invoiceItem, *answer) {
	problem := func(a answer) (*invoiceItem, *answer) { return nil, &a }
	i := &invoiceItem{
		customer: c.form.Get("customer"), subscription: c.form.Get("subscription"), currency: strings.ToLower(c.form.Get("currency")),
		description: c.form.Get("description"), metadata: c.pairs("metadata"), made: c.fake.at(c.account, c.form.Get("customer")),
	}
	i.start, i.end = i.made.Unix(), i.made.Unix()
	if !c.hasCustomer(i.customer) {
		return problem(refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", i.customer))
	}
	if s := c.subscription(i.subscription); i.subscription != "" && (s == nil || s.Customer != i.customer || !s.live()) {
		return problem(refused(http.StatusBadRequest, "resource_missing", "subscription",
			"Customer %s does not have a subscription with ID %s", i.customer, i.subscription))
	}
	amount, err := strconv.ParseInt(c.form.Get("amount"), 10, 64)
	if err != nil {
		return problem(refused(http.StatusBadRequest, "parameter_invalid_integer", "amount", "Invalid integer: %s", c.form.Get("amount")))
	}
	i.amount = metering.Whole(amount)
	if has := c.currencyOf(i.customer); has != "" && has != i.currency {
		return problem(otherCurrency(has))
	}
	if c.form.Has("period[start]") {
		start, err1 := strconv.ParseInt(c.form.Get("period[start]"), 10, 64)
		end, err2 := strconv.ParseInt(c.form.Get("period[end]"), 10, 64)
		if err1 != nil || err2 != nil || end < start {
			return problem(invalid("period", "The period's end must be greater than or equal to its start."))
		}
		i.start, i.end = start, end
	}
	return i, nil
}

// otherCurrency is https://docs.stripe.com/billing/customer#currency in the words of the API.
func otherCurrency(has string) answer {
	return invalid("currency", "You cannot combine currencies on a single customer. This customer has an active subscription, "+
		"subscription schedule, discount, quote, or invoice item with currency %s.", has)
}

// currencyOf is the only one that a customer may be billed in for now; "" is any.
func (a *account) currencyOf(customer string) string {
	for _, s := range a.subscriptions {
		if s.Customer == customer && s.live() && len(s.Items) > 0 {
			return a.currency(s)
		}
	}
	for _, i := range a.invoiceItems {
		if i.customer == customer && i.invoice == nil {
			return i.currency
		}
	}
	return ""
}

func (c *call) listInvoiceItems() answer {
	if customer := c.form.Get("customer"); customer != "" && !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	since, err := strconv.ParseInt(c.form.Get("created[gte]"), 10, 64)
	if err != nil && c.form.Has("created[gte]") {
		return invalid("created[gte]", "Invalid integer: %s", c.form.Get("created[gte]"))
	}
	var all []object
	for _, i := range slices.Backward(c.invoiceItems) {
		pending := strconv.FormatBool(i.invoice == nil)
		if c.wants("customer", i.customer) && c.wants("invoice", i.invoiceID()) && c.wants("pending", pending) && i.made.Unix() >= since {
			all = append(all, i.object(c.livemode()))
		}
	}
	return c.page(all)
}

func (i *invoiceItem) invoiceID() string {
	if i.invoice == nil {
		return ""
	}
	return i.invoice.id
}

func (i *invoiceItem) object(livemode bool) object {
	body := object{
		"object": "invoiceitem", "id": i.id, "customer": i.customer, "subscription": nil, "invoice": nil, "livemode": livemode,
		"amount": i.amount, "currency": i.currency, "description": i.description, "metadata": i.metadata, "proration": false,
		"date": i.made.Unix(), "period": object{"start": i.start, "end": i.end}, "quantity": 1,
	}
	if i.subscription != "" {
		body["subscription"] = i.subscription
	}
	if i.invoice != nil {
		body["invoice"] = i.invoice.id
	}
	return body
}

// line says in a version's words which invoice item a line is of.
func (i *invoiceItem) line(body object, version string) {
	body["description"], body["metadata"], body["period"] = i.description, i.metadata, object{"start": i.start, "end": i.end}
	if version < basil {
		body["type"], body["proration"], body["invoice_item"] = "invoiceitem", false, i.id
		body["subscription"], body["subscription_item"], body["price"] = i.subscription, nil, nil
		return
	}
	body["parent"] = object{"type": "invoice_item_details", "invoice_item_details": object{
		"invoice_item": i.id, "proration": false, "subscription": i.subscription,
	}}
}

// pairs are the parameters name[…].
func (c *call) pairs(name string) map[string]string {
	pairs := map[string]string{}
	for field, values := range c.form {
		if key, ok := strings.CutPrefix(field, name+"["); ok {
			pairs[strings.TrimSuffix(key, "]")] = values[0]
		}
	}
	return pairs
}
