package stripetest

import (
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// State is all that a fake knows.
type State struct {
	Now      time.Time      `json:"now"`
	Accounts []AccountState `json:"accounts"`
	Requests []Request      `json:"requests"` // the oldest first
}

// AccountState is what one account would bill.
type AccountState struct {
	ID        string          `json:"id"`
	Livemode  bool            `json:"livemode"`
	Customers []CustomerState `json:"customers"`
	Invoices  []InvoiceState  `json:"invoices"`
	Rejected  []Rejection     `json:"rejected"`
}

// CustomerState is a customer's metered items, in their current periods.
type CustomerState struct {
	ID    string      `json:"id"`
	Items []ItemState `json:"items"`
}

// ItemState is what an item would cost if its period ended now.
type ItemState struct {
	Subscription string        `json:"subscription"`
	PeriodStart  time.Time     `json:"period_start"`
	PeriodEnd    time.Time     `json:"period_end"`
	Meter        string        `json:"meter,omitempty"`
	Windows      []WindowState `json:"windows,omitempty"` // of all time
	LineState
}

// WindowState is an hour or a day of a meter with an event time window.
type WindowState struct {
	Start time.Time        `json:"start"`
	Value metering.Decimal `json:"value"`
}

// InvoiceState is an invoice; a draft's lines still change.
type InvoiceState struct {
	ID           string           `json:"id"`
	Customer     string           `json:"customer"`
	Subscription string           `json:"subscription"`
	Status       string           `json:"status"`
	PeriodStart  time.Time        `json:"period_start"`
	PeriodEnd    time.Time        `json:"period_end"`
	Total        metering.Decimal `json:"total"` // in the currency's smallest unit
	Lines        []LineState      `json:"lines"`
}

// LineState is one item's share.
type LineState struct {
	Item     string           `json:"item"`
	Price    string           `json:"price"`
	Quantity metering.Decimal `json:"quantity"`
	Amount   metering.Decimal `json:"amount"`        // in the currency's smallest unit
	Late     metering.Decimal `json:"late,omitzero"` // came after the invoice was finalized; nobody pays it
	Currency string           `json:"currency"`
}

func (f *Fake) serveState(w http.ResponseWriter, _ *http.Request) {
	encode(w, http.StatusOK, f.State())
}

// State returns all that the fake knows.
func (f *Fake) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	state := State{Now: f.now(), Accounts: []AccountState{}, Requests: append([]Request{}, f.requests...)}
	for _, a := range f.accounts {
		state.Accounts = append(state.Accounts, a.state())
	}
	return state
}

// Quantity is an item's usage in its current period.
func (f *Fake) Quantity(item string) metering.Decimal {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	for _, a := range f.accounts {
		if s, price := a.item(item); s != nil {
			return a.usage(s, Item{ID: item}, price, s.start, s.end)
		}
	}
	return metering.Decimal{}
}

func (a *account) state() AccountState {
	state := AccountState{
		ID: a.ID, Livemode: a.livemode(), Customers: []CustomerState{}, Invoices: []InvoiceState{},
		Rejected: append([]Rejection{}, a.rejections...),
	}
	for _, c := range a.customers {
		customer := CustomerState{ID: c.ID, Items: []ItemState{}}
		for _, s := range a.subscriptions {
			if s.Customer == c.ID && s.live() {
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

func (a *account) itemStates(s *subscription) []ItemState {
	var items []ItemState
	for _, l := range a.linesOf(s, s.start, s.end) {
		item := ItemState{Subscription: s.ID, PeriodStart: s.start, PeriodEnd: s.end, Meter: l.price.Meter, LineState: l.state()}
		if m := a.meter(l.price.Meter); m != nil && m.EventTimeWindow != "" {
			for _, w := range a.windows(m, s.Customer) {
				item.Windows = append(item.Windows, WindowState{w.start, w.value})
			}
		}
		items = append(items, item)
	}
	return items
}

func (l line) state() LineState {
	return LineState{Item: l.item.ID, Price: l.price.ID, Quantity: l.quantity, Amount: l.amount, Currency: l.price.Currency}
}

func (a *account) invoiceState(in *invoice) InvoiceState {
	state := InvoiceState{
		ID: in.id, Customer: in.subscription.Customer, Subscription: in.subscription.ID, Status: in.status(),
		PeriodStart: in.start, PeriodEnd: in.end, Lines: []LineState{},
	}
	for _, l := range a.current(in) {
		line := l.state()
		line.Late = a.usage(in.subscription, l.item, l.price, in.start, in.end).Sub(l.quantity)
		state.Total = state.Total.Add(l.amount)
		state.Lines = append(state.Lines, line)
	}
	return state
}
