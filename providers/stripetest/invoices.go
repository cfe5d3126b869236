package stripetest

import (
	"slices"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// grace is the default time for which an invoice is a draft:
// https://docs.stripe.com/billing/subscriptions/usage-based/configure-grace-period
const grace = time.Hour

// invoice is a draft or final invoice.
type invoice struct {
	id           string
	customer     string
	subscription *subscription // nil: a call created the invoice
	reason       string
	start, end   time.Time
	created      time.Time
	metadata     map[string]string
	currency     string // set by the call that created the invoice; "": currency of the lines
	collection   string // "": charge_automatically
	daysUntilDue int64  // with send_invoice
	excluding    bool   // excludes pending invoice items
	autoAdvance  bool
	finalizesAt  time.Time // zero: no automatic finalization
	finalizedAt  time.Time // zero: a draft
	spans        []*span
	edited       map[string]line // lines that were updated in the draft, by id
	lines        []line          // only for a final invoice
	outcome      string          // "": a final invoice is open
	outcomeAt    time.Time
	creditNotes  []*creditNote
}

// span is a part of a billing period in which a subscription item has one price. An invoice bills the item's usage in
// the span.
type span struct {
	item       Item
	price      *Price
	start, end time.Time
	before     metering.Decimal // quantity on earlier invoices of the period, created by a threshold
	free       bool             // usage in the trial is free
	counted    bool             // on the invoice of a threshold, and not counted again
	lines      []line           // as counted when the draft was created
}

// addDraft adds an invoice to the account, and attaches the pending invoice items unless the invoice excludes them.
// Later items are attached to the next invoice. If collection is paused with the behavior void or mark_uncollectible,
// addDraft also finalizes the invoice and gives it that status.
func (f *Fake) addDraft(a *account, in *invoice) *invoice {
	in.id, in.created, in.edited = f.id("in"), in.end, map[string]line{}
	paused := in.pauseBehavior()
	in.autoAdvance = paused == "" && !a.KeepDrafts && (in.autoAdvance || in.subscription != nil)
	if in.autoAdvance {
		in.finalizesAt = in.created.Add(grace)
	}
	a.invoices, a.drafts = append(a.invoices, in), append(a.drafts, in)
	if !in.excluding {
		a.attachPendingItems(in)
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

// pauseBehavior returns the behavior of paused collection for the invoice, without the prefix mark_. It
// returns "" if collection is not paused, or if the invoice has no subscription:
// https://docs.stripe.com/billing/subscriptions/pause-payment
func (in *invoice) pauseBehavior() string {
	if in.subscription == nil {
		return ""
	}
	return strings.TrimPrefix(in.subscription.pauseBehavior(in.created), "mark_")
}

// finalizeDue finalizes every draft that is due.
func (f *Fake) finalizeDue(a *account) {
	for _, in := range slices.Clone(a.drafts) {
		if !in.finalizesAt.IsZero() && !f.customerTime(a, in.customer).Before(in.finalizesAt) {
			f.note(step{Serial: f.serial})
			f.finalize(a, in, in.finalizesAt)
		}
	}
}

// finalize counts the metered usage of a draft for the last time, and makes the invoice final.
func (f *Fake) finalize(a *account, in *invoice, at time.Time) {
	in.lines = a.countedLines(in)
	in.finalizedAt, in.finalizesAt = at, time.Time{}
	a.drafts = slices.DeleteFunc(a.drafts, func(other *invoice) bool { return other == in })
	f.emitInvoice(a, in, at, "invoice.finalized")
}

// conclude marks a final invoice as paid, void or uncollectible.
func (f *Fake) conclude(a *account, in *invoice, outcome string, at time.Time) {
	in.outcome, in.outcomeAt, in.autoAdvance = outcome, at, false
	kind := map[string]string{"paid": "invoice.paid", "void": "invoice.voided", "uncollectible": "invoice.marked_uncollectible"}[outcome]
	f.emitInvoice(a, in, at, kind)
}

// spansOf returns the spans of a subscription's metered items between two times.
func (a *account) spansOf(s *subscription, start, end time.Time) []*span {
	var spans []*span
	for _, i := range s.Items {
		if price := a.price(i.Price); price.UsageType == "metered" {
			spans = append(spans, a.spanOf(s, i, start, end))
		}
	}
	return spans
}

// spanOf returns the span of an item. It starts when the item got its price, if this is after start. The
// fake assumes that two items of a customer on one meter are both billed.
func (a *account) spanOf(s *subscription, i Item, start, end time.Time) *span {
	if since := s.since[i.ID]; since.After(start) {
		start = since
	}
	u := &span{item: i, price: a.price(i.Price), start: start, end: end, before: s.billed[i.ID], free: s.inTrial(end)}
	u.lines = a.linesOfSpan(s, u)
	return u
}

// invoice returns the invoice with an id, or nil.
func (a *account) invoice(id string) *invoice {
	for _, in := range a.invoices {
		if in.id == id {
			return in
		}
	}
	return nil
}

// status returns draft, open, or the outcome of the invoice.
func (in *invoice) status() string {
	switch {
	case in.finalizedAt.IsZero():
		return "draft"
	case in.outcome != "":
		return in.outcome
	}
	return "open"
}

// subscriptionID returns the id of the subscription, or "".
func (in *invoice) subscriptionID() string {
	if in.subscription == nil {
		return ""
	}
	return in.subscription.ID
}

// currency returns the currency of a subscription's prices.
func (a *account) currency(s *subscription) string {
	if len(s.Items) == 0 {
		return "usd"
	}
	return a.price(s.Items[0].Price).Currency
}
