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
	Currency           string         `json:"currency"`
	Meters             []SnapshotLine `json:"meters"`
	Adjustments        []struct{}     `json:"adjustments"` // none yet
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
}

// Message returns the bytes to be sent, made at now. They are kept as they
// are: the same sequence always carries the same bytes.
func (s Snapshot) Message(now time.Time) ([]byte, error) {
	if s.Adjustments == nil {
		s.Adjustments = []struct{}{}
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
