package metering

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// LatePolicy is what happens to usage that arrives for a closed period.
type LatePolicy string

const (
	AdjustLate LatePolicy = "adjust" // billed as an adjustment at the closed period's prices
	ReportLate LatePolicy = "report" // shown, never billed
)

// DefaultRequestsPerMinute is how many requests a tenant may send to the Events
// API in a minute where nothing else was said.
const DefaultRequestsPerMinute = 1000

// Tenant is one customer of the service: the owner of everything else.
type Tenant struct {
	ID                TenantID
	Name              string
	Timezone          string        // IANA name; days, months and periods are its local ones
	Currency          string        // ISO 4217; the default of its prices
	Grace             time.Duration // after a period's end, until it is closed
	LatePolicy        LatePolicy
	RequestsPerMinute int // requests a minute to the Events API
	CreatedAt         time.Time
}

// Validate checks what an operator may choose.
func (t Tenant) Validate() error {
	if err := validText("body.name", t.Name); err != nil {
		return err
	}
	if _, err := time.LoadLocation(t.Timezone); err != nil || t.Timezone == "Local" || t.Timezone == "" {
		return Invalid("body.timezone", "must be an IANA time zone such as Europe/Zurich")
	}
	if t.RequestsPerMinute < 0 || t.RequestsPerMinute > math.MaxInt32 {
		return Invalid("body.requests_per_minute", "must be a whole number above 0")
	}
	return ValidCurrency("body.currency", t.Currency)
}

// Location is the tenant's time zone. An unknown one, which Validate does not
// let in, reads as UTC.
func (t Tenant) Location() *time.Location { return Location(t.Timezone) }

// Location loads a zone that was validated when it was stored.
func Location(zone string) *time.Location {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return time.UTC
	}
	return location
}

// Customer is a party whose usage is tracked, named by its tenant's ExternalID.
type Customer struct {
	ID                CustomerID
	TenantID          TenantID
	ExternalID        string
	Name              string
	BillingProviderID *string // the customer at the billing provider
	Metadata          json.RawMessage
	CreatedAt         time.Time
}

// MaxMetadataBytes bounds a customer's metadata.
const MaxMetadataBytes = 16 << 10

// Validate checks what a client may choose.
func (c Customer) Validate() error {
	if err := validText("body.external_id", c.ExternalID); err != nil {
		return err
	}
	if len(c.Name) > maxTextBytes || strings.ContainsRune(c.Name, 0) || !utf8.ValidString(c.Name) {
		return Invalid("body.name", "must be at most %d bytes of UTF-8 without NUL", maxTextBytes)
	}
	if c.BillingProviderID != nil {
		if err := validText("body.billing_provider_id", *c.BillingProviderID); err != nil {
			return err
		}
	}
	if len(c.Metadata) == 0 {
		return nil
	}
	clean, rejection := judgeProperties(c.Metadata)
	if rejection != nil {
		return Invalid("body.metadata", "%s", rejection.Message)
	}
	if bytes.Count(clean, []byte(lostText)) > bytes.Count(c.Metadata, []byte(lostText)) {
		return Invalid("body.metadata", "must be UTF-8") // a lone surrogate, which the database refuses
	}
	return nil
}

// Scope is what an API key was made for.
type Scope string

const (
	ScopeAdmin      Scope = "admin"
	ScopeReadWrite  Scope = "read_write"
	ScopeReadOnly   Scope = "read_only"
	ScopeIngestOnly Scope = "ingest_only"
)

// Actor is who asked for a change: "key_12", "sec_3", "member_12", or
// "operator" at the command line.
type Actor string

// Operator is whoever runs the odometer command itself.
const Operator Actor = "operator"

// Scheduler is the service itself, when it is time.
const Scheduler Actor = "schedule"

// APIKey is a credential's record; the key itself is shown once and not kept.
type APIKey struct {
	ID         KeyID
	TenantID   TenantID
	Name       string
	Scope      Scope
	LastFour   string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time
}

// Live says whether the key is accepted at now.
func (k APIKey) Live(now time.Time) bool { return live(k.RevokedAt, k.ExpiresAt, now) }
