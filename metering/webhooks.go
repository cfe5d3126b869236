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
	BillingSynced      MessageKind = "billing.synced"        // a customer's sync has succeeded
	BillingSyncFailed  MessageKind = "billing.sync_failed"   // somebody has to act before it can
	PeriodClosed       MessageKind = "billing.period_closed" // the period's totals are final
	BillingDiscrepancy MessageKind = "billing.discrepancy"   // a provider's invoices bill something that nobody has reported
	UsageDiscrepancy   MessageKind = "usage.discrepancy"     // the daily audit has found totals and events to disagree
	MemberInvited      MessageKind = "member.invited"        // a link waits to be sent to somebody
	MemberResetAsked   MessageKind = "member.reset_asked"    // a member has forgotten the password
	WebhookTest        MessageKind = "webhook.test"
)

// Values are the kinds that an endpoint may choose.
func (MessageKind) Values() []MessageKind {
	return []MessageKind{BillingSynced, BillingSyncFailed, PeriodClosed, BillingDiscrepancy, UsageDiscrepancy, MemberInvited, MemberResetAsked}
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
