package limits

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// publishExceeded publishes a message for each quota that a customer's usage has exceeded, once per window of
// the quota. usedFrom is the earliest hour of a customer's usage since the last evaluation.
func (e Evaluations) publishExceeded(v *alertReader, customers []int64, usedFrom map[int64]time.Time) error {
	read := Quotas(e).levelRead(v.ctx, v.tx, v.tenant, v.now)
	quotas, err := read.limited(customers)
	if err != nil {
		return fmt.Errorf("read quotas: %w", err)
	}
	var levels []customerLevel
	for _, q := range quotas {
		levels = append(levels, read.windows(q, usedFrom[int64(q.customer)])...)
	}
	if levels, err = read.count(levels); err != nil {
		return fmt.Errorf("read usage of quotas: %w", err)
	}
	var exceeded []customerLevel
	for _, l := range levels {
		if l.Window.Start.After(v.now) {
			if !l.Used.IsZero() {
				v.dueAgain(l.customer, l.Window.Start)
			}
			continue
		}
		v.levels = append(v.levels, l)
		if l.Used.Cmp(*l.Limit) > 0 {
			exceeded = append(exceeded, l)
		}
	}
	if exceeded, err = storeExceeded(v.ctx, v.tx, v.tenant, exceeded, v.now); err != nil {
		return err
	}
	for _, l := range exceeded {
		if err := outbox.Publish(v.ctx, v.tx, v.tenant, l.customer, outbox.NewQuotaExceeded(l.QuotaLevel, v.now), v.now); err != nil {
			return err
		}
	}
	return nil
}

// storeExceeded inserts exceeded quotas in the order of their key, and returns the new ones.
func storeExceeded(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, levels []customerLevel, now time.Time) ([]customerLevel, error) {
	if len(levels) == 0 {
		return nil, nil
	}
	var numbers []int32
	var quotas, customers []int64
	var starts, ends []time.Time
	for i, l := range levels {
		numbers, quotas, customers = append(numbers, int32(i)), append(quotas, int64(l.ID)), append(customers, int64(l.customer))
		starts, ends = append(starts, l.Window.Start), append(ends, l.Window.End)
	}
	rows, err := tx.Query(ctx, `
		with exceeded as (
		  select no, quota_id, customer_id, window_start, window_end
		  from unnest(@numbers::int[], @quotas::bigint[], @customers::bigint[], @starts::timestamptz[], @ends::timestamptz[])
		    x (no, quota_id, customer_id, window_start, window_end)),
		stored as (
		  insert into exceeded_quotas (tenant_id, quota_id, customer_id, window_start, window_end, exceeded_at)
		  select @tenant, quota_id, customer_id, window_start, window_end, @now
		  from exceeded x
		  where not exists (
		    select
		    from exceeded_quotas f
		    where f.tenant_id = @tenant
		      and f.quota_id = x.quota_id
		      and f.customer_id = x.customer_id
		      and `+notifiedIn("window", "exceeded_at")+`)
		  order by quota_id, customer_id, window_start
		  on conflict do nothing
		  returning quota_id, customer_id, window_start)
		select e.no
		from exceeded e
		join stored s on s.quota_id = e.quota_id and s.customer_id = e.customer_id and s.window_start = e.window_start
		order by e.no`, pgx.NamedArgs{
		"tenant": tenant, "numbers": numbers, "quotas": quotas, "customers": customers, "starts": starts, "ends": ends, "now": metering.Instant(now),
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l customerLevel, err error) {
		var no int32
		err = row.Scan(&no)
		return levels[no], err
	})
}

// notifiedIn returns the SQL condition that a stored row f has already notified for the window of a new row x
// of the same quota and customer. It holds if the windows overlap and f was inserted after the window of x
// began. Windows of a quota overlap after a change of the time zone. The third term only limits the index rows
// that are read.
func notifiedIn(window, insertedAt string) string {
	start, end := window+"_start", window+"_end"
	return `f.` + start + ` < x.` + end + `
		      and f.` + end + ` > x.` + start + `
		      and f.` + start + ` > x.` + start + ` - 2 * least(x.` + end + ` - x.` + start + `, interval '32 days')
		      and f.` + insertedAt + ` >= x.` + start
}

