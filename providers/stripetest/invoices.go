package stripetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// grace is how long an invoice is a draft by default:
// https://docs.stripe.com/billing/subscriptions/usage-based/configure-grace-period
const grace = time.Hour

// embeddedLines is how many lines an invoice shows before it says has_more.
const embeddedLines = 10

type invoice struct {
	id           string
	subscription *subscription
	start, end   time.Time
	finalizedAt  time.Time // zero while it is a draft
	lines        []line    // of a finalized one
	first        bool      // made when the subscription began
}

// line is what an item costs.
type line struct {
	item        Item   // of the subscription
	price       *Price // nil of an invoice item
	invoiceItem *invoiceItem
	quantity    metering.Decimal
	amount      metering.Decimal // in the currency's smallest unit
}

func (l line) currency() string {
	if l.invoiceItem != nil {
		return l.invoiceItem.currency
	}
	return l.price.Currency
}

// draft makes the invoice of a subscription's period, and puts on it what was
// pending for it: what comes later waits for the next.
func (f *Fake) draft(a *account, s *subscription) {
	in := &invoice{id: f.id("in"), subscription: s, start: s.start, end: s.end}
	a.invoices = append(a.invoices, in)
	a.attach(in)
}

// finalize takes the usage of every draft whose grace is over.
func (f *Fake) finalize(a *account) {
	for _, in := range a.invoices {
		if due := in.end.Add(grace); in.finalizedAt.IsZero() && !f.at(a, in.subscription.Customer).Before(due) {
			in.lines, in.finalizedAt = a.current(in), due
		}
	}
}

func (a *account) linesOf(s *subscription, start, end time.Time) []line {
	var lines []line
	for _, i := range s.Items {
		price := a.price(i.Price)
		if price.UsageType == "metered" {
			quantity := a.usage(s, i, price, start, end)
			lines = append(lines, line{item: i, price: price, quantity: quantity, amount: amount(quantity, price)})
		}
	}
	return lines
}

func (a *account) usage(s *subscription, i Item, price *Price, start, end time.Time) metering.Decimal {
	if price.Meter == "" {
		return a.recorded(i.ID, price.AggregateUsage, start, end)
	}
	return a.metered(a.meter(price.Meter), s.Customer, start, end)
}

// amount is never below zero (https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage-api)
// and half a smallest unit is one.
func amount(quantity metering.Decimal, price *Price) metering.Decimal {
	over := quantity.Sub(metering.MustDecimal(price.IncludedUnits))
	if over.IsNegative() {
		over = metering.Decimal{}
	}
	exact := over.Mul(metering.MustDecimal(price.UnitAmount)).Add(metering.MustDecimal(price.FlatAmount))
	if exact.IsNegative() {
		return metering.Whole(0)
	}
	rounded := exact.Round(0)
	if exact.Sub(rounded).Equal(metering.MustDecimal("0.5")) {
		return rounded.Add(metering.Whole(1))
	}
	return rounded
}

func (a *account) current(in *invoice) []line {
	if in.finalizedAt.IsZero() {
		return append(a.linesOf(in.subscription, in.start, in.end), a.itemLines(in)...)
	}
	return in.lines
}

func (a *account) total(in *invoice) metering.Decimal {
	var total metering.Decimal
	for _, l := range a.current(in) {
		total = total.Add(l.amount)
	}
	return total
}

func (a *account) invoice(id string) *invoice {
	for _, in := range a.invoices {
		if in.id == id {
			return in
		}
	}
	return nil
}

func (c *call) listInvoices() answer {
	var all []object
	for _, in := range slices.Backward(c.invoices) {
		if c.wants("customer", in.subscription.Customer) && c.wants("subscription", in.subscription.ID) && c.wants("status", in.status()) {
			all = append(all, c.invoiceObject(in, c.version))
		}
	}
	return c.page(all)
}

func (c *call) getInvoice() answer {
	id := c.request.PathValue("id")
	in := c.invoice(id)
	if in == nil {
		return missing("invoice", id)
	}
	return found(c.invoiceObject(in, c.version))
}

func (c *call) listInvoiceLines() answer {
	id := c.request.PathValue("id")
	in := c.invoice(id)
	if in == nil {
		return missing("invoice", id)
	}
	return c.page(c.lineObjects(in, c.version))
}

func (in *invoice) status() string {
	switch {
	case in.finalizedAt.IsZero():
		return "draft"
	case in.first:
		return "paid" // there is nothing to pay
	}
	return "open"
}

func (in *invoice) reason() string {
	if in.first {
		return "subscription_create"
	}
	return "subscription_cycle"
}

// currency is that of every price of a subscription.
func (a *account) currency(s *subscription) string {
	if len(s.Items) == 0 {
		return "usd"
	}
	return a.price(s.Items[0].Price).Currency
}

func (a *account) invoiceObject(in *invoice, version string) object {
	total := a.total(in)
	body := object{
		"object": "invoice", "id": in.id, "customer": in.subscription.Customer, "status": in.status(), "livemode": a.livemode(),
		"billing_reason": in.reason(), "currency": a.currency(in.subscription), "total": total, "subtotal": total, "amount_due": total,
		"created": in.end.Unix(), "period_start": in.start.Unix(), "period_end": in.end.Unix(),
		"status_transitions": object{"finalized_at": nil},
		"lines":              listObject(a.lineObjects(in, version), embeddedLines, "/v1/invoices/"+in.id+"/lines"),
	}
	if !in.finalizedAt.IsZero() {
		body["status_transitions"] = object{"finalized_at": in.finalizedAt.Unix()}
	}
	if version < basil {
		body["subscription"] = in.subscription.ID
	} else {
		body["parent"] = object{"type": "subscription_details", "subscription_details": object{"subscription": in.subscription.ID}}
	}
	return body
}

func (a *account) lineObjects(in *invoice, version string) []object {
	var all []object
	for n, l := range a.current(in) {
		body := object{
			"object": "line_item", "id": "il_" + in.id + "_" + strconv.Itoa(n), "livemode": a.livemode(), "currency": l.currency(),
			"amount": l.amount, "quantity": l.quantity, "period": object{"start": in.start.Unix(), "end": in.end.Unix()}, "metadata": object{},
		}
		if l.invoiceItem != nil {
			l.invoiceItem.line(body, version)
		} else {
			a.itemLine(body, in, l, version)
		}
		all = append(all, body)
	}
	return all
}

// itemLine says in a version's words which item of the subscription a line is of.
func (a *account) itemLine(body object, in *invoice, l line, version string) {
	if version < basil {
		body["type"], body["proration"] = "subscription", false
		body["subscription"], body["subscription_item"] = in.subscription.ID, l.item.ID
		body["price"] = a.priceObject(l.price)
		return
	}
	body["pricing"] = object{"type": "price_details", "price_details": object{"price": l.price.ID}}
	body["parent"] = object{"type": "subscription_item_details", "subscription_item_details": object{
		"subscription": in.subscription.ID, "subscription_item": l.item.ID, "proration": false,
	}}
}
