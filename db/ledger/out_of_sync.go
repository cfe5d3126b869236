package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// CustomerPage is a page of a tenant's customers to sync, ordered by id. The next page begins after Last.
type CustomerPage struct {
	Customers []metering.CustomerID
	Last      metering.CustomerID
	More      bool
}

// scannedAtOnce is the maximum number of customers that one statement scans.
const scannedAtOnce = 20_000

// OutOfSync returns the next customers that need a sync, in order of ID, at most limit. It begins after the given ID.
// A customer needs a sync if it is not paused and one of these holds:
//   - The events, prices or connection of an open period differ from those that its reports take into account.
//   - A report of a period is planned, being sent, or has an unknown outcome at the active connection.
//   - The customer's state at the provider has not been read yet.
//   - The time of its next re-evaluation (look_again_at) has passed or is not set.
//
// OutOfSync compares numbers of events and reads no usage. The plan determines later whether there is usage to
// report.
func (l Ledger) OutOfSync(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time) (CustomerPage, error) {
	return l.outOfSync(ctx, tenant, after, limit, now, false)
}

// OutOfSyncClosed is OutOfSync for the customers with a closed period that is not complete.
func (l Ledger) OutOfSyncClosed(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time) (CustomerPage, error) {
	return l.outOfSync(ctx, tenant, after, limit, now, true)
}

func (l Ledger) outOfSync(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time, closed bool) (page CustomerPage, err error) {
	err = pg.AtOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		args, err := needsSyncArgs(ctx, tx, tenant, metering.WholeTenant, now)
		if err != nil {
			return err
		}
		maps.Copy(args, pgx.NamedArgs{"after": after, "scanned": scannedAtOnce, "limit": limit, "closed": closed})
		rows, err := tx.Query(ctx, `
			with added as materialized `+usage.AddedEvents+`
			select c.id
			from (
			  select c.tenant_id, c.id, c.billing_provider_id, c.look_again_at
			  from customers c
			  where c.tenant_id = @tenant
			    and c.id > @after
			    and coalesce(c.billing_starts_at, @now) <= @now
			  order by c.id
			  limit @scanned) c
			where not `+isPaused("c.tenant_id", "c.id")+`
			  and (not @closed or exists (
			    select
			    from billing_periods p
			    where p.tenant_id = c.tenant_id
			      and p.customer_id = c.id
			      and `+closedIncomplete+`))
			  and `+needsSync+`
			order by c.id
			limit @limit`, args)
		if err != nil {
			return err
		}
		if page.Customers, err = pgx.CollectRows(rows, pgx.RowTo[metering.CustomerID]); err != nil {
			return err
		}
		if len(page.Customers) == limit {
			page.Last, page.More = page.Customers[limit-1], true
			return nil
		}
		page.Last, page.More, err = scannedUntil(ctx, tx, tenant, after, now)
		return err
	})
	if err != nil {
		return CustomerPage{}, fmt.Errorf("find customers out of sync: %w", err)
	}
	return page, nil
}

// RefuseUnreported returns CodeConflict if the provider may lack usage of the customer: the customer needs a sync, or
// an event lies after its stored billing periods. It does nothing without a provider.
func RefuseUnreported(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	args, err := needsSyncArgs(ctx, tx, tenant, customer, now)
	if metering.CodeOf(err) == metering.CodeNoProvider {
		return nil
	}
	if err != nil {
		return err
	}
	var unreported, unplanned bool
	err = tx.QueryRow(ctx, `
		with added as materialized `+usage.AddedEventsOf+`
		select `+needsSync+`, exists (
		  select
		  from events e
		  where e.tenant_id = c.tenant_id
		    and e.customer_id = c.id
		    and e.ts >= (
		      select min(s.ends_at)
		      from (select max(p.ends_at) as ends_at from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id group by p.stream) s))
		from customers c
		where c.tenant_id = @tenant
		  and c.id = @customer
		  and coalesce(c.billing_starts_at, @now) <= @now`, args).Scan(&unreported, &unplanned)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the customer's billing starts later
		return nil
	case err != nil:
		return err
	case unreported:
		return metering.Errorf(metering.CodeConflict, "the provider has not received all of the customer's usage; sync the customer first with POST /v1/billing/sync")
	case unplanned:
		return metering.Errorf(metering.CodeConflict, "the customer has events after the end of its latest billing period; wait for the next period and sync the customer first with POST /v1/billing/sync")
	}
	return nil
}

