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

func (l line) currency() string {
	if l.invoiceItem != nil {
		return l.invoiceItem.currency
	}
	return l.span.price.Currency
}

// count returns the lines of a span. Lines in a trial have the quantity and no amount:
// https://docs.stripe.com/billing/subscriptions/billing-mode/compare#trials
func (a *account) count(s *subscription, u *span) []line {
	if u.counted {
		return u.lines
	}
	quantity := a.usage(s, u.item, u.price, u.start, u.end)
	if u.free {
		return []line{{span: u, quantity: quantity, description: fmt.Sprintf("%s × %s (Free trial)", quantity, u.price.ID)}}
	}
	var lines []line
	for _, p := range u.price.rest(quantity, u.before) {
		lines = append(lines, line{span: u, quantity: p.quantity, amount: p.amount, description: p.description(u.price.ID)})
	}
	return lines
}

func (a *account) usage(s *subscription, i Item, price *Price, start, end time.Time) metering.Decimal {
	if price.Meter == "" {
		return a.recorded(i.ID, price.AggregateUsage, start, end)
	}
	return a.metered(a.meter(price.Meter), s.Customer, start, end)
}

// shown returns the lines of an invoice in the API.
func (a *account) shown(in *invoice) []line {
	return a.linesOf(in, func(u *span) []line { return u.lines })
}

// counted returns the lines that an invoice would have if it were finalized now.
func (a *account) counted(in *invoice) []line {
	return a.linesOf(in, func(u *span) []line { return a.count(in.subscription, u) })
}

func (a *account) linesOf(in *invoice, of func(*span) []line) []line {
	if !in.finalizedAt.IsZero() {
		return in.lines
	}
	var lines []line
	for n, u := range in.spans {
		for k, l := range of(u) {
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

func total(lines []line) metering.Decimal {
	var sum metering.Decimal
	for _, l := range lines {
		sum = sum.Add(l.amount)
	}
	return sum
}

func used(lines []line) metering.Decimal {
	var sum metering.Decimal
	for _, l := range lines {
		sum = sum.Add(l.quantity)
	}
	return sum
}
