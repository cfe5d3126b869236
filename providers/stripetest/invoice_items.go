package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// maxInvoiceItems is the maximum number of invoice items on one invoice:
// https://docs.stripe.com/api/invoiceitems/create
const maxInvoiceItems = 250

// invoiceItem is an amount, either pending or on an invoice.
type invoiceItem struct {
	id           string
	customer     string
	subscription string
	currency     string
	amount       metering.Decimal // in the currency's smallest unit
	quantity     metering.Decimal
	item         string // subscription item of the billed segment; "": a call created the invoice item
	price        *Price // price of that segment
	product      string // product of the price that the call created for it; "": none
	taxBehavior  string
	taxCode      string
	description  string
	metadata     map[string]string
	start, end   int64
	made         time.Time
	invoice      *invoice // nil: pending
}

// attachPendingItems adds the pending invoice items to a new invoice, oldest first, up to maxInvoiceItems.
func (a *account) attachPendingItems(in *invoice) {
	n := 0
	for _, i := range a.invoiceItems {
		if i.waitsFor(in.customer, in.subscriptionID()) && n < maxInvoiceItems {
			i.invoice = in
			n++
		}
	}
}

// waitsFor reports whether the item is pending and can be on the next invoice of a subscription.
func (i *invoiceItem) waitsFor(customer, subscription string) bool {
	return i.invoice == nil && i.customer == customer && (i.subscription == "" || i.subscription == subscription)
}

// hasPendingItems reports whether invoice items are pending for the subscription's next invoice.
func (a *account) hasPendingItems(s *subscription) bool {
	return slices.ContainsFunc(a.invoiceItems, func(i *invoiceItem) bool { return i.waitsFor(s.Customer, s.ID) })
}

// itemLines returns the lines of the invoice's invoice items.
func (a *account) itemLines(in *invoice) []line {
	var lines []line
	for _, i := range a.invoiceItems {
		if i.invoice == in {
			lines = append(lines, line{id: "il_" + in.id + "_" + i.id, invoiceItem: i, quantity: i.quantity, amount: i.amount})
		}
	}
	return lines
}

// createInvoiceItem handles POST /v1/invoiceitems.
func (c *call) createInvoiceItem() answer {
	i, problem := c.readInvoiceItem()
	if problem != nil {
		return *problem
	}
	i.id = c.fake.id("ii")
	c.invoiceItems = append(c.invoiceItems, i)
	return okAnswer(c.invoiceItemObject(i))
}

// getInvoiceItem handles GET /v1/invoiceitems/{id}.
func (c *call) getInvoiceItem() answer {
	i, problem := c.invoiceItemInPath()
	if problem != nil {
		return *problem
	}
	return okAnswer(c.invoiceItemObject(i))
}

// invoiceItemInPath returns the invoice item that the path names, or the error if there is none.
func (c *call) invoiceItemInPath() (*invoiceItem, *answer) {
	id := c.request.PathValue("id")
	at := slices.IndexFunc(c.invoiceItems, func(i *invoiceItem) bool { return i.id == id })
	if at < 0 {
		problem := missing("invoiceitem", id)
		return nil, &problem
	}
	return c.invoiceItems[at], nil
}

// editProblem returns an error if the item's invoice is final. Until then, the item can be changed:
// https://docs.stripe.com/api/invoiceitems/update. The error message is assumed.
func (i *invoiceItem) editProblem() *answer {
	if i.invoice == nil || i.invoice.status() == "draft" {
		return nil
	}
	problem := refused(http.StatusBadRequest, "invoice_not_editable", "",
		"This invoice item can no longer be changed because its invoice %s is no longer a draft.", i.invoice.id)
	return &problem
}

// updateInvoiceItem handles POST /v1/invoiceitems/{id}.
func (c *call) updateInvoiceItem() answer {
	i, problem := c.invoiceItemInPath()
	if problem == nil {
		problem = i.editProblem()
	}
	if problem == nil {
		problem = c.readPeriod(i)
	}
	if problem == nil && (c.form.Has("amount") || c.form.Has("price_data[product]")) {
		problem = c.readMoney(i)
	}
	if problem != nil {
		return *problem
	}
	if c.form.Has("description") {
		i.description = c.form.Get("description")
	}
	c.updateMetadata(&i.metadata)
	return okAnswer(c.invoiceItemObject(i))
}

