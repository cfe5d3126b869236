package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Retain drops the chunks of events that end before the cutoff. It also deletes the idempotency keys of
// dropped events that were sent with a timestamp. A repeat of such an event is rejected as too old. Events
// that an open billing period or a backfill may need are retained. Totals are retained forever. Retain
// returns the number of chunks that it dropped.
func (m Maintenance) Retain(ctx context.Context, cutoff, now time.Time) (dropped int, err error) {
	edge, err := m.raiseEdge(ctx, cutoff, now)
	if err != nil || edge.IsZero() {
		return 0, err
	}
	chunks, err := m.chunksBefore(ctx, edge)
	if err != nil || len(chunks) == 0 {
		return 0, err
	}
	tenants, err := m.awaitIngest(ctx)
	if err != nil {
		return 0, err
	}
	if err := m.settleLateUsage(ctx, edge); err != nil {
		return 0, fmt.Errorf("settle late usage: %w", err)
	}
	for _, chunk := range chunks {
		if err := m.drop(ctx, tenants, chunk); err != nil {
			return dropped, fmt.Errorf("drop events: %w", err)
		}
		dropped++
	}
	return dropped, nil
}

// neededFrom is the SQL of the first instant from which billing may need events. That is the start of the
// oldest period that is not closed or has no digest, including periods that are not stored yet.
const neededFrom = `
	select min(least(
	  (select min(p.starts_at) from billing_period_totals k join billing_periods p on p.tenant_id = k.tenant_id and p.id = k.period_id
	    where k.tenant_id = c.tenant_id and k.digest is null and k.meter_version_id is not null and p.customer_id = c.id),
	  case when c.streams > 1 then (
	    select min(ends_at)
	    from (select max(p.ends_at) as ends_at from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id group by p.stream) last) end,
	  coalesce(
	    (select min(p.starts_at) from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id and p.closed_at is null),
	    (select max(p.ends_at) from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id),
	    c.billing_starts_at,
	    ` + ledger.EarliestUsage + `),
	  case when c.created_at > $1::timestamptz - t.grace - interval '32 days' then ` + ledger.EarliestUsage + ` end))
	from customers c
	join tenants t on t.id = c.tenant_id`

// raiseEdge raises event_retention.kept_from, the instant from which events are retained, to a chunk boundary
// and returns it. Zero means that all events are retained. The row lock conflicts with the lock of
// publishMeterVersion, so that events that a backfill counts are not dropped.
func (m Maintenance) raiseEdge(ctx context.Context, cutoff, now time.Time) (edge time.Time, err error) {
	err = pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		var kept *time.Time
		if err := tx.QueryRow(ctx, `select kept_from from event_retention for update`).Scan(&kept); err != nil {
			return err
		}
		if kept != nil {
			edge = kept.UTC()
		}
		next := time.Unix(usage.ChunkNumber(cutoff, usage.EventsChunk)*int64(usage.EventsChunk/time.Second), 0).UTC()
		if !next.After(edge) {
			return nil
		}
		var backfilling bool
		var needed *time.Time
		err := tx.QueryRow(ctx, `select exists (select from meter_versions where status = 'backfilling'), (`+neededFrom+`)`, now).Scan(&backfilling, &needed)
		if err != nil || backfilling {
			return err
		}
		if needed != nil && needed.Before(next) {
			next = time.Unix(usage.ChunkNumber(*needed, usage.EventsChunk)*int64(usage.EventsChunk/time.Second), 0).UTC()
		}
		if !next.After(edge) {
			return nil
		}
		edge = next
		_, err = tx.Exec(ctx, `update event_retention set kept_from = $1`, edge)
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("raise the edge of events: %w", err)
	}
	return edge, nil
}

