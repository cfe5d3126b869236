package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Backfills counts the past events of a meter version. Past events were ingested before the version was
// published, so their epoch is lower than the version's.
type Backfills struct {
	pool   *pg.Pool
	memory *rollupMemory
}

// BackfillingMeterVersion identifies a meter version with an unfinished backfill.
type BackfillingMeterVersion struct {
	Tenant  metering.TenantID
	Version metering.MeterVersionID
}

// backfillsAtOnce is the maximum number of a tenant's backfills that run at the same time, oldest first. The
// other backfills wait in the table meter_versions.
const backfillsAtOnce = 10

// Unfinished returns meter versions of all tenants: up to backfillsAtOnce per tenant with a backfill that
// should run, and all with a paused backfill. The worker starts a workflow for each, unless one is open.
func (s Backfills) Unfinished(ctx context.Context) ([]BackfillingMeterVersion, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, id
		from (
		  select tenant_id, id, interruptions, row_number() over (partition by tenant_id, interruptions >= $2 order by id) as place
		  from meter_versions
		  where status = 'backfilling') g
		where place <= $1
		   or interruptions >= $2
		order by id`, backfillsAtOnce, InterruptionsAtMost)
	if err != nil {
		return nil, pg.Coded(err)
	}
	backfilling, err := pgx.CollectRows(rows, pgx.RowToStructByPos[BackfillingMeterVersion])
	return backfilling, pg.Coded(err)
}

// Plan returns the days that are left to count (see Days). It stores the total number of days, which Progress
// returns.
func (s Backfills) Plan(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) ([]time.Time, error) {
	days, err := s.Days(ctx, tenant, version)
	if err != nil {
		return nil, err
	}
	_, err = s.pool.Exec(ctx, `
		update meter_versions
		set planned_days = $3 + (select count(*) from backfill_days where tenant_id = $1 and meter_version_id = $2)
		where tenant_id = $1
		  and id = $2`, tenant, version, len(days))
	return days, pg.Coded(err)
}

// Days returns the UTC days that may hold past events of the meter version and are not counted yet, oldest
// first. These are all days of each chunk with events of the tenant. All past events are committed before the
// version becomes visible, so no further day can get past events.
func (s Backfills) Days(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) ([]time.Time, error) {
	rows, err := s.pool.Query(ctx, `
		select held.day
		from meter_versions g
		cross join timescaledb_information.chunks c
		cross join lateral generate_series(c.range_start, c.range_end - interval '1 day', interval '1 day') as held (day)
		where g.tenant_id = $1
		  and g.id = $2
		  and g.status = 'backfilling'
		  and c.hypertable_schema = current_schema
		  and c.hypertable_name = 'events'
		  and exists (select from events e where e.tenant_id = $1 and e.ts >= c.range_start and e.ts < c.range_end)
		  and held.day >= coalesce(g.counted_from, '-infinity')
		  and not exists (
		    select
		    from backfill_days b
		    where b.tenant_id = $1
		      and b.meter_version_id = $2
		      and b.day = (held.day at time zone 'UTC')::date)
		order by held.day`, tenant, version)
	if err != nil {
		return nil, pg.Coded(err)
	}
	days, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (day time.Time, err error) {
		err = row.Scan(&day)
		return day.UTC(), err
	})
	return days, pg.Coded(err)
}

// BackfillProgress is the number of counted days, and of all days that may hold past events of a meter
// version. Both are 0 before its backfill begins.
type BackfillProgress struct{ Counted, Days int }

// Progress returns the progress of the tenant's running backfills.
func (s Backfills) Progress(ctx context.Context, tenant metering.TenantID) (map[metering.MeterVersionID]BackfillProgress, error) {
	progress := make(map[metering.MeterVersionID]BackfillProgress)
	rows, err := s.pool.Query(ctx, `
		select g.id, coalesce(least(b.counted, g.planned_days), 0), coalesce(g.planned_days, 0)
		from meter_versions g
		cross join lateral (select count(*) as counted from backfill_days b where b.tenant_id = $1 and b.meter_version_id = g.id) b
		where g.tenant_id = $1
		  and g.status = 'backfilling'`, tenant)
	if err != nil {
		return nil, pg.Coded(err)
	}
	var version metering.MeterVersionID
	var p BackfillProgress
	_, err = pgx.ForEachRow(rows, []any{&version, &p.Counted, &p.Days}, func() error { progress[version] = p; return nil })
	return progress, pg.Coded(err)
}

// countedAtOnce is the maximum number of events of a day that one transaction counts, because ingest waits
// for the rows that it updates. Busier days are counted hour by hour.
const countedAtOnce = 100_000

// CountDay adds a day's events to the meter version's rollups and returns the number of added events. It is
// idempotent, also if several workers count the same day. It returns CodeOverloaded while events of the
// tenant are being erased.
func (s Backfills) CountDay(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID, day time.Time) (counted int64, err error) {
	start := day.UTC().Truncate(24 * time.Hour)
	whole := metering.Range{Start: start, End: start.AddDate(0, 0, 1)}
	width, err := s.width(ctx, tenant, version, whole)
	if err != nil {
		return 0, pg.Coded(err)
	}
	for from := whole.Start; from.Before(whole.End); from = from.Add(width) {
		n, err := s.countHours(ctx, tenant, version, metering.Range{Start: from, End: from.Add(width)})
		if err != nil {
			return counted, err
		}
		counted += n
	}
	_, err = s.pool.Exec(ctx, `
		insert into backfill_days (tenant_id, meter_version_id, day, events)
		select $1, $2, $3::timestamptz at time zone 'UTC', sum(events)
		from backfill_hours
		where tenant_id = $1
		  and meter_version_id = $2
		  and hour >= $3
		  and hour < $4
		on conflict do nothing`, tenant, version, whole.Start, whole.End)
	return counted, pg.Coded(err)
}

// width returns the duration that one transaction counts: an hour if the day has more than countedAtOnce past
// events, otherwise the whole day.
func (s Backfills) width(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID, day metering.Range) (time.Duration, error) {
	g, err := meterVersionByID(ctx, s.pool, tenant, version)
	if err != nil {
		return 0, err
	}
	var busy bool
	err = s.pool.QueryRow(ctx, `
		select count(*) > $6
		from (
		  select
		  from events
		  where tenant_id = $1
		    and ts >= $2
		    and ts < $3
		    and event_type = $4
		    and epoch < $5
		  limit $6 + 1) found`, tenant, day.Start, day.End, g.EventType, g.Epoch, countedAtOnce).Scan(&busy)
	if busy {
		return time.Hour, err
	}
	return 24 * time.Hour, err
}

// countHours counts the events of the hours in the range that are not counted yet. In the same transaction, it
// first inserts these hours into backfill_hours, so no other transaction counts them too.
func (s Backfills) countHours(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID, hours metering.Range) (counted int64, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		g, err := meterVersionByID(ctx, tx, tenant, version)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			insert into backfill_hours (tenant_id, meter_version_id, hour)
			select $1, $2, generate_series($3::timestamptz, $4::timestamptz - interval '1 hour', interval '1 hour')
			on conflict do nothing
			returning hour`, tenant, version, hours.Start, hours.End)
		if err != nil {
			return err
		}
		counts := make(map[time.Time]int64) // counted events by hour of this transaction
		var hour time.Time
		_, err = pgx.ForEachRow(rows, []any{&hour}, func() error { counts[hour.UTC()] = 0; return nil })
		if err != nil || len(counts) == 0 || g.Status != metering.Backfilling {
			return err
		}
		if err := refuseErasing(ctx, tx, tenant); err != nil {
			return err
		}
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
			return err
		}
		if err := s.countPast(ctx, tx, tenant, g, hours, counts); err != nil {
			return err
		}
		var batch pgx.Batch
		for hour, n := range counts {
			if n > 0 {
				batch.Queue(`update backfill_hours set events = $4 where tenant_id = $1 and meter_version_id = $2 and hour = $3`, tenant, version, hour, n)
			}
			counted += n
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return 0, err
	}
	return counted, nil
}

