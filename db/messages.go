package db

import (
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// MessageData is what a message says of what happened. Its type decides of which
// kind the message is.
type MessageData interface{ Kind() metering.MessageKind }

// OfTenant is in each message; publish fills it in.
type OfTenant struct {
	TenantID string `json:"tenant_id,omitempty" required:"true" example:"ten_1"`
}

// OfCustomer is in each message that concerns one customer; publish fills it in.
type OfCustomer struct {
	OfTenant
	CustomerID         string `json:"customer_id,omitempty" required:"true" example:"cus_42"`
	CustomerExternalID string `json:"customer_external_id,omitempty" required:"true" doc:"External ID of the customer"`
}

// MessagePeriod is a billing period, half-open.
type MessagePeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

func periodOf(r metering.Range) MessagePeriod { return MessagePeriod{r.Start.UTC(), r.End.UTC()} }

// StoredPeriod is a billing period that has an id.
type StoredPeriod struct {
	ID string `json:"id" example:"per_42"`
	MessagePeriod
}

// CustomerSynced says that all of the customer's usage is reported.
type CustomerSynced struct {
	OfCustomer
	SyncID uuid.UUID `json:"sync_id" doc:"Id of the sync, for GET /v1/billing/syncs/{id}"`
}

// Kind implements MessageData.
func (CustomerSynced) Kind() metering.MessageKind { return metering.BillingSynced }

// CustomerNotSynced says that somebody has to act before the customer is synced.
type CustomerNotSynced struct {
	OfCustomer
	SyncID uuid.UUID `json:"sync_id" doc:"Id of the sync, for GET /v1/billing/syncs/{id}"`
	Error  string    `json:"error" doc:"Reason and fix"`
}

// Kind implements MessageData.
func (CustomerNotSynced) Kind() metering.MessageKind { return metering.BillingSyncFailed }

// PeriodClosed says that a billing period's totals are final.
type PeriodClosed struct {
	OfCustomer
	Period MessagePeriod `json:"period"`
}

// Kind implements MessageData.
func (PeriodClosed) Kind() metering.MessageKind { return metering.PeriodClosed }

// ReconciliationDisputed says that a provider's final invoices bill something of a
// closed period that nobody has reported.
type ReconciliationDisputed struct {
	OfCustomer
	Period      StoredPeriod     `json:"period"`
	MeterID     string           `json:"meter_id"`
	MeterSlug   string           `json:"meter_slug"`
	Units       metering.Decimal `json:"units" doc:"Units at the closing of the period"`
	Reported    metering.Decimal `json:"reported" doc:"Units that the provider has accepted"`
	Invoiced    metering.Decimal `json:"invoiced" doc:"Units on the provider's final invoices"`
	Unexplained metering.Decimal `json:"unexplained" doc:"Invoiced units that Odometer did not report"`
	Reason      string           `json:"reason"`
}

// Kind implements MessageData.
func (ReconciliationDisputed) Kind() metering.MessageKind { return metering.BillingDiscrepancy }

// InvoiceDisagrees says that a held invoice differs from what was reported.
type InvoiceDisagrees struct {
	OfCustomer
	HoldID    string                `json:"hold_id" doc:"Id of the hold, for POST /v1/billing/holds/{id}/release"`
	InvoiceID string                `json:"invoice_id" doc:"Id of the invoice at the provider"`
	Deadline  time.Time             `json:"deadline" doc:"Time at which the provider finalizes the invoice if it was not released, unless the draft was changed at the provider"`
	Reasons   []InvoiceDisagreement `json:"reasons" nullable:"false"`
	Period    MessagePeriod         `json:"period"`
}

// Kind implements MessageData.
func (InvoiceDisagrees) Kind() metering.MessageKind { return metering.BillingDiscrepancy }

// InvoiceDisagreement is one thing that differs.
type InvoiceDisagreement struct {
	Code    billing.HoldCode  `json:"code"`
	MeterID string            `json:"meter_id,omitempty" doc:"Absent if the difference does not concern a single meter"`
	Ours    *metering.Decimal `json:"ours" nullable:"true" doc:"Odometer's units or amount"`
	Theirs  *metering.Decimal `json:"theirs" nullable:"true" doc:"The provider's units or amount"`
}

// UsageDisagrees says that the daily audit found totals and events to disagree.
type UsageDisagrees struct {
	OfTenant
	Day           string `json:"day" format:"date" doc:"Day in UTC"`
	Discrepancies int    `json:"discrepancies" doc:"Number of discrepancies. GET /v1/billing/discrepancies lists them"`
}

// Kind implements MessageData.
func (UsageDisagrees) Kind() metering.MessageKind { return metering.UsageDiscrepancy }

// MemberInvited says that an invitation waits to be sent to somebody.
type MemberInvited struct {
	OfTenant
	InvitationID string    `json:"invitation_id" doc:"Id of the invitation. POST /v1/tenant/invitations/{id}/renew returns the token to send"`
	ExpiresAt    time.Time `json:"expires_at"`
	MemberID     string    `json:"member_id,omitempty" doc:"Id of the member to reset. Absent if accepting the invitation creates a member"`
}

// Kind implements MessageData.
func (MemberInvited) Kind() metering.MessageKind { return metering.MemberInvited }

// MemberResetAsked says that somebody, who may be anybody, asks for another
// password for a member.
type MemberResetAsked struct {
	OfTenant
	MemberID string `json:"member_id" doc:"Id of the member, for POST /v1/tenant/members/{id}/reset"`
}

// Kind implements MessageData.
func (MemberResetAsked) Kind() metering.MessageKind { return metering.MemberResetAsked }

// WebhookTested says that somebody has asked for a test.
type WebhookTested struct {
	OfTenant
	WebhookID string `json:"webhook_id"`
}

// Kind implements MessageData.
func (WebhookTested) Kind() metering.MessageKind { return metering.WebhookTest }
