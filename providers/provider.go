package providers

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Provider is a billing provider. Each provider has its own package and an entry in the registry.
//
// Its methods return coded errors. If the code is CodeProviderDown, the caller can try again. If it is
// CodeProviderRefuse, an operator must act. RetryLater and OwnRefusal can be causes of these errors.
type Provider interface {
	// Describe returns the properties of the provider.
	Describe() Description
	// Validate checks the settings and secrets with the provider and returns the account that they belong
	// to. CodeInvalid names a setting by its Location. No error contains a secret.
	Validate(ctx context.Context, settings Settings, secrets Secrets) (Identity, error)
	// Read returns the customer's state at the provider and the destination of each meter's usage. It makes
	// no call if the customer has no id at the provider.
	Read(ctx context.Context, c Credentials, q Question) (billing.Side, error)
	// Frame encodes a message as the bytes to send. It reads no clock and does no I/O.
	Frame(m billing.Message) (billing.Framed, error)
	// Send makes one attempt at sending a framed report. It never retries.
	Send(ctx context.Context, c Credentials, s Sending) Outcome
	// Find checks whether the report of an earlier attempt has arrived. For a quantity, countedBefore
	// is the total that the provider had counted for the place before the first attempt.
	Find(ctx context.Context, c Credentials, s Sending, p Place, countedBefore metering.Decimal) (Found, error)
	// Count returns the total that the provider has counted for the place.
	Count(ctx context.Context, c Credentials, p Place) (metering.Decimal, error)
}

// Events is implemented by a provider that sends events.
type Events interface {
	// Signals returns the event types to subscribe to and the name of the signature header.
	Signals() Signals
	// Verify checks the signature of an event and decodes it. It returns CodeUnauthorized if the signature
	// is invalid, and CodeInvalid if the body is not an event. If ours is false, the caller ignores the
	// event.
	Verify(c Credentials, n Notice) (event metering.ProviderEvent, ours bool, err error)
}

// Signals holds the event types and the signature header of a provider.
type Signals struct {
	Types  []string
	Header string
}

// EventList is implemented by a provider that lists its past events, so that the caller can fetch events
// that were never delivered.
type EventList interface {
	Events
	// KeepsEvents returns how long the provider lists an event.
	KeepsEvents() time.Duration
	// ListEvents returns a page of the events of the types in Signals, newest first.
	ListEvents(ctx context.Context, c Credentials, q EventQuestion) (EventPage, error)
}

// EventQuestion selects a page of events.
type EventQuestion struct {
	Since time.Time // only events created at or after this time
	After string    // Last of the previous page; "": the first page
}

// EventPage is a page of events. It omits events that cannot be decoded, and events that a caller of Verify would
// ignore.
type EventPage struct {
	Events []metering.ProviderEvent
	Last   string // id of the page's last event; "": the page is empty
	More   bool   // older events follow
}

// Notice is a received event before its signature is verified.
type Notice struct {
	Body      []byte
	Signature string
	Secret    string // secret of the signature
	Now       time.Time
}

// Invoices is implemented by a provider that creates invoices from the reports.
type Invoices interface {
	// Invoice returns an invoice, with the meter that each of its lines bills.
	Invoice(ctx context.Context, c Credentials, q InvoiceQuestion) (metering.Invoice, error)
}

// Charges is implemented by a provider that accepts charges in money and lists them.
type Charges interface {
	// Charges returns the charges that Odometer has created for the customer since the given time.
	Charges(ctx context.Context, c Credentials, customer string, since time.Time) ([]billing.FoundCharge, error)
}

// InvoiceList is implemented by a provider that lists its invoices.
type InvoiceList interface {
	Invoices
	// ListInvoices returns the invoices and ended subscriptions of a customer.
	ListInvoices(ctx context.Context, c Credentials, q InvoiceListQuestion) (ListedInvoices, error)
}

// InvoiceListQuestion selects the invoices of a customer.
type InvoiceListQuestion struct {
	Customer     string                // the customer's id at the provider
	Since        time.Time             // at least invoices created, and subscriptions ended, at or after this time
	Destinations []billing.Destination // current and previous destinations of the customer's usage, in any order
}

// ListedInvoices holds the invoices of a customer, and the subscriptions that will create no more invoices. Such
// a subscription was canceled before the end of its last period, and one of its items is or was a destination of usage.
// A subscription with a draft invoice is not in Ended. ListInvoices reads the subscriptions before the invoices, so
// that it does not miss their last invoices.
type ListedInvoices struct {
	Invoices []string // ids, oldest first
	Ended    []metering.EndedSubscription
}

