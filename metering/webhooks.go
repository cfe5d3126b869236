package metering

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// MaxEndpoints is how many endpoints a tenant may have.
const MaxEndpoints = 20

// MessageKind says what happened.
type MessageKind string

// Kinds of messages. WebhookTest goes to the endpoint that asks for it; the
// others go to those that have chosen them.
const (
	BillingSynced     MessageKind = "billing.synced"        // a customer's sync has succeeded
	BillingSyncFailed MessageKind = "billing.sync_failed"   // somebody has to act before it can
	PeriodClosed      MessageKind = "billing.period_closed" // the period's totals are final
	UsageDiscrepancy  MessageKind = "usage.discrepancy"     // the daily audit has found totals and events to disagree
	WebhookTest       MessageKind = "webhook.test"
)

// Message tells other systems that something happened. Data is JSON.
type Message struct {
	ID   uuid.UUID
	Kind MessageKind
	At   time.Time
	Data json.RawMessage
}

// Body is what every delivery of the message sends.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
func (m Message) Body() ([]byte, error) {
	return json.Marshal(struct {
		Type      MessageKind     `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{m.Kind, m.At.UTC(), m.Data})
}

// Endpoint is where a tenant is told of what happens.
type Endpoint struct {
	ID          EndpointID
	TenantID    TenantID
	URL         string
	Description string
	EventTypes  []MessageKind

	Sealed       []byte // what its messages are signed with
	LastFour     string
	SealedFormer []byte     // the secret before that one
	FormerUntil  *time.Time // both sign until then

	CreatedAt       time.Time
	DisabledAt      *time.Time // nothing is kept for it since
	DisabledBecause DisabledBecause
	FailingSince    *time.Time // nothing has arrived since
}

// Signing returns the sealed secrets that sign at now, the newest first.
func (e Endpoint) Signing(now time.Time) [][]byte {
	if e.FormerUntil == nil || !now.Before(*e.FormerUntil) {
		return [][]byte{e.Sealed}
	}
	return [][]byte{e.Sealed, e.SealedFormer}
}

// DisabledBecause says who has disabled an endpoint.
type DisabledBecause string

const (
	DisabledByTenant DisabledBecause = "tenant"
	DisabledGone     DisabledBecause = "gone"    // it has answered 410
	DisabledFailing  DisabledBecause = "failing" // nothing has arrived for FailingAtMost
)

// SecretOverlap is how long a replaced signing secret signs beside the new one.
const SecretOverlap = 24 * time.Hour

// DeliveryStatus is where a message stands on its way to an endpoint.
type DeliveryStatus string

const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryFailed    DeliveryStatus = "failed" // it is not tried again unless somebody asks
)

// retries is how long after an attempt in vain the next one follows: the
// example of Standard Webhooks, three days in all.
var retries = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// RetryAfter returns how long after attempts in vain a message is tried again;
// false: never.
func RetryAfter(attempts int) (time.Duration, bool) {
	if attempts < 1 || attempts > len(retries) {
		return 0, false
	}
	return retries[attempts-1], true
}

// FailingAtMost is how long an endpoint may fail without a break before it is
// disabled.
const FailingAtMost = 5 * 24 * time.Hour

// Backoff returns how long nothing is sent to an endpoint that has failed so
// often in a row, so that what waits for it does not beat on it.
func Backoff(failures int) time.Duration {
	const first, most = 5 * time.Second, 5 * time.Minute
	return min(first<<min(max(failures, 1)-1, 10), most)
}

// Delivery is one message on its way to one endpoint.
type Delivery struct {
	Message
	Status    DeliveryStatus
	Attempts  int        // since it was asked for
	DueAt     *time.Time // the next attempt, of a pending one
	SettledAt *time.Time
}

// Attempt is one try to deliver a message.
type Attempt struct {
	At      time.Time
	Took    time.Duration
	Status  int    // the HTTP status; 0: there was no answer
	Problem string // "" when it was delivered
}
