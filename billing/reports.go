package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Kind is the kind of a report.
type Kind string

const (
	StatementReport Kind = "statement"      // bill of a period with all its meters
	QuantityReport  Kind = "quantity"       // number of units of one meter
	ChargeReport    Kind = "charge"         // amount of money for one meter
	ActionReport    Kind = "invoice_action" // request to hold, release or finalize an invoice
)

// Values returns all kinds of reports.
func (Kind) Values() []Kind {
	return []Kind{StatementReport, QuantityReport, ChargeReport, ActionReport}
}

// Component is the kind of usage that a line of a report bills.
type Component string

const (
	UsageComponent      Component = "usage"      // usage of the report's own period
	AdjustmentComponent Component = "adjustment" // adjustment of a closed period
)

// Values returns all components.
func (Component) Values() []Component { return []Component{UsageComponent, AdjustmentComponent} }

// Component returns AdjustmentComponent if the line adjusts a closed period, else UsageComponent.
func (l Line) Component() Component {
	if l.Closed.IsZero() {
		return UsageComponent
	}
	return AdjustmentComponent
}

// State is the state of a report. Even an accepted or counted report may remain unbilled: only the provider's final
// invoice shows that it is billed.
type State string

const (
	Planned  State = "planned"
	Sending  State = "sending"  // may have arrived
	InDoubt  State = "in_doubt" // outcome unknown: the provider's counts do not show whether the report arrived
	Accepted State = "accepted" // the provider has confirmed the receipt
	Counted  State = "counted"  // the provider's counts include the report
	Rejected State = "rejected"
)

// Values returns all states of a report.
func (State) Values() []State { return []State{Planned, Sending, InDoubt, Accepted, Counted, Rejected} }

// Outstanding reports whether the outcome of the report is still open.
func (s State) Outstanding() bool { return s == Planned || s == Sending || s == InDoubt }

// Taken reports whether the provider has accepted the report.
func (s State) Taken() bool { return s == Accepted || s == Counted }

// Series identifies a sequence of reports that the provider adds up, or of which each replaces the previous one. If any
// field changes, a new series begins, which reports only the part that earlier series have not billed. At most one
// report of a series is outstanding at a time.
type Series struct {
	Kind       Kind
	Connection metering.ConnectionID
	Customer   string // customer ID at the provider
	Target     string // object at the provider that receives the reports
	Method     Method // of a quantity or an invoice line that is set; else ""
	Counting   Counting
	Period     time.Time      // start of the period of the usage
	Window     metering.Range // part of Period for which the provider keeps a value; if Late, the target period
	Late       bool           // the reports bill adjustments of a closed period
}

// InvoicedBy identifies the subscription period that invoices a quantity. The zero value means that the subscription
// period was not recorded.
type InvoicedBy struct {
	Subscription string
	Start        time.Time
}

// Line is the line of one meter in a report.
type Line struct {
	MeterID      metering.MeterID
	MeterSlug    string
	Closed       time.Time        // start of the closed period that the line adjusts; zero: the report's own period
	Usage        metering.Decimal // usage of the whole period so far
	Events       int64            // number of events in Usage
	Quantity     metering.Decimal // units that other series have not billed
	PriceVersion int              // 0: the meter has no price, or the provider's own price applies
	Price        ProviderPrice    // provider's own price, if the charge is computed with it; else nil
	UnitPrice    metering.Decimal
	Charge       metering.Decimal // charge for Usage, rounded to the currency's minor unit
	Amount       metering.Decimal // part of Charge that other series have not billed
	Currency     string
	Working      []Step // breakdown of Amount; nil: not computed
}

// about reports whether both lines have the same meter and adjust the same closed period, or both adjust none.
func (l Line) about(o Line) bool { return l.MeterID == o.MeterID && l.Closed.Equal(o.Closed) }

// equal reports whether both lines have the same meter, period, figures and currency. It does not compare their slugs,
// provider prices and breakdowns.
func (l Line) equal(o Line) bool {
	return l.about(o) && l.Events == o.Events && l.PriceVersion == o.PriceVersion && l.Currency == o.Currency &&
		l.Usage.Equal(o.Usage) && l.Quantity.Equal(o.Quantity) && l.UnitPrice.Equal(o.UnitPrice) &&
		l.Charge.Equal(o.Charge) && l.Amount.Equal(o.Amount)
}

// sameLines reports whether both lists have equal lines in the same order.
func sameLines(a, b []Line) bool { return slices.EqualFunc(a, b, Line.equal) }

// Report is a message to a provider that is to be stored and then sent.
type Report struct {
	Series
	Destination Destination // destination of a planned quantity or invoice line
	To          InvoicedBy  // subscription period that invoices a quantity
	Lines       []Line
	Quantity    metering.Decimal // quantity to send; for a charge, money in Currency
	Currency    string           // currency of a statement or a charge
	Of          metering.Range   // period of the reported usage
	Former      *time.Time       // latest timestamp of earlier reports of the series; nil: none
	Deadline    time.Time        // time until which sending is useful
	Lost        uuid.UUID        // ID of a report that the ledger lost in a restore; zero: a new report
}

// Resolved is a report with an outcome that an invoice has shown.
type Resolved struct {
	ID    uuid.UUID
	State State // Accepted or Rejected
}

// ReportPlan holds the next actions for one billing schedule of a customer.
type ReportPlan struct {
	Periods       []Period          // billing periods to store, oldest first
	HeadOpenUntil *time.Time        // until this time, an event can make the first period begin earlier; nil: no event can
	ReadFirst     bool              // no reports are planned before the customer's state at the provider is read
	Withdraw      []uuid.UUID       // unsent reports to previous connections and subscriptions: they become Rejected
	Resolved      []Resolved        // reports with outcomes that final invoices show
	Doubt         []uuid.UUID       // reports to previous connections that may have arrived: they become InDoubt
	Resume        []uuid.UUID       // outstanding reports to send before all others
	Reports       []Report          // new reports to store and then send
	UpToDate      []uuid.UUID       // accepted last reports of series and periods: still correct, or sent in this pass
	Excluded      []Exclusion       // excluded meters, with the reasons
	Reported      []PeriodWatermark // new watermarks of open periods, once Reports are accepted; zero: not fully reported
	Bookings      []Booking         // adjustments of closed periods to store
	Closings      []Closing         // periods to close, oldest first
	Complete      []Period          // closed periods that are now complete
	Unreported    bool              // the closings leave something to report
	Reconciled    []Reconciliation  // comparisons of closed periods with final invoices to store
	PartlyKnown   []time.Time       // starts of closed periods that must be compared with final invoices again
	Waiting       bool              // no due period closes, because of a backfill or a recent restore
	More          bool              // more reports may follow once these are decided
	ReplanAt      time.Time         // next time at which the plan can change without a new fact; zero: never
}
