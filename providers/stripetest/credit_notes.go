package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// creditNote credits a part of a final invoice: https://docs.stripe.com/api/credit_notes
type creditNote struct {
	id      string
	invoice *invoice
	made    time.Time
	amount  metering.Decimal // in the currency's smallest unit
	after   bool             // created after the invoice was paid
	lines   []creditLine
	reason  string
	memo    string
	void    bool
}

// creditLine is the credited amount of one invoice line.
type creditLine struct {
	invoiceLine string
	amount      metering.Decimal
}

// credited returns the sums of an invoice's credit notes before and after its payment.
func (in *invoice) credited() (sum struct{ before, after metering.Decimal }) {
	for _, n := range in.creditNotes {
		switch {
		case n.void:
		case n.after:
			sum.after = sum.after.Add(n.amount)
		default:
			sum.before = sum.before.Add(n.amount)
		}
	}
	return sum
}

// creditable returns the maximum amount of another credit note.
func (in *invoice) creditable() metering.Decimal {
	credited := in.credited()
	return totalAmount(in.lines).Sub(credited.before).Sub(credited.after)
}

// createCreditNote handles POST /v1/credit_notes.
func (c *call) createCreditNote() answer {
	in := c.invoice(c.form.Get("invoice"))
	if in == nil {
		return refused(http.StatusBadRequest, "resource_missing", "invoice", "No such invoice: '%s'", c.form.Get("invoice"))
	}
	if status := in.status(); status != "open" && status != "paid" {
		return invalid("invoice", "Credit notes can only be made for open and paid invoices. This invoice is %s.", status)
	}
	n := &creditNote{
		invoice: in, made: c.fake.customerTime(c.account, in.customer).Truncate(time.Second), after: in.status() == "paid",
		reason: c.form.Get("reason"), memo: c.form.Get("memo"),
	}
	if problem := c.readCredit(n); problem != nil {
		return *problem
	}
	n.id = c.fake.id("cn")
	in.creditNotes = append(in.creditNotes, n)
	c.fake.emit(c.account, n.made, "credit_note.created", c.creditNoteObject(n))
	if !n.after && in.creditable().IsZero() {
		c.fake.conclude(c.account, in, "paid", n.made)
	}
	return okAnswer(c.creditNoteObject(n))
}

// readCredit sets the lines and the amount of the credit note from the call's amount or from its lines with amounts.
func (c *call) readCredit(n *creditNote) *answer {
	problem := func(a answer) *answer { return &a }
	for i := 0; c.form.Has(creditField(i, "type")); i++ {
		credit := creditLine{invoiceLine: c.form.Get(creditField(i, "invoice_line_item"))}
		if !slices.ContainsFunc(n.invoice.lines, func(l line) bool { return l.id == credit.invoiceLine }) {
			return problem(refused(http.StatusBadRequest, "resource_missing", creditField(i, "invoice_line_item"), "No such line item: '%s'", credit.invoiceLine))
		}
		amount, err := strconv.ParseInt(c.form.Get(creditField(i, "amount")), 10, 64)
		if err != nil || amount <= 0 {
			return problem(invalid(creditField(i, "amount"), "This fake of Stripe takes positive amounts of lines only."))
		}
		credit.amount = metering.Whole(amount)
		n.lines, n.amount = append(n.lines, credit), n.amount.Add(credit.amount)
	}
	if c.form.Has("amount") && len(n.lines) == 0 {
		amount, err := strconv.ParseInt(c.form.Get("amount"), 10, 64)
		if err != nil {
			return problem(invalid("amount", "Invalid integer: %s", c.form.Get("amount")))
		}
		n.amount = metering.Whole(amount)
	}
	switch {
	case n.amount.IsZero() || n.amount.IsNegative():
		return problem(invalid("amount", "You must pass an amount or lines."))
	case n.amount.Cmp(n.invoice.creditable()) > 0:
		return problem(invalid("amount", "The credit note's amount %s is above what can be credited: %s.", n.amount, n.invoice.creditable()))
	case n.after && !c.form.Has("credit_amount") && !c.form.Has("refund_amount") && !c.form.Has("out_of_band_amount"):
		return problem(invalid("amount", "A credit note of a paid invoice must say where its amount goes: refund_amount, credit_amount, out_of_band_amount."))
	}
	return nil
}

// creditField returns the name of a field of the n-th line of a credit note.
func creditField(n int, name string) string { return "lines[" + strconv.Itoa(n) + "][" + name + "]" }

// creditNoteInPath returns the credit note that the path names, or the error if there is none.
func (c *call) creditNoteInPath() (*creditNote, *answer) {
	id := c.request.PathValue("id")
	for _, in := range c.invoices {
		for _, n := range in.creditNotes {
			if n.id == id {
				return n, nil
			}
		}
	}
	problem := missing("credit note", id)
	return nil, &problem
}

// getCreditNote handles GET /v1/credit_notes/{id}.
func (c *call) getCreditNote() answer {
	n, problem := c.creditNoteInPath()
	if problem != nil {
		return *problem
	}
	return okAnswer(c.creditNoteObject(n))
}

// voidCreditNote handles POST /v1/credit_notes/{id}/void.
func (c *call) voidCreditNote() answer {
	n, problem := c.creditNoteInPath()
	if problem != nil {
		return *problem
	}
	if n.void || n.after || n.invoice.status() != "open" { // https://docs.stripe.com/api/credit_notes/void
		return invalid("", "You can only void a credit note of an open invoice.")
	}
	n.void = true
	c.fake.emit(c.account, c.fake.customerTime(c.account, n.invoice.customer).Truncate(time.Second), "credit_note.voided", c.creditNoteObject(n))
	return okAnswer(c.creditNoteObject(n))
}

// listCreditNotes handles GET /v1/credit_notes.
func (c *call) listCreditNotes() answer {
	var all []object
	for _, in := range slices.Backward(c.invoices) {
		for _, n := range slices.Backward(in.creditNotes) {
			if c.matchesFilter("invoice", in.id) && c.matchesFilter("customer", in.customer) {
				all = append(all, c.creditNoteObject(n))
			}
		}
	}
	return c.page(all)
}

// creditNoteObject returns the credit note in the form of the API.
func (a *account) creditNoteObject(n *creditNote) object {
	body := object{
		"object": "credit_note", "id": n.id, "invoice": n.invoice.id, "customer": n.invoice.customer, "livemode": a.livemode(),
		"amount": n.amount, "total": n.amount, "subtotal": n.amount, "currency": a.currencyOn(n.invoice), "created": n.made.Unix(),
		"status": "issued", "type": "pre_payment", "reason": orNull(n.reason), "memo": orNull(n.memo), "metadata": object{},
	}
	if n.void {
		body["status"] = "void"
	}
	if n.after {
		body["type"] = "post_payment"
	}
	var lines []object
	for i, l := range n.lines {
		lines = append(lines, object{
			"object": "credit_note_line_item", "id": "cnli_" + n.id + "_" + strconv.Itoa(i), "type": "invoice_line_item",
			"invoice_line_item": l.invoiceLine, "amount": l.amount, "livemode": a.livemode(),
		})
	}
	body["lines"] = listObject(lines, embeddedLines, "/v1/credit_notes/"+n.id+"/lines")
	return body
}
