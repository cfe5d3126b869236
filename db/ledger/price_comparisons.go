package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Linking holds the data for comparing our prices with the provider's prices when a customer is linked to a
// customer of the provider.
type Linking struct {
	Wanted
	billing.Linked            // Side is set by Linked only
	ReadAt         *time.Time // time at which Side was read; nil: never
	IsLinked       bool       // the customer is already linked to this customer of the provider
}

// Linking returns the data for linking a customer to the provider's customer atProvider. The customer with the
// external ID need not exist yet. It returns CodeNoProvider if the tenant has no active provider. If the
// provider receives statements, it has no prices, and only Provider is set.
func (l Links) Linking(ctx context.Context, tenant metering.TenantID, externalID, atProvider string, now time.Time) (k Linking, err error) {
	if k.Provider, err = activeProvider(ctx, l.pool, tenant); err != nil || k.Provider.Statements {
		return k, err
	}
	k.Customer, k.Now = atProvider, now
	var plans []metering.PlanID
	var since []time.Time
	var customer metering.CustomerID
	var own []catalog.StoredOwnPrice
	var zone string
	err = l.pool.QueryRow(ctx, `
		select `+followedAt("$3")+`, a.plans, a.since, coalesce(c.id, 0), coalesce(c.billing_provider_id = $4, false), `+catalog.OwnPricesOfCustomer+`, t.timezone
		from tenants t
		left join customers c on c.tenant_id = t.id and c.external_id = $2
		left join lateral (
		  select array_agg(coalesce(a.plan_id, 0) order by a.effective_from) as plans, array_agg(a.effective_from order by a.effective_from) as since
		  from customer_plans a
		  where a.tenant_id = c.tenant_id
		    and a.customer_id = c.id) a on true
		where t.id = $1`, tenant, externalID, k.Provider.ID, atProvider).Scan(&k.Followed, &k.Streams, &plans, &since, &customer, &k.IsLinked, &own, &zone)
	if err != nil {
		return k, fmt.Errorf("read customer: %w", pg.Coded(err))
	}
	for i := range plans {
		k.Plans = append(k.Plans, billing.Assignment{PlanID: plans[i], EffectiveFrom: since[i]})
	}
	k.Own = catalog.OwnPricesOf(customer, own)
	if k.Schedules, err = l.schedules(ctx, tenant, customer, k.Provider, zone, now); err != nil {
		return k, fmt.Errorf("read billing periods: %w", pg.Coded(err))
	}
	if k.Wanted.Meters, err = catalog.CollectMeters(ctx, l.pool, `order by m.id`, tenant); err != nil {
		return k, fmt.Errorf("list meters: %w", pg.Coded(err))
	}
	k.Linked.Meters = k.Wanted.Meters
	if k.Prices, err = catalog.AllPrices(ctx, l.pool, tenant); err != nil {
		return k, fmt.Errorf("list prices: %w", err)
	}
	return k, nil
}

// schedules returns the billing schedules of a customer. A customer with the id 0 does not exist yet: it gets the
// schedule of a customer that is created now.
func (l Links) schedules(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, at metering.Provider, zone string, now time.Time) ([]billing.Facts, error) {
	if customer != 0 {
		all, err := ReadSchedules(ctx, l.pool, l.read, tenant, []int64{int64(customer)}, now)
		return all[customer], err
	}
	timezone, err := billingZone(zone)
	return []billing.Facts{{
		Now: now, Customer: billing.Customer{CreatedAt: now}, Settings: billing.Settings{Timezone: timezone},
		Connection: &billing.Connection{ID: at.ID, Invoices: at.Invoices, Bills: at.Bills, BillsBefore: at.BillsBefore, BillsSince: at.BillsSince},
	}}, err
}

