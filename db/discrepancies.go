package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Discrepancies are the days on which rollups and events disagree.
type Discrepancies struct{ pool *pgxpool.Pool }

// Discrepancy is one customer's, or the whole tenant's, usage of a meter on a
// UTC day, counted twice with two results.
type Discrepancy struct {
	CustomerID  metering.CustomerID // WholeTenant for the tenant's own row
	ExternalID  string
	MeterID     metering.MeterID
	MeterSlug   string
	Day         time.Time
	RollupSum   metering.Decimal
	RollupCount int64
	EventSum    metering.Decimal
	EventCount  int64
	FoundAt     time.Time
}

// List returns the newest discrepancies first.
func (s Discrepancies) List(ctx context.Context, tenant metering.TenantID, limit int) ([]Discrepancy, error) {
	rows, err := s.pool.Query(ctx, `
		select d.customer_id, coalesce(c.external_id, ''), d.meter_id, m.slug, d.day,
		  d.rollup_sum, d.rollup_count, d.event_sum, d.event_count, d.found_at
		from usage_discrepancies d
		join meters m on m.tenant_id = d.tenant_id and m.id = d.meter_id
		left join customers c on c.tenant_id = d.tenant_id and c.id = d.customer_id
		where d.tenant_id = $1
		order by d.day desc, d.customer_id, d.meter_id
		limit $2`, tenant, limit)
	if err != nil {
		return nil, fmt.Errorf("list discrepancies: %w", coded(err))
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Discrepancy])
	return list, coded(err)
}

// Audit compares a finished day's rollups with the daily independent count. Where
// they differ, the events themselves are counted, at the same instant, and
// what remains is kept. It returns how much that is. A day whose events are
// not kept is not compared.
func (s Discrepancies) Audit(ctx context.Context, tenant metering.TenantID, day, now time.Time) (remaining int, err error) {
	err = atOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local statement_timeout = '10min'`); err != nil {
			return err
		}
		edge, err := keptFrom(ctx, tx)
		if err != nil || day.Before(edge) {
			return err
		}
		zones, err := zonesOf(ctx, tx, tenant)
		if err != nil {
			return err
		}
		found := make(map[discrepancyKey]disagreement)
		for _, zone := range zones {
			if err := compareDay(ctx, tx, tenant, day, zone, found); err != nil {
				return err
			}
		}
		remaining = len(found)
		return keepDiscrepancies(ctx, tx, tenant, day, found, now)
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

type disagreement struct {
	rollup, events           metering.Decimal
	rollupCount, eventsCount int64
}

func zonesOf(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) ([]string, error) {
	rows, err := tx.Query(ctx, `
		select distinct g.timezone
		from meters m
		join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		where m.tenant_id = $1
		  and g.status = 'complete'`, tenant)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// What the rollups are compared with.
const (
	dailyCount = `select customer_id, event_type, sum, count from usage_daily where tenant_id = @tenant and day = @from`
	eventCount = `select customer_id, event_type, sum(value), count(*) from events where tenant_id = @tenant and ts >= @from and ts < @until group by 1, 2`
)

func compareDay(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, day time.Time, zone string, found map[discrepancyKey]disagreement) error {
	suspect, err := discrepancies(ctx, tx, tenant, day, zone, dailyCount)
	if err != nil || len(suspect) == 0 {
		return err
	}
	certain, err := discrepancies(ctx, tx, tenant, day, zone, eventCount)
	maps.Copy(found, certain)
	return err
}

// discrepancies compares what whole local hours hold, and raw events where the
// UTC day cuts one in half, with another count of the same day.
func discrepancies(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, day time.Time, zone, other string) (map[discrepancyKey]disagreement, error) {
	span := metering.Split(metering.Range{Start: day, End: day.AddDate(0, 0, 1)}, metering.Location(zone))
	args := pgx.NamedArgs{"tenant": tenant, "zone": zone, "from": day, "until": day.AddDate(0, 0, 1)}
	var parts []string
	part := func(r metering.Range, sql string) {
		from, until := fmt.Sprintf("from%d", len(parts)), fmt.Sprintf("until%d", len(parts))
		args[from], args[until] = r.Start, r.End
		parts = append(parts, fmt.Sprintf(sql, "@"+from, "@"+until))
	}
	for _, hours := range append(slices.Clone(span.Hours), span.Months) {
		part(hours, `
			select u.customer_id, u.meter_version_id, u.sum + u.late_sum as sum, u.count + u.late_count as count
			from usage_hourly u where u.tenant_id = @tenant and u.hour >= %s and u.hour < %s`)
	}
	for _, edge := range span.Ragged {
		part(edge, `
			select unnest(array[e.customer_id, 0]), g.id, e.value, 1
			from events e join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type
			where e.tenant_id = @tenant and e.ts >= %s and e.ts < %s`)
	}
	rows, err := tx.Query(ctx, `
		with used as (
		  select m.id as meter_id, g.id as meter_version_id, g.event_type
		  from meters m
		  join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		  where m.tenant_id = @tenant and g.status = 'complete' and g.timezone = @zone),
		ours as (
		  select p.customer_id, used.meter_id, sum(p.sum) as sum, sum(p.count)::bigint as count
		  from (`+strings.Join(parts, " union all ")+`) p
		  join used on used.meter_version_id = p.meter_version_id
		  group by 1, 2),
		other (customer_id, event_type, sum, count) as (`+other+`),
		theirs as (
		  select coalesce(o.customer_id, 0) as customer_id, used.meter_id, sum(o.sum) as sum, sum(o.count)::bigint as count
		  from other o
		  join used on used.event_type = o.event_type
		  group by grouping sets ((o.customer_id, used.meter_id), (used.meter_id)))
		select customer_id, meter_id, coalesce(ours.sum, 0), coalesce(ours.count, 0), coalesce(theirs.sum, 0), coalesce(theirs.count, 0)
		from ours
		full join theirs using (customer_id, meter_id)
		where (coalesce(ours.sum, 0), coalesce(ours.count, 0)) <> (coalesce(theirs.sum, 0), coalesce(theirs.count, 0))`, args)
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

func keepDiscrepancies(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, day time.Time, found map[discrepancyKey]disagreement, now time.Time) error {
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
		return err // what was found yesterday was told yesterday
	}
	return publish(ctx, tx, tenant, metering.WholeTenant, metering.UsageDiscrepancy,
		map[string]any{"day": day.Format(time.DateOnly), "discrepancies": len(found)}, now)
}
