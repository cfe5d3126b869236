package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Counted is the usage that a provider should count at one meter target of a customer, after it has
// processed every report that it accepted.
type Counted struct {
	Meter    metering.MeterID // our meter that measures the usage
	Target   string
	Method   billing.Method
	Customer string         // customer ID at the provider
	Range    metering.Range // time range of Total at the provider
	Total    metering.Decimal
	Seen     metering.Decimal // part of Total that the provider is known to have counted
	Old      metering.Decimal // part of Total that was accepted before the cutoff and is not known to be counted

	// Reports holds, per series, the last report that is accepted and not known to be counted. OldReports
	// holds, per series, the last such report that was accepted before the cutoff.
	Reports, OldReports []uuid.UUID

	Outstanding bool // a report is planned, sending or unknown, so the provider may have counted it
}

// CountedBefore returns the usage that the provider had counted before an outstanding report was sent. Use it
// only for targets that add up reports. It returns CodeNotFound if the target no longer counts usage, because
// the customer has changed subscriptions since.
func (l Ledger) CountedBefore(ctx context.Context, tenant metering.TenantID, report uuid.UUID) (Counted, error) {
	const of = `from billing_reports x join billing_series y on y.tenant_id = x.tenant_id and y.id = x.series_id where x.tenant_id = @tenant and x.id = @report`
	counted, err := l.counted(ctx, `and d.id = (select y.destination_id `+of+`)
		  and (s.target, s.method, s.period_id) = (select y.target, y.method, y.period_id `+of+`)
		  and (select y.window_start `+of+`) = case when s.counting = 'adds' then part.starts_at else s.window_start end`, pgx.NamedArgs{"tenant": tenant, "report": report, "cutoff": nil})
	if err != nil {
		return Counted{}, err
	}
	if len(counted) == 0 {
		return Counted{}, errNoReport
	}
	return counted[0], nil
}

// Uncounted returns the meter targets with accepted usage of the customer's incomplete periods that the
// provider is not known to have counted. Usage accepted before the cutoff is in Old. Targets with an
// outstanding report are excluded.
func (l Ledger) Uncounted(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, cutoff time.Time) ([]Counted, error) {
	all, err := l.counted(ctx, `and d.customer_id = @customer
		  and (not p.complete or s.counting = 'replaces' and exists (
		    select
		    from billing_periods o
		    where o.tenant_id = p.tenant_id
		      and o.customer_id = p.customer_id
		      and (o.subscription, o.subscription_start) = (p.subscription, p.subscription_start)
		      and not o.complete))
		  and d.connection_id = (select id from billing_connections where tenant_id = @tenant and retired_at is null and not statements)`,
		pgx.NamedArgs{"tenant": tenant, "customer": customer, "cutoff": cutoff})
	var open []Counted
	for _, c := range all {
		if len(c.Reports) > 0 && !c.Outstanding {
			open = append(open, c)
		}
	}
	return open, err
}

