package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Facts is everything that is known about the billing of one of a customer's
// streams at one instant.
type Facts struct {
	Now      time.Time          // UTC, in whole microseconds
	After    int64              // the number of the customer's last report before the caller's own pass
	Excluded []metering.MeterID // meters that an operator leaves as they were reported
	MayClose bool               // nothing can be ingested for the tenant meanwhile
	Epoch    int64              // of the ledger: when it was restored from a backup last, in seconds since 1970; 0: never
	Epochs   []int64            // all that it knows of, ascending
	Unread   bool               // what the far side has added up was not read since then: some of it may be unknown here

	Customer   Customer
	Settings   Settings
	Meters     []metering.Meter             // of the tenant, by id
	Prices     map[metering.MeterID][]Price // of meters and plans
	OwnPriced  bool                         // some customer of the tenant has prices of its own
	Connection *Connection                  // nil: the tenant has no billing provider
	InTest     []metering.ConnectionID      // of the tenant's connections, those in test mode
	Side       *Side                        // the customer at the provider, for this stream; nil: it has to be read first

	Stream   int        // most customers have stream 0 alone
	Feeds    []Feed     // of all streams, each meter's in their order; a meter without any feeds stream 0
	Followed []Followed // subscriptions at the connection that have streams of their own

	Stored     []Period         // the stream's periods as they are stored, oldest first
	Invoices   []Invoice        // final ones of periods that are not complete, and of others that are not reconciled with all of theirs
	LateMonths []metering.Range // in which anything came for a closed period
	Booked     []Booked         // of closed periods
	Usage      []Usage          // of the periods of UsageRanges
	Hours      []HourUsage      // of the meters of WindowedMeters, in periods that are not complete: what came late is not in it
	Counted    []EventCount     // of open periods
	Reported   []Reported
	Beside     []Reported // quantities of the customer's other streams: they may be on the same invoices
	Statements []Sent     // of each period that is not complete, at this connection: the last of any state, and the last that was taken
	Finalized  []Sent     // reports that make invoices of ours final, of periods that are not complete
	Open       []Open     // reports whose outcome is not known yet, oldest first
}

// Customer is whose billing it is.
type Customer struct {
	ID              metering.CustomerID
	ExternalID      string
	CreatedAt       time.Time
	BillingStartsAt *time.Time // where the periods begin, if an operator said so
	EarlyEvents     []EarlyEvents
	HeadOpenUntil   *time.Time // until when an event may bring the first stored period forward; nil: that is decided
	Plans           []Assignment
	Prices          []Price // the customer's own, of every meter
}

// EarlyEvents are those of one calendar month before the one in which the
// customer was made. They are read until the first period is decided.
type EarlyEvents struct {
	At         time.Time // of the earliest one
	IngestedAt time.Time // when the first one came
}

// Settings are the tenant's.
type Settings struct {
	Timezone   *time.Location // whose calendar months are the periods of who has no subscription
	Currency   string         // of what has no price; ISO 4217
	Grace      time.Duration  // how long after its end a period stays open
	LatePolicy metering.LatePolicy
}

// Connection is where the tenant's usage is billed.
type Connection struct {
	ID         metering.ConnectionID // reports to another are billed elsewhere
	Statements bool                  // it takes the bill of a period in one report; else each meter is reported by itself
	Invoices   bool                  // its final invoices say what is billed; else what it was seen to have counted is
	Mapping    map[string]string     // the settings that say which meter goes where

	Bills       metering.Bills // of a provider that makes invoices: in what periods are billed that begin from BillsSince on
	BillsBefore metering.Bills // those that began before
	BillsSince  time.Time
	Text        metering.InvoiceText // of the lines that it is given where it bills amounts
}

// Side is what the customer is at the provider, as it was last read there.
type Side struct {
	Customer     string         // its id there; "": it is linked to none
	Subscription string         // whose periods are the customer's; "": none
	Period       metering.Range // the subscription's current one, when it was read
	Trial        bool           // that period is a trial: nothing is charged for it
	Ended        bool           // the subscription has: what is left is its last invoice, which takes usage, and no charges
	Currency     string         // ISO 4217; that the subscription is billed in; "": not known
	Destinations []Destination
	Charges      []Destination // the same where amounts are billed; nil: nobody has asked
	Others       []Side        // its subscriptions with other periods, with the destinations of the meters that these bill
	Runs         []Run         // of all of its subscriptions, as far as the provider lists them
}

// Run is from when and until when a subscription runs, and what it bills.
type Run struct {
	Subscription string
	BeganAt      time.Time
	EndedAt      *time.Time // nil: it has not ended
	Targets      []string   // of destinations that it has a price of, or had when it ended
}

// Counting is what a destination does with the quantities that it is reported.
type Counting string

const (
	Replaces Counting = "replaces" // one takes the place of the one before it
	Adds     Counting = "adds"     // it is added to those before it
	Latest   Counting = "latest"   // the last one of the provider's own period counts
)

// Method is the provider's name for how a quantity is reported.
type Method string

