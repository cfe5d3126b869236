package metering

import (
	"math"
	"slices"
	"time"
)

// LatePolicy is what happens to usage that arrives for a closed period.
type LatePolicy string

const (
	AdjustLate LatePolicy = "adjust" // billed as an adjustment at the closed period's prices
	ReportLate LatePolicy = "report" // shown, never billed
)

// Values are all policies.
func (LatePolicy) Values() []LatePolicy {
	return []LatePolicy{AdjustLate, ReportLate}
}

// ConflictPolicy decides what happens to an event whose idempotency key was used with
// other content.
type ConflictPolicy string

const (
	AcceptConflicts ConflictPolicy = "accept" // it is accepted, adds nothing, and is kept as a conflict
	RejectConflicts ConflictPolicy = "reject"
)

// Values are all policies.
func (ConflictPolicy) Values() []ConflictPolicy {
	return []ConflictPolicy{AcceptConflicts, RejectConflicts}
}

// DefaultRequestsPerMinute is how many requests a tenant may send to the Events
// API in a minute where nothing else was said.
const DefaultRequestsPerMinute = 1000

// DefaultRequestsCeiling is the most that a tenant may set for itself, unless the
// operators set another one.
const DefaultRequestsCeiling = 60_000

// Tenant is one customer of the service: the owner of everything else.
type Tenant struct {
	ID                TenantID
	Name              string
	Timezone          string        // IANA name; days, months and periods are its local ones
	Currency          string        // ISO 4217; the default of its prices
	Grace             time.Duration // after a period's end, until it is closed
	LatePolicy        LatePolicy
	RequestsPerMinute int  // requests a minute to the Events API
	Strict            bool // events with fields, customers or event types that are not known are rejected
	KeyConflicts      ConflictPolicy
	V1BodylessWrites  bool // requests without a body that are signed in v1 may do more than read
	InvoiceHold       InvoiceHold
	CreatedAt         time.Time
}

// InvoiceHold says whether draft invoices are kept from becoming final until
// what is on them was compared.
type InvoiceHold struct {
	Enabled  bool
	Deadline time.Duration // after the grace: then they become final by themselves
}

// maxHold is how long after its period an invoice can become final: later its
// usage could not be corrected any more.
const maxHold = 30 * 24 * time.Hour

func (t Tenant) validateHold() error {
	const field = "body.invoice_hold.deadline_hours"
	switch {
	case !t.InvoiceHold.Enabled:
		return nil
	case t.InvoiceHold.Deadline < time.Hour:
		return Invalid(field, "must be at least 1")
	case t.Grace+t.InvoiceHold.Deadline > maxHold:
		return Invalid(field, "must be at most %d, which is 720 minus grace_hours", int((maxHold - t.Grace).Hours()))
	}
	return nil
}

// Validate checks what an operator may choose.
func (t Tenant) Validate() error {
	if err := validText("body.name", t.Name); err != nil {
		return err
	}
	if _, err := LoadLocation(t.Timezone); err != nil {
		return Invalid("body.timezone", "must be an IANA time zone name, spelled exactly, such as Europe/Zurich or UTC")
	}
	if t.RequestsPerMinute < 0 || t.RequestsPerMinute > math.MaxInt32 {
		return Invalid("body.requests_per_minute", "must be a whole number above 0")
	}
	if !slices.Contains(t.KeyConflicts.Values(), t.KeyConflicts) {
		return Invalid("body.idempotency_conflicts", "must be accept or reject")
	}
	if err := t.validateHold(); err != nil {
		return err
	}
	return ValidCurrency("body.currency", t.Currency)
}

// Location is the tenant's time zone. An unknown one, which Validate does not
// let in, reads as UTC.
func (t Tenant) Location() *time.Location { return Location(t.Timezone) }

// Values are all scopes.
func (Scope) Values() []Scope {
	return []Scope{ScopeAdmin, ScopeReadWrite, ScopeReadOnly, ScopeIngestOnly}
}
