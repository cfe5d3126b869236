package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
		totals, err = totalsOf(ctx, q, tenant, customer, meters, r)
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

func totalsOf(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, r metering.Range) ([]MeterTotal, error) {
	totals := make([]MeterTotal, len(meters))
	for i, m := range meters {
		totals[i] = MeterTotal{Meter: m, Backfilling: m.Version.Status == metering.Backfilling}
	}
	parts, err := usageOver(ctx, q, tenant, customer, meters, []metering.Range{r})
	for _, p := range parts {
		i := slices.IndexFunc(meters, func(m metering.Meter) bool { return m.ID == p.meter })
		totals[i].Sum, totals[i].Count, totals[i].Usage = p.sum, p.events, p.usage
	}
	return totals, err
}

// rangeUsage is what a meter has counted in a range, or in an hour of it.
type rangeUsage struct {
	within     metering.Range
	start      time.Time // of the hour
	meter      metering.MeterID
	sum        metering.Decimal // of the events' values
	usage      metering.Decimal // what came late included
	events     int64
	late       metering.Decimal
	lateEvents int64
}

// usageOver reads what meters have counted in each of some ranges, in one
// statement. Meters that have counted nothing in a range are left out.
func usageOver(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, ranges []metering.Range) ([]rangeUsage, error) {
	s := newUsageStatement(tenant, customer, meters)
	for no, r := range ranges {
		s.add(no, r, false)
	}
	return s.read(ctx, q, meters, ranges, "timestamptz '0001-01-01'")
}

// usageByHour is usageOver hour by hour. An hour that a range cuts is the part
// of it that lies in the range, and begins there.
func usageByHour(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, ranges []metering.Range) ([]rangeUsage, error) {
	s := newUsageStatement(tenant, customer, meters)
	for no, r := range ranges {
		s.add(no, r, true)
	}
	return s.read(ctx, q, meters, ranges, "parts.start")
}

// usageStatement reads ranges from the cheapest exact places, all of them in
// one statement: of each place, the parts of the ranges that are read there.
type usageStatement struct {
	args   pgx.NamedArgs
	zones  map[string][]int64 // the meter versions of each timezone
	places [3]rangeParts      // months, hours, raw events
	all    bool               // of the whole tenant
}

// rangeParts are parts of ranges, in columns.
type rangeParts struct {
	numbers     []int32
	from, until []time.Time
	versions    []string // arrays of the meter versions that are read there
}

const (
	monthly = iota
	hourly
	raw
)

func newUsageStatement(tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter) *usageStatement {
	s := &usageStatement{args: pgx.NamedArgs{"tenant": tenant, "customer": customer}, zones: make(map[string][]int64), all: customer == metering.WholeTenant}
	for _, m := range meters {
		s.zones[m.Version.Timezone] = append(s.zones[m.Version.Timezone], int64(m.Version.ID))
	}
	return s
}

// add has a range read as well, in hours alone or in months where those will do.
func (s *usageStatement) add(no int, r metering.Range, byHour bool) {
	for zone, versions := range s.zones {
		span := metering.Split(r, metering.Location(zone))
		switch {
		case byHour:
			s.part(hourly, no, wholeHours(span), versions)
		default:
			s.part(monthly, no, span.Months, versions)
			for _, hours := range span.Hours {
				s.part(hourly, no, hours, versions)
			}
		}
		for _, edge := range span.Ragged {
			s.part(raw, no, edge, versions)
		}
	}
}

func (s *usageStatement) part(place, no int, r metering.Range, versions []int64) {
	if r.Empty() {
		return
	}
	p := &s.places[place]
	p.numbers, p.from, p.until = append(p.numbers, int32(no)), append(p.from, r.Start), append(p.until, r.End)
	p.versions = append(p.versions, strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(versions)))
}

