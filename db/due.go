package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// DuePage is some of a tenant's customers for whom there is something to do,
// by id. The next page begins after Last.
type DuePage struct {
	Customers []metering.CustomerID
	Last      metering.CustomerID
	More      bool
}

// scannedAtOnce bounds how many customers one statement looks at.
const scannedAtOnce = 20_000

// Due finds customers who have to be synced: whose open periods differ from
// what the provider has acknowledged in events, prices or account, or who have
// something on its way, or whose plan said to look again by now. It compares counts and reads no usage; whether
// there is something to report is for the plan to say.
func (l Ledger) Due(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time) (page DuePage, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		provider, err := activeProvider(ctx, tx, tenant)
		if err != nil {
			return err
		}
		open, err := openCatalogs(ctx, tx, tenant, provider)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			select c.id
			from (
			  select c.tenant_id, c.id, c.billing_provider_id, c.look_again_at
			  from customers c
			  where c.tenant_id = @tenant
			    and c.id > @after
			    and coalesce(c.billing_starts_at, @now) <= @now
			  order by c.id
			  limit @scanned) c
			where coalesce(c.look_again_at, @now) <= @now
			  or exists (
			    select
			    from billing_snapshots s
			    where s.tenant_id = c.tenant_id
			      and s.customer_id = c.id
			      and s.status in ('prepared', 'sent'))
			  or exists (
			    select
			    from billing_series r
			    join billing_entries e on e.tenant_id = r.tenant_id and e.series_id = r.id
			    where r.tenant_id = c.tenant_id
			      and r.customer_id = c.id
			      and e.snapshot_id is null
			      and e.status in ('prepared', 'sent', 'ambiguous'))
			  or not @statements and not exists (
			    select
			    from billing_links l
			    where l.tenant_id = c.tenant_id
			      and l.customer_id = c.id
			      and l.provider_account = @account
			      and l.provider_customer = coalesce(c.billing_provider_id, ''))
			  or exists (
			    select
			    from billing_periods p
			    left join unnest(@starts::timestamptz[], @products::bigint[], @catalogs::text[]) as k (starts_at, product_id, catalog)
			      on k.starts_at = p.starts_at and k.product_id = `+productAt("p.tenant_id", "p.customer_id", "p.starts_at")+`
			    where p.tenant_id = c.tenant_id
			      and p.customer_id = c.id
			      and p.closed_at is null
			      and (p.watermark_configuration is distinct from k.catalog
			        or p.watermark_events is distinct from `+countedEvents("p.tenant_id", "p.customer_id", "p.starts_at", "p.ends_at")+`))
			order by c.id
			limit @limit`, pgx.NamedArgs{
			"tenant": tenant, "after": after, "now": now, "scanned": scannedAtOnce, "limit": limit,
			"starts": open.starts, "products": open.products, "catalogs": open.catalogs, "statements": provider.Statements, "account": provider.Account,
		})
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
		return DuePage{}, fmt.Errorf("find due customers: %w", err)
	}
	return page, nil
}

// catalogs are what open periods are charged by, in columns.
type catalogs struct {
	starts   []time.Time
	products []metering.ProductID
	catalogs []string
}

// openCatalogs are the catalogs of every start and product that an open period has.
func openCatalogs(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, provider metering.Provider) (all catalogs, err error) {
	meters, err := collectMeters(ctx, tx, `order by m.id`, tenant)
	if err != nil {
		return all, err
	}
	prices, err := allPrices(ctx, tx, tenant)
	if err != nil {
		return all, err
	}
	connection := billing.Connection{Account: provider.Account, Mapping: provider.Mapping}
	rows, err := tx.Query(ctx, `
		select distinct p.starts_at, `+productAt("p.tenant_id", "p.customer_id", "p.starts_at")+`, t.late_policy
		from billing_periods p
		join tenants t on t.id = p.tenant_id
		where p.tenant_id = $1
		  and p.closed_at is null`, tenant)
	if err != nil {
		return all, err
	}
	var start time.Time
	var product metering.ProductID
	var late metering.LatePolicy
	_, err = pgx.ForEachRow(rows, []any{&start, &product, &late}, func() error {
		all.starts, all.products = append(all.starts, start), append(all.products, product)
		all.catalogs = append(all.catalogs, billing.Configuration(connection, late, meters, prices, product, start))
		return nil
	})
	return all, err
}

// scannedUntil is the last customer that a scan after another one looked at,
// and whether others may follow.
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

// DuePeriods finds customers with a period that should be closed: its end and
// the tenant's grace are over. Chains that have not been looked at since are
// brought up to now first.
func (l Ledger) DuePeriods(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time) (page DuePage, err error) {
	behind, err := l.customers(ctx, tenant, after, limit, now, behindClosing)
	if err != nil {
		return DuePage{}, fmt.Errorf("find chains to extend: %w", err)
	}
	for _, customer := range behind {
		if err := l.extend(ctx, tenant, customer, now); err != nil {
			return DuePage{}, fmt.Errorf("extend billing periods: %w", err)
		}
	}
	if page.Customers, err = l.customers(ctx, tenant, after, limit, now, dueForClosing); err != nil {
		return DuePage{}, fmt.Errorf("find due periods: %w", err)
	}
	if n := len(page.Customers); n > 0 {
		page.Last = page.Customers[n-1]
	}
	if n := len(behind); n == limit && (page.Last == 0 || page.Last > behind[n-1]) {
		page.Last = behind[n-1] // chains further on are still behind
		page.Customers = upTo(page.Customers, page.Last)
	}
	page.More = page.Last > 0
	return page, nil
}

// extend stores the customer's billing periods as they are now.
func (l Ledger) extend(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	return atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		if err := takeTurn(ctx, tx, tenant, customer); err != nil {
			return err
		}
		read, err := readFacts(ctx, tx, tenant, customer, now)
		if err != nil {
			return err
		}
		w := &planWriter{factReader: read, tx: tx}
		w.periods(billing.Periods(read.facts))
		return w.flush()
	})
}

func upTo(customers []metering.CustomerID, last metering.CustomerID) []metering.CustomerID {
	for i, c := range customers {
		if c > last {
			return customers[:i]
		}
	}
	return customers
}

// Conditions on a customer c of a tenant t.
const (
	dueForClosing = `exists (
		select
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.closed_at is null
		  and p.ends_at <= @now::timestamptz
		  and (p.ends_at <= @now::timestamptz - t.grace or ` + finalInvoice + `))`
	behindClosing = `coalesce(c.billing_starts_at, @now::timestamptz) <= @now::timestamptz and not exists (
		select
		from billing_periods p
		where p.tenant_id = c.tenant_id
		  and p.customer_id = c.id
		  and p.ends_at > @now::timestamptz - t.grace)`
)

func (l Ledger) customers(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, now time.Time, condition string) ([]metering.CustomerID, error) {
	rows, err := l.pool.Query(ctx, `
		select c.id
		from customers c
		join tenants t on t.id = c.tenant_id
		where c.tenant_id = @tenant
		  and c.id > @after
		  and `+condition+`
		order by c.id
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "after": after, "now": metering.Instant(now), "limit": limit})
	if err != nil {
		return nil, coded(err)
	}
	customers, err := pgx.CollectRows(rows, pgx.RowTo[metering.CustomerID])
	return customers, coded(err)
}

