package providers

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Provider is a billing provider. Each has a folder of its own and a line in
// the registry.
//
// The errors of its calls are coded: CodeProviderDown may be tried again,
// CodeProviderRefuse asks somebody to act. They may be caused by RetryLater
// and OwnRefusal.
type Provider interface {
	// Describe says what the provider is like.
	Describe() Description
	// Validate says whom the credentials belong to, once the provider has taken
	// them. CodeInvalid names a setting by its Location. No error repeats a secret.
	Validate(ctx context.Context, settings Settings, secrets Secrets) (Identity, error)
	// Read says what a customer is there and where the usage of each meter goes.
	// It makes no call for a customer who has no id there.
	Read(ctx context.Context, c Credentials, q Question) (billing.Side, error)
	// Frame makes the bytes that will be sent. It reads no clock and does no I/O.
	Frame(m billing.Message) (billing.Framed, error)
	// Send sends what was framed. It never repeats a call by itself.
	Send(ctx context.Context, c Credentials, s Sending) Outcome
	// Find looks for what may have arrived. before is what the provider had
	// counted in the place of a quantity before it was sent.
	Find(ctx context.Context, c Credentials, s Sending, p Place, before metering.Decimal) (Found, error)
	// Count is what the provider has counted in one place.
	Count(ctx context.Context, c Credentials, p Place) (metering.Decimal, error)
}

// Events are of a provider that says what happens there.
type Events interface {
	// Signals says which events are to be sent, and the header that their
	// signature is in.
	Signals() Signals
	// Verify reads an event, if the provider has signed it: CodeUnauthorized
	// where it has not, CodeInvalid where it is none. There is nothing to do about
	// one that is not ours.
	Verify(c Credentials, n Notice) (event metering.ProviderEvent, ours bool, err error)
}

// Signals are the events of a provider.
type Signals struct {
	Types  []string
	Header string
}

// EventList is of a provider that keeps a list of its events, so that those that
// never came can be asked for.
type EventList interface {
	Events
	// KeepsEvents is how long an event can be listed.
	KeepsEvents() time.Duration
	// ListEvents lists a page of the events of the types in Signals, the newest first.
	ListEvents(ctx context.Context, c Credentials, q EventQuestion) (EventPage, error)
}

// EventQuestion asks for a page of events.
type EventQuestion struct {
	Since time.Time // they were made then or later
	After string    // what the page before ended with; "": it is the first one
}

// EventPage is a page of events. An event that cannot be read is not in it.
type EventPage struct {
	Events []metering.ProviderEvent
	Last   string // what the page ends with
	More   bool   // there are older ones
}

// Notice is how an event comes.
type Notice struct {
	Body      []byte
	Signature string
	Secret    string // that signs it
	Now       time.Time
}

// Invoices are of a provider that makes invoices of what it is reported.
type Invoices interface {
	// Invoice reads an invoice, and which meter's usage each of its lines bills.
	Invoice(ctx context.Context, c Credentials, q InvoiceQuestion) (metering.Invoice, error)
}

// Charges are of a provider that adds up money, and lists what it was charged.
type Charges interface {
	// Charges are those that a customer got from here since an instant.
	Charges(ctx context.Context, c Credentials, customer string, since time.Time) ([]billing.FoundCharge, error)
}

// InvoiceList is of a provider that lists the invoices that it makes.
type InvoiceList interface {
	Invoices
	// ListInvoices lists what there is of a customer's.
	ListInvoices(ctx context.Context, c Credentials, q InvoiceListQuestion) (ListedInvoices, error)
}

// InvoiceListQuestion asks for the invoices of a customer.
type InvoiceListQuestion struct {
	Customer     string                // its id there
	Since        time.Time             // they were made then or later
	Destinations []billing.Destination // where its usage goes or went, in any order
}

// ListedInvoices are a customer's invoices, and the subscriptions that make none
// any more: they were cancelled before their last period was over, had usage
// of ours, and none of their invoices was a draft in a list that was read later.
type ListedInvoices struct {
	Invoices []string // their ids, the oldest first
	Ended    []metering.EndedSubscription
}

