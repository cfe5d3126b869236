package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Facts holds everything that is known about one of a customer's billing schedules at one instant.
type Facts struct {
	Now      time.Time          // UTC, in whole microseconds
	After    int64              // number of the customer's last report before the caller's pass
	Excluded []metering.MeterID // meters that an operator excludes; they keep their last reported state
	MayClose bool               // Plan closes due periods, and the caller rules out usage that arrives meanwhile
	Epoch    int64              // last restore of the ledger from a backup, in seconds since 1970; 0: never restored
	Epochs   []int64            // all restores that the ledger knows of, ascending
	Unread   bool               // the provider's totals were not read since the last restore; reports may be missing

	Customer   Customer
	Settings   Settings
	Meters     []metering.Meter             // the tenant's meters, by ID
	Prices     map[metering.MeterID][]Price // prices of meters and plans
	OwnPriced  bool                         // a customer of the tenant has prices of its own
	Connection *Connection                  // nil: the tenant has no billing provider
	InTest     []metering.ConnectionID      // connections of the tenant in test mode
	Side       *Side                        // customer's state at the provider, for this schedule; nil: not read yet

	Stream   int        // number of the billing schedule; most customers only have schedule 0
	Feeds    []Feed     // assignments of meters to schedules, in order for each meter; default: schedule 0
	Followed []Followed // subscriptions that have billing schedules of their own, at all connections

	Stored     []Period         // stored periods of the schedule, oldest first
	Invoices   []Invoice        // final invoices of periods that are incomplete, or not reconciled with all of them
	LateMonths []metering.Range // months with late usage
	Booked     []Booked         // booked adjustments of closed periods
	Usage      []Usage          // usage of the periods of UsageRanges
	Hours      []HourUsage      // hourly usage of the WindowedMeters in the periods of UsageRanges, without late usage
	Counted    []EventCount     // event counts for open periods
	Reported   []Reported       // reports of the schedule, by series and meter
	Beside     []Reported       // reports of the customer's other schedules, which the same invoices may bill
	Statements []Sent           // last statement, and last accepted one, of each incomplete period, at this connection
	Finalized  []Sent           // reports that finalize standalone invoices of incomplete periods
	Open       []Open           // outstanding reports, oldest first
}

// Customer is the billed customer, with its plans and its own prices.
type Customer struct {
	ID              metering.CustomerID
	ExternalID      string
	CreatedAt       time.Time
	BillingStartsAt *time.Time // start of the first period, if an operator has set it; nil: not set
	EarlyEvents     []EarlyEvents
	HeadOpenUntil   *time.Time // until this time, an event can make the first stored period begin earlier; nil: no event can
	Plans           []Assignment
	Prices          []Price // the customer's own prices, of all meters
}

// EarlyEvents describes the customer's events of one calendar month, with timestamps before the customer's creation.
// The ledger reads them until the start of the first period is final.
type EarlyEvents struct {
	At         time.Time // earliest timestamp of the events
	IngestedAt time.Time // time at which the first of the events was ingested
}

// Bills reports whether the tenant has a billing provider or any price. A tenant with neither only meters usage, and
// none of that usage is treated as unrated.
func (f Facts) Bills() bool { return f.Connection != nil || f.HasPrices() }

// HasPrices reports whether any meter, plan or customer of the tenant has a price.
func (f Facts) HasPrices() bool {
	if f.OwnPriced {
		return true
	}
	for _, versions := range f.Prices {
		if len(versions) > 0 {
			return true
		}
	}
	return false
}

// Settings holds the tenant's billing settings.
type Settings struct {
	Timezone   *time.Location // time zone of the calendar months that are the periods of customers without a subscription
	Currency   string         // default currency of meters without a price; ISO 4217
	Grace      time.Duration  // time after the end of a period during which the period stays open
	LatePolicy metering.LatePolicy
}