func meterVersionByID(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.MeterVersionID) (g metering.MeterVersion, err error) {
	err = q.QueryRow(ctx, `select `+catalog.MeterVersionColumns+` from meter_versions g where g.tenant_id = $1 and g.id = $2`,
		tenant, id).Scan(catalog.MeterVersionFields(&g)...)
	return g, err
}

// countPast adds past events of the range to the rollups. It counts only events of hours that are keys of counts, and
// stores the number of counted events of each hour there. It writes the sums whenever they fill their memory budget.
func (s Backfills) countPast(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion, hours metering.Range, counts map[time.Time]int64) error {
	room := s.memory.roomFor(tenant)
	defer room.give()
	sums := newRollups(room)
	write := func() error {
		if _, err := sums.settle(ctx, tx, tenant, func(groupName) bool { return false }); err != nil {
			return err
		}
		return sums.write(ctx, tx, tenant)
	}
	count := func(e *metering.Event, late bool) error {
		hour := e.At.UTC().Truncate(time.Hour)
		n, ok := counts[hour]
		if !ok {
			return nil
		}
		m, err := sums.add(g, e, late)
		if m.Verdict == metering.Counted {
			counts[hour] = n + 1
		}
		return err
	}
	if err := openPast(ctx, tx, tenant, g, hours); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = fetchPast(ctx, tx, count); err != nil {
			return err
		}
		if more && !sums.isFull() {
			continue
		}
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// isLate returns the SQL that reports whether an event e is late: its billing period was already closed when the event
// was ingested. The period is in the billing schedule to which the meter belongs at the event's time.
func isLate(meter string) string {
	return `exists (select from billing_periods p
	where p.tenant_id = e.tenant_id and p.customer_id = e.customer_id
	  and p.starts_at <= e.ts and e.ts < p.ends_at and p.closed_epoch <= e.epoch
	  and p.stream = ` + StreamAt("e.tenant_id", "e.customer_id", meter, "e.ts") + `)`
}

// openPast opens the SQL cursor "past" over the past events in the range. With a cursor, the transaction can
// write rollups between two fetches.
func openPast(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion, r metering.Range) error {
	_, err := tx.Exec(ctx, `
		declare past no scroll cursor for
		select e.id, e.customer_id, e.ts, e.value, e.properties, e.erased is not null, `+isLate("$6")+`
		from events e
		where e.tenant_id = $1 and e.ts >= $2 and e.ts < $3 and e.event_type = $4 and e.epoch < $5`,
		tenant, r.Start, r.End, g.EventType, g.Epoch, g.MeterID)
	return err
}

// fetchedAtOnce is the maximum number of events that one call of fetchPast reads.
const fetchedAtOnce = 200

// fetchPast reads the next events of the cursor "past". It calls fn with each event and the last column of the
// cursor, a bool. more reports whether the cursor may have further events.
func fetchPast(ctx context.Context, q pg.Querier, fn func(*metering.Event, bool) error) (more bool, err error) {
	rows, err := q.Query(ctx, fmt.Sprintf(`fetch %d from past`, fetchedAtOnce))
	if err != nil {
		return false, err
	}
	var sent metering.Event
	var last bool
	tag, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&sent.ID), &sent.CustomerID, &sent.At, &sent.Value, &sent.Properties, &sent.Erased, &last}, func() error {
		e := sent
		return fn(&e, last)
	})
	return tag.RowsAffected() == fetchedAtOnce, err
}

