package usage

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// plannedSpan is a span of time in which a plan charges a customer's usage.
type plannedSpan struct {
	customer metering.CustomerID
	plan     metering.PlanID
	metering.Range
}

// mostPlanned is the maximum number of plan assignments that one read holds in memory.
const mostPlanned = 200_000

var errManyPlans = metering.Invalid("query.by", "must contain customer with order=key, because more than %d assignments of plans are in use", mostPlanned)

// loadPlans reads the spans of the range in which the given customers have a plan. If customers is nil, it reads the
// spans of all customers. A plan applies to the billing periods that start while it is assigned, in the billing
// schedule to which the meter belongs at that time.
func (r *breakdownRead) loadPlans(ctx context.Context, customers []int64) error {
	r.plans, r.cut = nil, nil
	if !r.ByPlan {
		return nil
	}
	rows, err := r.events.Querier.Query(ctx, `
		with feeds as (
		  select id as customer_id, 0 as stream, timestamptz '-infinity' as fed_from, 0 as no
		  from customers
		  where tenant_id = $1
		  union all
		  select customer_id, stream, effective_from, id
		  from billing_stream_meters
		  where tenant_id = $1
		    and meter_id = $2
		    and effective_from < $3),
		fed as (
		  select *, lead(fed_from, 1, $3) over (partition by customer_id order by fed_from, no) as fed_until
		  from feeds
		  where $4::bigint[] is null
		     or customer_id = any($4))
		select a.customer_id, coalesce(a.plan_id, 0), a.effective_from, nullif(f.fed_from, '-infinity'), f.fed_until, p.first, p.next
		from fed f
		join customer_plans a on a.customer_id = f.customer_id
		cross join lateral (
		  select min(b.starts_at) as first, least(
		    min(b.starts_at) filter (where b.starts_at >= a.effective_from),
		    min(b.ends_at) filter (where b.ends_at >= a.effective_from)) as next
		  from billing_periods b
		  where b.tenant_id = a.tenant_id and b.customer_id = a.customer_id and b.stream = f.stream) p
		where a.tenant_id = $1
		  and a.effective_from < $3
		  and f.fed_from < f.fed_until
		order by a.customer_id, f.fed_from, a.effective_from
		limit $5`, r.events.tenant, r.Meter.ID, r.Range.End, customers, mostPlanned+1)
	if err != nil {
		return err
	}
	var span plannedSpan
	var effective, until time.Time
	var from, first, next *time.Time
	_, err = pgx.ForEachRow(rows, []any{&span.customer, &span.plan, &effective, &from, &until, &first, &next}, func() error {
		span.Range = metering.Range{Start: firstCharged(effective, first, next, r.Timezone), End: until}
		if from != nil && span.Start.Before(*from) {
			span.Start = *from
		}
		r.addPlanned(span)
		return nil
	})
	if err != nil {
		return err
	}
	if len(r.plans) > mostPlanned {
		return errManyPlans
	}
	r.cutPlanned()
	return nil
}

// addPlanned adds a span, and ends the customer's previous one if it has not ended.
func (r *breakdownRead) addPlanned(span plannedSpan) {
	if last := len(r.plans) - 1; last >= 0 && r.plans[last].customer == span.customer && span.Start.Before(r.plans[last].End) {
		r.plans[last].End = span.Start
	}
	r.plans = append(r.plans, span)
}

// cutPlanned removes the spans outside the range from r.plans. It adds customers with a span that begins in the
// middle of a month to r.cut.
func (r *breakdownRead) cutPlanned() {
	whole := metering.Range{Start: metering.WindowOf(r.Range.Start, metering.Hour, r.events.hours).Start, End: r.Range.End}
	r.plans = slices.DeleteFunc(r.plans, func(s plannedSpan) bool { return s.Intersect(whole).Empty() })
	for _, s := range r.plans {
		if r.Range.Start.Before(s.Start) && !metering.WindowOf(s.Start, metering.Month, r.events.hours).Start.Equal(s.Start) {
			r.cut = append(r.cut, int64(s.customer))
		}
	}
	r.cut = slices.Compact(r.cut)
}

// firstCharged returns the start of the first billing period that starts at or after the instant effective.
// first is the start of the first stored period. next is the first start or end of a stored period at or
// after effective. Each is nil if there is none. Outside the stored periods, periods are calendar months.
func firstCharged(effective time.Time, first, next *time.Time, timezone *time.Location) time.Time {
	month := billing.CalendarPeriod(effective, timezone)
	if month.Start.Before(effective) {
		month.Start = month.End
	}
	if first == nil || next == nil || month.Start.Before(*first) {
		return month.Start
	}
	return *next
}

// planned returns SQL that joins each row u with the plan a that charges it. The plan at the start of an hour
// charges the whole hour.
func (r *breakdownRead) planned(counted usageSQL) string {
	if !r.ByPlan {
		return ""
	}
	args := counted.args
	ids, plans, from, until := []int64{}, []int64{}, []time.Time{}, []time.Time{}
	for _, s := range r.plans {
		if counted.has(s.customer) {
			ids, plans, from, until = append(ids, int64(s.customer)), append(plans, int64(s.plan)), append(from, s.Start), append(until, s.End)
		}
	}
	args["planned_customers"], args["planned_in"], args["planned_from"], args["planned_until"] = ids, plans, from, until
	return `left join unnest(@planned_customers::bigint[], @planned_in::bigint[], @planned_from::timestamptz[], @planned_until::timestamptz[])
		    as a (customer_id, plan_id, from_at, until_at) on a.customer_id = u.customer_id and u.hour >= a.from_at and u.hour < a.until_at`
}
