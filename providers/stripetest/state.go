package stripetest

import (
	"cmp"
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// State is the content of GET /_state.
type State struct {
	Now      time.Time      `json:"now"`
	Accounts []AccountState `json:"accounts"`
	Requests []Request      `json:"requests"` // oldest first
}

// AccountState is the state of one account.
type AccountState struct {
	ID        string          `json:"id"`
	Livemode  bool            `json:"livemode"`
	Customers []CustomerState `json:"customers"`
	Invoices  []InvoiceState  `json:"invoices"`
	Pending   []PendingState  `json:"pending"`
	Rejected  []Rejection     `json:"rejected"`
}

// PendingState is an invoice item without an invoice.
type PendingState struct {
	Customer     string            `json:"customer"`
	Subscription string            `json:"subscription"`
	InvoiceItem  string            `json:"invoice_item"`
	Amount       metering.Decimal  `json:"amount"` // in the currency's smallest unit
	Currency     string            `json:"currency"`
	Metadata     map[string]string `json:"metadata"`
}

// CustomerState is the state of a customer's metered items in their current periods.
type CustomerState struct {
	ID    string      `json:"id"`
	Items []ItemState `json:"items"`
}

// ItemState is the line that an item would have if its period ended now.
type ItemState struct {
	Subscription string        `json:"subscription"`
	PeriodStart  time.Time     `json:"period_start"`
	PeriodEnd    time.Time     `json:"period_end"`
	Meter        string        `json:"meter,omitempty"`
	Windows      []WindowState `json:"windows,omitempty"` // windows of all periods
	LineState
}

// WindowState is one hour or day of a meter with an event time window.
type WindowState struct {
	Start time.Time        `json:"start"`
	Value metering.Decimal `json:"value"`
}

// InvoiceState is an invoice. The lines of a draft are counted as if it were finalized now. The API shows
// the lines as counted when the draft was created.
type InvoiceState struct {
	ID           string           `json:"id"`
	Customer     string           `json:"customer"`
	Subscription string           `json:"subscription"`
	Status       string           `json:"status"`
	Reason       string           `json:"billing_reason"`
	PeriodStart  time.Time        `json:"period_start"`
	PeriodEnd    time.Time        `json:"period_end"`
	Total        metering.Decimal `json:"total"` // in the currency's smallest unit
	Lines        []LineState      `json:"lines"`
	Collection   string           `json:"collection_method"`
	DaysUntilDue int64            `json:"days_until_due"`
	AutoAdvance  bool             `json:"auto_advance"`
}

// LineState is the line of one item.
type LineState struct {
	Item        string            `json:"item"`
	Price       string            `json:"price"`
	InvoiceItem string            `json:"invoice_item,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"` // metadata of an invoice item
	Quantity    metering.Decimal  `json:"quantity"`
	Amount      metering.Decimal  `json:"amount"`        // in the currency's smallest unit
	Late        metering.Decimal  `json:"late,omitzero"` // usage that is too late for the invoice; no invoice bills it
	Currency    string            `json:"currency"`
}

// serveState handles GET /_state.
func (f *Fake) serveState(w http.ResponseWriter, _ *http.Request) {
	encode(w, http.StatusOK, f.State())
}

// State returns the state of the fake, after it has ended the periods and finalized the invoices that are due.
func (f *Fake) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processDue()
	state := State{Now: f.now(), Accounts: []AccountState{}, Requests: append([]Request{}, f.requests...)}
	for _, a := range f.accounts {
		state.Accounts = append(state.Accounts, a.state())
	}
	return state
}

// Quantity returns an item's usage in its current period that is on no invoice yet.
func (f *Fake) Quantity(item string) metering.Decimal {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processDue()
	for _, a := range f.accounts {
		if s, price := a.item(item); s != nil {
			u := a.spanOf(s, Item{item, price.ID}, s.start, s.end)
			return a.usage(s, u.item, u.price, u.start, u.end).Sub(u.before)
		}
	}
	return metering.Decimal{}
}