// Connection describes the tenant's connection to its billing provider.
type Connection struct {
	ID         metering.ConnectionID // usage reported to another connection is billed by that connection
	Statements bool                  // one report holds the bill of a period; false: each meter is reported separately
	Invoices   bool                  // final invoices show the billed usage; false: the provider's counts show it
	Mapping    map[string]string     // meter slugs to the provider's prices, as the tenant has set them

	Bills       metering.Bills // form of usage on invoices, for periods that begin at or after BillsSince
	BillsBefore metering.Bills // form of usage on invoices, for earlier periods
	BillsSince  time.Time
	Text        metering.InvoiceText // settings of the invoice lines, if the connection bills amounts
}

// Side is the customer's state at the provider, as last read.
type Side struct {
	Customer     string         // customer ID at the provider; "": none
	Subscription string         // subscription that determines the customer's periods; "": none
	Period       metering.Range // current period of the subscription at the time of the read
	Trial        bool           // Period is a trial: nothing is charged for it
	Ended        bool           // the subscription has ended: its last invoice accepts usage, and no charges
	Currency     string         // currency in which the subscription is billed, ISO 4217; "": unknown
	Destinations []Destination
	Charges      []Destination // destinations of amounts; nil: not read
	Others       []Side        // subscriptions with other periods or an own schedule, and the destinations of their meters
	Runs         []Run         // all subscriptions of the customer that the provider lists
}

// Run describes when a subscription runs, and which targets it bills.
type Run struct {
	Subscription string
	BeganAt      time.Time
	EndedAt      *time.Time // nil: not ended
	Targets      []string   // destination targets that the subscription has a price for, or had when it ended
}

// Counting is the way in which a destination combines the quantities that are reported to it.
type Counting string

const (
	Replaces Counting = "replaces" // a quantity replaces the previous one
	Adds     Counting = "adds"     // a quantity is added to the previous ones
	Latest   Counting = "latest"   // the last quantity of the provider's own period counts
)

// Method is the provider's name for the way in which a quantity is reported or an invoice line is set.
type Method string

// Destination describes where the provider adds up the usage of one meter, and which reports it accepts there. If
// Excluded is set, all fields after it are empty.
type Destination struct {
	MeterID  metering.MeterID `json:"meter_id"`
	Excluded ExclusionReason  `json:"excluded,omitzero"` // reason why the meter cannot be reported

	Price        ProviderPrice        `json:"-"`                // provider's price of the units; nil: unknown
	Target       string               `json:"target,omitempty"` // object at the provider that adds up the usage
	Method       Method               `json:"method,omitempty"`
	Counting     Counting             `json:"counting,omitempty"`
	Window       metering.Granularity `json:"window,omitempty"`         // one value per UTC hour or day; "": per period
	WholeUnits   bool                 `json:"whole_units,omitempty"`    // accepts whole units only, at any usage scale
	NotNegative  bool                 `json:"not_negative,omitempty"`   // the provider keeps no negative value
	OnlyWhileRun bool                 `json:"only_while_run,omitempty"` // rejects usage of past subscription periods
	Address      map[string]string    `json:"address,omitempty"`        // other fields that the provider needs
}

// Subscription is the period of a provider's subscription in which a billing period lies.
type Subscription struct {
	ID string // subscription ID, or that of OwnInvoiceOf; "": none
	metering.Range
	Connection metering.ConnectionID              // connection of the subscription; 0: not recorded
	Trial      bool                               // the period is a trial: the provider charges nothing for it
	Invoiced   bool                               // the period's invoice is final, or no invoice follows: new reports are not billed
	Scales     map[metering.MeterID]int32         // usage scales when the period was invoiced; missing meters: 0; nil: unknown
	Prices     map[metering.MeterID]ProviderPrice // last prices that were read during the period, else the first prices that were read later
}

// Usage is the usage of one meter in one period. For a closed period, it is computed with the meter's aggregation at
// the close.
type Usage struct {
	Period  time.Time // start of the period
	MeterID metering.MeterID

	Total  metering.Decimal // including late usage
	Events int64

	Late       metering.Decimal // part of Total that arrived after the period closed
	LateEvents int64

	Dimensions     []DimensionUsage // Total by dimension, for the meters of ByDimension
	LateDimensions []DimensionUsage // Late by dimension
}

