package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// KeepLateUsage stores the late usage of the customer's closed periods that begin before edge. Maintenance
// calls it before it drops the events of these periods.
func (l Ledger) KeepLateUsage(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, edge time.Time) error {
	return pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		if err := TakeTurn(ctx, tx, tenant, customer); err != nil {
			return err
		}
		streams, feeds, err := usage.ReadFeeds(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		meters, err := catalog.CollectMeters(ctx, tx, `order by m.id`, tenant)
		if err != nil {
			return err
		}
		for stream := range streams {
			r := &factReader{ctx: ctx, q: tx, tenant: tenant, customer: customer, facts: billing.Facts{Stream: stream, Feeds: feeds, Meters: meters}}
			if err := r.keepLate(tx, edge); err != nil {
				return err
			}
		}
		return nil
	})
}

// keepLate stores the late usage of the schedule's closed periods that begin before edge. It stores 0 for
// meters without late usage, and skips totals with stored late usage.
func (r *factReader) keepLate(tx pgx.Tx, edge time.Time) error {
	rows, err := tx.Query(r.ctx, `
		select starts_at, ends_at
		from billing_periods
		where tenant_id = $1
		  and customer_id = $2
		  and stream = $4
		  and closed_at is not null
		  and starts_at < $3`, r.tenant, r.customer, edge, r.facts.Stream)
	if err != nil {
		return err
	}
	closed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[metering.Range])
	if err != nil {
		return err
	}
	if r.by, err = usage.ClosedDimensions(r.ctx, tx, r.tenant); err != nil {
		return err
	}
	counted, err := r.usedIn(usage.ReadTotals, r.facts.Meters, closed)
	if err != nil {
		return err
	}
	const update = `
		update billing_period_totals t
		set late_usage = $5, late_count = $6, late_dimensions = $8
		from billing_periods p
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and p.stream = $7
		  and p.closed_at is not null
		  and t.tenant_id = p.tenant_id
		  and t.period_id = p.id
		  and t.meter_id = any($4)
		  and t.late_count is null`
	var batch pgx.Batch
	all := make([]metering.MeterID, len(r.facts.Meters))
	for i, m := range r.facts.Meters {
		all[i] = m.ID
	}
	for _, c := range counted {
		_, late := c.ByDimension(c.Aggregation)
		batch.Queue(update+` and p.starts_at = $3`, r.tenant, r.customer, c.Within.Start, []metering.MeterID{c.Meter}, c.Late, c.Tally.LateCount, r.facts.Stream, late)
	}
	batch.Queue(update+` and p.starts_at < $3`, r.tenant, r.customer, edge, all, metering.Decimal{}, 0, r.facts.Stream, nil)
	return tx.SendBatch(r.ctx, &batch).Close()
}