// Holds are of a provider whose draft invoices can be kept from becoming final.
// What holds and releases them goes through Send and Find, as reports do.
type Holds interface {
	Invoices
	// Draft reads an invoice with what decides when it becomes final. An invoice
	// that is there no longer is Gone, and no error.
	Draft(ctx context.Context, c Credentials, q InvoiceQuestion) (billing.Draft, error)
	// FrameHold makes the bytes by which a draft becomes final by itself at an
	// instant, and not before. It reads no clock and does no I/O.
	FrameHold(invoice string, until time.Time) (billing.Framed, error)
	// FrameRelease makes the bytes by which a draft becomes final at once.
	FrameRelease(invoice string) (billing.Framed, error)
}

// Prices are of a provider that prices the units that it is reported itself.
type Prices interface {
	// Price reads a price of the provider's, as it was kept.
	Price(terms []byte) (billing.ProviderPrice, error)
}

// InvoiceQuestion asks for an invoice of a customer's.
type InvoiceQuestion struct {
	ID           string
	Meters       []metering.Meter
	Mapping      map[string]string     // meter slugs to the provider's prices, as the tenant has set them
	Destinations []billing.Destination // where the customer's usage goes; then where it went, the newest first
}

// Description is what a provider is like.
type Description struct {
	Kind         metering.ProviderKind
	Name         string        // as people know it
	Settings     []Setting     // what a tenant saves of it
	Statements   bool          // it takes the bill of a period in one report; else each meter is reported by itself
	Invoices     bool          // its final invoices say what is billed; else what it has counted is
	AtOnce       int           // how many customers may be synced side by side
	Timeout      time.Duration // how long one call may take: whoever leases a report leases it for longer
	Remembers    time.Duration // how long it surely knows a report again; what adds up and may have arrived before that is looked for first
	CountsWithin time.Duration // what it took and has not counted until then, it has dropped, unless it makes invoices; 0: it is never asked
}

// Credentials are what calls are made with. They are opened for one call and
// kept nowhere.
type Credentials struct {
	Address string // the URL that is called, where the tenant sets it
	Account string // whom the secret belongs to
	Secret  string
}

// Question asks what a customer is at the provider.
type Question struct {
	Customer string // its id there; "": it has none
	Meters   []metering.Meter
	Mapping  map[string]string    // meter slugs to the provider's prices, as the tenant has set them
	Followed string               // the subscription whose periods the customer's were; "": none
	Streams  []string             // subscriptions with streams of their own
	Amounts  bool                 // periods are, or will be, billed in amounts: where charges go is read too
	Text     metering.InvoiceText // of the lines that they make
}

// Sending is one attempt at sending a report.
type Sending struct {
	billing.Series
	ReportID    uuid.UUID
	Body        []byte
	Object      string    // what it overwrites there, in the provider's words; "": nobody knows, and there may be none
	Revision    int       // of the idempotency key: it rises where the provider would repeat a saved answer
	FirstSentAt time.Time // when it may have arrived first
	Invoiced    bool      // the invoice of its period is final: what is taken now is on none
	Now         time.Time
}

// Outcome is what came of an attempt.
type Outcome struct {
	State  billing.State // Accepted or Rejected; "": there is no decision yet, and Err says why
	Answer string        // what is kept of it: no word of the provider's that may hold a name or a secret
	Object string        // what it has made, or overwritten, there; "": nothing that has a name
	Err    error
	Look   bool // whether it arrived has to be found out before it is sent again
	NewKey bool // the next attempt needs another idempotency key, if it did not arrive
}

// Found is whether a report had arrived.
type Found struct {
	State  billing.State // Accepted: it had; InDoubt: the provider cannot tell; "": it had not
	Answer string
}

// Place is where a provider adds up what it is reported.
type Place struct {
	Method   billing.Method
	Target   string
	Customer string // at the provider
	Range    metering.Range
}

// RetryLater is the cause where a provider said when to come back.
type RetryLater struct{ Wait time.Duration }

func (r RetryLater) Error() string { return "the provider asked to wait " + r.Wait.String() }

// OwnRefusal is the cause where a refusal says nothing about other customers.
type OwnRefusal struct{}

func (OwnRefusal) Error() string { return "the provider refused this customer only" }
