package stripetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// grace is how long an invoice is a draft by default:
// https://docs.stripe.com/billing/subscriptions/usage-based/configure-grace-period
const grace = time.Hour

type invoice struct {
	id           string
	customer     string
	subscription *subscription // nil of an invoice that a call made
	reason       string
	start, end   time.Time
	created      time.Time
	metadata     map[string]string
	currency     string // of an invoice that a call made; "": that of its lines
	collection   string // "": charge_automatically
	daysUntilDue int64  // of one that is sent
	excluding    bool   // what is pending
	autoAdvance  bool
	finalizesAt  time.Time // zero where nothing finalizes it by itself
	finalizedAt  time.Time // zero while it is a draft
	spans        []*span
	edited       map[string]line // by somebody, while it was a draft
	lines        []line          // of a final one
	outcome      string          // "" while a final one is open
	outcomeAt    time.Time
	creditNotes  []*creditNote
}

// span is an item's usage between two instants.
type span struct {
	item       Item
	price      *Price
	start, end time.Time
	before     metering.Decimal // what earlier invoices of the period billed, after a threshold
	free       bool             // the item was in its trial
	counted    bool             // of a threshold's invoice: isn't counted again
	lines      []line           // as they stood when the draft was made
}

// line is what a span or an invoice item costs.
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

// draft makes an invoice, and puts on it what was pending for it: what comes
// later waits for the next.
func (f *Fake) draft(a *account, in *invoice) *invoice {
	in.id, in.created, in.edited = f.id("in"), in.end, map[string]line{}
	paused := in.paused()
	in.autoAdvance = paused == "" && !a.KeepDrafts && (in.autoAdvance || in.subscription != nil)
	if in.autoAdvance {
		in.finalizesAt = in.created.Add(grace)
	}
	a.invoices, a.drafts = append(a.invoices, in), append(a.drafts, in)
	if !in.excluding {
		a.attach(in)
	}
	if in.subscription != nil {
		in.subscription.latest = in.id
	}
	f.emitInvoice(a, in, in.created, "invoice.created")
	if paused == "void" || paused == "uncollectible" {
		f.finalize(a, in, in.created)
		f.conclude(a, in, paused, in.created)
	}
	return in
}

// paused is what becomes of a new invoice while its subscription's collection
// is paused: https://docs.stripe.com/billing/subscriptions/pause-payment
func (in *invoice) paused() string {
	if in.subscription == nil {
		return ""
	}
	return strings.TrimPrefix(in.subscription.paused(in.created), "mark_")
}

// finalizeDue finalizes every draft whose time has come.
func (f *Fake) finalizeDue(a *account) {
	for _, in := range slices.Clone(a.drafts) {
		if !in.finalizesAt.IsZero() && !f.at(a, in.customer).Before(in.finalizesAt) {
			f.note(step{Serial: f.serial})
			f.finalize(a, in, in.finalizesAt)
		}
	}
}

// finalize counts metered usage again, for the last time.
func (f *Fake) finalize(a *account, in *invoice, at time.Time) {
	in.lines = a.counted(in)
	in.finalizedAt, in.finalizesAt = at, time.Time{}
	a.drafts = slices.DeleteFunc(a.drafts, func(other *invoice) bool { return other == in })
	f.emitInvoice(a, in, at, "invoice.finalized")
}

// conclude ends a final invoice.
func (f *Fake) conclude(a *account, in *invoice, outcome string, at time.Time) {
	in.outcome, in.outcomeAt, in.autoAdvance = outcome, at, false
	kind := map[string]string{"paid": "invoice.paid", "void": "invoice.voided", "uncollectible": "invoice.marked_uncollectible"}[outcome]
	f.emitInvoice(a, in, at, kind)
}

// spansOf are a subscription's metered items between two instants.
func (a *account) spansOf(s *subscription, start, end time.Time) []*span {
	var spans []*span
	for _, i := range s.Items {
		if price := a.price(i.Price); price.UsageType == "metered" {
			spans = append(spans, a.spanOf(s, i, start, end))
		}
	}
	return spans
}

// spanOf begins where the item got its price. That two items of a customer on
// one meter are both billed is assumed.
func (a *account) spanOf(s *subscription, i Item, start, end time.Time) *span {
	if since := s.since[i.ID]; since.After(start) {
		start = since
	}
	u := &span{item: i, price: a.price(i.Price), start: start, end: end, before: s.billed[i.ID], free: s.inTrial(end)}
	u.lines = a.count(s, u)
	return u
}

// count makes the lines of a span. Those of a trial have the quantity and cost
// nothing: https://docs.stripe.com/billing/subscriptions/billing-mode/compare#trials
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

// shown are an invoice's lines as the API has them.
func (a *account) shown(in *invoice) []line {
	return a.linesOf(in, func(u *span) []line { return u.lines })
}

// counted are the lines that an invoice would have if it were final now.
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

// description is in the words of published invoices.
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

func (a *account) invoice(id string) *invoice {
	for _, in := range a.invoices {
		if in.id == id {
			return in
		}
	}
	return nil
}

func (in *invoice) status() string {
	switch {
	case in.finalizedAt.IsZero():
		return "draft"
	case in.outcome != "":
		return in.outcome
	}
	return "open"
}

func (in *invoice) subscriptionID() string {
	if in.subscription == nil {
		return ""
	}
	return in.subscription.ID
}

// currency is that of every price of a subscription.
func (a *account) currency(s *subscription) string {
	if len(s.Items) == 0 {
		return "usd"
	}
	return a.price(s.Items[0].Price).Currency
}
