package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/dev/contract"
	"github.com/odometer-metering/odometer/metering"
)

func TestEveryMessageMatchesItsDocumentedSchema(t *testing.T) {
	t.Parallel()
	kinds := metering.MessageKind("").Values()
	h := newHooked(t, kinds...)
	month := outbox.MessagePeriod{Start: november, End: november.AddDate(0, 1, 0)}
	ours := metering.Whole(10)
	ofCustomer := []outbox.MessageData{
		outbox.SyncSucceeded{SyncID: uuid.New()},
		outbox.SyncFailed{SyncID: uuid.New(), Error: "the webhook answered 401"},
		outbox.SyncDelayed{SyncID: uuid.New(), RequestedAt: november, Cause: "no worker has started the sync"},
		outbox.PeriodClosed{Period: month},
		outbox.ReconciliationDisputed{
			Discrepancy: "reconciliation_disputed", Period: outbox.StoredPeriod{ID: "per_1", MessagePeriod: month}, MeterID: "mtr_1", MeterSlug: "calls", Units: ours,
			Reason: billing.ReasonBilledMore, Text: billing.Text{Message: "m", NextStep: "n"},
		},
		outbox.InvoiceHeld{HoldID: "hld_1", InvoiceID: "in_1", Period: month, Reasons: []outbox.InvoiceDisagreement{
			{Code: billing.HoldNotCounted, Text: billing.Text{Message: "m", NextStep: "n"}, MeterID: "mtr_1", Ours: &ours, Theirs: &ours}, {Code: billing.HoldSyncFailed},
		}},
		outbox.AlertTriggered{ID: "fir_1", Alert: outbox.TriggeredAlert{ID: "alt_1", Name: "Budget", Type: metering.SpendAlert}, Threshold: ours, Value: ours, Currency: "USD", Period: month, OccurredAt: november},
		outbox.QuotaExceeded{QuotaID: "quo_1", MeterSlug: "calls", Mode: metering.HardQuota, Period: metering.PerLifetime, Limit: ours, Used: ours, OccurredAt: november},
	}
	ofTenant := []outbox.MessageData{
		outbox.UsageDisagrees{Discrepancy: "usage_discrepancy", Day: "2026-11-01", Discrepancies: 1},
		outbox.MemberInvited{InvitationID: "inv_1", ExpiresAt: november},
		outbox.MemberInvited{InvitationID: "inv_1", ExpiresAt: november, MemberID: "member_1"},
		outbox.CredentialExpiring{CredentialID: "key_1", Credential: metering.APIKeyCredential, ExpiresAt: november},
		outbox.WebhookDisabled{WebhookID: "whk_1", Because: metering.DisabledFailing},
		outbox.PasswordResetRequested{MemberID: "member_1"},
	}
	for _, data := range ofCustomer {
		require.NoError(t, db.Publish(t.Context(), h.store, h.tenant, h.customer.ID, data, h.now))
	}
	for _, data := range ofTenant {
		require.NoError(t, db.Publish(t.Context(), h.store, h.tenant, metering.WholeTenant, data, h.now))
	}
	_, err := h.store.Deliveries.Test(t.Context(), h.tenant, h.hook.ID, h.now)
	require.NoError(t, err)
	sent := map[metering.MessageKind]bool{}
	for range len(ofCustomer) + len(ofTenant) + 1 {
		h.now = h.now.Add(time.Second)
		claimed := h.claim()
		require.NotNil(t, claimed)
		body, err := claimed.Body()
		require.NoError(t, err)
		require.NoError(t, contract.Message(body), "%s", body)
		require.Contains(t, string(body), `"tenant_id":"`+h.tenant.String()+`"`)
		sent[claimed.Kind] = true
	}
	for _, kind := range append(kinds, metering.MessageWebhookTest) {
		require.True(t, sent[kind], kind)
	}
}
