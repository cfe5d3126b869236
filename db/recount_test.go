package db_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// counted is a query for the events of a tenant. It returns one row for each complete meter version that must count the
// event. It reads the raw events, with PostgreSQL's own time zones and numeric type, and shares no code with the code
// under test. Only the groups come from the code under test: usage_groups has the groups that were within the limit.
const counted = `
	select e.customer_id, e.ts, e.value, g.id as meter_version_id, g.timezone, e.ts at time zone g.timezone as local,
	  coalesce(u.group_id, o.group_id) as group_id,
	  coalesce(u.group_key, o.group_key) as group_key,
	  exists (select from billing_periods p
	    where p.tenant_id = e.tenant_id and p.customer_id = e.customer_id and p.closed_epoch <= e.epoch
	      and e.ts between p.starts_at and p.ends_at - interval '1 microsecond') as late
	from events e
	join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type and g.status = 'complete'
	cross join lateral (
	  select coalesce(jsonb_object_agg(name,
	    case jsonb_typeof(e.properties -> name)
	      when 'number' then to_jsonb(trim_scale((e.properties ->> name)::numeric))
	      when 'object' then to_jsonb(replace(e.properties ->> name, ' ', ''))
	      when 'array' then to_jsonb(replace(e.properties ->> name, ' ', ''))
	      else coalesce(e.properties -> name, 'null')
	    end), '{}')
	  from unnest(g.group_by) as name
	) made (key)
	left join usage_groups u on u.tenant_id = e.tenant_id and u.meter_version_id = g.id and u.group_key = made.key
	left join usage_groups o on o.tenant_id = e.tenant_id and o.meter_version_id = g.id and o.group_key = '{"$other": true}'
	where e.tenant_id = @tenant`

// buckets is the SQL of the start and the end of an event's local window.
var buckets = map[metering.Granularity][2]string{
	metering.Hour:  {`ts - (local - date_trunc('hour', local))`, `ts - (local - date_trunc('hour', local)) + interval '1 hour'`},
	metering.Day:   {`date_trunc('day', local) at time zone timezone`, `(date_trunc('day', local) + interval '1 day') at time zone timezone`},
	metering.Week:  {`date_trunc('week', local) at time zone timezone`, `(date_trunc('week', local) + interval '1 week') at time zone timezone`},
	metering.Month: {`date_trunc('month', local) at time zone timezone`, `(date_trunc('month', local) + interval '1 month') at time zone timezone`},
}

// requireRollupsEqualARecount compares every row of the rollups with the raw events, and lists the differences. The
// tenant's own rows must equal the sums over its customers.
func requireRollupsEqualARecount(t testing.TB, conn *pgx.Conn, tenant metering.TenantID) {
	t.Helper()
	for g, table := range map[metering.Granularity]string{metering.Hour: "usage_hours", metering.Month: "usage_months"} {
		rows, err := conn.Query(t.Context(), fmt.Sprintf(`
			with counted as (`+counted+`),
			recount as (
			  select c.customer_id, meter_version_id, group_id, %[1]s as start,
			    coalesce(sum(value) filter (where not late), 0) as sum, count(*) filter (where not late) as count,
			    coalesce(sum(value) filter (where late), 0) as late_sum, count(*) filter (where late) as late_count
			  from counted, lateral (values (customer_id), (0)) c (customer_id)
			  group by 1, 2, 3, 4
			),
			rollup as (
			  select customer_id, meter_version_id, group_id, %[2]s as start, sum, count, late_sum, late_count
			  from %[3]s u join meter_versions g on g.tenant_id = u.tenant_id and g.id = u.meter_version_id
			  where u.tenant_id = @tenant and g.status = 'complete'
			)
			select format('customer %%s, version %%s, group %%s, %[2]s %%s: events say %%s, the rollup says %%s',
			  customer_id, meter_version_id, group_id, start,
			  (recount.sum, recount.count, recount.late_sum, recount.late_count),
			  (rollup.sum, rollup.count, rollup.late_sum, rollup.late_count))
			from recount full join rollup using (customer_id, meter_version_id, group_id, start)
			where (recount.sum, recount.count, recount.late_sum, recount.late_count)
			  is distinct from (rollup.sum, rollup.count, rollup.late_sum, rollup.late_count)
			order by customer_id, meter_version_id, start
			limit 10`, buckets[g][0], g, table), pgx.NamedArgs{"tenant": tenant})
		require.NoError(t, err)
		differences, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, differences)
	}
}

