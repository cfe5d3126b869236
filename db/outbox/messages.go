package outbox

import (
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// MessageData is the data of a message. Its type determines the kind of the message.
type MessageData interface{ Kind() metering.MessageKind }

// OfTenant is a part of each message. Publish adds its fields to the payload.
type OfTenant struct {
	TenantID string `json:"tenant_id,omitempty" required:"true" example:"ten_1"`
}

// OfCustomer is a part of each message that concerns one customer. Publish adds its fields to the payload.
type OfCustomer struct {
	OfTenant
	CustomerID         string `json:"customer_id,omitempty" required:"true" example:"cus_42"`
	CustomerExternalID string `json:"customer_external_id,omitempty" required:"true" doc:"External ID of the customer"`
}

// MessagePeriod is a period from Start (inclusive) to End (exclusive).
type MessagePeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// DiscrepancyKind is the kind of a discrepancy, as GET /v1/billing/attention lists it.
type DiscrepancyKind string

// The kinds of discrepancies.
const (
	DisputedReconciliation DiscrepancyKind = "reconciliation_disputed"
	UsageDiscrepancy       DiscrepancyKind = "usage_discrepancy"
)

// PeriodOf returns a range in the form that messages and API responses use.
func PeriodOf(r metering.Range) MessagePeriod { return MessagePeriod{r.Start.UTC(), r.End.UTC()} }

// StoredPeriod is a billing period that has an id.
type StoredPeriod struct {
	ID string `json:"id" example:"per_42"`
	MessagePeriod
}

// SyncSucceeded is the data of the message sent when a sync of a customer succeeds. Usage that the sync excluded is not
// reported.
type SyncSucceeded struct {
	OfCustomer
	SyncID uuid.UUID `json:"sync_id" doc:"Id of the sync, for GET /v1/billing/syncs/{id}"`
}

// Kind implements MessageData.
func (SyncSucceeded) Kind() metering.MessageKind { return metering.MessageSyncSucceeded }

// SyncFailed is the data of the message sent when a sync has failed, so that an operator must act.
type SyncFailed struct {
	OfCustomer
	SyncID uuid.UUID `json:"sync_id" doc:"Id of the sync, for GET /v1/billing/syncs/{id}"`
	Error  string    `json:"error" doc:"Reason and fix"`
}

// Kind implements MessageData.
func (SyncFailed) Kind() metering.MessageKind { return metering.MessageSyncFailed }

// SyncDelayed is the data of the message sent when a sync has been open for longer than
// SyncDelayedAfter.
type SyncDelayed struct {
	OfCustomer
	SyncID      uuid.UUID `json:"sync_id" doc:"Id of the sync, for GET /v1/billing/syncs/{id}"`
	RequestedAt time.Time `json:"requested_at" doc:"Time at which the sync was requested"`
	Cause       string    `json:"cause" doc:"Cause of the delay, as in GET /v1/billing/attention" example:"the sync has not finished"`
}

// Kind implements MessageData.
func (SyncDelayed) Kind() metering.MessageKind { return metering.MessageSyncDelayed }

// PeriodClosed is the data of the message sent when the totals of a billing period are final.
type PeriodClosed struct {
	OfCustomer
	Period MessagePeriod `json:"period"`
}

// Kind implements MessageData.
func (PeriodClosed) Kind() metering.MessageKind { return metering.MessagePeriodClosed }

// ReconciliationDisputed is the data of the message sent when a provider's final invoices bill more usage of a
// closed period than Odometer reported, or a different amount.
type ReconciliationDisputed struct {
	OfCustomer
	Discrepancy DiscrepancyKind              `json:"kind" enum:"reconciliation_disputed" doc:"The kind of discrepancy, as in GET /v1/billing/attention"`
	Period      StoredPeriod                 `json:"period"`
	MeterID     string                       `json:"meter_id"`
	MeterSlug   string                       `json:"meter_slug"`
	Units       metering.Decimal             `json:"units" doc:"Units at the closing of the period, or the charge in a period that is billed in amounts"`
	Reported    metering.Decimal             `json:"reported" doc:"Units that the provider has accepted, or the amount in a period that is billed in amounts"`
	Invoiced    metering.Decimal             `json:"invoiced" doc:"Units on the provider's final invoices, or the amount in a period that is billed in amounts"`
	Unexplained metering.Decimal             `json:"unexplained" doc:"Part of 'invoiced' that Odometer did not report"`
	Reason      billing.ReconciliationReason `json:"reason" doc:"Reason for the difference between the invoices and the closed period. 'message' and 'next_step' explain it"`
	billing.Text
}

// Kind implements MessageData.
func (ReconciliationDisputed) Kind() metering.MessageKind { return metering.MessageDiscrepancyDetected }

// InvoiceHeld is the data of the message sent when a held invoice differs from the reports.
type InvoiceHeld struct {
	OfCustomer
	HoldID    string                `json:"hold_id" doc:"Id of the hold, for POST /v1/billing/holds/{id}/release"`
	InvoiceID string                `json:"invoice_id" doc:"Id of the invoice at the provider"`
	Deadline  time.Time             `json:"deadline" doc:"Time at which the provider finalizes the invoice if it was not released, unless the draft was changed at the provider"`
	Reasons   []InvoiceDisagreement `json:"reasons" nullable:"false"`
	Period    MessagePeriod         `json:"period"`
}

// Kind implements MessageData.
func (InvoiceHeld) Kind() metering.MessageKind { return metering.MessageInvoiceHeld }

// InvoiceDisagreement is one difference between a held invoice and the reports.
type InvoiceDisagreement struct {
	Code billing.HoldCode `json:"code"`
	billing.Text
	MeterID string            `json:"meter_id,omitempty" doc:"Absent if the difference does not concern a single meter"`
	Ours    *metering.Decimal `json:"ours" nullable:"true" doc:"Odometer's units or amount"`
	Theirs  *metering.Decimal `json:"theirs" nullable:"true" doc:"The provider's units or amount"`
}

// UsageDisagrees is the data of the message sent when the daily audit has found totals that differ from
// the events.
type UsageDisagrees struct {
	OfTenant
	Discrepancy   DiscrepancyKind `json:"kind" enum:"usage_discrepancy" doc:"The kind of discrepancy, as in GET /v1/billing/attention"`
	Day           string          `json:"day" format:"date" doc:"Day in UTC"`
	Discrepancies int             `json:"discrepancies" doc:"Number of discrepancies. GET /v1/billing/discrepancies lists them"`
}

// Kind implements MessageData.
func (UsageDisagrees) Kind() metering.MessageKind { return metering.MessageDiscrepancyDetected }

// CredentialExpiring is the data of the message sent when a credential expires soon.
type CredentialExpiring struct {
	OfTenant
	CredentialID string                  `json:"credential_id" doc:"Id of the API key or HMAC secret" example:"key_12"`
	Credential   metering.CredentialKind `json:"kind" enum:"api_key,hmac_secret" doc:"The kind of credential"`
	ExpiresAt    time.Time               `json:"expires_at" doc:"Time from which the credential is invalid"`
}

// Kind implements MessageData.
func (CredentialExpiring) Kind() metering.MessageKind { return metering.MessageCredentialExpiring }

// WebhookDisabled is the data of the message sent when Odometer has disabled a webhook.
type WebhookDisabled struct {
	OfTenant
	WebhookID string                   `json:"webhook_id" example:"whk_3"`
	Because   metering.DisabledBecause `json:"disabled_because" doc:"Reason. 'gone': the receiver returned 410. 'failing': deliveries failed for five days"`
}

// Kind implements MessageData.
func (WebhookDisabled) Kind() metering.MessageKind { return metering.MessageWebhookDisabled }

// MemberInvited is the data of the message sent when an invitation is ready to be e-mailed.
type MemberInvited struct {
	OfTenant
	InvitationID string    `json:"invitation_id" doc:"Id of the invitation. POST /v1/tenant/invitations/{id}/renew returns the token to send"`
	ExpiresAt    time.Time `json:"expires_at"`
	MemberID     string    `json:"member_id,omitempty" doc:"Id of the member to reset. Absent if accepting the invitation creates a member"`
}

// Kind implements MessageData.
func (MemberInvited) Kind() metering.MessageKind { return metering.MessageMemberInvited }

// PasswordResetRequested is the data of the message sent when a password reset was requested for a
// member. The request is not authenticated.
type PasswordResetRequested struct {
	OfTenant
	MemberID string `json:"member_id" doc:"Id of the member, for POST /v1/tenant/members/{id}/reset"`
}

// Kind implements MessageData.
func (PasswordResetRequested) Kind() metering.MessageKind {
	return metering.MessagePasswordResetRequested
}

// AlertTriggered is the data of the message sent when a customer has reached a threshold of an alert.
type AlertTriggered struct {
	OfCustomer
	ID         string           `json:"id" example:"fir_42" doc:"Id of the firing"`
	Alert      TriggeredAlert   `json:"alert"`
	Threshold  metering.Decimal `json:"threshold" doc:"The threshold that was reached. For 'silence', 'minutes' of the alert"`
	Value      metering.Decimal `json:"value" doc:"The total, the charge, the percentage or the minutes at occurred_at. A percentage is rounded down to 2 decimals"`
	Unit       string           `json:"unit,omitempty" doc:"Unit of the meter, 'percent' or 'minutes'. Absent if the meter has no unit, and for 'spend'"`
	Currency   string           `json:"currency,omitempty" doc:"Currency of 'value' and 'threshold'. Present only for 'spend'"`
	QuotaID    *string          `json:"quota_id" example:"quo_42" doc:"Id of the quota that reached the threshold. Null unless the alert has the type 'quota'"`
	Period     MessagePeriod    `json:"period"`
	Late       bool             `json:"late" doc:"Whether the period had ended when the threshold was reached"`
	OccurredAt time.Time        `json:"occurred_at"`
}

// TriggeredAlert is the alert of a message.
type TriggeredAlert struct {
	ID   string             `json:"id" example:"alt_42"`
	Name string             `json:"name"`
	Type metering.AlertType `json:"type"`
}

// Kind implements MessageData.
func (AlertTriggered) Kind() metering.MessageKind { return metering.MessageAlertTriggered }

// NewAlertTriggered returns the message that reports a firing of an alert.
func NewAlertTriggered(a metering.Alert, f metering.Firing) AlertTriggered {
	unit := a.Unit
	switch a.Type {
	case metering.SilenceAlert:
		unit = "minutes"
	case metering.SpendAlert:
		unit = ""
	case metering.QuotaAlert:
		unit = "percent"
	}
	return AlertTriggered{
		ID: f.ID.String(), Alert: TriggeredAlert{a.ID.String(), a.Name, a.Type}, Threshold: f.Threshold, Value: f.Value, Unit: unit, Currency: a.Currency,
		QuotaID: ShownQuota(f.QuotaID), Period: PeriodOf(f.Period), Late: f.Late, OccurredAt: f.At.UTC(),
	}
}

// ShownQuota returns the id of a quota in the form that messages and API responses use, or nil if id is 0.
func ShownQuota(id metering.QuotaID) *string {
	if id == 0 {
		return nil
	}
	return new(id.String())
}

// QuotaExceeded is the data of the message sent when a customer's usage exceeds the limit of a quota.
type QuotaExceeded struct {
	OfCustomer
	QuotaID    string               `json:"quota_id" example:"quo_42"`
	MeterSlug  string               `json:"meter_slug"`
	Mode       metering.QuotaMode   `json:"mode" doc:"Mode of the quota"`
	Period     metering.QuotaPeriod `json:"period" doc:"Period of the quota"`
	Limit      metering.Decimal     `json:"limit" doc:"Limit of the quota in units"`
	Used       metering.Decimal     `json:"used" doc:"Usage in the period so far, in units"`
	ResetsAt   *time.Time           `json:"resets_at" doc:"End of the period. Null for a lifetime quota"`
	OccurredAt time.Time            `json:"occurred_at"`
}

// Kind implements MessageData.
func (QuotaExceeded) Kind() metering.MessageKind { return metering.MessageQuotaExceeded }

// NewQuotaExceeded returns the message about a quota that the usage exceeded at an instant.
func NewQuotaExceeded(l metering.QuotaLevel, now time.Time) QuotaExceeded {
	return QuotaExceeded{
		QuotaID: l.ID.String(), MeterSlug: l.Meter.Slug, Mode: l.Mode, Period: l.Period, Limit: *l.Limit, Used: l.Used, ResetsAt: l.ResetsAt(),
		OccurredAt: metering.Instant(now).UTC(),
	}
}

// WebhookTested is the data of a test message.
type WebhookTested struct {
	OfTenant
	WebhookID string `json:"webhook_id"`
}

// Kind implements MessageData.
func (WebhookTested) Kind() metering.MessageKind { return metering.MessageWebhookTest }