// Equal reports whether u and o are the same usage of the same period and meter.
func (u Usage) Equal(o Usage) bool {
	return u.Period.Equal(o.Period) && u.MeterID == o.MeterID &&
		u.Total.Equal(o.Total) && u.Events == o.Events && u.Late.Equal(o.Late) && u.LateEvents == o.LateEvents &&
		slices.EqualFunc(u.Dimensions, o.Dimensions, DimensionUsage.Equal) && slices.EqualFunc(u.LateDimensions, o.LateDimensions, DimensionUsage.Equal)
}

// EventCount is the customer's number of counted events in the months that a period overlaps, plus its late events of
// all months. Another such event changes the number, even if it does not change the usage.
type EventCount struct {
	Period time.Time // start of the period
	Events int64
}

// HourUsage is the usage of one meter in one local hour, or in the part of the hour that lies in the period.
type HourUsage struct {
	Period  time.Time // start of the period
	MeterID metering.MeterID
	Start   time.Time
	Total   metering.Decimal
}

// Reported holds the totals of one series of reports for one meter, and the state of the last report.
type Reported struct {
	Series
	MeterID metering.MeterID

	To          InvoicedBy // subscription period that invoices the last report
	Taken       Sums       // accepted reports
	Standing    Sums       // accepted and outstanding reports, without planned ones to previous connections
	Outstanding bool       // a report of the series is outstanding
	Last        uuid.UUID  // ID of the last report
	Number      int64      // number of the last report
	State       State      // state of the last report
	Timestamp   *time.Time // latest timestamp in a report to the provider; nil: none
	Epoch       int64      // epoch of the ledger in which the last accepted report was created
	TakenAt     time.Time  // time at which the last report in state Accepted was accepted; zero: none

	Invoiced *metering.Decimal // units that final invoices bill, set by NewBooks; nil: the invoices are not final
	Void     metering.Decimal  // part of Invoiced for which no payment is due, because it is on void invoices
	Line     *ChargeLine       // lines of a charge on final invoices; nil: none
}

// ChargeLine holds the totals of the lines on final invoices that a series of charges has set.
type ChargeLine struct {
	Amount   metering.Decimal `json:"amount"`
	Set      metering.Decimal `json:"set"`      // amount that Odometer last set; if Amount differs, the line was edited
	Currency string           `json:"currency"` // currency of the charge
	Void     bool             `json:"void"`     // no payment is due for one of the invoices
}

// Sums holds the totals of some reports of a series.
type Sums struct {
	Any      bool             // there is at least one report
	Value    metering.Decimal // Line.Quantity of the last report: the provider's total of the series
	Added    metering.Decimal // sum of Report.Quantity
	Quantity metering.Decimal // Report.Quantity of the last report
	Amount   metering.Decimal // Line.Amount of the last report
	Currency string           // currency of Amount
	Theirs   bool             // Amount is at the provider's own price
}

// Sent is a stored statement. In Facts.Finalized, it is a stored report that finalizes an invoice, without lines.
type Sent struct {
	ID     uuid.UUID
	Period time.Time // start of the period
	Number int64
	Epoch  int64 // epoch of the ledger in which the report was created
	State  State
	Lines  []Line

	DecidedAt time.Time // time at which the outcome became known; zero in Facts.Finalized, and for an unknown outcome
}

// Open is a stored report that is outstanding: planned, being sent, or of unknown outcome.
type Open struct {
	ID         uuid.UUID
	Kind       Kind
	Connection metering.ConnectionID // connection that the report was created for
	Period     time.Time             // start of the reported period
	State      State
	Epoch      int64      // epoch of the ledger in which the report was created
	Unread     bool       // the totals of the report's destination were not read since the last restore
	LeaseUntil *time.Time // until then, only the holder of the lease sends the report; nil: no lease
}

// containsAny reports whether any element matches the predicate. Unlike slices.ContainsFunc, it copies no element.
func containsAny[E any](all []E, matches func(*E) bool) bool {
	for i := range all {
		if matches(&all[i]) {
			return true
		}
	}
	return false
}