// recountedWindows returns the windows that Usage.Windows must return over all pages.
func recountedWindows(t testing.TB, conn *pgx.Conn, tenant metering.TenantID, q usage.WindowQuery) (windows []usage.Window) {
	t.Helper()
	bucket := buckets[q.Granularity]
	names, values := []string{}, []string{}
	for name, alternatives := range q.Groups {
		for _, value := range alternatives {
			names, values = append(names, name), append(values, string(value))
		}
	}
	var zone *string
	if q.Zone != nil {
		zone = new(q.Zone.String())
	}
	rows, err := conn.Query(t.Context(), fmt.Sprintf(`
		with all_counted as (`+counted+`),
		counted as (
		  select customer_id, ts, value, meter_version_id, group_id, group_key, late,
		    coalesce(@zone, timezone) as timezone, ts at time zone coalesce(@zone, timezone) as local
		  from all_counted)
		select group_id, group_key, greatest(%s, @from), least(%s, @until),
		  coalesce(sum(value) filter (where not late), 0), count(*) filter (where not late),
		  coalesce(sum(value) filter (where late), 0), count(*) filter (where late)
		from counted
		where meter_version_id = @version and @customer::bigint in (customer_id, 0) and ts >= @from and ts < @until
		  and not exists (
		    select from unnest(@names::text[], @values::text[]) as f (name, value)
		    group by name
		    having not bool_or(group_key -> name is not distinct from value::jsonb))
		group by 1, 2, 3, 4
		order by 1, 3`, bucket[0], bucket[1]),
		pgx.NamedArgs{
			"tenant": tenant, "version": q.Meter.Version.ID, "customer": q.Customer,
			"from": q.Range.Start, "until": q.Range.End, "names": names, "values": values, "zone": zone,
		})
	require.NoError(t, err)
	var w usage.Window
	var sum, lateSum metering.Decimal
	var count, lateCount int64
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&w.GroupID), &w.GroupKey, &w.Start, &w.End, &sum, &count, &lateSum, &lateCount}, func() error {
		w.Start, w.End = w.Start.UTC(), w.End.UTC()
		w.Value = q.Meter.Version.Aggregation.Usage(sum, count)
		w.LateValue = q.Meter.Version.Aggregation.Usage(lateSum, lateCount)
		windows = append(windows, w)
		return nil
	})
	require.NoError(t, err)
	return windowsBy(t, q.GroupBy, windows)
}

// windowsBy sums the windows of groups that have the same values of the properties in by. A nil by changes nothing.
func windowsBy(t testing.TB, by []string, windows []usage.Window) (joined []usage.Window) {
	t.Helper()
	if by == nil {
		return windows
	}
	for _, w := range windows {
		group, err := metering.Group{ID: w.GroupID, Key: w.GroupKey}.By(by)
		require.NoError(t, err)
		w.GroupID, w.GroupKey = group.ID, group.Key
		same := slices.IndexFunc(joined, func(o usage.Window) bool { return o.GroupID == w.GroupID && o.Start.Equal(w.Start) })
		if same < 0 {
			joined = append(joined, w)
			continue
		}
		joined[same].Value, joined[same].LateValue = joined[same].Value.Add(w.Value), joined[same].LateValue.Add(w.LateValue)
	}
	slices.SortFunc(joined, func(a, b usage.Window) int {
		return cmp.Or(bytes.Compare(a.GroupID[:], b.GroupID[:]), a.Start.Compare(b.Start))
	})
	return joined
}

