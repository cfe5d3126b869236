package metering

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// MaxEndpoints is the maximum number of endpoints of a tenant.
const MaxEndpoints = 20

// MessageKind is the type of a message: a noun and a participle.
type MessageKind string

// Kinds of messages. An endpoint receives the kinds that it subscribes to, and the test messages that were
// requested for it.
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

// Values returns the kinds to which an endpoint can subscribe.
func (MessageKind) Values() []MessageKind {
	return []MessageKind{
		MessageSyncSucceeded, MessageSyncFailed, MessageSyncDelayed, MessagePeriodClosed, MessageInvoiceHeld, MessageDiscrepancyDetected,
		MessageCredentialExpiring, MessageWebhookDisabled, MessageMemberInvited, MessagePasswordResetRequested, MessageAlertTriggered, MessageQuotaExceeded,
	}
}

// Message is a notification to the tenant's systems. Data is JSON.
type Message struct {
	ID   uuid.UUID
	Kind MessageKind
	At   time.Time
	Data json.RawMessage
}

// MessageOf is the JSON form of a message:
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
type MessageOf[Data any] struct {
	Type      MessageKind `json:"type"`
	Timestamp time.Time   `json:"timestamp" doc:"Time at which the message was created"`
	Data      Data        `json:"data"`
}

// Body returns the body of every delivery of the message.
func (m Message) Body() ([]byte, error) {
	return json.Marshal(MessageOf[json.RawMessage]{m.Kind, m.At.UTC(), m.Data})
}

// Endpoint is a URL of the tenant that receives messages.
type Endpoint struct {
	ID          EndpointID
	TenantID    TenantID
	URL         string
	Description string
	EventTypes  []MessageKind

	Sealed       []byte // the encrypted secret that signs the endpoint's messages
	LastFour     string
	SealedFormer []byte     // the encrypted previous secret; nil: none
	FormerUntil  *time.Time // until then, messages are also signed with the previous secret; nil: no end

	CreatedAt       time.Time
	DisabledAt      *time.Time // since this time, no messages are stored for the endpoint
	DisabledBecause DisabledBecause
	FailingSince    *time.Time // since then, no delivery has succeeded
}

// Signing returns the encrypted secrets that sign messages at now, the newest first.
func (e Endpoint) Signing(now time.Time) [][]byte {
	if e.SealedFormer == nil || e.FormerUntil != nil && !now.Before(*e.FormerUntil) {
		return [][]byte{e.Sealed}
	}
	return [][]byte{e.Sealed, e.SealedFormer}
}

// DisabledBecause is the reason why an endpoint is disabled.
type DisabledBecause string

const (
	DisabledByTenant DisabledBecause = "tenant"
	DisabledGone     DisabledBecause = "gone"    // the receiver returned 410
	DisabledFailing  DisabledBecause = "failing" // no delivery succeeded for FailingAtMost
)

// Values returns all reasons.
func (DisabledBecause) Values() []DisabledBecause {
	return []DisabledBecause{DisabledByTenant, DisabledGone, DisabledFailing}
}

// Values returns all statuses.
func (DeliveryStatus) Values() []DeliveryStatus {
	return []DeliveryStatus{DeliveryPending, DeliveryDelivered, DeliveryFailed}
}

// DeliveryStatus is the status of the delivery of a message to an endpoint.
type DeliveryStatus string

const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryFailed    DeliveryStatus = "failed" // no further automatic attempts
)

// retries are the pauses after failed attempts, three days in total, as in the example of Standard
// Webhooks.
var retries = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// RetryAfter returns the pause after the given number of failed attempts. It returns false if there are no
// more attempts.
func RetryAfter(attempts int) (time.Duration, bool) {
	if attempts < 1 || attempts > len(retries) {
		return 0, false
	}
	return retries[attempts-1], true
}

// FailingAtMost is the time after which an endpoint is disabled if no delivery succeeds.
const FailingAtMost = 5 * 24 * time.Hour

// Backoff returns the pause of all deliveries to an endpoint after consecutive failures: 5 s, doubled with
// each failure, up to 5 minutes.
func Backoff(failures int) time.Duration {
	const first, most = 5 * time.Second, 5 * time.Minute
	return min(first<<min(max(failures, 1)-1, 10), most)
}

// Delivery is the delivery of one message to one endpoint.
type Delivery struct {
	Message
	Status    DeliveryStatus
	Attempts  int        // since delivery was last requested
	DueAt     *time.Time // time of the next attempt; nil unless pending
	SettledAt *time.Time
}

// Attempt is one attempt to deliver a message.
type Attempt struct {
	At      time.Time
	Took    time.Duration
	Status  int    // HTTP status of the response; 0: no response
	Problem string // "": delivered
}

// DisablesEndpoint returns the reason for which a failed attempt disables its endpoint, or "" if the endpoint
// stays enabled. since is the start of the endpoint's current series of failures.
func (a Attempt) DisablesEndpoint(since, now time.Time) DisabledBecause {
	switch {
	case a.Status == http.StatusGone:
		return DisabledGone
	case now.Sub(since) > FailingAtMost:
		return DisabledFailing
	default:
		return ""
	}
}
