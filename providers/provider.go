package providers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Provider is a billing provider. Each has a folder of its own and a line in a
// registry; nothing else in the program knows one by name.
type Provider interface {
	// Describe says what the provider is like.
	Describe() Description
	// Read says what a customer is there and where the usage of each meter goes.
	Read(ctx context.Context, c Credentials, q Question) (billing.Side, error)
	// Frame makes the bytes that will be sent, once: they are written down and
	// never change. It reads no clock and does no I/O.
	Frame(m Message) (Framed, error)
	// Send sends what was framed. It never repeats a call by itself.
	Send(ctx context.Context, c Credentials, s Sending) Outcome
	// Find looks for what may have arrived where the provider adds up what it is
	// reported. before is what it had counted before the report was sent.
	Find(ctx context.Context, c Credentials, s Sending, before metering.Decimal) (Found, error)
	// Count is what the provider has counted in one place.
	Count(ctx context.Context, c Credentials, p Place) (metering.Decimal, error)
}

// Description is what a provider is like.
type Description struct {
	Kind       metering.ProviderKind
	Statements bool          // it takes the bill of a period in one report; else each meter is reported by itself
	AtOnce     int           // how many customers may be synced side by side
	Timeout    time.Duration // how long one call may take: whoever leases a report must lease it for longer
	Remembers  time.Duration // how long it surely knows a report again; 0: whatever it is sent replaces the same
}

// Credentials are what calls are made with. They are opened for one call and
// kept nowhere.
type Credentials struct {
	Account string // the URL of a webhook, or the account that the secret belongs to
	Secret  string
}

// Question asks what a customer is at the provider.
type Question struct {
	Customer string // its id there; "": it has none
	Shared   bool   // another customer has the same id there, and was first
	Meters   []metering.Meter
	Mapping  map[string]string // meter slugs to the provider's prices, as the tenant has set them
}

// Message is a report with what its receiver is told besides.
type Message struct {
	billing.Report
	ID                 uuid.UUID
	TenantID           metering.TenantID
	CustomerExternalID string
	Sequence           int64          // of a statement
	Meter              metering.Meter // of a quantity and a charge
	Timezone           *time.Location
	Now                time.Time
}

// Framed is what goes out.
type Framed struct {
	Body      json.RawMessage
	Timestamp time.Time // that the provider is told; zero: none
}

// Sending is one attempt at sending a report.
type Sending struct {
	billing.Series
	ReportID    uuid.UUID
	Body        json.RawMessage
	Revision    int       // of the idempotency key: it rises where the provider would repeat a saved answer
	Attempt     int       // from 1
	FirstSentAt time.Time // when it may have arrived first
	Invoiced    bool      // the invoice of its period is final: what is taken now is on none
	Now         time.Time
}

// Outcome is what came of an attempt.
type Outcome struct {
	State      billing.State // Accepted or Rejected; "": there is no decision yet
	Answer     string        // what is kept of it: no word of the provider's that may hold a name or a secret
	Err        error         // coded, where there is no decision: CodeProviderDown may be tried again, CodeProviderRefuse asks somebody to act
	Own        bool          // a refusal says nothing about other customers
	RetryAfter time.Duration // that the provider asked for; 0: it did not
	NewKey     bool          // the next attempt needs another idempotency key
	Look       bool          // whether it arrived has to be found out before it is sent again
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
