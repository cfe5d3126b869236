package db

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Counted is what a provider should have counted in one place, once it has
// seen everything that it has accepted.
type Counted struct {
	Meter    metering.MeterID // of ours whose usage it is
	Target   string
	Method   billing.Method
	Customer string         // at the provider
	Range    metering.Range // at the provider
	Total    metering.Decimal
	Seen     metering.Decimal // of Total, what was seen counted
	Old      metering.Decimal // of the rest, what was accepted before a cutoff

	// The last ones of each series that are accepted and not seen counted.
	Reports, OldReports []uuid.UUID

	Outstanding bool // something is on its way, which the provider may have counted
}

// CountedBefore is what the provider had counted before an outstanding report
// was sent, where it adds up what it is reported. CodeNotFound where it adds it
// up no longer: the customer's subscription is another one since.
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

// Uncounted are the places where the provider has accepted what it was reported
// of the customer's periods that are not complete, and was not seen to count it yet. What it
// accepted before the cutoff is Old. Places to which something is on its way
// are left out.
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

// counted adds up what was reported at each place. Where one report takes the
// place of another, a place is all of the subscription's period, which several of
// the customer's may lie in: some providers sum it up only whole. Else it is the
// part that is in the customer's period. What is added up, and went out
// with a time in the subscription's period although it is of a series that ended
// with the one before, is counted there too: nobody knew of the new one yet.
func (l Ledger) counted(ctx context.Context, which string, args pgx.NamedArgs) ([]Counted, error) {
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
		  `+which+`
		group by 2, 3, 4, 5, 6
		order by 5, 2`, args)
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", coded(err))
	}
	counted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Counted, err error) {
		err = row.Scan(&c.Meter, &c.Target, &c.Method, &c.Customer, &c.Range.Start, &c.Range.End, &c.Total, &c.Seen, &c.Old, &c.Reports, &c.OldReports, &c.Outstanding)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", coded(err))
	}
	return counted, nil
}

// Saw records what was seen of these reports, and of those of their series
// before them, that were accepted: counted, rejected where the provider has
// dropped them, accepted where that may still change.
func (l Ledger) Saw(ctx context.Context, tenant metering.TenantID, reports []uuid.UUID, state billing.State, response string) error {
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
		return fmt.Errorf("store the counted state of reports: %w", coded(err))
	}
	return nil
}