// counted adds up the reported usage of each target. condition is the SQL condition that selects the targets.
//
// If a report replaces the previous one, Counted.Range is the whole subscription period, because some providers
// return only the total of a whole period. Several of the customer's billing periods may share a subscription
// period. Otherwise, Range is the part of the subscription period that is in the billing period.
//
// If reports add up, counted also includes reports of series that began earlier, if their provider time is in
// the subscription period. Odometer sent these reports before it knew of the new subscription period.
func (l Ledger) counted(ctx context.Context, condition string, args pgx.NamedArgs) ([]Counted, error) {
	rows, err := l.pool.Query(ctx, `
		select min(s.meter_id), s.target, s.method, d.provider_customer,
		  part.counted_from, part.counted_until,
		  sum(coalesce(case when s.counting = 'adds' then last.added else last.quantity end, 0)),
		  sum(coalesce(case when s.counting = 'adds' then last.added_seen else last.quantity_seen end, 0)),
		  sum(case
		    when last.old is null then 0
		    when s.counting = 'adds' then last.added_old
		    when last.old = last.uncounted then last.quantity - coalesce(last.quantity_seen, 0)
		    else 0 end),
		  array_remove(array_agg(last.uncounted), null), array_remove(array_agg(last.old), null), coalesce(bool_or(last.outstanding), false)
		from billing_destinations d
		cross join lateral (`+seriesAt+` and s.kind = 'quantity' offset 0) s
		join billing_periods p on p.tenant_id = s.tenant_id and p.id = s.period_id and p.subscription <> ''
		cross join lateral (select greatest(p.starts_at, p.subscription_start), s.window_start < greatest(p.starts_at, p.subscription_start),
		    case when s.counting = 'replaces' then p.subscription_start else greatest(p.starts_at, p.subscription_start) end,
		    case when s.counting = 'replaces' then p.subscription_end else least(p.ends_at, p.subscription_end) end) part (starts_at, after_series, counted_from, counted_until)
		cross join lateral (
		  select sum(r.quantity) filter (where r.state in ('accepted', 'counted')) as added,
		    (array_agg(r.quantity order by r.number desc) filter (where r.state in ('accepted', 'counted')))[1] as quantity,
		    bool_or(r.state in ('planned', 'sending', 'in_doubt')) as outstanding,
		    sum(r.quantity) filter (where r.state = 'counted' or part.after_series and r.state = 'accepted') as added_seen,
		    (array_agg(r.quantity order by r.number desc) filter (where r.state = 'counted'))[1] as quantity_seen,
		    sum(r.quantity) filter (where r.state = 'accepted' and r.decided_at < @cutoff::timestamptz and not part.after_series) as added_old,
		    (array_agg(r.id order by r.number desc) filter (where r.state = 'accepted' and not part.after_series))[1] as uncounted,
		    (array_agg(r.id order by r.number desc) filter (where r.state = 'accepted' and r.decided_at < @cutoff::timestamptz and not part.after_series))[1] as old
		  from billing_reports r
		  where r.tenant_id = s.tenant_id
		    and r.series_id = s.id
		    and (not part.after_series or r.provider_time >= part.starts_at)) last
		where d.tenant_id = @tenant
		  and (not part.after_series or s.counting = 'adds')
		  `+condition+`
		group by 2, 3, 4, 5, 6
		order by 5, 2`, args)
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", pg.Coded(err))
	}
	counted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Counted, err error) {
		err = row.Scan(&c.Meter, &c.Target, &c.Method, &c.Customer, &c.Range.Start, &c.Range.End, &c.Total, &c.Seen, &c.Old, &c.Reports, &c.OldReports, &c.Outstanding)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", pg.Coded(err))
	}
	return counted, nil
}

// StoreObserved stores the state of these reports as observed at the provider. It sets the same state for
// earlier reports of their series that are still accepted. The state is counted, rejected if the provider has
// dropped them, or accepted if the outcome can still change. If the state is rejected, StoreObserved also marks
// the customers as out of sync.
func (l Ledger) StoreObserved(ctx context.Context, tenant metering.TenantID, reports []uuid.UUID, state billing.State, response string) error {
	_, err := l.pool.Exec(ctx, `
		with seen as (
		  update billing_reports r
		  set state = $3, response = $4
		  from billing_reports last
		  where last.tenant_id = $1
		    and last.id = any($2)
		    and r.tenant_id = last.tenant_id
		    and r.series_id = last.series_id
		    and r.number <= last.number
		    and r.state = 'accepted'
		  returning r.customer_id)
		update billing_periods p
		set watermark_configuration = ''
		where p.tenant_id = $1
		  and p.customer_id in (select customer_id from seen)
		  and p.closed_at is null
		  and p.watermark_configuration <> ''
		  and $3 = 'rejected'`, tenant, reports, state, response)
	if err != nil {
		return fmt.Errorf("store the counted state of reports: %w", pg.Coded(err))
	}
	return nil
}
