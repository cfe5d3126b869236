package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// refuseQuantities returns CodeConflict if a provider bills quantities, and a price with a fixed fee or
// dimensions charges a period that the provider would bill. Such a price needs a provider that bills amounts. A
// price charges the periods that begin while it is in force. refuseQuantities therefore ignores a price
// that a later version has replaced by the start of the first period that the provider would bill.
func refuseQuantities(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, p metering.Provider, now time.Time) error {
	if !p.BillsQuantities() {
		return nil
	}
	var meters *string
	var first time.Time
	err := tx.QueryRow(ctx, `
		with first as (
		  select greatest(@since::timestamptz, least(min(coalesce(open.starts_at, last.ends_at, c.billing_starts_at, `+EarliestUsage+`)), @now)) as starts_at
		  from customers c
		  join tenants t on t.id = c.tenant_id
		  left join lateral (
		    select min(p.starts_at) as starts_at
		    from billing_periods p
		    where p.tenant_id = c.tenant_id
		      and p.customer_id = c.id
		      and p.closed_at is null
		      and p.bills <> 'amounts') open on true
		  left join lateral (
		    select max(p.ends_at) as ends_at
		    from billing_periods p
		    where p.tenant_id = c.tenant_id
		      and p.customer_id = c.id) last on true
		  where c.tenant_id = @tenant)
		select string_agg(distinct m.slug, ', '), (select starts_at from first)
		from meter_prices p
		join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
		join meters m on m.tenant_id = p.tenant_id and m.id = p.meter_id
		where p.tenant_id = @tenant
		  and p.withdrawn_at is null
		  and t.terms ?| '{fixed_fee,dimensions}'
		  and not exists (
		    select
		    from meter_prices n
		    where n.tenant_id = p.tenant_id
		      and n.meter_id = p.meter_id
		      and coalesce(n.plan_id, 0) = coalesce(p.plan_id, 0)
		      and coalesce(n.customer_id, 0) = coalesce(p.customer_id, 0)
		      and n.withdrawn_at is null
		      and n.effective_from <= (select starts_at from first)
		      and (n.effective_from, n.version) > (p.effective_from, p.version))`,
		pgx.NamedArgs{"tenant": tenant, "now": now, "since": quantitiesSince(p)}).Scan(&meters, &first)
	if err != nil || meters == nil {
		return err
	}
	return metering.Errorf(metering.CodeConflict,
		"the prices of these meters have a fixed_fee or dimensions, which a provider that bills quantities cannot charge: %s; "+
			"save the provider with bills set to amounts, or set other prices with an effective_from of at most %s, when the first open billing period begins or may begin",
		*meters, first.UTC().Format(time.RFC3339))
}

// quantitiesSince returns the instant from which new periods are billed in quantities; nil if all periods
// are. If a provider changes to quantities, begun periods stay billed in amounts.
func quantitiesSince(p metering.Provider) *time.Time {
	if p.BillsBefore == metering.BillsAmounts {
		return &p.BillsSince
	}
	return nil
}
