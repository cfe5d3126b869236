package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Usage reads usage from the rollups. For a range, it reads rows of whole months and of whole hours outside these
// months. It also reads the raw events of at most two partial hours.
type Usage struct{ q pg.Querier }

// consistent runs fn on one snapshot of the database.
func (u Usage) consistent(ctx context.Context, fn func(q pg.Querier) error) error {
	pool, ok := u.q.(*pg.Pool)
	if !ok {
		return fn(u.q) // u.q is a transaction already
	}
	return pg.ReadAtOneInstant(ctx, pool, func(tx pgx.Tx) error { return fn(tx) })
}

// MeterTotal is a customer's usage of one meter, including late usage.
type MeterTotal struct {
	Meter       metering.Meter
	Sum         metering.Decimal
	Count       int64
	Usage       metering.Decimal // the result of the meter's aggregation
	Backfilling bool             // whether the meter's backfill is in progress; if so, the figures must not be used
}

// MeterTotals returns one item per meter of the tenant, by id, including meters without usage.
func (u Usage) MeterTotals(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, r metering.Range) (totals []MeterTotal, err error) {
	err = u.consistent(ctx, func(q pg.Querier) error {
		meters, err := catalog.CollectMeters(ctx, q, `order by m.id`, tenant)
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

// totalsOf returns the totals of the meters in the range, one per meter.
func totalsOf(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, r metering.Range) ([]MeterTotal, error) {
	totals := make([]MeterTotal, len(meters))
	for i, m := range meters {
		totals[i] = MeterTotal{Meter: m, Backfilling: m.Version.Status == metering.Backfilling}
	}
	parts, err := ReadTotals(ctx, q, tenant, customer, meters, nil, []metering.Range{r})
	for _, p := range parts {
		i := slices.IndexFunc(meters, func(m metering.Meter) bool { return m.ID == p.Meter })
		all := p.Tally.All()
		totals[i].Sum, totals[i].Count, totals[i].Usage = all.sum, all.Count, p.Usage
	}
	return totals, err
}

// RangeUsage is a meter's usage in a range, or in one hour of a range.
type RangeUsage struct {
	Within   metering.Range
	Customer metering.CustomerID
	Start    time.Time // start of the hour, or of the range if that is later; zero: usage of the whole range
	Meter    metering.MeterID
	Tally    Tally
	Usage    metering.Decimal // includes late usage
	Late     metering.Decimal

	Aggregation metering.Aggregation // the aggregation of Usage and Late
	dimensions  []dimensionTally     // the parts of Tally, if the meter is read by dimension
}

// ReadTotals reads the usage of the meters in each range, in one statement. A meter without usage in a range
// has no RangeUsage for that range. A meter with an entry in dimensions is read by dimension.
func ReadTotals(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, dimensions billing.ByDimension, ranges []metering.Range) ([]RangeUsage, error) {
	s := newUsageStatement(tenant, customer, meters)
	s.Separate(meters, dimensions)
	for no, r := range ranges {
		s.Add(no, r, false)
	}
	return ReadRanges(ctx, q, s, meters, ranges, "timestamptz '0001-01-01'")
}

// ReadHourlyTotals is ReadTotals with a RangeUsage for each hour of a range. A partial hour of a range counts only
// the events within the range. If the range starts within an hour, Start of that hour is the start of the range.
func ReadHourlyTotals(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, dimensions billing.ByDimension, ranges []metering.Range) ([]RangeUsage, error) {
	s := newUsageStatement(tenant, customer, meters)
	s.Separate(meters, dimensions)
	for no, r := range ranges {
		s.Add(no, r, true)
	}
	return ReadRanges(ctx, q, s, meters, ranges, "start")
}

// ReadRanges reads the usage that the statement counts in its ranges, by customer and meter. start is the SQL of
// RangeUsage.Start: the column start for usage by hour, or a constant for the usage of whole ranges.
func ReadRanges(ctx context.Context, q pg.Querier, s *usageStatement, meters []metering.Meter, ranges []metering.Range, start string) ([]RangeUsage, error) {
	counted, err := s.Rows(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	rows, err := q.Query(ctx, s.byDimension(`
		select no, customer_id, meter_version_id, `+start+` as start, `+s.dimensionGroup()+` as group_id, `+MergedTally+`
		from `+counted+`
		group by 1, 2, 3, 4, 5`), s.Args)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	usage, err := collectRanges(rows, meters, ranges)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return usage, nil
}

// collectRanges merges consecutive rows that differ only in their dimension values.
func collectRanges(rows pgx.Rows, meters []metering.Meter, ranges []metering.Range) (usage []RangeUsage, err error) {
	byVersion := make(map[metering.MeterVersionID]metering.Meter, len(meters))
	for _, m := range meters {
		byVersion[m.Version.ID] = m
	}
	var (
		no        int32
		customer  metering.CustomerID
		version   metering.MeterVersionID
		at        time.Time
		separated bool
		key       json.RawMessage
		t         Tally
	)
	_, err = pgx.ForEachRow(rows, append([]any{&no, &customer, &version, &at, &separated, &key}, t.Fields()...), func() error {
		m := byVersion[version]
		u := RangeUsage{Within: ranges[no], Customer: customer, Start: at, Meter: m.ID, Aggregation: m.Version.Aggregation}
		if n := len(usage); n == 0 || !usage[n-1].isBeside(u) {
			usage = append(usage, u)
		}
		last := &usage[len(usage)-1]
		last.Tally.merge(&t)
		last.Usage, last.Late = last.Tally.Total(u.Aggregation), last.Tally.Late(u.Aggregation)
		if !separated {
			return nil
		}
		return last.addDimension(key, t)
	})
	return usage, err
}

// WindowQuery selects a customer's usage of one meter.
type WindowQuery struct {
	Customer    metering.CustomerID
	Meter       metering.Meter
	Range       metering.Range
	Granularity metering.Granularity
	Zone        *time.Location               // time zone of the windows; nil for the meter's
	Groups      map[string][]json.RawMessage // values by property; selects groups that have one of the values of each property
	GroupBy     []string                     // properties of the meter that separate groups; groups that differ only in other properties are merged; nil for all properties
	After       *WindowCursor
	Limit       int
}

// WindowCursor identifies the last window of the previous page.
type WindowCursor struct {
	GroupID metering.GroupID
	Start   time.Time
}

// Window is one group's usage in one window. Windows without events are skipped.
type Window struct {
	GroupID    metering.GroupID
	GroupKey   json.RawMessage
	Start, End time.Time
	Value      metering.Decimal
	LateValue  metering.Decimal // the part that arrived after the billing period of the window closed
	Final      bool             // the window lies in a closed period: Value never changes again
}

// GroupTotal is one group's usage in the whole range, including late usage.
type GroupTotal struct {
	GroupID metering.GroupID
	Total   metering.Decimal
}

// WindowPage is a page of windows, and the totals of the whole range.
type WindowPage struct {
	Windows []Window
	Groups  []GroupTotal
	Total   metering.Decimal
	More    bool
	FilterGaps
}

// FilterGaps reports usage that the filter Groups of a query may have missed.
type FilterGaps struct {
	Other *metering.Decimal // usage in OtherGroup, which may include requested groups; nil if there is none, or if Groups is empty
	Alike bool              // whether a group has a value with the text of a requested value, but another JSON type
}

var errLongRead = metering.Invalid("query.end", "must be closer to start, because the range has too much usage for one request")

// MaxShortRows is the maximum number of hourly rows of a customer that Windows reads in a short time.
const MaxShortRows = 100_000

// IsLong reports whether Windows may read more than MaxShortRows: the groups of the meter, each in all hours of the range.
func (u Usage) IsLong(ctx context.Context, tenant metering.TenantID, query WindowQuery) (isLong bool, err error) {
	hours := int64(query.Range.End.Sub(query.Range.Start) / time.Hour)
	if len(query.Meter.Version.GroupBy) == 0 {
		return hours > MaxShortRows, nil
	}
	err = u.q.QueryRow(ctx, `
		select exists (
		  select from usage_groups
		  where tenant_id = $1
		    and meter_version_id = $2
		  offset $3)`, tenant, query.Meter.Version.ID, MaxShortRows/max(1, hours)).Scan(&isLong)
	return isLong, pg.Coded(err)
}

// Windows returns a page of windows, ordered by group and time, with the totals of the whole range. All
// figures are from one snapshot.
func (u Usage) Windows(ctx context.Context, tenant metering.TenantID, query WindowQuery) (page WindowPage, err error) {
	read, err := NewWindowRead(tenant, query)
	if err != nil {
		return WindowPage{}, err
	}
	err = u.consistent(ctx, func(q pg.Querier) error {
		read.Querier = q
		page, err = read.page(ctx)
		return err
	})
	if TooMuch(ctx, err) {
		return WindowPage{}, errLongRead.Because(err)
	}
	if err != nil {
		return WindowPage{}, err
	}
	return page, u.requireWhole(ctx, query.Range, query.Meter.Version.Timezone)
}
