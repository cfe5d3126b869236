package metering

import "time"

// Mechanism is how usage is told to a billing provider.
type Mechanism string

// Under those that Overwrites names, what is told with another value takes the
// place of the former; under the others it is added.
const (
	InSnapshot  Mechanism = "snapshot"
	Adjusted    Mechanism = "adjustment"   // what late usage adds to a closed period, in money
	UsageRecord Mechanism = "usage_record" // the period's total, at one timestamp of the period
	MeterWindow Mechanism = "meter_window" // a window's total, in that window
	MeterDelta  Mechanism = "meter_delta"  // what came since the last entry
	MeterLast   Mechanism = "meter_last"   // the period's total, later than the last entry
	InvoiceItem Mechanism = "invoice_item" // money on the next invoice, for usage of a period that is invoiced
)

// Values are all mechanisms.
func (Mechanism) Values() []Mechanism {
	return []Mechanism{InSnapshot, Adjusted, UsageRecord, MeterWindow, MeterDelta, MeterLast, InvoiceItem}
}

// Overwrites says whether an entry replaces what was told before it, so that
// it may be told under a new idempotency key.
func (m Mechanism) Overwrites() bool { return m != MeterDelta && m != InvoiceItem }

// EntryStatus is where an entry stands in its life.
type EntryStatus string

const (
	EntryPrepared     EntryStatus = "prepared"
	EntrySent         EntryStatus = "sent" // it may have arrived
	EntryAcknowledged EntryStatus = "acknowledged"
	EntryConfirmed    EntryStatus = "confirmed" // seen in what the provider counted
	EntryRejected     EntryStatus = "rejected"
	EntryAmbiguous    EntryStatus = "ambiguous" // what the provider counted does not tell whether it arrived
)

// Values are all that an entry may be.
func (EntryStatus) Values() []EntryStatus {
	return []EntryStatus{EntryPrepared, EntrySent, EntryAcknowledged, EntryConfirmed, EntryRejected, EntryAmbiguous}
}

// Item is where one meter's usage goes at a provider.
type Item struct {
	MeterID     MeterID     `json:"meter_id"`
	Skipped     string      `json:"skipped,omitempty"` // why it goes nowhere; then the rest is empty
	Mechanism   Mechanism   `json:"mechanism,omitempty"`
	Target      string      `json:"target,omitempty"` // what adds it up: the provider's item, or its meter
	ItemID      string      `json:"item_id,omitempty"`
	Window      Granularity `json:"window,omitempty"` // of UTC; of MeterWindow only
	EventName   string      `json:"event_name,omitempty"`
	CustomerKey string      `json:"customer_key,omitempty"`
	ValueKey    string      `json:"value_key,omitempty"`
}

// Call is what the provider is told: it never changes once it is made.
type Call struct {
	Mechanism   Mechanism `json:"mechanism"`
	Target      string    `json:"target"`
	ItemID      string    `json:"item_id,omitempty"`
	EventName   string    `json:"event_name,omitempty"`
	CustomerKey string    `json:"customer_key,omitempty"`
	ValueKey    string    `json:"value_key,omitempty"`
	Customer    string    `json:"customer"` // at the provider
	Quantity    Decimal   `json:"quantity"` // units; of an InvoiceItem money
	Timestamp   time.Time `json:"timestamp"`

	// Of an InvoiceItem, whose Target is the subscription.
	Currency    string `json:"currency,omitempty"`
	Description string `json:"description,omitempty"` // the customer reads it on the invoice
	Period      *Range `json:"period,omitempty"`      // what it is charged for
}

// Link is what a customer is at a provider.
type Link struct {
	Account      string
	Customer     string // "": it is linked to none
	Subscription string // whose periods the customer's are; "": none
	Period       Range  // of the subscription, when it was read
	Items        []Item
}