// deleteInvoiceItem handles DELETE /v1/invoiceitems/{id}.
func (c *call) deleteInvoiceItem() answer {
	i, problem := c.invoiceItemInPath()
	if problem == nil {
		problem = i.editProblem()
	}
	if problem != nil {
		return *problem
	}
	c.invoiceItems = slices.DeleteFunc(c.invoiceItems, func(other *invoiceItem) bool { return other == i })
	return okAnswer(object{"object": "invoiceitem", "id": i.id, "deleted": true})
}

func (c *call) readAmount(i *invoiceItem) *answer {
	return c.readInteger(&i.amount, "amount")
}

func (c *call) readInteger(into *metering.Decimal, field string) *answer {
	amount, err := strconv.ParseInt(c.form.Get(field), 10, 64)
	if err != nil {
		problem := refused(http.StatusBadRequest, "parameter_invalid_integer", field, "Invalid integer: %s", c.form.Get(field))
		return &problem
	}
	*into = metering.Whole(amount)
	return nil
}

// readMoney sets the item's amount from the parameter amount or from price_data, which creates a price for the
// item: https://docs.stripe.com/api/invoiceitems/create. The fake assumes that an update keeps the currency.
func (c *call) readMoney(i *invoiceItem) *answer {
	const data = "price_data"
	if !c.form.Has(data + "[product]") {
		return c.readAmount(i)
	}
	var problem answer
	switch {
	case c.form.Has("amount"):
		problem = invalid("amount", "You may only specify one of these parameters: amount, price_data.")
	case c.product(c.form.Get(data+"[product]")) == nil:
		problem = refused(http.StatusBadRequest, "resource_missing", data+"[product]", "No such product: '%s'", c.form.Get(data+"[product]"))
	case !strings.EqualFold(c.form.Get(data+"[currency]"), i.currency):
		problem = invalid(data+"[currency]", "The currency of the price must be that of the invoice item, %s.", i.currency)
	default:
		i.product, i.taxBehavior, i.taxCode = c.form.Get(data+"[product]"), c.form.Get(data+"[tax_behavior]"), c.form.Get("tax_code")
		return c.readInteger(&i.amount, data+"[unit_amount]")
	}
	return &problem
}

// readPeriod sets the item's period from the call. Without the parameter, the period is unchanged.
func (c *call) readPeriod(i *invoiceItem) *answer {
	if !c.form.Has("period[start]") {
		return nil
	}
	start, err1 := strconv.ParseInt(c.form.Get("period[start]"), 10, 64)
	end, err2 := strconv.ParseInt(c.form.Get("period[end]"), 10, 64)
	if err1 != nil || err2 != nil || end < start {
		problem := invalid("period", "The period's end must be greater than or equal to its start.")
		return &problem
	}
	i.start, i.end = start, end
	return nil
}

// attachToDraft adds a new invoice item to the draft invoice that the call names. If the call names no invoice, the
// item stays pending.
func (c *call) attachToDraft(i *invoiceItem) *answer {
	if !c.form.Has("invoice") {
		return nil
	}
	in := c.invoice(c.form.Get("invoice"))
	var problem answer
	switch {
	case in == nil || in.customer != i.customer:
		problem = refused(http.StatusBadRequest, "resource_missing", "invoice", "No such invoice: '%s'", c.form.Get("invoice"))
	case in.status() != "draft":
		problem = refused(http.StatusBadRequest, "invoice_not_editable", "invoice", "The invoice %s is no longer a draft.", in.id)
	case in.currency != "" && in.currency != i.currency:
		problem = invalid("currency", "The currency of the invoice item must be that of the invoice, %s.", in.currency) // assumed
	case len(c.itemLines(in)) >= maxInvoiceItems:
		problem = invalid("invoice", "An invoice has at most %d invoice items.", maxInvoiceItems)
	default:
		i.invoice = in
		return nil
	}
	return &problem
}

