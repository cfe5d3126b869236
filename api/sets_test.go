package api_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// TestEnumsOfDocumentMatchCode checks that each enum of the document is a set of the code. An enum that is
// written a second time could differ from the first.
func TestEnumsOfDocumentMatchCode(t *testing.T) {
	t.Parallel()
	messages, roles := metering.MessageKind("").Values(), metering.Role("").Values()
	sets := [][]string{
		valuesOf(metering.Aggregation("").Values()), valuesOf(metering.AlertType("").Values()), valuesOf(metering.DeliveryStatus("").Values()), valuesOf(metering.DisabledBecause("").Values()),
		valuesOf(billing.Component("").Values()), valuesOf(billing.Kind("").Values()), valuesOf(billing.State("").Values()),
		valuesOf([]billing.Kind{billing.StatementReport, billing.QuantityReport, billing.ChargeReport}), // of reports with lines
		valuesOf(billing.PeriodState("").Values()), valuesOf(billing.PriceSource("").Values()), billing.StepNames(),
		valuesOf(billing.ReconciliationState("").Values()), valuesOf(billing.ReconciliationReason("").Values()), valuesOf(billing.Decision("").Values()),
		valuesOf(billing.HoldState("").Values()), valuesOf(billing.HoldCode("").Values()),
		valuesOf([]billing.State{billing.Accepted, billing.Rejected}), // states to which a report is resolved
		valuesOf(metering.Granularity("").Values()), valuesOf(metering.FilterOperator("").Values()), valuesOf(metering.LatePolicy("").Values()), valuesOf(metering.ConflictPolicy("").Values()),
		valuesOf(billing.UnratedReason("").Values()), valuesOf(billing.ExclusionCode("").Values()), valuesOf(append(billing.PeriodState("").Values(), billing.PeriodBefore)),
		valuesOf(metering.Verdict("").Values()), valuesOf(metering.KeysChoice("").Values()), valuesOf(known.Kinds()), valuesOf(metering.Scope("").Values()), valuesOf(metering.Signatures("").Values()),
		valuesOf(metering.SyncStatus("").Values()), valuesOf(metering.Trigger("").Values()),
		valuesOf(db.AttentionKind("").Values()), valuesOf(metering.QuotaMode("").Values()), valuesOf(metering.QuotaPeriod("").Values()), valuesOf(billing.Model("").Values()),
		valuesOf(messages), valuesOf(append(messages, metering.MessageWebhookTest)), // the kinds that endpoints choose, and those that they receive
		valuesOf(roles), valuesOf(roles[1:]), // all roles, and all except owner
		valuesOf([]metering.MeterVersionStatus{metering.Backfilling, metering.Complete}),
		valuesOf([]metering.Verdict{metering.ValueMissing, metering.ValueInvalid}),                                                 // of uncounted events
		valuesOf(metering.Bills("").Values()), {"exclusive", "inclusive", "unspecified"}, {"charge_automatically", "send_invoice"}, // Stripe's
		{"reconciliation_disputed"}, {"usage_discrepancy"}, {"api_key", "hmac_secret"}, // of the data of messages
		{"ok"}, {"ok", "exhausted"}, {"ok", "unavailable"}, {"ok", "unavailable", "not_migrated", "read_only", "full"}, {"ok", "unknown", "wrong"}, {"json", "csv"}, {"json", "jsonl", "csv"}, {"value", "key"}, // the API's own
	}
	for _, kind := range append(messages, metering.MessageWebhookTest, webhook.UsageStatement, webhook.Ping) {
		sets = append(sets, []string{string(kind)}) // of one kind of message
	}
	v31, v30, err := documents()
	require.NoError(t, err)
	used := map[int]bool{}
	for _, document := range [][]byte{v31, v30} {
		var read any
		require.NoError(t, json.Unmarshal(document, &read))
		eachEnum(read, func(enum []string) {
			found := slices.IndexFunc(sets, func(set []string) bool { return slices.Equal(set, enum) })
			require.NotEqual(t, -1, found, "no set in the code is %v", enum)
			used[found] = true
		})
	}
	require.Len(t, used, len(sets), "some sets are not in the document")
}

// valuesOf converts values to texts.
func valuesOf[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// eachEnum calls visit with the values of each enum of a document.
func eachEnum(document any, visit func([]string)) {
	switch node := document.(type) {
	case map[string]any:
		if enum, ok := node["enum"].([]any); ok {
			visit(texts(enum))
		}
		for _, value := range node {
			eachEnum(value, visit)
		}
	case []any:
		for _, value := range node {
			eachEnum(value, visit)
		}
	}
}

// texts returns the texts of a list.
func texts(list []any) (texts []string) {
	for _, value := range list {
		texts = append(texts, value.(string))
	}
	return texts
}
