package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// updateLine follows https://docs.stripe.com/api/invoice-line-item/update. It updates a line of a draft.
// The fake assumes that an updated metered line is not counted again.
func (c *call) updateLine() answer {
	in, problem := c.invoiceInPath()
	if problem != nil {
		return *problem
	}
	if in.status() != "draft" {
		return refused(http.StatusBadRequest, "invoice_not_editable", "", "The lines of invoice %s can no longer be changed.", in.id)
	}
	id := c.request.PathValue("line")
	lines := c.shownLines(in)
	at := slices.IndexFunc(lines, func(l line) bool { return l.id == id })
	if at < 0 {
		return missing("line item", id)
	}
	edited := lines[at]
	for field, value := range map[string]*metering.Decimal{"amount": &edited.amount, "quantity": &edited.quantity} {
		if !c.form.Has(field) {
			continue
		}
		whole, err := strconv.ParseInt(c.form.Get(field), 10, 64)
		if err != nil {
			return invalid(field, "Invalid integer: %s", c.form.Get(field))
		}
		*value = metering.Whole(whole)
	}
	if i := edited.invoiceItem; i != nil {
		i.amount, i.quantity, i.description = edited.amount, edited.quantity, c.formOr("description", i.description)
	} else {
		edited.description = c.formOr("description", edited.description)
		in.edited[id] = edited
	}
	c.fake.emitInvoice(c.account, in, c.fake.customerTime(c.account, in.customer).Truncate(time.Second), "invoice.updated")
	return okAnswer(c.lineObjects(in, c.view())[at])
}