// Complete switches reads and billing to the meter version, in one transaction. The late usage of closed periods does not
// change. Complete returns CodeConflict if past events of the version are not counted yet. It changes nothing if the
// version is already complete or retired.
func (s Backfills) Complete(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) error {
	if err := s.requireCounted(ctx, tenant, version); err != nil {
		return err
	}
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		g, err := meterVersionByID(ctx, tx, tenant, version)
		if err != nil || g.Status != metering.Backfilling {
			return err
		}
		if err := keepLateUsage(ctx, tx, tenant, g); err != nil {
			return err
		}
		if _, err := catalog.RaiseEpoch(ctx, tx, tenant); err != nil { // ingest stops feeding the previous version
			return err
		}
		_, err = tx.Exec(ctx, `
			update meter_versions set status = 'complete', completed_at = now() where tenant_id = $1 and id = $2`,
			tenant, version)
		if err != nil {
			return err
		}
		return catalog.Adopt(ctx, tx, tenant, g)
	})
}

// requireCounted returns CodeConflict if a day that is not counted yet holds past events of the version. A day
// without past events needs no count, for example in a chunk that was created after the version was published.
func (s Backfills) requireCounted(ctx context.Context, tenant metering.TenantID, version metering.MeterVersionID) error {
	days, err := s.Days(ctx, tenant, version)
	if err != nil {
		return err
	}
	for _, day := range days {
		var missed bool
		err := s.pool.QueryRow(ctx, `
			select exists (select from events e join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type
			  where e.tenant_id = $1 and e.ts >= $2 and e.ts < $3 and e.epoch < g.epoch and g.id = $4 and g.status = 'backfilling')`,
			tenant, day, day.AddDate(0, 0, 1), version).Scan(&missed)
		if err != nil {
			return pg.Coded(err)
		}
		if missed {
			return metering.Errorf(metering.CodeConflict, "not all events of %s are counted yet", day.Format(time.DateOnly))
		}
	}
	return nil
}

// refuseErasing returns CodeOverloaded while the events of a customer of the tenant are being erased. Erasures
// replace groups only while no backfill runs, so this meter version was published after that step.
func refuseErasing(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	var customer metering.CustomerID
	err := tx.QueryRow(ctx, `
		select coalesce(min(id), 0)
		from customers
		where tenant_id = $1
		  and erased_at is not null
		  and erasure_done_at is null
		  and groups_erased_at is not null`, tenant).Scan(&customer)
	if err == nil && customer != 0 {
		err = metering.Errorf(metering.CodeOverloaded, "%s is being erased: the backfill continues after the erasure", customer)
	}
	return err
}
