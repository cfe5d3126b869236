package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Discrepancies are the differences between rollups and events, by UTC day.
type Discrepancies struct{ pool *pg.Pool }

// Discrepancy is the usage of a meter on a UTC day, of a customer or of the whole tenant, for which two
// counts differ.
type Discrepancy struct {
	CustomerID   metering.CustomerID // WholeTenant for the tenant's own row
	ExternalID   string
	CustomerName string
	MeterID      metering.MeterID
	MeterSlug    string
	Day          time.Time
	RollupSum    metering.Decimal
	RollupCount  int64
	EventSum     metering.Decimal
	EventCount   int64
	FoundAt      time.Time
}

// DiscrepancyKey is the position of the last discrepancy of a page.
type DiscrepancyKey struct {
	Day      time.Time
	Customer metering.CustomerID
	Meter    metering.MeterID
}

// Key returns the key that identifies the discrepancy within the tenant.
func (d Discrepancy) Key() DiscrepancyKey { return DiscrepancyKey{d.Day, d.CustomerID, d.MeterID} }

// List returns up to limit discrepancies, newest first. It starts after the given key, or at the newest if
// after is nil.
func (s Discrepancies) List(ctx context.Context, tenant metering.TenantID, after *DiscrepancyKey, limit int) (page pg.Page[Discrepancy], err error) {
	var last DiscrepancyKey
	if after != nil {
		last = *after
	}
	rows, err := s.pool.Query(ctx, `
		select d.customer_id, coalesce(c.external_id, ''), coalesce(c.name, ''), d.meter_id, m.slug, d.day,
		  d.rollup_sum, d.rollup_count, d.event_sum, d.event_count, d.found_at
		from usage_discrepancies d
		join meters m on m.tenant_id = d.tenant_id and m.id = d.meter_id
		left join customers c on c.tenant_id = d.tenant_id and c.id = d.customer_id
		where d.tenant_id = @tenant
		  and (@first or d.day < @day or d.day = @day and (d.customer_id, d.meter_id) > (@customer, @meter))
		order by d.day desc, d.customer_id, d.meter_id
		limit @limit`,
		pgx.NamedArgs{"tenant": tenant, "first": after == nil, "day": last.Day, "customer": last.Customer, "meter": last.Meter, "limit": limit + 1})
	if err != nil {
		return page, fmt.Errorf("list discrepancies: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, pgx.RowToStructByPos[Discrepancy])
	return page, pg.Coded(err)
}

// Audit compares a finished day's rollups with the independent daily count. If they differ, it counts the
// events of the day in the same snapshot, and stores the remaining differences. It returns their number. It
// skips days with events that are no longer retained, and archived meters.
func (s Discrepancies) Audit(ctx context.Context, tenant metering.TenantID, day, now time.Time) (remaining int, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
			return err
		}
		edge, err := usage.KeptFrom(ctx, tx)
		if err != nil || day.Before(edge) {
			return err
		}
		meters, err := catalog.CollectMeters(ctx, tx, `and g.status = 'complete' and m.archived_at is null`, tenant)
		if err != nil {
			return err
		}
		found, err := compareDay(ctx, tx, tenant, meters, day)
		if err != nil {
			return err
		}
		remaining = len(found)
		return storeDiscrepancies(ctx, tx, tenant, day, found, now)
	})
	if err != nil {
		return 0, fmt.Errorf("audit usage: %w", err)
	}
	return remaining, nil
}

type discrepancyKey struct {
	customer metering.CustomerID
	meter    metering.MeterID
}

// disagreement contains two counts of the same usage: from rollups and from events.
type disagreement struct {
	rollup, events           metering.Decimal
	rollupCount, eventsCount int64
}

// eventTotals is the SQL of the sum and the number of a day's events, by customer and event type.
const eventTotals = `select customer_id, event_type, sum(value), count(*) from events where tenant_id = @tenant and ts >= @from and ts < @until group by 1, 2`

// compareDay returns the differences between the day's rollups and its events. It counts the events only if the rollups
// differ from the independent daily count.
func compareDay(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meters []metering.Meter, day time.Time) (map[discrepancyKey]disagreement, error) {
	recounted, err := recountDay(ctx, tx, tenant, meters, day)
	if err != nil {
		return nil, err
	}
	suspect, err := findDiscrepancies(ctx, tx, tenant, meters, day, usage.DailyCount, recounted)
	if err != nil || len(suspect) == 0 {
		return nil, err
	}
	return findDiscrepancies(ctx, tx, tenant, meters, day, eventTotals, recounted)
}