// requireWindowsEqualARecount reads the query page by page, and compares every window, subtotal and total with a
// recount.
func requireWindowsEqualARecount(t testing.TB, store *db.DB, conn *pgx.Conn, tenant metering.TenantID, q usage.WindowQuery) {
	t.Helper()
	want := recountedWindows(t, conn, tenant, q)
	subtotals := make(map[metering.GroupID]metering.Decimal)
	var total metering.Decimal
	for _, w := range want {
		both := w.Value.Add(w.LateValue)
		subtotals[w.GroupID], total = subtotals[w.GroupID].Add(both), total.Add(both)
	}
	var got []usage.Window
	for {
		page, err := store.Usage.Windows(t.Context(), tenant, q)
		require.NoError(t, err)
		require.Equal(t, total.String(), page.Total.String(), "the total of %+v", q)
		require.Len(t, page.Groups, len(subtotals), "the groups of %+v", q)
		for _, g := range page.Groups {
			require.Equal(t, subtotals[g.GroupID].String(), g.Total.String(), "the subtotal of %x of %+v", g.GroupID, q)
		}
		require.LessOrEqual(t, len(page.Windows), q.Limit)
		got = append(got, page.Windows...)
		require.LessOrEqual(t, len(got), len(want), "a window too many: %+v", q)
		if !page.More {
			break
		}
		require.NotEmpty(t, page.Windows, "a page before the last is empty: %+v", q)
		last := page.Windows[len(page.Windows)-1]
		q.After = &usage.WindowCursor{GroupID: last.GroupID, Start: last.Start}
	}
	require.Equal(t, shown(want), shown(got), "%+v", q)
}

func shown(windows []usage.Window) (lines []string) {
	for _, w := range windows {
		lines = append(lines, fmt.Sprintf("%x %s–%s %s+%s", w.GroupID[:4], w.Start.Format(time.RFC3339Nano), w.End.Format(time.RFC3339Nano), w.Value, w.LateValue))
	}
	return lines
}

// requireTotalsEqualARecount compares MeterTotals of one customer, or of the whole tenant, with a recount.
func requireTotalsEqualARecount(t testing.TB, store *db.DB, conn *pgx.Conn, tenant metering.TenantID, customer metering.CustomerID, r metering.Range) {
	t.Helper()
	totals, err := store.Usage.MeterTotals(t.Context(), tenant, customer, r)
	require.NoError(t, err)
	for _, got := range totals {
		require.False(t, got.Backfilling)
		var sum metering.Decimal
		var count int64
		err := conn.QueryRow(t.Context(), `
			select coalesce(sum(value), 0), count(*) from events
			where tenant_id = $1 and $2::bigint in (customer_id, 0) and ts >= $3 and ts < $4 and event_type = $5`,
			tenant, customer, r.Start, r.End, got.Meter.EventType).Scan(&sum, &count)
		require.NoError(t, err)
		require.Equal(t, sum.String(), got.Sum.String(), "the sum of %s of %v in %v", got.Meter.Slug, customer, r)
		require.Equal(t, count, got.Count, "the count of %s of %v in %v", got.Meter.Slug, customer, r)
		require.Equal(t, got.Meter.Version.Aggregation.Usage(sum, count).String(), got.Usage.String())
	}
}

// closePeriods closes periods of a customer as the service does: under the tenant's lock, with a new epoch.
func closePeriods(t testing.TB, conn *pgx.Conn, tenant metering.TenantID, customer metering.CustomerID, periods ...metering.Range) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(`select pg_advisory_xact_lock($1)`, tenant)
		batch.Queue(`update tenants set epoch = epoch + 1 where id = $1`, tenant)
		for _, p := range periods {
			batch.Queue(`
				insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, closed_at, closed_epoch)
				select $1, $2, $3, $4::timestamptz, $4, epoch from tenants where id = $1`, tenant, customer, p.Start, p.End)
			batch.Queue(`
				update customers set closed_from = least(closed_from, $3), closed_until = greatest(closed_until, $4)
				where tenant_id = $1 and id = $2`, tenant, customer, p.Start, p.End)
		}
		return tx.SendBatch(context.Background(), &batch).Close()
	})
	require.NoError(t, err)
}

// backfill counts the past events of a meter version, as the backfill workflow does.
func backfill(ctx context.Context, store *db.DB, tenant metering.TenantID, version metering.MeterVersionID) error {
	days, err := store.Backfills.Days(ctx, tenant, version)
	if err != nil {
		return err
	}
	for _, day := range days {
		if _, err := store.Backfills.CountDay(ctx, tenant, version, day); err != nil {
			return err
		}
	}
	return store.Backfills.Complete(ctx, tenant, version)
}

func metersBy(groupBy []string) catalog.MeterChange { return catalog.MeterChange{GroupBy: &groupBy} }
