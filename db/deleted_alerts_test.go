package db_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func TestFiringsOfDeletedAlertAreDeletedInBatches(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	w := newWatcherOn(t, store, address)
	kept, a := w.alert(w.usage("1")), w.alert(w.usage("1", "2", "3"))
	w.use("5")
	w.evaluate()
	require.NoError(t, w.store.Alerts.Delete(t.Context(), w.tenant, metering.Operator, a.ID, w.now))
	_, err := w.store.Alerts.Get(t.Context(), w.tenant, a.ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(w.store.Alerts.Delete(t.Context(), w.tenant, metering.Operator, a.ID, w.now)))
	_, err = w.store.Alerts.Update(t.Context(), w.tenant, metering.Operator, a.ID, limits.AlertChange{Enabled: new(true)}, w.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	list, err := dbtest.Items(w.store.Alerts.List(t.Context(), w.tenant, 0, 10))
	require.NoError(t, err)
	require.Len(t, list, 1)

	rows := func() (alerts, firings int) {
		w.scan(`select count(*) from alerts where tenant_id = $1`, []any{w.tenant}, &alerts)
		w.scan(`select count(*) from alert_firings where tenant_id = $1`, []any{w.tenant}, &firings)
		return alerts, firings
	}
	alerts, firings := rows()
	require.Equal(t, []int{2, 4}, []int{alerts, firings}, "the deletion leaves the firings to the worker")
	worker := dbtest.OpenAsWorker(t, address)
	for _, want := range []int64{2, 2, 0} {
		deleted, err := worker.Alerts.SweepDeleted(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	alerts, firings = rows()
	require.Equal(t, []int{1, 1}, []int{alerts, firings}, "only the other alert and its firing are left")
	_, err = w.store.Alerts.Get(t.Context(), w.tenant, kept.ID)
	require.NoError(t, err)
}

func TestAnAlertIsDeletedWhileItIsEvaluated(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	a := w.alert(w.usage("1"))
	conn := w.connect()
	evaluation, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = evaluation.Exec(t.Context(), `select from alerts where tenant_id = $1 and id = $2 for key share`, w.tenant, a.ID)
	require.NoError(t, err)
	require.NoError(t, w.store.Alerts.Delete(t.Context(), w.tenant, metering.Operator, a.ID, w.now))
	require.NoError(t, evaluation.Rollback(t.Context()))
}

// TestNothingPersonalIsLeftOfTheAlertsOfAnErasedCustomer erases a customer with personal data in the
// name, the group and the stored creation response of its alerts.
func TestNothingPersonalIsLeftOfTheAlertsOfAnErasedCustomer(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	now, tenant := clock.Now(), dbtest.Tenant(t, store).ID
	_, err = store.Webhooks.Create(t.Context(), tenant, "key_1", metering.Endpoint{
		URL: "https://example.com/alerts", EventTypes: []metering.MessageKind{metering.MessageAlertTriggered}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, now)
	require.NoError(t, err)
	m := dbtest.Meter(t, store, tenant, "tokens", "token", "device")
	ada := dbtest.Customer(t, store, tenant, "ada@example.com")
	create := func(key, device string) (a metering.Alert) {
		group, err := m.Version.QuotaGroup("", json.RawMessage(`{"device":"`+device+`"}`))
		require.NoError(t, err)
		_, err = store.Once(t.Context(), tenant, db.Claim{Key: "order-of-ada " + key, Operation: "create-alert", Hash: []byte("x")}, func(within db.Creators) ([]byte, error) {
			a, err = within.Alerts.Create(t.Context(), tenant, "key_1", metering.Alert{
				Name: "budget of Lovelace", Type: metering.UsageAlert, CustomerID: ada.ID, MeterID: m.ID, Group: &group, Thresholds: decimals("1"),
			}, now)
			require.NoError(t, err)
			return json.Marshal(map[string]any{"id": a.ID.String(), "name": a.Name, "customer": a.ExternalID, "group": group.Key})
		})
		require.NoError(t, err)
		return a
	}
	create("1", "ada-laptop 1")
	create("2", "ada-laptop 2") // no event is in this group
	deleted := create("3", "ada-laptop 1")
	swept := create("4", "ada-laptop 3")
	require.NoError(t, store.Alerts.Delete(t.Context(), tenant, "key_1", swept.ID, now))
	ofDevice, err := m.Version.QuotaGroup("", json.RawMessage(`{"device":"ada-laptop 4"}`))
	require.NoError(t, err)
	quota, err := store.Quotas.Set(t.Context(), tenant, "key_1", metering.Quota{CustomerID: ada.ID, Meter: m, Group: &ofDevice, Limit: new(metering.Whole(1)), Mode: metering.SoftQuota, Period: metering.PerDay}, now)
	require.NoError(t, err)
	require.NoError(t, store.Quotas.Delete(t.Context(), tenant, "key_1", quota.ID))
	require.NoError(t, store.Alerts.Delete(t.Context(), tenant, "key_1", deleted.ID, now))
	for range 2 {
		_, err := store.Alerts.SweepDeleted(t.Context(), 10)
		require.NoError(t, err)
	}
	ingest(t, store, tenant, dbtest.Event(t, "token", "ada@example.com", now, "2", "", `{"device":"ada-laptop 1"}`))
	require.NoError(t, store.Folds.Tenant(t.Context(), tenant))
	require.NoError(t, store.Evaluations.Tenant(t.Context(), tenant, now))
	var message string
	require.NoError(t, conn.QueryRow(t.Context(), `select payload::text from outbox where tenant_id = $1 and kind = 'alert.triggered'`, tenant).Scan(&message))
	require.Contains(t, message, "budget of Lovelace")

	_, err = store.Erasures.Begin(t.Context(), tenant, "key_1", "ada@example.com", "asked for", now)
	require.NoError(t, err)
	eraseAll(t, store, tenant, ada.ID)
	requireGone(t, conn)
	list, err := dbtest.Items(store.Alerts.List(t.Context(), tenant, 0, 10))
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = store.Alerts.Create(t.Context(), tenant, "key_1", metering.Alert{Name: "late", Type: metering.SilenceAlert, CustomerID: ada.ID, Minutes: 5}, now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "the customer was erased after the request had read it")
	_, err = store.Quotas.Set(t.Context(), tenant, "key_1", metering.Quota{CustomerID: ada.ID, Meter: m, Group: &ofDevice, Limit: new(metering.Whole(1)), Mode: metering.SoftQuota, Period: metering.PerDay}, now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "a quota for the erased customer is refused too")
	requireGone(t, conn)
}