// recountDay measures all events of a day again, for the meters with filters or a value property. No other
// count of these meters is independent of the rollups.
func recountDay(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meters []metering.Meter, day time.Time) (map[usage.MeasuredKey]*usage.Tally, error) {
	statement := usage.NewStatementOfAll(tenant, meters)
	if len(statement.Selecting) == 0 {
		return nil, nil
	}
	statement.Part(usage.Measured, 0, metering.Range{Start: day, End: day.AddDate(0, 0, 1)}, slices.Sorted(maps.Keys(statement.Selecting)))
	return statement.Measure(ctx, tx)
}

// findDiscrepancies compares the rollups of a UTC day with another count of the day. The rollups cover whole
// local hours. If the UTC day covers a local hour only in part, the events of that part are counted instead.
// Meters with filters or a value property are compared with recounted, all others with the SQL in other.
func findDiscrepancies(
	ctx context.Context, tx pgx.Tx, tenant metering.TenantID, meters []metering.Meter, day time.Time, other string, recounted map[usage.MeasuredKey]*usage.Tally,
) (map[discrepancyKey]disagreement, error) {
	next := day.AddDate(0, 0, 1)
	statement := usage.NewStatementOfAll(tenant, meters)
	statement.Add(0, metering.Range{Start: day, End: next}, true)
	counted, err := statement.Rows(ctx, tx)
	if err != nil {
		return nil, err
	}
	statement.Args["from"], statement.Args["until"] = day, next
	statement.Args["selecting"] = append([]int64{}, slices.Sorted(maps.Keys(statement.Selecting))...)
	recount, args := usage.MeasuredRows("recounted", recounted)
	maps.Copy(statement.Args, args)
	rows, err := tx.Query(ctx, `
		with used as (
		  select m.id as meter_id, g.id as meter_version_id, g.event_type
		  from meters m
		  join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		  where m.tenant_id = @tenant and g.status = 'complete' and m.archived_at is null),
		ours as (
		  select counted.customer_id, used.meter_id, sum(counted.sum + counted.late_sum) as sum, sum(counted.count + counted.late_count)::bigint as count
		  from `+counted+`
		  join used on used.meter_version_id = counted.meter_version_id
		  group by 1, 2),
		other (customer_id, event_type, sum, count) as (`+other+`),
		theirs as (
		  select coalesce(o.customer_id, 0) as customer_id, used.meter_id, sum(o.sum) as sum, sum(o.count)::bigint as count
		  from other o
		  join used on used.event_type = o.event_type and used.meter_version_id <> all(@selecting::bigint[])
		  group by grouping sets ((o.customer_id, used.meter_id), (used.meter_id))
		  union all
		  select counted.customer_id, used.meter_id, counted.sum + counted.late_sum, counted.count + counted.late_count
		  from `+statement.Table([]string{recount})+`
		  join used on used.meter_version_id = counted.meter_version_id)
		select customer_id, meter_id, coalesce(ours.sum, 0), coalesce(ours.count, 0), coalesce(theirs.sum, 0), coalesce(theirs.count, 0)
		from ours
		full join theirs using (customer_id, meter_id)
		where (coalesce(ours.sum, 0), coalesce(ours.count, 0)) <> (coalesce(theirs.sum, 0), coalesce(theirs.count, 0))`, statement.Args)
	if err != nil {
		return nil, err
	}
	found := make(map[discrepancyKey]disagreement)
	var key discrepancyKey
	var d disagreement
	_, err = pgx.ForEachRow(rows, []any{&key.customer, &key.meter, &d.rollup, &d.rollupCount, &d.events, &d.eventsCount}, func() error {
		found[key] = d
		return nil
	})
	return found, err
}

// storeDiscrepancies replaces the stored differences of the day. It publishes a message, unless an earlier audit of the
// day has already found differences.
func storeDiscrepancies(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, day time.Time, found map[discrepancyKey]disagreement, now time.Time) error {
	known, err := tx.Exec(ctx, `delete from usage_discrepancies where tenant_id = $1 and day = $2`, tenant, day)
	if err != nil || len(found) == 0 {
		return err
	}
	var batch pgx.Batch
	for key, d := range found {
		batch.Queue(`
			insert into usage_discrepancies
			  (tenant_id, customer_id, meter_id, day, rollup_sum, rollup_count, event_sum, event_count, found_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			tenant, key.customer, key.meter, day, d.rollup, d.rollupCount, d.events, d.eventsCount, now)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil || known.RowsAffected() > 0 {
		return err // an earlier audit of the day has published its discrepancies
	}
	return outbox.Publish(ctx, tx, tenant, metering.WholeTenant,
		outbox.UsageDisagrees{Discrepancy: outbox.UsageDiscrepancy, Day: day.Format(time.DateOnly), Discrepancies: len(found)}, now)
}
