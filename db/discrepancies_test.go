package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// TestAuditFindsDifferencesBetweenRollupsAndEvents runs in three time zones. In Kathmandu, local hours begin at :15 of
// UTC, so a UTC day contains two partial hours.
func TestAuditFindsDifferencesBetweenRollupsAndEvents(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Asia/Kathmandu", "Europe/Zurich"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			store := dbtest.Open(t)
			writer := store.NewWriter(dbtest.WriterOptions)
			t.Cleanup(writer.Close)
			tenant, other := dbtest.Tenant(t, store, zone), dbtest.Tenant(t, store, zone)
			meter := dbtest.Meter(t, store, tenant.ID, "calls", "call", "region")
			counted, second := dbtest.Meter(t, store, other.ID, "calls", "call"), dbtest.Meter(t, store, other.ID, "storage", "storage")
			day := clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
			var events []metering.Event
			for _, at := range []time.Duration{0, time.Minute, 14 * time.Minute, 16 * time.Minute, 12 * time.Hour, 23*time.Hour + 50*time.Minute} {
				events = append(events, dbtest.Event(t, "call", "acme", day.Add(at), "2.5", "", `{"region":"eu"}`),
					dbtest.Event(t, "call", "globex", day.Add(at), "1", "", ""))
			}
			for _, id := range []metering.TenantID{tenant.ID, other.ID} {
				_, err := writer.Ingest(t.Context(), id, events)
				require.NoError(t, err)
			}
			audit := func(id metering.TenantID) int {
				found, err := store.Discrepancies.Audit(t.Context(), id, day, clock.Now())
				require.NoError(t, err)
				return found
			}
			require.Zero(t, audit(tenant.ID), "the usage is not folded")
			require.NoError(t, store.Folds.Tenant(t.Context(), tenant.ID))
			require.Zero(t, audit(tenant.ID), "the usage is folded")

			_, err := dbtest.Conn(t).Exec(t.Context(), `
				update usage_hourly set sum = sum + 0.5
				where tenant_id = $1 and hour = $2 and customer_id in (select id from customers where tenant_id = $1 and external_id = 'acme')`,
				tenant.ID, metering.WindowOf(day.Add(12*time.Hour), metering.Hour, tenant.Location()).Start)
			require.NoError(t, err)
			require.Equal(t, 1, audit(tenant.ID))
			require.Equal(t, 1, audit(tenant.ID), "the second audit replaces the stored difference")
			_, err = dbtest.Conn(t).Exec(t.Context(), `update customers set name = 'Acme Corp' where tenant_id = $1 and external_id = 'acme'`, tenant.ID)
			require.NoError(t, err)
			require.Zero(t, audit(other.ID))
			list, err := dbtest.Items(store.Discrepancies.List(t.Context(), tenant.ID, nil, 10))
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, []string{"acme", "Acme Corp"}, []string{list[0].ExternalID, list[0].CustomerName})
			require.Equal(t, meter.ID, list[0].MeterID)
			require.Equal(t, "15.5", list[0].RollupSum.String())
			require.Equal(t, "15", list[0].EventSum.String())
			require.EqualValues(t, 6, list[0].EventCount)
			none, err := dbtest.Items(store.Discrepancies.List(t.Context(), other.ID, nil, 10))
			require.NoError(t, err)
			require.Empty(t, none)

			for day := range 3 {
				_, err = dbtest.Conn(t).Exec(t.Context(), `
					insert into usage_discrepancies (tenant_id, customer_id, meter_id, day, rollup_sum, rollup_count, event_sum, event_count, found_at)
					select $1, customer, meter, date '2020-01-01' + $4::int, 1, 1, 2, 2, $5::timestamptz from unnest(array[0, $2::bigint]) customer, unnest($3::bigint[]) meter`,
					other.ID, list[0].CustomerID, []metering.MeterID{counted.ID, second.ID}, day, clock.Now())
				require.NoError(t, err)
			}
			all, err := dbtest.Items(store.Discrepancies.List(t.Context(), other.ID, nil, 100))
			require.NoError(t, err)
			require.Len(t, all, 12)
			for at, one := range all[:len(all)-1] {
				key := one.Key()
				page, err := dbtest.Items(store.Discrepancies.List(t.Context(), other.ID, &key, 100))
				require.NoError(t, err)
				require.Equal(t, all[at+1:], page, "each once, in the same order, wherever a page ends")
			}

			_, err = dbtest.Conn(t).Exec(t.Context(), `update usage_hourly set sum = sum - 0.5 where tenant_id = $1 and sum = 3`, tenant.ID)
			require.NoError(t, err)
			require.Zero(t, audit(tenant.ID), "a corrected rollup is no discrepancy")
		})
	}
}
