package metering

import (
	"time"

	"github.com/google/uuid"
)

// Trigger is the cause of a sync.
type Trigger string

const (
	Manual     Trigger = "manual"
	Scheduled  Trigger = "schedule"
	ByProvider Trigger = "provider"
)

// Values returns all triggers.
func (Trigger) Values() []Trigger {
	return []Trigger{Manual, Scheduled, ByProvider}
}

// SyncStatus is the status of a sync.
type SyncStatus string

const (
	SyncRequested SyncStatus = "requested"
	SyncRunning   SyncStatus = "running"
	SyncSucceeded SyncStatus = "succeeded"
	SyncFailed    SyncStatus = "failed"
)

// Values returns all statuses.
func (SyncStatus) Values() []SyncStatus {
	return []SyncStatus{SyncRequested, SyncRunning, SyncSucceeded, SyncFailed}
}

// Done reports whether the sync has ended.
func (s SyncStatus) Done() bool { return s == SyncSucceeded || s == SyncFailed }

// Sync is one request to report a customer's usage to the billing provider, with its result. The lines are those of a
// pass of the workflow SyncCustomer that began after the request.
type Sync struct {
	ID           uuid.UUID
	CustomerID   CustomerID
	ExternalID   string // of the customer; empty while the sync is being requested
	CustomerName string // of the customer; empty while the sync is being requested
	Trigger      Trigger
	Status       SyncStatus
	Error        string // the recommended action for an operator; "" unless Status is SyncFailed
	RequestedAt  time.Time
	StartedAt    *time.Time
	FinishedAt   *time.Time
	Lines        []SyncLine
	Excluded     []ExcludedMeter
	Joined       bool   // the request joined a sync that had not begun; set by Request only
	Pause        *Pause // the pause that delays the sync; nil: none, or the sync has ended
}

// Pause stops reports for a customer until an operator resumes them.
type Pause struct {
	Since  time.Time
	By     Actor
	Reason string // as the operator stated it
}

// SyncLine is the part of a report that covers one meter and period.
type SyncLine struct {
	ReportID  uuid.UUID
	Kind      string // of the report
	Number    int64  // of the report, ascending for each customer; the sequence number of a statement
	State     string // of the report
	MeterID   MeterID
	MeterSlug string
	Period    Range
	Component string  // "usage", or "adjustment" of a closed period
	Usage     Decimal // of the whole period so far
	UnitPrice Decimal
	Amount    Decimal // the charge for Usage, or for an adjustment the change of that charge; rounded to the currency's minor unit
	Currency  string

	Method   string   // the provider's method of reporting a quantity; "" for other kinds
	Target   string   // the provider's subscription item, meter or subscription for the quantity; "" for a statement
	Window   Range    // the range of Quantity: the period, or one of the provider's windows
	Quantity Decimal  // the provider's total including this report
	Sent     *Decimal // Quantity, the difference from the previous Quantity, or money; nil for a statement
	Response string   // the result of the report, as text
}

// ExcludedMeter is a meter that a sync excluded, and the reason.
type ExcludedMeter struct {
	MeterID   MeterID
	MeterSlug string
	Code      string // billing.ExclusionCode
	Detail    string // the cause at the provider, in words; "": none is known
}