// Destination is where the provider adds up the usage of one meter, and what
// it can take there.
type Destination struct {
	MeterID  metering.MeterID `json:"meter_id"`
	Excluded string           `json:"excluded,omitempty"` // why nothing can be reported of the meter; then the rest is empty

	Price        ProviderPrice        `json:"-"`                // what is charged there for the units; nil: nobody here knows
	Target       string               `json:"target,omitempty"` // what adds it up
	Method       Method               `json:"method,omitempty"`
	Counting     Counting             `json:"counting,omitempty"`
	Window       metering.Granularity `json:"window,omitempty"`         // it keeps a quantity for each hour or day of UTC; "": one for the period
	WholeUnits   bool                 `json:"whole_units,omitempty"`    // it takes no decimals, whatever the meter's usage scale
	NotNegative  bool                 `json:"not_negative,omitempty"`   // what it keeps is never below zero
	OnlyWhileRun bool                 `json:"only_while_run,omitempty"` // it takes nothing of a period of the subscription's that is over
	Address      map[string]string    `json:"address,omitempty"`        // what else the provider needs to find it
}

// Subscription is the part of a provider's subscription that a period lies in.
type Subscription struct {
	ID string // "": none
	metering.Range
	Connection metering.ConnectionID              // where it is; 0: nobody has noted that
	Trial      bool                               // it is a trial: the provider charges nothing for it
	Invoiced   bool                               // its invoice is final, or none follows: nothing that is reported now is on one
	Scales     map[metering.MeterID]int32         // usage scales when it became so, of meters that had any; nil: nobody noted them
	Prices     map[metering.MeterID]ProviderPrice // as the provider last said while it ran, or first said after that
}

// Usage is what one meter has counted in one period; of a closed one, as it was
// counted when it closed.
type Usage struct {
	Period  time.Time // its start
	MeterID metering.MeterID

	Total  metering.Decimal // what came late included
	Events int64

	Late       metering.Decimal // of the total, what came once the period was closed
	LateEvents int64

	Dimensions     []DimensionUsage // of the total, of meters of ByDimension
	LateDimensions []DimensionUsage // of Late
}

// Equal says whether the other usage is the same, of the same period and meter.
func (u Usage) Equal(o Usage) bool {
	return u.Period.Equal(o.Period) && u.MeterID == o.MeterID &&
		u.Total.Equal(o.Total) && u.Events == o.Events && u.Late.Equal(o.Late) && u.LateEvents == o.LateEvents &&
		slices.EqualFunc(u.Dimensions, o.Dimensions, DimensionUsage.Equal) && slices.EqualFunc(u.LateDimensions, o.LateDimensions, DimensionUsage.Equal)
}

// EventCount is how many events the customer has in the months that a period
// touches, and late ones in every month: what comes changes it, whatever its
// value.
type EventCount struct {
	Period time.Time // its start
	Events int64
}

// HourUsage is what one meter has counted in one local hour of a period, or in
// the part of it that lies in the period.
type HourUsage struct {
	Period  time.Time // its start
	MeterID metering.MeterID
	Start   time.Time
	Total   metering.Decimal
}

// Reported is what one series has been reported of one meter, and what is on
// its way there.
type Reported struct {
	Series
	MeterID metering.MeterID

	To          InvoicedBy // of the last report
	Taken       Sums       // of the reports that were taken
	Standing    Sums       // of those, and of those that may be: all but rejected ones, and ones that were never sent to a former connection
	Outstanding bool       // one is on its way
	Last        uuid.UUID  // the last report
	Number      int64      // its number
	State       State      // its state
	Timestamp   *time.Time // with which the latest one went out
	Epoch       int64      // in which the last one was made that was taken
	TakenAt     time.Time  // when the last one was taken that was not seen counted; zero: there is none

	Invoiced *metering.Decimal // of the quantity, what final invoices bill; nil: they are not final. Reconcile finds it
	Line     *ChargeLine       // of what is charged as an amount; nil: it is on no final invoice
}

// ChargeLine is what final invoices have of an amount that was charged.
type ChargeLine struct {
	Amount   metering.Decimal `json:"amount"`
	Set      metering.Decimal `json:"set"`      // what the line was last set to from here: another amount is somebody else's
	Currency string           `json:"currency"` // that it was charged in
	Void     bool             `json:"void"`     // nobody has to pay it
}

// Sums are what some reports of a series come to.
type Sums struct {
	Any      bool             // there are some
	Value    metering.Decimal // the quantity that the far side has with the last one
	Added    metering.Decimal // the quantities that went out, added up
	Quantity metering.Decimal // that went out with the last one
	Amount   metering.Decimal // of the last one
	Currency string           // of the same
	Theirs   bool             // that is at the provider's own price
}

// Sent is a statement as it was written down.
type Sent struct {
	ID     uuid.UUID
	Period time.Time // its start
	Number int64
	Epoch  int64 // in which it was made
	State  State
	Lines  []Line
}

// Open is a report whose outcome is not known yet.
type Open struct {
	ID         uuid.UUID
	Kind       Kind
	Connection metering.ConnectionID // that it was made for
	Period     time.Time             // start of the one that it is about
	State      State
	Epoch      int64      // in which it was made
	LeaseUntil *time.Time // nobody else sends it before
}

// containsAny reports whether any element satisfies is. Unlike slices.ContainsFunc, it copies no
// element.
func containsAny[E any](all []E, is func(*E) bool) bool {
	for i := range all {
		if is(&all[i]) {
			return true
		}
	}
	return false
}
