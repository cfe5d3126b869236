package stripetest

import (
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// line is the invoice line of a span or an invoice item.
type line struct {
	id          string
	span        *span
	invoiceItem *invoiceItem
	description string
	quantity    metering.Decimal
	amount      metering.Decimal // in the currency's smallest unit
}

// currency returns the currency of the invoice item or of the price.
func (l line) currency() string {
	if l.invoiceItem != nil {
		return l.invoiceItem.currency
	}
	return l.span.price.Currency
}

// linesOfSpan returns the lines for the usage in a span, counted now unless the span is already billed. Lines in a
// trial have a quantity and no amount: https://docs.stripe.com/billing/subscriptions/billing-mode/compare#trials
func (a *account) linesOfSpan(s *subscription, u *span) []line {
	if u.counted {
		return u.lines
	}
	quantity := a.usage(s, u.item, u.price, u.start, u.end)
	if u.free {
		return []line{{span: u, quantity: quantity, description: fmt.Sprintf("%s × %s (Free trial)", quantity, u.price.ID)}}
	}
	var lines []line
	for _, p := range u.price.remainingParts(quantity, u.before) {
		lines = append(lines, line{span: u, quantity: p.quantity, amount: p.amount, description: p.description(u.price.ID)})
	}
	return lines
}

// usage returns the quantity of an item's usage between two times, from usage records or meter events.
func (a *account) usage(s *subscription, i Item, price *Price, start, end time.Time) metering.Decimal {
	if price.Meter == "" {
		return a.recorded(i.ID, price.AggregateUsage, start, end)
	}
	return a.metered(a.meter(price.Meter), s.Customer, start, end)
}

// shownLines returns the lines of an invoice as the API returns them. For a draft, the usage is as counted when the
// draft was created.
func (a *account) shownLines(in *invoice) []line {
	return a.linesOf(in, func(u *span) []line { return u.lines })
}

// countedLines returns the lines that an invoice would have if it were finalized now.
func (a *account) countedLines(in *invoice) []line {
	return a.linesOf(in, func(u *span) []line { return a.linesOfSpan(in.subscription, u) })
}

// linesOf returns the lines of an invoice. For a draft, spanLines returns the lines of each span.
func (a *account) linesOf(in *invoice, spanLines func(*span) []line) []line {
	if !in.finalizedAt.IsZero() {
		return in.lines
	}
	var lines []line
	for n, u := range in.spans {
		for k, l := range spanLines(u) {
			l.id = fmt.Sprintf("il_%s_%d_%d", in.id, n, k)
			if edited, ok := in.edited[l.id]; ok {
				l = edited
			}
			lines = append(lines, l)
		}
	}
	return append(lines, a.itemLines(in)...)
}

// description returns the text of a line, as in published invoices.
func (p part) description(price string) string {
	switch {
	case p.flat:
		return fmt.Sprintf("%s (Tier %d)", price, p.tier)
	case p.tier > 0:
		return fmt.Sprintf("%s × %s (Tier %d)", p.quantity, price, p.tier)
	}
	return fmt.Sprintf("%s × %s", p.quantity, price)
}

// totalAmount returns the sum of the lines' amounts.
func totalAmount(lines []line) metering.Decimal {
	var sum metering.Decimal
	for _, l := range lines {
		sum = sum.Add(l.amount)
	}
	return sum
}

// totalQuantity returns the sum of the lines' quantities.
func totalQuantity(lines []line) metering.Decimal {
	var sum metering.Decimal
	for _, l := range lines {
		sum = sum.Add(l.quantity)
	}
	return sum
}
