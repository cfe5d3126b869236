package metering

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// MaxEndpoints is how many endpoints a tenant may have.
const MaxEndpoints = 20

// MessageKind is the type of a message: a noun and a participle.
type MessageKind string

// Kinds of messages. An endpoint receives the kinds that it has chosen, and each
// MessageWebhookTest that was requested for it.
const (
	MessageSyncSucceeded          MessageKind = "sync.succeeded"
	MessageSyncFailed             MessageKind = "sync.failed"
	MessageSyncDelayed            MessageKind = "sync.delayed" // a sync has been open for too long
	MessagePeriodClosed           MessageKind = "period.closed"
	MessageInvoiceHeld            MessageKind = "invoice.held" // an invoice differs from the reports and waits for an operator
	MessageDiscrepancyDetected    MessageKind = "discrepancy.detected"
	MessageCredentialExpiring     MessageKind = "credential.expiring"
	MessageWebhookDisabled        MessageKind = "webhook.disabled" // by Odometer, not by the tenant
	MessageMemberInvited          MessageKind = "member.invited"
	MessagePasswordResetRequested MessageKind = "password_reset.requested"
	MessageAlertTriggered         MessageKind = "alert.triggered" // a customer has reached a threshold
	MessageQuotaExceeded          MessageKind = "quota.exceeded"  // usage has exceeded the limit of a quota
	MessageWebhookTest            MessageKind = "webhook.test"
)

// Values returns the kinds that an endpoint may choose.
func (MessageKind) Values() []MessageKind {
	return []MessageKind{
		MessageSyncSucceeded, MessageSyncFailed, MessageSyncDelayed, MessagePeriodClosed, MessageInvoiceHeld, MessageDiscrepancyDetected,
		MessageCredentialExpiring, MessageWebhookDisabled, MessageMemberInvited, MessagePasswordResetRequested, MessageAlertTriggered, MessageQuotaExceeded,
	}
}

// Message tells other systems that something happened. Data is JSON.
type Message struct {
	ID   uuid.UUID
	Kind MessageKind
	At   time.Time
	Data json.RawMessage
}

// MessageOf is what a message looks like to its receiver.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
type MessageOf[Data any] struct {
	Type      MessageKind `json:"type"`
	Timestamp time.Time   `json:"timestamp" doc:"Time at which the message was created"`
	Data      Data        `json:"data"`
}

// Body is what every delivery of the message sends.
func (m Message) Body() ([]byte, error) {
	return json.Marshal(MessageOf[json.RawMessage]{m.Kind, m.At.UTC(), m.Data})
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
	SealedFormer []byte     // the secret before that one; nil: none
	FormerUntil  *time.Time // both sign until then; nil: for as long as there is a former one

	CreatedAt       time.Time
	DisabledAt      *time.Time // nothing is kept for it since
	DisabledBecause DisabledBecause
	FailingSince    *time.Time // nothing has arrived since
}

// Signing returns the sealed secrets that sign at now, the newest first.
func (e Endpoint) Signing(now time.Time) [][]byte {
	if e.SealedFormer == nil || e.FormerUntil != nil && !now.Before(*e.FormerUntil) {
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

// Values are all reasons.
func (DisabledBecause) Values() []DisabledBecause {
	return []DisabledBecause{DisabledByTenant, DisabledGone, DisabledFailing}
}

// Values are all that a delivery may be.
func (DeliveryStatus) Values() []DeliveryStatus {
	return []DeliveryStatus{DeliveryPending, DeliveryDelivered, DeliveryFailed}
}

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
