package limits

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// dueTenants lists the tenants with due rows.
func (e Evaluations) dueTenants(ctx context.Context, now time.Time) ([]metering.TenantID, error) {
	rows, err := e.pool.Query(ctx, `
		select t.id
		from tenants t
		cross join lateral (
		  select
		  from alert_due d
		  where d.tenant_id = t.id
		    and d.due_at <= $1
		  limit 1) d
		order by t.id`, metering.Instant(now))
	if err != nil {
		return nil, fmt.Errorf("list tenants with due alerts: %w", pg.Coded(err))
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	if err != nil {
		return nil, fmt.Errorf("list tenants with due alerts: %w", pg.Coded(err))
	}
	return tenants, nil
}

// expand replaces the due rows of alert_due that stand for all customers (customer_id 0). It reads the next limit
// customers, and inserts a row for each customer to which an alert or a quota may apply. If more customers may
// follow, it inserts another row for all customers after these. limit is the size of a batch, so that customers
// with rows of their own are not delayed by all others. expanded reports whether rows were replaced.
func (e Evaluations) expand(ctx context.Context, tenant metering.TenantID, limit int, now time.Time) (expanded bool, err error) {
	err = e.pool.QueryRow(ctx, `
		with due as materialized (
		  select id
		  from alert_due
		  where tenant_id = @tenant
		    and customer_id = 0
		    and due_at <= @now
		  for update skip locked),
		deleted as (
		  delete from alert_due d
		  using due
		  where d.tenant_id = @tenant
		    and d.customer_id = 0
		    and d.id = due.id
		  returning d.after_customer_id),
		following as materialized (
		  select id
		  from customers
		  where tenant_id = @tenant
		    and id > (select min(after_customer_id) from deleted)
		  order by id
		  limit @limit),
		inserted as (
		  insert into alert_due (tenant_id, customer_id, after_customer_id)
		  select @tenant, c.id, 0
		  from following c
		  where `+catalog.HasAlerts("c.id")+`
		  union all
		  select @tenant, 0, max(id)
		  from following
		  having count(*) = @limit)
		select exists (select from deleted)`, pgx.NamedArgs{"tenant": tenant, "now": metering.Instant(now), "limit": limit}).Scan(&expanded)
	if err != nil {
		return false, fmt.Errorf("expand the row of all customers: %w", pg.Coded(err))
	}
	return expanded, nil
}

// dueRows is the SQL of the customers of up to @limit due rows, in the order in which the rows became due. Rows
// that are due as soon as possible, and rows with a due time, share the limit, so that neither kind blocks the
// other. It skips customers with a failed evaluation.
const dueRows = `
	asap as materialized (
	  select customer_id, id, queued_at as since
	  from alert_due d
	  where tenant_id = @tenant
	    and customer_id > 0
	    and due_at = '-infinity'
	    and ` + hasNotFailed + `
	  order by id
	  limit @limit
	  for update of d skip locked),
	timed as materialized (
	  select customer_id, id, due_at as since
	  from alert_due d
	  where tenant_id = @tenant
	    and customer_id > 0
	    and due_at > '-infinity'
	    and due_at <= @now
	    and ` + hasNotFailed + `
	  order by due_at, id
	  limit @limit
	  for update of d skip locked),
	due as materialized (
	  select customer_id
	  from (select * from asap union all select * from timed) d
	  order by since, id
	  limit @limit)`

const hasNotFailed = `not exists (
	      select
	      from alert_due f
	      where f.tenant_id = @tenant
	        and f.customer_id = d.customer_id
	        and f.failures > 0)`

// failedCustomer is the SQL of the customer with the failed evaluation that became due first.
const failedCustomer = `
	due as materialized (
	  select customer_id
	  from alert_due
	  where tenant_id = @tenant
	    and failures > 0
	    and due_at <= @now
	  order by due_at, id
	  limit 1
	  for update skip locked)`

// takeDue deletes due rows of the queue and returns their customers in ascending order. usedFrom is the
// earliest hour of each customer's usage that was folded since the last evaluation, or now if there is none.
// due is dueRows or failedCustomer. takeDue also deletes rows of these customers that are due later, because
// the evaluation inserts the next row.
func takeDue(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, due string, limit int, now time.Time) (customers []int64, usedFrom map[int64]time.Time, err error) {
	rows, err := tx.Query(ctx, `
		with `+due+`,
		locked as materialized (
		  select customer_id, id
		  from alert_due
		  where tenant_id = @tenant
		    and customer_id in (select customer_id from due)
		  for update skip locked),
		deleted as (
		  delete from alert_due d
		  using locked l
		  where d.tenant_id = @tenant
		    and d.customer_id = l.customer_id
		    and d.id = l.id
		  returning d.customer_id, d.used_from)
		select customer_id, coalesce(min(used_from), @now)
		from deleted
		group by 1
		order by 1`, pgx.NamedArgs{"tenant": tenant, "now": metering.Instant(now), "limit": limit})
	if err != nil {
		return nil, nil, fmt.Errorf("read due customers: %w", err)
	}
	usedFrom = make(map[int64]time.Time)
	var (
		customer int64
		from     time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&customer, &from}, func() error {
		customers, usedFrom[customer] = append(customers, customer), from
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read due customers: %w", err)
	}
	return customers, usedFrom, nil
}

// postpone replaces the rows of a customer after a failure by one row that is due later. The delay is one
// minute after the first failure, doubles with each further failure, and is at most one hour.
func (e Evaluations) postpone(ctx context.Context, tenant metering.TenantID, customer int64, now time.Time) error {
	_, err := e.pool.Exec(ctx, `
		with locked as materialized (
		  select id
		  from alert_due
		  where tenant_id = @tenant
		    and customer_id = @customer
		  for update skip locked),
		deleted as (
		  delete from alert_due d
		  using locked l
		  where d.tenant_id = @tenant
		    and d.customer_id = @customer
		    and d.id = l.id
		  returning d.used_from, d.queued_at, d.failures)
		insert into alert_due (tenant_id, customer_id, due_at, failures, used_from, queued_at)
		select @tenant::bigint, @customer::bigint,
		  @now::timestamptz + least(interval '1 minute' * 2 ^ least(coalesce(max(failures), 0), 6), interval '1 hour'),
		  coalesce(max(failures), 0) + 1, min(used_from), coalesce(min(queued_at), @now)
		from deleted`, pgx.NamedArgs{"tenant": tenant, "customer": customer, "now": metering.Instant(now)})
	if err != nil {
		return fmt.Errorf("postpone a customer's alerts: %w", pg.Coded(err))
	}
	return nil
}

// queueNext queues the customers for the time of their next evaluation.
func (v *alertReader) queueNext() error {
	var (
		customers []int64
		due       []time.Time
	)
	for id, at := range v.next {
		if !at.IsZero() {
			customers, due = append(customers, id), append(due, at)
		}
	}
	_, err := v.tx.Exec(v.ctx, `
		insert into alert_due (tenant_id, customer_id, due_at)
		select $1, customer_id, due_at
		from unnest($2::bigint[], $3::timestamptz[]) x (customer_id, due_at)`, v.tenant, customers, due)
	if err != nil {
		return fmt.Errorf("queue alerts: %w", err)
	}
	return nil
}
