package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Kind is what a report says.
type Kind string

const (
	StatementReport Kind = "statement"      // what a period comes to, with all its meters
	QuantityReport  Kind = "quantity"       // how many units one meter has counted
	ChargeReport    Kind = "charge"         // an amount of money
	ActionReport    Kind = "invoice_action" // an invoice is held, or made final
)

// Values are all kinds of reports.
func (Kind) Values() []Kind {
	return []Kind{StatementReport, QuantityReport, ChargeReport, ActionReport}
}

// Component is what a line of a report is of.
type Component string

const (
	UsageComponent      Component = "usage"
	AdjustmentComponent Component = "adjustment" // what late usage adds to a closed period
)

// Values are all components.
func (Component) Values() []Component { return []Component{UsageComponent, AdjustmentComponent} }

// Component says what the line is of.
func (l Line) Component() Component {
	if l.Closed.IsZero() {
		return UsageComponent
	}
	return AdjustmentComponent
}

// State is where a report stands. Billed is none of them: only a provider's
// final invoice says that.
type State string

const (
	Planned  State = "planned"
	Sending  State = "sending"  // it may have arrived
	InDoubt  State = "in_doubt" // what the provider has counted does not tell whether it arrived
	Accepted State = "accepted" // the provider answered that it has it
	Counted  State = "counted"  // it was seen in what the provider has counted
	Rejected State = "rejected"
)

// Values are all states of a report.
func (State) Values() []State { return []State{Planned, Sending, InDoubt, Accepted, Counted, Rejected} }

// Outstanding says whether the outcome is not known yet.
func (s State) Outstanding() bool { return s == Planned || s == Sending || s == InDoubt }

// Taken says whether the provider has it.
func (s State) Taken() bool { return s == Accepted || s == Counted }

// Series is what the far side adds up or overwrites: a change of anything in
// it ends the series, and the next one counts from there. At most one report of
// a series is outstanding.
type Series struct {
	Kind       Kind
	Connection metering.ConnectionID
	Customer   string // at the provider
	Target     string // what adds it up there
	Method     Method // of a quantity
	Counting   Counting
	Period     time.Time      // start of the period whose usage it is
	Window     metering.Range // of the far side's; of what late usage adjusts, the target period
	Late       bool           // it carries what late usage adjusts
}

// InvoicedBy is the subscription's period whose invoices bill a quantity. Zero:
// nobody has noted that.
type InvoicedBy struct {
	Subscription string
	Start        time.Time
}

// Line is what one meter comes to in a report.
type Line struct {
	MeterID      metering.MeterID
	MeterSlug    string
	Closed       time.Time        // start of the closed period that it adjusts; zero: it is of the report's own
	Usage        metering.Decimal // of the whole period so far
	Events       int64            // behind it
	Quantity     metering.Decimal // usage less what is billed elsewhere
	PriceVersion int              // 0: the meter has no price, or the provider's own
	Price        ProviderPrice    // that the charge is by instead of ours; nil: it is by ours
	UnitPrice    metering.Decimal
	Charge       metering.Decimal // for the usage, rounded to the currency's minor unit
	Amount       metering.Decimal // charge less what is billed elsewhere
	Currency     string
	Working      []Step // of the amount, in a new statement
}

func (l Line) about(o Line) bool { return l.MeterID == o.MeterID && l.Closed.Equal(o.Closed) }

func (l Line) equal(o Line) bool {
	return l.about(o) && l.Events == o.Events && l.PriceVersion == o.PriceVersion && l.Currency == o.Currency &&
		l.Usage.Equal(o.Usage) && l.Quantity.Equal(o.Quantity) && l.UnitPrice.Equal(o.UnitPrice) &&
		l.Charge.Equal(o.Charge) && l.Amount.Equal(o.Amount)
}

func sameLines(a, b []Line) bool { return slices.EqualFunc(a, b, Line.equal) }

// Report is one message that is to be written down and then sent.
type Report struct {
	Series
	Destination Destination // of a quantity: where it goes
	To          InvoicedBy  // of a quantity
	Lines       []Line
	Quantity    metering.Decimal // that goes out; of a charge money
	Currency    string           // of a statement and a charge
	Of          metering.Range   // the period that it is about
	Former      *time.Time       // the timestamp of the series' latest report; nil: there is none
	Deadline    time.Time        // until when it is worth trying
	Lost        uuid.UUID        // the name of one that the ledger has lost; zero: it is a new one
}

// Resolved is a report whose outcome a final invoice has shown.
type Resolved struct {
	ID    uuid.UUID
	State State // Accepted or Rejected
}

// Exclusion is a meter that is left out, and why.
type Exclusion struct {
	MeterID   metering.MeterID
	MeterSlug string
	Reason    string
}

// Why a meter is left out.
const (
	ExcludedBackfilling = "the meter's earlier events are still being counted; the meter is billed after the backfill"
	ExcludedByOperator  = "an operator excluded the meter from this run"
	ExcludedUnread      = "the meter was created while the customer's items at the provider were being read; sync again"
	ExcludedEarlier     = "usage from before the start of the customer's subscription is not billed with the subscription"
	ExcludedInvoiced    = "the period's invoice is final; usage that arrived after it is billed with the next period"
	ExcludedOver        = "the period is over, and the provider accepts usage records only while the period runs; the remaining usage is billed with the next period"
	ExcludedWindow      = "no usage window of the provider ends in the period, so the period's invoice cannot bill the usage; the next period bills the usage"
	ExcludedShared      = "another meter reports to the same target at the provider; map each meter to its own price"
	ExcludedCarried     = "the unbilled usage of the closed period is billed with a later period"
	ExcludedUnpriced    = "the meter had no known price when the period closed"
	ExcludedRestored    = "the ledger was restored from a backup; the meter is reported again after the provider's totals include every earlier report and Odometer has read them"
	ExcludedCurrency    = "the currency of the meter's late usage differs from the customer's subscription; only the late usage is excluded, and it stays recorded as an adjustment"
)

// ReportPlan is what is to be done about a customer's billing.
type ReportPlan struct {
	Periods       []Period          // the customer's periods as they are to be stored, oldest first
	HeadOpenUntil *time.Time        // until when an event may bring the first of them forward; nil: that is decided
	ReadFirst     bool              // what the customer is at the provider has to be read: nothing else is planned
	Withdraw      []uuid.UUID       // reports to former connections and subscriptions that were never sent, and will not be
	Resolved      []Resolved        // reports of which final invoices show what came of them
	Doubt         []uuid.UUID       // reports to former connections that may or may not have arrived: they are in doubt
	Resume        []uuid.UUID       // reports that are outstanding, to be sent before anything else
	Reports       []Report          // to be written down and sent
	UpToDate      []uuid.UUID       // reports that were taken and still hold
	Excluded      []Exclusion       // meters that are left out
	Reported      []PeriodWatermark // open periods of which the provider knows all once the reports are accepted, or no longer all
	Bookings      []Booking         // adjustments of closed periods, to be written down
	Closings      []Closing         // periods to close, oldest first
	Complete      []Period          // closed periods that are complete by now
	Unreported    bool              // the periods that close leave something to report
	Reconciled    []Reconciliation  // of closed periods with the final invoices, to be written down
	PartlyKnown   []time.Time       // starts of closed periods of which final invoices show a part of what is billed: they are read again
	Waiting       bool              // a period that is due waits for a meter that is counting its past
	More          bool              // there may be other reports once these are decided
	LookAgain     time.Time         // when there may be something to do although no fact has changed; zero: never
}
