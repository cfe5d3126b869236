package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// usageOf reads the usage of the meters in the ranges, and the customer's number of events in each open period.
func (r *factReader) usageOf(ranges []metering.Range) error {
	if err := r.totalsOf(ranges); err != nil {
		return err
	}
	f := &r.facts
	windowed := billing.WindowedMeters(*f)
	meters := slices.DeleteFunc(slices.Clone(f.Meters), func(m metering.Meter) bool { return !slices.Contains(windowed, m.ID) })
	hours, err := r.usedIn(usage.ReadHourlyTotals, meters, ranges)
	if err != nil {
		return err
	}
	for _, h := range hours {
		f.Hours = append(f.Hours, billing.HourUsage{Period: h.Within.Start, MeterID: h.Meter, Start: h.Start, Total: h.Usage.Sub(h.Late)})
	}
	return r.countEvents()
}

// totalsOf adds the usage of the meters in the ranges to the facts. Usage of a closed period is aggregated as it was
// when the period closed.
func (r *factReader) totalsOf(ranges []metering.Range) error {
	totals, err := r.usedIn(usage.ReadTotals, r.facts.Meters, ranges)
	for _, t := range totals {
		u := billing.Usage{
			Period: t.Within.Start, MeterID: t.Meter, Total: t.Usage, Events: t.Tally.All().Count, Late: t.Late, LateEvents: t.Tally.LateCount,
		}
		counted := cmp.Or(r.closedAggregation(t.Within.Start, t.Meter), t.Aggregation)
		u.Total, u.Late = t.Tally.Total(counted), t.Tally.Late(counted)
		u.Dimensions, u.LateDimensions = t.ByDimension(counted)
		r.facts.Usage = append(r.facts.Usage, u)
	}
	return err
}

// usedIn reads the usage of the meters in disjoint ranges. It skips the usage of a meter while the meter
// belongs to another billing schedule of the customer. It needs one statement if the customer has one schedule.
func (r *factReader) usedIn(read readUsage, meters []metering.Meter, ranges []metering.Range) (all []usage.RangeUsage, err error) {
	by := r.facts.ByDimension().And(r.by)
	if len(r.facts.Feeds) == 0 {
		return read(r.ctx, r.q, r.tenant, r.customer, meters, by, ranges)
	}
	for len(meters) > 0 {
		parts := r.facts.FedIn(meters[0].ID, ranges)
		var alike, others []metering.Meter
		for _, m := range meters {
			if slices.Equal(r.facts.FedIn(m.ID, ranges), parts) {
				alike = append(alike, m)
			} else {
				others = append(others, m)
			}
		}
		if meters = others; len(parts) == 0 {
			continue
		}
		used, err := read(r.ctx, r.q, r.tenant, r.customer, alike, by, parts)
		if err != nil {
			return nil, err
		}
		for _, u := range used {
			u.Within = ranges[slices.IndexFunc(ranges, func(of metering.Range) bool { return of.Contains(u.Within.Start) })]
			all = append(all, u)
		}
	}
	return all, nil
}

// readUsage is usage.ReadTotals or usage.ReadHourlyTotals.
type readUsage func(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID, meters []metering.Meter, by billing.ByDimension, ranges []metering.Range) ([]usage.RangeUsage, error)

// closedAggregation returns the aggregation of the meter when the period closed; "" if the period is open.
func (r *factReader) closedAggregation(start time.Time, meter metering.MeterID) metering.Aggregation {
	for _, p := range r.facts.Stored {
		if l, known := p.Line(meter); known && p.Start.Equal(start) {
			return l.Aggregation
		}
	}
	return ""
}

// alsoTotalsOf adds the usage in ranges to the facts, for display. It skips the ranges that readStreams has
// already read for the plan.
func (r *factReader) alsoTotalsOf(ranges ...metering.Range) error {
	planned := r.compared.UsageRanges()
	return r.totalsOf(slices.DeleteFunc(ranges, func(shown metering.Range) bool { return slices.Contains(planned, shown) }))
}

// countEvents sets the customer's number of events in each open period.
func (r *factReader) countEvents() error {
	f := &r.facts
	var starts, ends []time.Time
	for _, p := range billing.Periods(*f) {
		if p.ClosedAt == nil {
			starts, ends = append(starts, p.Start), append(ends, p.End)
		}
	}
	rows, err := r.q.Query(r.ctx, `
		with added as materialized `+usage.AddedEventsOf+`
		select x.starts_at, `+usage.CountedEvents("added", "@tenant", "@customer", "x.starts_at", "x.ends_at")+`
		from unnest(@starts::timestamptz[], @ends::timestamptz[]) x (starts_at, ends_at)`, pgx.NamedArgs{
		"tenant": r.tenant, "customer": r.customer, "starts": starts, "ends": ends,
	})
	if err != nil {
		return err
	}
	f.Counted, err = pgx.CollectRows(rows, pgx.RowToStructByPos[billing.EventCount])
	return err
}
