package metering

import (
	"time"

	"github.com/google/uuid"
)

// Trigger is what asked for a sync.
type Trigger string

const (
	Manual     Trigger = "manual"
	Scheduled  Trigger = "schedule"
	ByProvider Trigger = "provider"
)

// Values are all triggers.
func (Trigger) Values() []Trigger {
	return []Trigger{Manual, Scheduled, ByProvider}
}

// SyncStatus is where a sync stands in its life.
type SyncStatus string

const (
	SyncRequested SyncStatus = "requested"
	SyncRunning   SyncStatus = "running"
	SyncSucceeded SyncStatus = "succeeded"
	SyncFailed    SyncStatus = "failed"
)

// Values are all that a sync may be.
func (SyncStatus) Values() []SyncStatus {
	return []SyncStatus{SyncRequested, SyncRunning, SyncSucceeded, SyncFailed}
}

// Done says whether nothing more will happen to the sync.
func (s SyncStatus) Done() bool { return s == SyncSucceeded || s == SyncFailed }

// Sync is one request to bring a customer's usage to the billing provider. Its
// lines come from a pass that began after the request.
type Sync struct {
	ID           uuid.UUID
	CustomerID   CustomerID
	ExternalID   string // the customer's; empty of a sync that is being requested
	CustomerName string // likewise
	Trigger      Trigger
	Status       SyncStatus
	Error        string // of a failed one: what the operator should do
	RequestedAt  time.Time
	StartedAt    *time.Time
	FinishedAt   *time.Time
	Lines        []SyncLine
	Excluded     []ExcludedMeter
	Joined       bool   // the request joined a waiting one; set by Request only
	Pause        *Pause // that an open one waits for the end of; nil: it waits for none
}

// Pause keeps a customer from being reported until somebody ends it.
type Pause struct {
	Since  time.Time
	By     Actor
	Reason string // in their words
}

// SyncLine is what a report of a sync says of one meter and period.
type SyncLine struct {
	ReportID  uuid.UUID
	Kind      string // of the report
	Number    int64  // of the report: in the order of the customer's; a statement's sequence
	State     string // of the report
	MeterID   MeterID
	MeterSlug string
	Period    Range
	Component string  // usage, or the adjustment of a closed period
	Usage     Decimal // of the whole period so far
	UnitPrice Decimal
	Amount    Decimal // charged for Usage, or what it adjusts that by, rounded to the currency's minor unit
	Currency  string

	Method   string   // the provider's own way of reporting a quantity; "" of other kinds
	Target   string   // what adds it up at the provider: a subscription item, a meter, a subscription; "" of a statement
	Window   Range    // what Quantity is of: the period, or one of the provider's windows
	Quantity Decimal  // what the provider has counted with it
	Sent     *Decimal // the number that went out: Quantity, what it adds to the former one, or money; nil in a statement
	Response string   // what came of it
}

// ExcludedMeter is a meter that a sync left out.
type ExcludedMeter struct {
	MeterID   MeterID
	MeterSlug string
	Reason    string
}
