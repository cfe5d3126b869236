package stripetest

import (
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
	excluding    bool // what is pending
	autoAdvance  bool
	finalizesAt  time.Time // zero where nothing finalizes it by itself
	finalizedAt  time.Time // zero while it is a draft
	metered      []line    // of a draft, as they stood when it was made
	lines        []line    // of a final one
	outcome      string    // "" while a final one is open
	outcomeAt    time.Time
	creditNotes  []*creditNote
}

// line is what an item costs.
type line struct {
	id          string
	item        Item   // of the subscription
	price       *Price // nil of an invoice item
	invoiceItem *invoiceItem
	start, end  time.Time        // whose usage it is
	before      metering.Decimal // what earlier invoices of the period billed, after a threshold
	free        bool             // the item was in its trial
	counted     bool             // isn't counted again: of a threshold, or edited by hand
	quantity    metering.Decimal
	amount      metering.Decimal // in the currency's smallest unit
}

func (l line) currency() string {
	if l.invoiceItem != nil {
		return l.invoiceItem.currency
	}
	return l.price.Currency
}

// draft makes an invoice, and puts on it what was pending for it: what comes
// later waits for the next.
func (f *Fake) draft(a *account, in *invoice) *invoice {
	in.id, in.created = f.id("in"), in.end
	if in.autoAdvance = in.subscription != nil || in.autoAdvance; in.autoAdvance {
		in.finalizesAt = in.end.Add(grace)
	}
	for n := range in.metered {
		in.metered[n].id = lineID(in, n)
	}
	a.invoices, a.drafts = append(a.invoices, in), append(a.drafts, in)
	if !in.excluding {
		a.attach(in)
	}
	if in.subscription != nil {
		in.subscription.latest = in.id
	}
	paused := in.paused()
	if paused != "" {
		in.autoAdvance, in.finalizesAt = false, time.Time{}
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

// linesOf are a subscription's metered items between two instants.
func (a *account) linesOf(s *subscription, start, end time.Time) []line {
	var lines []line
	for _, i := range s.Items {
		if price := a.price(i.Price); price.UsageType == "metered" {
			lines = append(lines, a.count(s, a.lineOf(s, i, start, end)))
		}
	}
	return lines
}

// lineOf begins where the item got its price. That two items of a customer on
// one meter are both billed is assumed.
func (a *account) lineOf(s *subscription, i Item, start, end time.Time) line {
	if since := s.since[i.ID]; since.After(start) {
		start = since
	}
	return line{item: i, price: a.price(i.Price), start: start, end: end, before: s.billed[i.ID], free: s.inTrial(end)}
}

// count gives a line its quantity and amount. That a trial's line has its
// quantity, and not none, is assumed.
func (a *account) count(s *subscription, l line) line {
	if l.counted {
		return l
	}
	sum := a.usage(s, l.item, l.price, l.start, l.end)
	l.quantity, l.amount = sum.Sub(l.before), metering.Whole(0)
	if l.free {
		return l
	}
	l.amount = l.price.cost(sum)
	if !l.before.IsZero() { // tiers go on: https://docs.stripe.com/billing/subscriptions/usage-based/thresholds
		l.amount = l.amount.Sub(l.price.cost(l.before))
	}
	if l.amount.IsNegative() {
		l.amount = metering.Whole(0)
	}
	return l
}

func (a *account) usage(s *subscription, i Item, price *Price, start, end time.Time) metering.Decimal {
	if price.Meter == "" {
		return a.recorded(i.ID, price.AggregateUsage, start, end)
	}
	return a.metered(a.meter(price.Meter), s.Customer, start, end)
}

// shown are an invoice's lines as the API has them.
func (a *account) shown(in *invoice) []line {
	if in.finalizedAt.IsZero() {
		return append(slices.Clone(in.metered), a.itemLines(in)...)
	}
	return in.lines
}

// counted are the lines that an invoice would have if it were final now.
func (a *account) counted(in *invoice) []line {
	if !in.finalizedAt.IsZero() {
		return in.lines
	}
	var lines []line
	for _, l := range in.metered {
		lines = append(lines, a.count(in.subscription, l))
	}
	return append(lines, a.itemLines(in)...)
}

func total(lines []line) metering.Decimal {
	var sum metering.Decimal
	for _, l := range lines {
		sum = sum.Add(l.amount)
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
