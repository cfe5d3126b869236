package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// awaitBackfills waits until no meter version is backfilling.
func awaitBackfills(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		var backfilling int
		err := conn.QueryRow(t.Context(), `select count(*) from meter_versions where status = 'backfilling'`).Scan(&backfilling)
		if err == nil && backfilling > 0 {
			err = fmt.Errorf("%d meter versions are still backfilling", backfilling)
		}
		return err
	})
}

// countedInSQL is the definition of a meter as expressions over the columns of events. Events with a null value
// are not counted.
type countedInSQL struct{ value, filter, group string }

// usableInSQL creates a function that returns the value of a property for meters, or null if it is not usable.
const usableInSQL = `
	create or replace function pg_temp.usable(property jsonb) returns numeric language sql immutable as $$
	  select case when abs(n) < 1e18 then round(n, 12) end
	  from (select case
	    when jsonb_typeof(property) = 'number' then (property #>> '{}')::numeric
	    when jsonb_typeof(property) = 'string' and property #>> '{}' ~ '^-?(0|[1-9][0-9]*)(\.[0-9]+)?$' then (property #>> '{}')::numeric
	  end) numbers (n)
	$$`

// requireRecounted compares all rollups of a meter, by customer and for the tenant, with a recount of the stored
// events in SQL. Usage is late if the period of the event was closed before the event was ingested.
func requireRecounted(t testing.TB, conn *pgx.Conn, slug string, c countedInSQL) {
	t.Helper()
	_, err := conn.Exec(t.Context(), usableInSQL)
	require.NoError(t, err)
	for unit, table := range map[string]string{"hour": "usage_hours", "month": "usage_months"} {
		sql := strings.NewReplacer("{unit}", unit, "{table}", table, "{value}", c.value, "{filter}", c.filter, "{group}", c.group).Replace(`
			with meter as (
			  select g.tenant_id, g.id as meter_version_id, g.event_type
			  from meters m join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
			  where m.slug = $1
			), counted as materialized (
			  select customer_id, date_trunc('{unit}', ts, 'UTC') as start, {group} as group_key, {value} as value,
			    exists (select from billing_periods p
			      where p.tenant_id = e.tenant_id and p.customer_id = e.customer_id and p.closed_epoch <= e.epoch and e.ts >= p.starts_at and e.ts < p.ends_at) as late
			  from events e join meter using (tenant_id, event_type)
			  where {filter}
			), recount as (
			  select c.customer_id, start, group_key,
			    coalesce(sum(value) filter (where not late), 0) as sum, count(*) filter (where not late) as count,
			    coalesce(sum(value) filter (where late), 0) as late_sum, count(*) filter (where late) as late_count
			  from counted, lateral (values (customer_id), (0)) c (customer_id)
			  where value is not null
			  group by 1, 2, 3
			), kept as (
			  select u.customer_id, u.{unit} as start, coalesce(d.group_key, '{}') as group_key, u.sum, u.count, u.late_sum, u.late_count
			  from {table} u
			  join meter using (tenant_id, meter_version_id)
			  left join usage_groups d using (tenant_id, meter_version_id, group_id)
			)
			select count(*), count(*) filter (where (r.sum, r.count, r.late_sum, r.late_count) is distinct from (k.sum, k.count, k.late_sum, k.late_count))
			from recount r full join kept k using (customer_id, start, group_key)`)
		var rows, different int
		require.NoError(t, conn.QueryRow(t.Context(), sql, slug).Scan(&rows, &different))
		require.Positive(t, rows, table)
		require.Zero(t, different, "rows of %s of meter %s that differ from a recount, of %d", table, slug, rows)
	}
}