// Holds is implemented by a provider that can delay the finalization of its draft invoices. Send and Find
// process holds and releases in the same way as reports.
type Holds interface {
	Invoices
	// Draft returns an invoice with the fields that decide when it is finalized. If the invoice no longer
	// exists, Draft returns a draft with Gone set, and no error.
	Draft(ctx context.Context, c Credentials, q InvoiceQuestion) (billing.Draft, error)
	// FrameHold encodes a call that schedules the draft's finalization for the given time. It reads no
	// clock and does no I/O.
	FrameHold(invoice string, until time.Time) (billing.Framed, error)
	// FrameRelease encodes a call that finalizes a draft at once.
	FrameRelease(invoice string) (billing.Framed, error)
}

// Prices is implemented by a provider that applies its own prices to the reported units.
type Prices interface {
	// Price decodes a stored price of the provider.
	Price(terms []byte) (billing.ProviderPrice, error)
}

// InvoiceQuestion selects an invoice of a customer.
type InvoiceQuestion struct {
	ID           string
	Meters       []metering.Meter
	Mapping      map[string]string     // meter slugs to the provider's prices, as the tenant has set them
	Destinations []billing.Destination // current destinations of the customer's usage, then previous ones, newest first
}

// Description holds the properties of a provider.
type Description struct {
	Kind         metering.ProviderKind
	Name         string        // display name
	Settings     []Setting     // settings that a tenant can save
	Statements   bool          // one report holds the bill of a period; false: one report per meter
	Invoices     bool          // final invoices are the record of billed usage; false: the provider's counts are the record
	AtOnce       int           // maximum number of customers that are synced concurrently
	Timeout      time.Duration // maximum duration of one call; the lease of a report must be longer
	Remembers    time.Duration // minimum deduplication time; then a report that adds to a total needs Find first
	CountsWithin time.Duration // time until an uncounted report is treated as lost, if Invoices is false; 0: no counts
}

// Credentials authenticate calls. They are decrypted for one call and never stored.
type Credentials struct {
	Address string // URL to call, if the tenant sets it
	Account string // account that the secret belongs to
	Secret  string
}

// Question selects the state of a customer at the provider.
type Question struct {
	Customer string // the customer's id at the provider; "": none
	Meters   []metering.Meter
	Mapping  map[string]string    // meter slugs to the provider's prices, as the tenant has set them
	Followed string               // subscription that determined the customer's periods until now; "": none
	Streams  []string             // subscriptions with their own billing schedule
	Amounts  bool                 // periods are or will be billed in amounts; Read also returns charge destinations
	Text     metering.InvoiceText // settings of the lines for these charges
}

// Sending is one attempt at sending a report.
type Sending struct {
	billing.Series
	ReportID    uuid.UUID
	Body        []byte
	Object      string    // id of the provider's object to overwrite; "": unknown or none
	Revision    int       // part of the idempotency key; increases if the provider would repeat a saved answer
	FirstSentAt time.Time // time of the first attempt that may have arrived, which may be this one
	Invoiced    bool      // the period's invoice is final, so no invoice bills usage that is accepted now
	Now         time.Time
}

// Outcome is the result of an attempt.
type Outcome struct {
	State  billing.State // Accepted or Rejected; "": undecided, and Err is the reason
	Answer string        // stored summary; never text of the provider that can contain a name or a secret
	Object string        // id of the provider's object that was created or overwritten; "": none
	Err    error
	Look   bool // before the next attempt, Find must check whether the report has arrived
	NewKey bool // the next attempt needs a new idempotency key, unless the report has arrived
}

// Found is the result of Find: whether a report has arrived.
type Found struct {
	State  billing.State // Accepted: arrived; InDoubt: the provider cannot tell; "": not arrived
	Answer string
}

// Place identifies a total at the provider that reports add to or replace.
type Place struct {
	Method   billing.Method
	Target   string
	Customer string // at the provider
	Range    metering.Range
}

// RetryLater is the cause of an error if the provider stated how long to wait.
type RetryLater struct{ Wait time.Duration }

func (r RetryLater) Error() string { return "the provider asked to wait " + r.Wait.String() }

// OwnRefusal is the cause of a refusal that concerns only this customer.
type OwnRefusal struct{}

func (OwnRefusal) Error() string { return "the provider refused this customer only" }
