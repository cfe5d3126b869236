package metering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Snapshot is the message that tells a webhook provider what a customer owes
// for one period so far. It is cumulative: the one with the highest sequence
// replaces all before it for the same period.
type Snapshot struct {
	TenantID           string         `json:"tenant_id"`
	CustomerExternalID string         `json:"customer_external_id"`
	Period             SnapshotPeriod `json:"period"`
	Sequence           int64          `json:"sequence"` // one series of numbers per customer
	Currency           string         `json:"currency"` // the lines' where they have one in common, else the tenant's
	Meters             []SnapshotLine `json:"meters"`
	Adjustments        []Adjustment   `json:"adjustments"`
}

// SnapshotPeriod is the billing period that a snapshot is about, half-open.
type SnapshotPeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// SnapshotLine is one meter of a snapshot.
type SnapshotLine struct {
	MeterID   string  `json:"meter_id"`
	MeterSlug string  `json:"meter_slug"`
	Usage     Decimal `json:"usage"`
	UnitPrice Decimal `json:"unit_price"`
	Amount    Decimal `json:"amount"` // rounded to the currency's minor unit
	Currency  string  `json:"currency"`
}

// Adjustment is what usage that arrived late adds to a closed period. Like the
// lines, it is cumulative over the snapshots of the period that carries it.
type Adjustment struct {
	Period    SnapshotPeriod `json:"period"` // the closed one
	MeterID   string         `json:"meter_id"`
	MeterSlug string         `json:"meter_slug"`
	Usage     Decimal        `json:"usage"` // what arrived late
	UnitPrice Decimal        `json:"unit_price"`
	Amount    Decimal        `json:"amount"`   // what the charge grows by, at the closed period's price
	Currency  string         `json:"currency"` // of the closed period's price
}

// Message returns the bytes to be sent, made at now. They are kept as they
// are: the same sequence always carries the same bytes.
func (s Snapshot) Message(now time.Time) ([]byte, error) {
	if s.Adjustments == nil {
		s.Adjustments = []Adjustment{}
	}
	var message bytes.Buffer
	encoder := json.NewEncoder(&message)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      Snapshot  `json:"data"`
	}{"usage.snapshot", Instant(now), s})
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return bytes.TrimSuffix(message.Bytes(), []byte("\n")), nil
}