// limitedQuota is a quota with a limit, and the time in which it applies to a customer.
type limitedQuota struct {
	customerLevel
	applies   metering.Range // always, or while the customer has the plan
	limitedAt time.Time      // time at which the current limit was set
}

// limited returns the customers' quotas that have a limit and a meter that is not backfilling. It includes
// the quotas of previous and future plans. It also reads the billing periods of quotas per billing period.
func (r *levelRead) limited(customers []int64) ([]limitedQuota, error) {
	rows, err := r.q.Query(r.ctx, `
		select of.customer, has.since, has.until, q.limited_at, `+quotaColumns+`
		from unnest($2::bigint[]) as of (customer)
		cross join lateral (
		  select 0, timestamptz '0001-01-01', timestamptz '9999-01-01'
		  union all
		  select a.plan_id, a.effective_from, lead(a.effective_from, 1, '9999-01-01') over (order by a.effective_from)
		  from customer_plans a
		  where a.tenant_id = $1
		    and a.customer_id = of.customer) has (plan, since, until)
		cross join `+quotaTables+`
		where q.tenant_id = $1
		  and q.amount is not null
		  and g.status <> 'backfilling'
		  and (has.plan = 0 and q.customer_id = of.customer or q.plan_id = has.plan and not exists (
		    select
		    from quotas own
		    where own.tenant_id = $1
		      and own.customer_id = of.customer
		      and own.meter_id = q.meter_id
		      and own.period = q.period
		      and own.group_id is not distinct from q.group_id))
		order by of.customer, q.id, has.since`, r.tenant, customers)
	if err != nil {
		return nil, err
	}
	var billed []int64
	quotas, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l limitedQuota, err error) {
		stored, err := scanQuota(row, &l.customer, &l.applies.Start, &l.applies.End, &l.limitedAt)
		if l.Quota = stored.Quota; l.Period == metering.PerBilling {
			billed = append(billed, int64(l.customer))
		}
		return l, err
	})
	if err != nil {
		return nil, err
	}
	return quotas, r.readPeriods(billed)
}

// comparedWindows is the maximum number of previous windows of a quota that an evaluation compares.
const comparedWindows = 100

// windows returns the windows in which the quota applies: the current window, and the earlier windows since
// usedFrom in which the quota had its limit. It considers the previous window even if that window ended before
// usedFrom, because a reservation may have been granted in it. It includes the first hour after the current window
// (metering.MaxEventLead) if events can already have a timestamp there.
func (r *levelRead) windows(q limitedQuota, usedFrom time.Time) (levels []customerLevel) {
	present := r.window(q.customerLevel, r.now)
	var windows []metering.Range
	if q.applies.Contains(r.now) {
		windows = append(windows, present)
	}
	if ahead := present.End; ahead.Before(r.now.Add(metering.MaxEventLead)) && q.applies.Contains(ahead) {
		windows = append(windows, metering.Range{Start: ahead, End: ahead.Add(metering.MaxEventLead)})
	}
	later := present
	for n := 0; q.Period != metering.PerLifetime && n < comparedWindows && (n == 0 || usedFrom.Before(later.Start)); n++ {
		window := r.window(q.customerLevel, later.Start.Add(-time.Microsecond))
		if !window.End.Equal(later.Start) {
			break
		}
		if q.limitedAt.Before(window.End) && q.applies.Contains(window.End.Add(-time.Microsecond)) {
			windows = append(windows, window)
		}
		later = window
	}
	for _, w := range windows {
		l := q.customerLevel
		l.Window = w
		levels = append(levels, l)
	}
	return levels
}

// SweepExceeded deletes up to limit rows, of any tenant, of quota windows that ended before the instant.
func (s Quotas) SweepExceeded(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "exceeded_quotas", Key: "tenant_id, quota_id, customer_id, window_start", By: "window_end", Noun: "exceeded quotas"}.Sweep(ctx, s.pool, before, limit)
}