func (s *usageStatement) read(ctx context.Context, q querier, meters []metering.Meter, ranges []metering.Range, start string) (usage []rangeUsage, err error) {
	ofCustomer := "and e.customer_id = @customer"
	if s.all {
		ofCustomer = ""
	}
	rows, err := q.Query(ctx, `
		select parts.no, parts.version, `+start+`, sum(parts.sum + parts.late_sum), sum(parts.count + parts.late_count)::bigint,
		  sum(parts.late_sum), sum(parts.late_count)::bigint
		from (
		  select x.no, u.meter_version_id as version, u.month as start, u.sum, u.count, u.late_sum, u.late_count
		  from `+s.unnest("months", monthly)+`
		  join usage_monthly u on u.meter_version_id = any(x.versions::bigint[]) and u.month >= x.from_at and u.month < x.until_at
		  where u.tenant_id = @tenant
		    and u.customer_id = @customer
		  union all
		  select x.no, u.meter_version_id, u.hour, u.sum, u.count, u.late_sum, u.late_count
		  from `+s.unnest("hours", hourly)+`
		  join usage_hourly u on u.meter_version_id = any(x.versions::bigint[]) and u.hour >= x.from_at and u.hour < x.until_at
		  where u.tenant_id = @tenant
		    and u.customer_id = @customer
		    and u.hour >= @hours_least
		    and u.hour < @hours_most
		  union all
		  select x.no, g.id, x.from_at, case when l.late then 0 else e.value end, (not l.late)::int, case when l.late then e.value else 0 end, l.late::int
		  from `+s.unnest("raw", raw)+`
		  join events e on e.ts >= x.from_at and e.ts < x.until_at
		  join meter_versions g on g.tenant_id = e.tenant_id and g.event_type = e.event_type and g.id = any(x.versions::bigint[])
		  cross join lateral (select `+isLate+` as late) l
		  where e.tenant_id = @tenant `+ofCustomer+`
		    and e.ts >= @raw_least
		    and e.ts < @raw_most) parts
		group by 1, 2, 3`, s.args)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	byVersion := make(map[metering.MeterVersionID]metering.Meter, len(meters))
	for _, m := range meters {
		byVersion[m.Version.ID] = m
	}
	var (
		no             int32
		version        metering.MeterVersionID
		at             time.Time
		sum, late      metering.Decimal
		count, lateNow int64
	)
	_, err = pgx.ForEachRow(rows, []any{&no, &version, &at, &sum, &count, &late, &lateNow}, func() error {
		m := byVersion[version]
		aggregation := m.Version.Aggregation
		usage = append(usage, rangeUsage{
			within: ranges[no], start: at, meter: m.ID, sum: sum, usage: aggregation.Usage(sum, count), events: count,
			late: aggregation.Usage(late, lateNow), lateEvents: lateNow,
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return usage, nil
}

// unnest is a place's parts as a table x. What bounds all of them lets the
// database leave out whole chunks.
func (s *usageStatement) unnest(name string, place int) string {
	p := s.places[place]
	s.args[name+"_no"], s.args[name+"_from"], s.args[name+"_until"], s.args[name+"_versions"] = p.numbers, p.from, p.until, p.versions
	var least, most time.Time
	if len(p.from) > 0 {
		least, most = slices.MinFunc(p.from, time.Time.Compare), slices.MaxFunc(p.until, time.Time.Compare)
	}
	s.args[name+"_least"], s.args[name+"_most"] = least, most
	return fmt.Sprintf("unnest(@%[1]s_no::int[], @%[1]s_from::timestamptz[], @%[1]s_until::timestamptz[], @%[1]s_versions::text[]) x (no, from_at, until_at, versions)", name)
}

// usageQuery reads rollup rows as they are, for windows and groups.
type usageQuery struct {
	args     pgx.NamedArgs
	branches []string
}

func newUsageQuery(tenant metering.TenantID, customer metering.CustomerID, versions []int64) *usageQuery {
	return &usageQuery{args: pgx.NamedArgs{"tenant": tenant, "customer": customer, "versions": versions}}
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
