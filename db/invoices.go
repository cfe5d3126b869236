package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Invoices are the providers', as they were last read there, beside what they
// should have come to.
type Invoices struct{ pool *pgxpool.Pool }

// finalInvoices are those that have billed a period p for good, in the mode of
// the tenant's present connection, as SQL.
const finalInvoices = `
	from billing_invoices i
	join billing_connections k on k.tenant_id = i.tenant_id and k.id = i.connection_id
	where i.tenant_id = p.tenant_id
	  and i.period_id = p.id
	  and i.finalized_at is not null
	  and (k.livemode is false) = exists (
	    select
	    from billing_connections present
	    where present.tenant_id = p.tenant_id
	      and present.retired_at is null
	      and present.livemode is false)`

// Save keeps an invoice of the customer's. Once it is final it is compared
// with what the provider acknowledged, at our prices.
func (s Invoices) Save(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, in metering.Invoice, readAt time.Time) error {
	var finalized *time.Time
	if !in.FinalizedAt.IsZero() {
		finalized = &in.FinalizedAt
	}
	_, err := s.pool.Exec(ctx, `
		with billed as (
		  select p.id
		  from billing_periods p
		  where p.tenant_id = @tenant
		    and p.customer_id = @customer
		    and p.subscription = @subscription
		    and p.subscription_start < @end
		    and p.starts_at < @end
		    and p.ends_at > @start
		    and @renewal
		  order by p.ends_at desc
		  limit 1)
		insert into billing_invoices as i
		  (tenant_id, connection_id, invoice_id, customer_id, period_id, status, reason, currency, total, usage_amount, estimate, decimals,
		   created_at, finalized_at, read_at)
		select @tenant, @connection, @invoice, @customer, (select id from billed), @status, @reason, @currency, @total, @usage, case when @finalized::timestamptz is not null then (
		  select coalesce(sum(last.amount), 0)
		  from billing_series s
		  join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id and d.connection_id = @connection
		  cross join lateral (
		    select l.amount
		    from billing_reports r
		    join billing_report_lines l on l.tenant_id = r.tenant_id and l.report_id = r.id
		    where r.tenant_id = s.tenant_id
		      and r.series_id = s.id
		      and r.state in ('accepted', 'counted')
		    order by r.number desc
		    limit 1) last
		  where s.tenant_id = @tenant
		    and s.period_id = (select id from billed)
		    and s.kind = 'quantity') end, case when @finalized is not null then (
		  select coalesce(jsonb_object_agg(m.id, m.usage_scale), '{}')
		  from meters m
		  where m.tenant_id = @tenant
		    and m.usage_scale > 0) end, @created, @finalized, @read_at
		on conflict (tenant_id, connection_id, invoice_id) do update
		set period_id = coalesce(i.period_id, excluded.period_id), status = excluded.status, total = excluded.total,
		  usage_amount = excluded.usage_amount, estimate = coalesce(i.estimate, excluded.estimate), decimals = coalesce(i.decimals, excluded.decimals),
		  finalized_at = excluded.finalized_at, read_at = excluded.read_at
		where i.read_at <= excluded.read_at`, pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "connection": in.Connection, "invoice": in.ID, "subscription": in.Subscription,
		"start": in.Period.Start, "end": in.Period.End, "renewal": in.Renewal, "status": in.Status, "reason": in.Reason,
		"currency": in.Currency, "total": in.Total, "usage": in.Usage, "created": in.CreatedAt, "finalized": finalized, "read_at": readAt,
	})
	if err != nil {
		return fmt.Errorf("save invoice: %w", coded(err))
	}
	return nil
}