// Linked returns the data for a customer that is already linked, with its state at the provider as last read.
func (l Links) Linked(ctx context.Context, tenant metering.TenantID, c metering.Customer, now time.Time) (k Linking, err error) {
	if k, err = l.Linking(ctx, tenant, c.ExternalID, *c.BillingProviderID, now); err != nil || k.Provider.Statements {
		return k, err
	}
	var stored []storedDestination
	var others []storedSide
	var terms keptTerms
	err = l.pool.QueryRow(ctx, `
		select l.destinations, l.others, `+namedTerms("l.tenant_id", hashesInDestinations)+`, l.read_at
		from billing_links l
		where l.tenant_id = $1
		  and l.customer_id = $2
		  and l.connection_id = $3
		  and l.provider_customer = $4`, tenant, c.ID, k.Provider.ID, *c.BillingProviderID).Scan(&stored, &others, &terms, &k.ReadAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("read link: %w", pg.Coded(err))
	}
	prices := make(providerPrices)
	if k.Side.Destinations, err = prices.destinations(stored, terms, l.read); err != nil {
		return k, err
	}
	k.Side.Others, err = prices.sides(others, k.Customer, terms, l.read)
	return k, err
}

// ProviderPriceOf is a provider's price of a meter, with the number of customers that the price charges.
type ProviderPriceOf struct {
	billing.ProviderPrice
	Customers int64
}

// PricesInstead returns the provider's prices, as last read, that charge the customers to which our price p
// would apply. It determines these customers by the plans and our prices in force at now, or at p.EffectiveFrom
// if that is later. It returns at most 100 prices, ordered by number of customers, descending. It skips customers
// for which the connection bills the first period that p charges in amounts. This is the current period if p applies
// from its start or earlier, or else the next one.
func (l Links) PricesInstead(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) (all []ProviderPriceOf, err error) {
	at := now
	if p.EffectiveFrom.After(now) {
		at = p.EffectiveFrom
	}
	rows, err := l.pool.Query(ctx, `
		select t.terms, count(distinct c.id)
		from billing_connections k
		join billing_links l on l.tenant_id = k.tenant_id and l.connection_id = k.id
		join customers c on c.tenant_id = l.tenant_id and c.id = l.customer_id and c.billing_provider_id = l.provider_customer
		cross join lateral (select `+catalog.PlanAt("c.tenant_id", "c.id", "@at")+` as plan) has
		cross join lateral (
		  select d, 0, l.period_start
		  from jsonb_array_elements(l.destinations) d
		  union all
		  select d, coalesce((
		    select s.stream
		    from billing_streams s
		    where s.tenant_id = c.tenant_id
		      and s.customer_id = c.id
		      and s.connection_id = k.id
		      and s.subscription = o->>'subscription'), 0), (o->>'period_start')::timestamptz
		  from jsonb_array_elements(l.others) o
		  cross join lateral jsonb_array_elements(o->'destinations') d) destinations (d, stream, since)
		left join billing_periods b on b.tenant_id = c.tenant_id and b.customer_id = c.id and b.stream = destinations.stream
		  and b.starts_at <= @now and b.ends_at > @now
		cross join lateral (select coalesce(b.starts_at, destinations.since, @now) as starts_at) running
		join price_terms t on t.tenant_id = c.tenant_id and t.hash = decode(d->>'terms', 'hex')
		where k.tenant_id = @tenant
		  and k.retired_at is null
		  and case
		    when running.starts_at < @effective_from then k.bills
		    when b.bills <> '' then b.bills
		    when running.starts_at < k.bills_since then k.bills_before
		    else k.bills
		  end = 'quantities'
		  and (d->>'meter_id')::bigint = @meter
		  and case
		    when @customer::bigint <> 0 then c.id = @customer
		    when `+catalog.IsOwnPricedAt("c.id", "@at")+` then false
		    when @plan::bigint <> 0 then has.plan = @plan
		    else not exists (
		      select
		      from meter_prices m
		      where m.tenant_id = c.tenant_id
		        and m.meter_id = @meter
		        and m.plan_id = has.plan
		        and m.withdrawn_at is null
		        and m.effective_from <= @at)
		  end
		group by t.hash, t.terms
		order by count(distinct c.id) desc, t.hash
		limit 100`, pgx.NamedArgs{"tenant": tenant, "meter": p.MeterID, "plan": int64(p.PlanID), "customer": int64(p.CustomerID), "at": at, "now": now, "effective_from": p.EffectiveFrom})
	if err != nil {
		return nil, fmt.Errorf("read providers' prices: %w", pg.Coded(err))
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (of ProviderPriceOf, err error) {
		var terms []byte
		if err := row.Scan(&terms, &of.Customers); err != nil {
			return of, err
		}
		of.ProviderPrice, err = l.read(terms)
		return of, err
	})
}