// Total returns the total of an invoice, in the currency's smallest unit. A draft is counted as if it were
// finalized now.
func (f *Fake) Total(id string) metering.Decimal {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processDue()
	for _, a := range f.accounts {
		if in := a.invoice(id); in != nil {
			return totalAmount(a.countedLines(in))
		}
	}
	return metering.Decimal{}
}

// state returns the state of the account for tests.
func (a *account) state() AccountState {
	state := AccountState{
		ID: a.ID, Livemode: a.livemode(), Customers: []CustomerState{}, Invoices: []InvoiceState{}, Pending: a.pending(),
		Rejected: append([]Rejection{}, a.rejections...),
	}
	for _, c := range a.customers {
		customer := CustomerState{ID: c.ID, Items: []ItemState{}}
		for _, s := range a.subscriptions {
			if s.Customer == c.ID && s.runs() {
				customer.Items = append(customer.Items, a.itemStates(s)...)
			}
		}
		state.Customers = append(state.Customers, customer)
	}
	for _, in := range a.invoices {
		state.Invoices = append(state.Invoices, a.invoiceState(in))
	}
	return state
}

// itemStates returns the usage of a subscription in the current period, for each item.
func (a *account) itemStates(s *subscription) []ItemState {
	var items []ItemState
	for _, u := range a.spansOf(s, s.start, s.end) {
		item := ItemState{Subscription: s.ID, PeriodStart: s.start, PeriodEnd: s.end, Meter: u.price.Meter, LineState: u.lines[0].state()}
		item.Quantity, item.Amount = totalQuantity(u.lines), totalAmount(u.lines)
		if m := a.meter(u.price.Meter); m != nil && m.EventTimeWindow != "" {
			for _, w := range a.windows(m, s.Customer) {
				item.Windows = append(item.Windows, WindowState{w.start, w.value})
			}
		}
		items = append(items, item)
	}
	return items
}

// pending returns the invoice items that are on no invoice.
func (a *account) pending() []PendingState {
	pending := []PendingState{}
	for _, i := range a.invoiceItems {
		if i.invoice == nil {
			pending = append(pending, PendingState{i.customer, i.subscription, i.id, i.amount, i.currency, i.metadata})
		}
	}
	return pending
}

// state returns the state of an invoice line.
func (l line) state() LineState {
	state := LineState{Quantity: l.quantity, Amount: l.amount, Currency: l.currency()}
	if l.invoiceItem != nil {
		state.InvoiceItem, state.Metadata = l.invoiceItem.id, l.invoiceItem.metadata
		return state
	}
	state.Item, state.Price = l.span.item.ID, l.span.price.ID
	return state
}

// invoiceState returns the state of an invoice and its lines.
func (a *account) invoiceState(in *invoice) InvoiceState {
	lines := a.countedLines(in)
	state := InvoiceState{
		ID: in.id, Customer: in.customer, Subscription: in.subscriptionID(), Status: in.status(), Reason: in.reason,
		PeriodStart: in.start, PeriodEnd: in.end, Total: totalAmount(lines), Lines: []LineState{},
		Collection: cmp.Or(in.collection, "charge_automatically"), DaysUntilDue: in.daysUntilDue, AutoAdvance: in.autoAdvance,
	}
	var reported *span // the first line of a span has the late usage of the whole span
	for _, l := range lines {
		line := l.state()
		if u := l.span; u != nil && !u.counted && u != reported {
			line.Late, reported = a.late(in, u), u
		}
		state.Lines = append(state.Lines, line)
	}
	return state
}

// late returns the usage in a span that the span's invoice does not bill.
func (a *account) late(in *invoice, u *span) metering.Decimal {
	late := a.usage(in.subscription, u.item, u.price, u.start, u.end).Sub(u.before)
	for _, l := range a.countedLines(in) {
		if l.span == u {
			late = late.Sub(l.quantity)
		}
	}
	return late
}
