package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// InvoiceList identifies a customer at the provider with invoices to read, because the reconciliation of a
// closed period is still open.
type InvoiceList struct {
	Destination int64
	Customer    metering.CustomerID
	AtProvider  string
	Since       time.Time // start of the oldest such period, or of its subscription period if that is earlier
}

// DueLists returns up to limit due invoice lists of a connection. A customer has a list while a reconciliation
// is open. Each returned list becomes due again at the given time. Therefore, a list on which a worker crashes is
// retried later, and does not block the other lists. After the worker has read a list, Listed replaces that time.
func (s Invoices) DueLists(ctx context.Context, tenant metering.TenantID, connection metering.ConnectionID, limit int, now, again time.Time) ([]InvoiceList, error) {
	rows, err := s.pool.Query(ctx, `
		with due as (
		  select d.id, d.customer_id, d.provider_customer, d.invoices_due_at, min(least(p.starts_at, p.subscription_start)) as since
		  from billing_period_totals t
		  join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		  join billing_series s on s.tenant_id = t.tenant_id and s.period_id = t.period_id and `+reportsLine+`
		  join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id and d.connection_id = @connection
		  where t.tenant_id = @tenant
		    and t.unreconciled
		    and coalesce(d.invoices_due_at, @now) <= @now
		  group by d.tenant_id, d.id
		  order by d.invoices_due_at nulls first, d.id
		  limit @limit)
		update billing_destinations d
		set invoices_due_at = @again
		from due
		where d.tenant_id = @tenant
		  and d.id = due.id
		returning due.id, due.customer_id, due.provider_customer, due.since`, pgx.NamedArgs{
		"tenant": tenant, "connection": connection, "limit": limit, "now": now, "again": again,
	})
	if err != nil {
		return nil, fmt.Errorf("find lists of invoices: %w", pg.Coded(err))
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[InvoiceList])
	if err != nil {
		return nil, fmt.Errorf("find lists of invoices: %w", pg.Coded(err))
	}
	return due, nil
}

// Listed sets the time at which a list is due again if its reconciliation is still open.
func (s Invoices) Listed(ctx context.Context, tenant metering.TenantID, list InvoiceList, again time.Time) error {
	_, err := s.pool.Exec(ctx, `
		update billing_destinations
		set invoices_due_at = $3
		where tenant_id = $1
		  and id = $2`, tenant, list.Destination, again)
	if err != nil {
		return fmt.Errorf("note list of invoices: %w", pg.Coded(err))
	}
	return nil
}

// SaveEnded stores that a customer's subscription has ended and that all invoices of its last period
// are saved. If this is new, the next sync re-evaluates the customer.
func (s Invoices) SaveEnded(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, of metering.EndedSubscription, readAt time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := TakeTurn(ctx, tx, tenant, customer); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			with saved as (
			  insert into billing_ended_subscriptions (tenant_id, connection_id, subscription, customer_id, provider_customer, period_start, period_end, read_at)
			  values (@tenant, @connection, @subscription, @customer, @at_provider, @start, @end, @read_at)
			  on conflict (tenant_id, connection_id, subscription) do nothing
			  returning customer_id)
			update customers
			set look_again_at = @read_at
			where tenant_id = @tenant
			  and id in (select customer_id from saved)`, pgx.NamedArgs{
			"tenant": tenant, "connection": of.Connection, "subscription": of.ID, "customer": customer, "at_provider": of.Customer,
			"start": of.LastPeriod.Start, "end": of.LastPeriod.End, "read_at": metering.Instant(readAt),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("save ended subscription: %w", err)
	}
	return nil
}