// DueTenants lists, over all tenants, those who may have a period to close.
func (l Ledger) DueTenants(ctx context.Context, now time.Time) ([]metering.TenantID, error) {
	rows, err := l.pool.Query(ctx, `
		select t.id
		from tenants t
		where exists (
		  select
		  from customers c
		  where c.tenant_id = t.id
		    and (`+dueForClosing+` or `+behindClosing+`))
		order by t.id`, pgx.NamedArgs{"now": metering.Instant(now)})
	if err != nil {
		return nil, fmt.Errorf("find tenants with due periods: %w", coded(err))
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	return tenants, coded(err)
}

// Sequences returns the last sequence that each of these customers' snapshots
// have used; those without any are left out.
func (l Ledger) Sequences(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) (map[metering.CustomerID]int64, error) {
	rows, err := l.pool.Query(ctx, `
		select customer_id, max(sequence)
		from billing_snapshots
		where tenant_id = $1
		  and customer_id = any($2)
		group by customer_id`, tenant, customers)
	if err != nil {
		return nil, fmt.Errorf("read sequences: %w", coded(err))
	}
	sequences := make(map[metering.CustomerID]int64, len(customers))
	var customer metering.CustomerID
	var sequence int64
	_, err = pgx.ForEachRow(rows, []any{&customer, &sequence}, func() error {
		sequences[customer] = sequence
		return nil
	})
	return sequences, coded(err)
}