func (m Maintenance) chunksBefore(ctx context.Context, edge time.Time) ([]metering.Range, error) {
	rows, err := m.pool.Query(ctx, `
		select range_start, range_end
		from timescaledb_information.chunks
		where hypertable_schema = current_schema
		  and hypertable_name = 'events'
		  and range_end <= $1
		order by range_start`, edge)
	if err != nil {
		return nil, pg.Coded(err)
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[metering.Range])
	return chunks, pg.Coded(err)
}

// awaitIngest waits until all ingest transactions that read the previous kept_from have ended, and
// returns all tenants. It locks each tenant once, because an ingest transaction holds its tenant's
// lock.
func (m Maintenance) awaitIngest(ctx context.Context) ([]metering.TenantID, error) {
	tenants, err := Tenants{m.pool}.After(ctx, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		if err := pg.InTx(ctx, m.pool, func(tx pgx.Tx) error { return pg.LockTenant(ctx, tx, tenant) }); err != nil {
			return nil, fmt.Errorf("wait for ingest: %w", err)
		}
	}
	return tenants, nil
}

// settleLateUsage stores the late usage of the closed periods that begin before edge, because the usage
// cannot always be counted without events. Without events, hours that a period covers only in part cannot be
// counted, nor can new meter versions. Usage that arrives later for these periods is shown and not billed. An
// error for one customer does not prevent the settlement for other customers, but Retain then drops no
// events.
func (m Maintenance) settleLateUsage(ctx context.Context, edge time.Time) error {
	type lateCustomer struct {
		Tenant   metering.TenantID
		Customer metering.CustomerID
	}
	rows, err := m.pool.Query(ctx, `
		select distinct p.tenant_id, p.customer_id
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id
		where p.starts_at < $1
		  and t.late_count is null
		  and t.meter_version_id is not null
		order by 1, 2`, edge)
	if err != nil {
		return pg.Coded(err)
	}
	customers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lateCustomer])
	if err != nil {
		return pg.Coded(err)
	}
	var failed error
	for _, p := range customers {
		if err := m.ledger.KeepLateUsage(ctx, p.Tenant, p.Customer, edge); err != nil && ctx.Err() == nil {
			failed = errors.Join(failed, fmt.Errorf("of tenant %s, customer %s: %w", p.Tenant, p.Customer, err))
		}
	}
	return cmp.Or(ctx.Err(), failed)
}

// drop deletes the idempotency keys of a chunk's events, day by day, and then drops the chunk.
func (m Maintenance) drop(ctx context.Context, tenants []metering.TenantID, chunk metering.Range) error {
	for _, tenant := range tenants {
		for day := chunk.Start.UTC(); day.Before(chunk.End); day = day.AddDate(0, 0, 1) {
			if err := m.forgetKeys(ctx, tenant, day); err != nil {
				return err
			}
		}
	}
	err := m.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return pg.RunAsOwner(ctx, conn, func() error {
			_, err := conn.Exec(ctx, `select drop_chunks('events', older_than => $2::timestamptz, newer_than => $1::timestamptz)`, chunk.Start, chunk.End)
			return err
		})
	})
	if err != nil {
		return pg.Coded(err)
	}
	_, err = m.pool.Exec(ctx, `
		delete from forgotten_days
		where day >= ($1::timestamptz at time zone 'UTC')::date
		  and day < ($2::timestamptz at time zone 'UTC')::date`, chunk.Start, chunk.End)
	return pg.Coded(err)
}

// forgetKeys deletes the idempotency keys of a day's events that were sent with a timestamp, once
// per tenant and day.
func (m Maintenance) forgetKeys(ctx context.Context, tenant metering.TenantID, day time.Time) error {
	return pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into forgotten_days (tenant_id, day) values ($1, $2) on conflict do nothing`, tenant, day)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			delete from event_keys k
			using events e
			where e.tenant_id = $1
			  and e.ts >= $2
			  and e.ts < $3
			  and k.tenant_id = e.tenant_id
			  and k.key = event_key(`+usage.SentKey+`)
			  and k.undated is null`, tenant, day, day.AddDate(0, 0, 1))
		return err
	})
}
