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
// entries come from a pass that began after the request.
type Sync struct {
	ID          uuid.UUID
	CustomerID  CustomerID
	Trigger     Trigger
	Status      SyncStatus
	Problem     string // of a failed one: what the operator should do
	RequestedAt time.Time
	StartedAt   *time.Time
	FinishedAt  *time.Time
	Entries     []SyncEntry
	Skipped     []SkippedMeter
}

// SyncEntry is one meter of one period, as the provider was told it.
type SyncEntry struct {
	MeterID   MeterID
	MeterSlug string
	Period    Range
	Usage     Decimal // of the whole period so far
	UnitPrice Decimal
	Amount    Decimal // charged for Usage, or what it adjusts that by, rounded to the currency's minor unit
	Currency  string
	Status    string
	Sequence  int64 // of the snapshot that carried it; 0 where none did

	Mechanism string
	Item      string   // at the provider: the subscription item or meter; "" of a snapshot
	Value     Decimal  // what the item has counted with it
	Quantity  *Decimal // the number that went out; nil in a snapshot
	Window    Range    // what Value is of: the period, or one of the provider's windows
	Answer    string   // what came of it
}

// SkippedMeter is a meter that a sync left out.
type SkippedMeter struct {
	MeterID   MeterID
	MeterSlug string
	Reason    string
}
