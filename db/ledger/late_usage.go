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
		by, err := usage.ClosedDimensions(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for stream := range streams {
			r := &factReader{ctx: ctx, q: tx, tenant: tenant, customer: customer, facts: billing.Facts{Stream: stream, Feeds: feeds, Meters: meters}, by: by}
			if err := r.keepLate(tx, edge); err != nil {
				return err
			}
		}
		return nil
	})
}

// keepLate stores the late usage of the schedule's closed periods that begin before edge, as report plans count it. It
// skips lines with stored late usage.
func (r *factReader) keepLate(tx pgx.Tx, edge time.Time) error {
	if err := r.readClosedBefore(tx, edge); err != nil {
		return err
	}
	var ranges []metering.Range
	for _, p := range r.facts.Stored {
		ranges = append(ranges, p.Range)
	}
	if err := r.totalsOf(ranges); err != nil {
		return err
	}
	used := make(map[usedPlace]billing.Usage)
	for _, u := range r.facts.Usage {
		used[usedPlace{u.Period, u.MeterID}] = u
	}
	var batch pgx.Batch
	for _, p := range r.facts.Stored {
		for _, l := range p.Closed {
			late := l.CountLate(used[usedPlace{p.Start, l.MeterID}])
			batch.Queue(`
				update billing_period_totals
				set late_usage = $4, late_count = $5, late_dimensions = $6
				where tenant_id = $1
				  and period_id = $2
				  and meter_key = $3
				  and component = 'usage'`, r.tenant, p.ID, l.MeterID, late.Units, late.Events, late.Dimensions)
		}
	}
	return tx.SendBatch(r.ctx, &batch).Close()
}

// usedPlace identifies the usage of a meter in a period.
type usedPlace struct {
	start time.Time
	meter metering.MeterID
}

// readClosedBefore reads the schedule's closed periods that begin before edge. It skips lines with stored late usage.
func (r *factReader) readClosedBefore(tx pgx.Tx, edge time.Time) error {
	rows, err := tx.Query(r.ctx, `
		select p.id, p.starts_at, p.ends_at, t.meter_id, g.aggregation, t.late_difference_usage, t.late_difference_count, t.late_difference_dimensions
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id
		join meter_versions g on g.tenant_id = t.tenant_id and g.id = t.meter_version_id
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and p.stream = $4
		  and p.closed_at is not null
		  and p.starts_at < $3
		  and t.late_count is null
		order by p.id, t.meter_id`, r.tenant, r.customer, edge, r.facts.Stream)
	if err != nil {
		return err
	}
	for rows.Next() {
		var p billing.Period
		var l billing.ClosedLine
		d := &l.LateDifference
		if err := rows.Scan(&p.ID, &p.Start, &p.End, &l.MeterID, &l.Aggregation, &d.Units, &d.Events, &d.Dimensions); err != nil {
			return err
		}
		if n := len(r.facts.Stored); n == 0 || r.facts.Stored[n-1].ID != p.ID {
			r.facts.Stored = append(r.facts.Stored, p)
		}
		last := &r.facts.Stored[len(r.facts.Stored)-1]
		last.Closed = append(last.Closed, l)
	}
	return rows.Err()
}
