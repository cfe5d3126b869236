package db_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// groupOfModel returns the group of a model, for a meter that groups by model.
func groupOfModel(t testing.TB, m metering.Meter, model string) *metering.Group {
	t.Helper()
	group, err := m.Version.QuotaGroup("", fmt.Appendf(nil, `{"model":%q}`, model))
	require.NoError(t, err)
	return &group
}

// fillGroups registers the maximum number of other groups for the meter's latest version.
func fillGroups(t testing.TB, conn *pgx.Conn, tenant metering.TenantID, m metering.Meter) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `
		insert into usage_groups (tenant_id, meter_version_id, group_id, group_key)
		select $1, max(id), gen_random_uuid(), '{"model":"x"}' from meter_versions, generate_series(1, $3) where tenant_id = $1 and meter_id = $2 group by generate_series`,
		tenant, m.ID, metering.MaxGroupsPerMeter)
	require.NoError(t, err)
}

func TestGroupOfAlertIsNotCountedInOtherGroup(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	m := dbtest.Meter(t, w.store, w.tenant, "tokens", "token", "model")
	w.alert(metering.Alert{Type: metering.UsageAlert, MeterID: m.ID, Group: groupOfModel(t, m, "large"), Thresholds: decimals("10", "20")})
	send := func(model, value string) {
		_, err := w.writer.Ingest(t.Context(), w.tenant, []metering.Event{dbtest.Event(t, "token", "acme", w.now, value, "", `{"model":"`+model+`"}`)})
		require.NoError(t, err)
		w.evaluate()
	}
	fillGroups(t, w.connect(), w.tenant, m)
	send("other", "5")
	send("large", "11")
	require.Equal(t, []string{"10:11"}, w.thresholds(), "an alert registers its group")

	_, backfilling, err := w.store.Meters.Update(t.Context(), w.tenant, metering.Operator, "tokens", catalog.MeterChange{Aggregation: new(metering.Count)})
	require.NoError(t, err)
	require.NotNil(t, backfilling)
	fillGroups(t, w.connect(), w.tenant, m)
	_, err = w.store.Backfills.CountDay(t.Context(), w.tenant, backfilling.ID, w.now)
	require.NoError(t, err)
	require.NoError(t, w.store.Backfills.Complete(t.Context(), w.tenant, backfilling.ID))
	for range 19 {
		send("large", "1")
	}
	require.Equal(t, []string{"10:11", "20:20"}, w.thresholds(), "a new version of the meter has the group")
}

func TestMeterKeepsGroupByWhileAlertUsesItsGroup(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	m := dbtest.Meter(t, w.store, w.tenant, "tokens", "token", "model")
	of := metering.Alert{Name: "large", Type: metering.UsageAlert, MeterID: m.ID, Group: groupOfModel(t, m, "large"), Thresholds: decimals("10")}
	a := w.alert(of)
	_, _, err := w.store.Meters.Update(t.Context(), w.tenant, metering.Operator, "tokens", metersBy([]string{}))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.ErrorContains(t, err, "1 quotas and alerts are of single groups")
	require.NoError(t, w.store.Alerts.Delete(t.Context(), w.tenant, metering.Operator, a.ID, w.now))
	_, err = w.writer.Ingest(t.Context(), w.tenant, []metering.Event{dbtest.Event(t, "token", "acme", w.now, "1", "", `{"model":"large"}`)})
	require.NoError(t, err)
	_, backfilling, err := w.store.Meters.Update(t.Context(), w.tenant, metering.Operator, "tokens", metersBy([]string{}))
	require.NoError(t, err)
	require.NotNil(t, backfilling)
	_, err = w.store.Alerts.Create(t.Context(), w.tenant, metering.Operator, of, w.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "the group_by that is backfilling has no such group")
	_, err = w.store.Evaluations.DryRun(t.Context(), w.tenant, of, w.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
}