// readInvoiceItem returns the invoice item that the call creates, or an error.
func (c *call) readInvoiceItem() (*invoiceItem, *answer) {
	problem := func(a answer) (*invoiceItem, *answer) { return nil, &a }
	i := &invoiceItem{
		quantity: metering.Whole(1), customer: c.form.Get("customer"), subscription: c.form.Get("subscription"), currency: strings.ToLower(c.form.Get("currency")),
		description: c.form.Get("description"), metadata: c.pairs("metadata"), made: c.fake.customerTime(c.account, c.form.Get("customer")),
	}
	i.start, i.end = i.made.Unix(), i.made.Unix()
	if !c.hasCustomer(i.customer) {
		return problem(refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", i.customer))
	}
	if s := c.subscription(i.subscription); i.subscription != "" && (s == nil || s.Customer != i.customer || !s.runs()) {
		return problem(refused(http.StatusBadRequest, "resource_missing", "subscription",
			"Customer %s does not have a subscription with ID %s", i.customer, i.subscription))
	}
	if problem := c.readMoney(i); problem != nil {
		return nil, problem
	}
	if has := c.currencyOf(i.customer); has != "" && has != i.currency {
		return problem(otherCurrency(has))
	}
	if problem := c.readPeriod(i); problem != nil {
		return nil, problem
	}
	return i, c.attachToDraft(i)
}

// otherCurrency returns the API's error for https://docs.stripe.com/billing/customer#currency.
func otherCurrency(has string) answer {
	return invalid("currency", "You cannot combine currencies on a single customer. This customer has an active subscription, "+
		"subscription schedule, discount, quote, or invoice item with currency %s.", has)
}

// currencyOf returns the currency in which a customer is billed now. A customer has at most one. "" means that the
// customer can be billed in any currency.
func (a *account) currencyOf(customer string) string {
	for _, s := range a.subscriptions {
		if s.Customer == customer && s.runs() && len(s.Items) > 0 {
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

// listInvoiceItems handles GET /v1/invoiceitems.
func (c *call) listInvoiceItems() answer {
	if customer := c.form.Get("customer"); customer != "" && !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	between, problem := c.parseRange("created")
	if problem != nil {
		return *problem
	}
	var all []object
	for _, i := range slices.Backward(c.invoiceItems) {
		pending := strconv.FormatBool(i.invoice == nil)
		if c.matchesFilter("customer", i.customer) && c.matchesFilter("invoice", i.invoiceID()) && c.matchesFilter("pending", pending) && between(i.made.Unix()) {
			all = append(all, c.invoiceItemObject(i))
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

// invoiceItemObject returns the invoice item in the form of the API.
func (c *call) invoiceItemObject(i *invoiceItem) object {
	body := object{
		"object": "invoiceitem", "id": i.id, "customer": i.customer, "subscription": orNull(i.subscription), "invoice": orNull(i.invoiceID()), "livemode": c.livemode(),
		"amount": i.amount, "currency": i.currency, "description": i.description, "metadata": i.metadata, "proration": false,
		"date": i.made.Unix(), "period": object{"start": i.start, "end": i.end}, "quantity": i.quantity,
	}
	if i.price == nil {
		return body
	}
	if c.version < basil {
		body["subscription_item"], body["price"] = i.item, c.priceObject(i.price, c.view())
		return body
	}
	body["pricing"] = object{"type": "price_details", "price_details": object{"price": i.price.ID}}
	body["parent"] = object{"type": "subscription_details", "subscription_details": object{
		"subscription": i.subscription, "subscription_item": i.item,
	}}
	return body
}

// pairs returns the parameters of the form name[key], by key.
func (c *call) pairs(name string) map[string]string {
	pairs := map[string]string{}
	for field, values := range c.form {
		if key, ok := strings.CutPrefix(field, name+"["); ok {
			pairs[strings.TrimSuffix(key, "]")] = values[0]
		}
	}
	return pairs
}
