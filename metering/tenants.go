package metering

import (
	"math"
	"slices"
	"time"
)

// LatePolicy decides whether late usage is billed: usage that arrives after its billing period was closed.
type LatePolicy string

const (
	AdjustLate LatePolicy = "adjust" // billed as an adjustment at the closed period's prices
	ReportLate LatePolicy = "report" // shown, never billed
)

// Values returns all policies.
func (LatePolicy) Values() []LatePolicy {
	return []LatePolicy{AdjustLate, ReportLate}
}

// ConflictPolicy is the treatment of an event that reuses an idempotency key with different content.
type ConflictPolicy string

const (
	AcceptConflicts ConflictPolicy = "accept" // accepted, not counted, and stored as a conflict
	RejectConflicts ConflictPolicy = "reject"
)

// Values returns all policies.
func (ConflictPolicy) Values() []ConflictPolicy {
	return []ConflictPolicy{AcceptConflicts, RejectConflicts}
}

// DefaultRequestsPerMinute is the default number of requests with events that a tenant may send per minute.
const DefaultRequestsPerMinute = 1000

// DefaultRequestsCeiling is the default maximum of RequestsPerMinute. Operators can set another one.
const DefaultRequestsCeiling = 60_000

// Tenant is one organization that uses the service. It owns all other resources.
type Tenant struct {
	ID                TenantID
	Name              string
	Timezone          string        // IANA name, for days, months and billing periods
	Currency          string        // ISO 4217; the default currency of the tenant's prices
	Grace             time.Duration // the time from a period's end until its close
	LatePolicy        LatePolicy
	RequestsPerMinute int  // requests a minute to the Events API
	Strict            bool // reject events with an unknown field, customer or event type, or without a usable value for a meter
	KeyConflicts      ConflictPolicy
	V1BodylessWrites  bool // requests without a body may write if they are signed with v1
	InvoiceHold       InvoiceHold
	CreatedAt         time.Time
}

// InvoiceHold is the setting that delays the finalization of draft invoices until they have been compared
// with the reports.
type InvoiceHold struct {
	Enabled  bool
	Deadline time.Duration // after the grace; then invoices become final without a decision
}

// maxHold is the maximum time from a period's end until its invoice becomes final. Later, its usage could
// no longer be corrected.
const maxHold = 30 * 24 * time.Hour

// validateHold returns an error if the deadline of invoice holds is too short or too long.
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

// Validate returns an error if a field that an operator can set is not valid.
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

// Location returns the tenant's time zone, or UTC if Validate does not accept the name.
func (t Tenant) Location() *time.Location { return Location(t.Timezone) }

// Values returns all scopes.
func (Scope) Values() []Scope {
	return []Scope{ScopeAdmin, ScopeReadWrite, ScopeReadOnly, ScopeIngestOnly}
}