// needsSync is the SQL condition that a customer c that is not paused needs a sync, as OutOfSync defines it.
// needsSyncArgs returns its arguments. The statement reads the events that are not folded yet into added.
var needsSync = `(coalesce(c.look_again_at, @now) <= @now
	  or exists (
	    select
	    from billing_reports r
	    join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
	    join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	    where r.tenant_id = c.tenant_id
	      and r.customer_id = c.id
	      and r.state in ('planned', 'sending', 'in_doubt')
	      and r.period_id is not null -- holds are not sent by a sync
	      and (d.connection_id = @connection or r.state <> 'in_doubt')) -- another connection does not know the outcome
	  or not @statements and not exists (
	    select
	    from billing_links l
	    where l.tenant_id = c.tenant_id
	      and l.customer_id = c.id
	      and l.connection_id = @connection
	      and l.provider_customer = coalesce(c.billing_provider_id, ''))
	  or exists (
	    select
	    from billing_periods p
	    left join unnest(@starts::timestamptz[], @plans::bigint[], @catalogs::text[]) as k (starts_at, plan_id, catalog)
	      on k.starts_at = p.starts_at and k.plan_id = ` + catalog.PlanAt("p.tenant_id", "p.customer_id", "p.starts_at") + `
	    where p.tenant_id = c.tenant_id
	      and p.customer_id = c.id
	      and p.closed_at is null
	      and (p.watermark_configuration is distinct from k.catalog || ` + catalog.OwnVersions("p.tenant_id", "p.customer_id", "p.starts_at") + `
	        or p.watermark_events is distinct from ` + usage.CountedEvents("added", "p.tenant_id", "p.customer_id", "p.starts_at", "p.ends_at") + `)))`

// needsSyncArgs returns the arguments of needsSync for a customer or for metering.WholeTenant. It returns
// CodeNoProvider if the tenant has no provider.
func needsSyncArgs(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (pgx.NamedArgs, error) {
	provider, err := activeProvider(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	open, err := openCatalogs(ctx, tx, tenant, customer, provider)
	return pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "now": now, "statements": provider.Statements, "connection": provider.ID,
		"starts": open.starts, "plans": open.plans, "catalogs": open.catalogs,
	}, err
}

// closedIncomplete is the SQL condition that a period p is closed and not complete.
const closedIncomplete = `p.closed_at is not null and not p.complete`

// catalogs holds the configurations by which open periods are charged (billing.Configuration), as arrays for an
// SQL statement. Each index is one pair of period start and plan.
type catalogs struct {
	starts   []time.Time
	plans    []metering.PlanID
	catalogs []string
}

// openCatalogs returns the configuration for each distinct pair of start and plan of the open periods of a customer
// or of metering.WholeTenant.
func openCatalogs(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, provider metering.Provider) (all catalogs, err error) {
	meters, err := catalog.CollectMeters(ctx, tx, `order by m.id`, tenant)
	if err != nil {
		return all, err
	}
	prices, err := catalog.PriceVersions(ctx, tx, tenant)
	if err != nil {
		return all, err
	}
	connection := billing.Connection{ID: provider.ID, Mapping: provider.Mapping, Bills: provider.Bills, Text: provider.Text}
	of := ``
	if customer != metering.WholeTenant {
		of = ` and p.customer_id = @customer`
	}
	rows, err := tx.Query(ctx, `
		select distinct p.starts_at, `+catalog.PlanAt("p.tenant_id", "p.customer_id", "p.starts_at")+`, t.late_policy
		from billing_periods p
		join tenants t on t.id = p.tenant_id
		where p.tenant_id = @tenant`+of+`
		  and p.closed_at is null`, pgx.NamedArgs{"tenant": tenant, "customer": customer})
	if err != nil {
		return all, err
	}
	var start time.Time
	var plan metering.PlanID
	var late metering.LatePolicy
	_, err = pgx.ForEachRow(rows, []any{&start, &plan, &late}, func() error {
		all.starts, all.plans = append(all.starts, start), append(all.plans, plan)
		all.catalogs = append(all.catalogs, billing.Configuration(connection, late, meters, prices, plan, start))
		return nil
	})
	return all, err
}

// scannedUntil returns the last of the next scannedAtOnce customers in order of ID. It begins after the given ID, and
// returns 0 if no customer follows. more reports whether further customers may follow.
func scannedUntil(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, after metering.CustomerID, now time.Time) (last metering.CustomerID, more bool, err error) {
	var scanned int
	err = tx.QueryRow(ctx, `
		select count(*), coalesce(max(id), 0)
		from (
		  select id
		  from customers
		  where tenant_id = $1
		    and id > $2
		    and coalesce(billing_starts_at, $3) <= $3
		  order by id
		  limit $4) scanned`, tenant, after, now, scannedAtOnce).Scan(&scanned, &last)
	return last, scanned == scannedAtOnce, err
}
