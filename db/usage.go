package db

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Usage reads what the rollups say. A range costs its months, hours and the
// raw events of the two hours that it may cut in half: never all events.
type Usage struct{ q querier }

// consistent runs fn on one snapshot of the database.
func (u Usage) consistent(ctx context.Context, fn func(q querier) error) error {
	pool, ok := u.q.(*pgxpool.Pool)
	if !ok {
		return fn(u.q) // a transaction already
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return coded(pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error { return fn(tx) }))
}

// MeterTotal is a customer's usage of one meter. Late usage is part of it.
type MeterTotal struct {
	Meter       metering.Meter
	Sum         metering.Decimal
	Count       int64
	Usage       metering.Decimal // what the meter's aggregation makes of the two
	Backfilling bool             // the meter's past is still being counted: the figures are not to be used
}

// MeterTotals returns one item per meter of the tenant, by id, zero included.
func (u Usage) MeterTotals(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, r metering.Range) (totals []MeterTotal, err error) {
	err = u.consistent(ctx, func(q querier) error {
		meters, err := collectMeters(ctx, q, `order by m.id`, tenant)
		if err != nil {
			return err
		}
		totals, err = totalsOf(ctx, q, tenant, customer, meters, r, allUsage)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, t := range totals {
		if err := u.requireWhole(ctx, r, t.Meter.Version.Timezone); err != nil {
			return nil, err
		}
	}
	return totals, nil
}

func totalsOf(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, r metering.Range, part usagePart) ([]MeterTotal, error) {
	totals := make([]MeterTotal, len(meters))
	place := make(map[metering.MeterVersionID]int, len(meters))
	byZone := make(map[string][]int64)
	for i, m := range meters {
		totals[i] = MeterTotal{Meter: m, Backfilling: m.Version.Status == metering.Backfilling}
		place[m.Version.ID] = i
		byZone[m.Version.Timezone] = append(byZone[m.Version.Timezone], int64(m.Version.ID))
	}
	head := `select meter_version_id, sum(sum + late_sum), sum(count + late_count)::bigint from`
	if part == lateOnly {
		head = `select meter_version_id, sum(late_sum), sum(late_count)::bigint from`
	}
	for zone, versions := range byZone {
		query := newUsageQuery(tenant, customer, versions)
		query.part = part
		rows, err := query.overRange(ctx, q, head, `group by 1`, zone, r)
		if err != nil {
			return nil, err
		}
		var id metering.MeterVersionID
		var sum metering.Decimal
		var count int64
		_, err = pgx.ForEachRow(rows, []any{&id, &sum, &count}, func() error {
			t := &totals[place[id]]
			t.Sum, t.Count, t.Usage = sum, count, t.Meter.Version.Aggregation.Usage(sum, count)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read totals: %w", err)
		}
	}
	return totals, nil
}

// usagePart is which of a range's usage is meant.
type usagePart int

const (
	allUsage usagePart = iota
	lateOnly           // what arrived after its billing period was closed
)

// usageQuery builds the one statement that reads a range from the cheapest
// exact places.
type usageQuery struct {
	customer metering.CustomerID
	part     usagePart
	args     pgx.NamedArgs
	branches []string
}

func newUsageQuery(tenant metering.TenantID, customer metering.CustomerID, versions []int64) *usageQuery {
	return &usageQuery{customer: customer, args: pgx.NamedArgs{"tenant": tenant, "customer": customer, "versions": versions}}
}

func (u *usageQuery) overRange(ctx context.Context, q querier, head, tail, zone string, r metering.Range) (pgx.Rows, error) {
	span := metering.Split(r, metering.Location(zone))
	if !span.Months.Empty() {
		u.months(span.Months)
	}
	for _, hours := range span.Hours {
		u.hours(hours)
	}
	for _, edge := range span.Ragged {
		u.raw(edge)
	}
	return u.run(ctx, q, head, tail)
}

func (u *usageQuery) run(ctx context.Context, q querier, head, tail string) (pgx.Rows, error) {
	if len(u.branches) == 0 {
		u.hours(metering.Range{})
	}
	return q.Query(ctx, head+" ("+strings.Join(u.branches, " union all ")+") as parts "+tail, u.args)
}

func (u *usageQuery) months(r metering.Range) {
	u.branch(r, `
		select meter_version_id, group_id, month as start, sum, count, late_sum, late_count from usage_monthly
		where tenant_id = @tenant and customer_id = @customer and meter_version_id = any(@versions)
		  and month >= %s and month < %s`)
}

func (u *usageQuery) hours(r metering.Range) {
	u.branch(r, `
		select meter_version_id, group_id, hour as start, sum, count, late_sum, late_count from usage_hourly
		where tenant_id = @tenant and customer_id = @customer and meter_version_id = any(@versions)
		  and hour >= %s and hour < %s`)
}

// raw counts events themselves; it does not tell groups apart, and late events
// only where nothing else is asked for.
func (u *usageQuery) raw(r metering.Range) {
	figures, late := `e.value as sum, 1::bigint as count, 0::numeric as late_sum, 0::bigint as late_count`, ``
	if u.part == lateOnly {
		figures, late = `0::numeric as sum, 0::bigint as count, e.value as late_sum, 1::bigint as late_count`, ` and `+isLate
	}
	u.branch(r, `
		select g.id as meter_version_id, null::uuid as group_id, null::timestamptz as start,
		  `+figures+`
		from events e
		join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type
		where e.tenant_id = @tenant `+ofCustomer(u.customer)+` and g.id = any(@versions)
		  and e.ts >= %s and e.ts < %s`+late)
}

// ofCustomer restricts raw events e to @customer's; those of the whole tenant are all.
func ofCustomer(customer metering.CustomerID) string {
	if customer == metering.WholeTenant {
		return ""
	}
	return "and e.customer_id = @customer"
}

func (u *usageQuery) branch(r metering.Range, sql string) {
	from, until := fmt.Sprintf("from%d", len(u.branches)), fmt.Sprintf("until%d", len(u.branches))
	u.args[from], u.args[until] = r.Start, r.End
	u.branches = append(u.branches, fmt.Sprintf(sql, "@"+from, "@"+until))
}

// WindowQuery asks for a customer's usage of one meter.
type WindowQuery struct {
	Customer    metering.CustomerID
	Meter       metering.Meter
	Range       metering.Range
	Granularity metering.Granularity
	Groups      map[string]string // property → value as text; only groups that match all
	After       *WindowCursor
	Limit       int
}

// WindowCursor is the last window of the former page.
type WindowCursor struct {
	GroupID metering.GroupID
	Start   time.Time
}

// Window is one group's usage in one window. Windows without events are left out.
type Window struct {
	GroupID    metering.GroupID
	GroupKey   json.RawMessage
	Start, End time.Time
	Value      metering.Decimal
	LateValue  metering.Decimal // arrived after the window's billing period was closed
	Final      bool             // the window lies in a closed period: Value never changes again
}

// GroupTotal is one group's usage in the whole range, late usage included.
type GroupTotal struct {
	GroupID  metering.GroupID
	GroupKey json.RawMessage
	Total    metering.Decimal
}

// WindowPage is a page of windows, and the totals of the whole range.
type WindowPage struct {
	Windows []Window
	Groups  []GroupTotal
	Total   metering.Decimal
	More    bool
}

// Windows returns a page of windows ordered by group, then time, with the
// totals of the whole range, all of one instant.
func (u Usage) Windows(ctx context.Context, tenant metering.TenantID, query WindowQuery) (page WindowPage, err error) {
	err = u.consistent(ctx, func(q querier) error {
		zone := metering.Location(query.Meter.Version.Timezone)
		read := &windowRead{WindowQuery: query, tenant: tenant, q: q, zone: zone, span: metering.Split(query.Range, zone)}
		page, err = read.page(ctx)
		return err
	})
	if err != nil {
		return WindowPage{}, err
	}
	return page, u.requireWhole(ctx, query.Range, query.Meter.Version.Timezone)
}
