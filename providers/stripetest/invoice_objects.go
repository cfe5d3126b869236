package stripetest

import (
	"cmp"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// embeddedLines is the maximum number of lines in an invoice object. If there are more, has_more is true.
const embeddedLines = 10

// view holds the properties of a response on which the fields of its objects depend.
type view struct {
	version string
	tiers   bool // prices include tiers: https://docs.stripe.com/api/prices/object#price_object-tiers
}

// invoiceObject returns the invoice in the form of the API.
func (a *account) invoiceObject(in *invoice, v view) object {
	sum := totalAmount(a.shownLines(in))
	credited := in.credited()
	body := object{
		"object": "invoice", "id": in.id, "customer": in.customer, "status": in.status(), "livemode": a.livemode(),
		"billing_reason": in.reason, "currency": a.currencyOn(in), "total": sum, "subtotal": sum, "amount_due": sum,
		"amount_paid": metering.Whole(0), "amount_remaining": sum.Sub(credited.before),
		"pre_payment_credit_notes_amount": credited.before, "post_payment_credit_notes_amount": credited.after,
		"created": in.created.Unix(), "period_start": in.start.Unix(), "period_end": in.end.Unix(),
		"auto_advance": in.autoAdvance, "metadata": object{}, "collection_method": cmp.Or(in.collection, "charge_automatically"), "due_date": seconds(in.due()),
		"status_transitions": in.transitions(),
		"lines":              listObject(a.lineObjects(in, v), embeddedLines, "/v1/invoices/"+in.id+"/lines"),
	}
	if in.outcome == "paid" {
		body["amount_paid"], body["amount_remaining"] = sum.Sub(credited.before), metering.Whole(0)
	}
	if in.metadata != nil {
		body["metadata"] = in.metadata
	}
	if v.version >= acacia {
		body["automatically_finalizes_at"] = seconds(in.finalizesAt)
	}
	if in.subscription == nil {
		return body
	}
	if v.version < basil {
		body["subscription"] = in.subscription.ID
	} else {
		body["parent"] = object{"type": "subscription_details", "subscription_details": object{"subscription": in.subscription.ID}}
	}
	return body
}

// due returns the due date of an invoice with send_invoice, and a zero time for any other invoice.
func (in *invoice) due() time.Time {
	if in.collection != "send_invoice" {
		return time.Time{}
	}
	return in.created.AddDate(0, 0, int(in.daysUntilDue))
}

// currencyOn returns the currency of an invoice: its own, that of its subscription or that of its first line.
func (a *account) currencyOn(in *invoice) string {
	if in.currency != "" {
		return in.currency
	}
	if in.subscription != nil {
		return a.currency(in.subscription)
	}
	for _, l := range a.shownLines(in) {
		return l.currency()
	}
	return "usd"
}

// transitions returns the times of the changes of the status.
func (in *invoice) transitions() object {
	body := object{"finalized_at": seconds(in.finalizedAt), "paid_at": nil, "voided_at": nil, "marked_uncollectible_at": nil}
	switch in.outcome {
	case "paid":
		body["paid_at"] = seconds(in.outcomeAt)
	case "void":
		body["voided_at"] = seconds(in.outcomeAt)
	case "uncollectible":
		body["marked_uncollectible_at"] = seconds(in.outcomeAt)
	}
	return body
}

// seconds returns Unix seconds, or null for a zero time.
func seconds(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.Unix()
}

// orNull returns the text, or null if it is empty.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// lineObjects returns the lines in the form of the API.
func (a *account) lineObjects(in *invoice, v view) []object {
	var all []object
	for _, l := range a.shownLines(in) {
		body := object{
			"object": "line_item", "id": l.id, "livemode": a.livemode(), "currency": l.currency(), "invoice": in.id,
			"amount": l.amount, "quantity": l.quantity, "description": l.description, "metadata": object{},
		}
		if l.invoiceItem != nil {
			a.moneyLine(body, l.invoiceItem, v)
		} else {
			a.usageLine(body, in, l.span, v)
		}
		all = append(all, body)
	}
	return all
}

// usageLine sets the fields that refer to the line's subscription item, in the form of the API version.
func (a *account) usageLine(body object, in *invoice, u *span, v view) {
	body["period"] = object{"start": u.start.Unix(), "end": u.end.Unix()}
	if v.version < basil {
		body["type"], body["proration"] = "subscription", false
		body["subscription"], body["subscription_item"] = in.subscription.ID, u.item.ID
		body["price"] = a.priceObject(u.price, v)
		return
	}
	body["pricing"] = object{"type": "price_details", "price_details": object{"price": u.price.ID}}
	body["parent"] = object{"type": "subscription_item_details", "subscription_item_details": object{
		"subscription": in.subscription.ID, "subscription_item": u.item.ID, "proration": false,
	}}
}

// moneyLine sets the fields that refer to the line's invoice item, in the form of the API version.
func (a *account) moneyLine(body object, i *invoiceItem, v view) {
	body["description"], body["metadata"], body["period"] = i.description, i.metadata, object{"start": i.start, "end": i.end}
	if v.version < basil {
		body["type"], body["proration"], body["invoice_item"] = "invoiceitem", false, i.id
		body["subscription"], body["price"] = orNull(i.subscription), nil
		if i.price != nil {
			body["subscription_item"], body["price"] = i.item, a.priceObject(i.price, v)
		}
		return
	}
	body["parent"] = object{"type": "invoice_item_details", "invoice_item_details": object{
		"invoice_item": i.id, "proration": false, "subscription": orNull(i.subscription),
	}}
	if i.price != nil {
		body["pricing"] = object{"type": "price_details", "price_details": object{"price": i.price.ID}}
	}
}
