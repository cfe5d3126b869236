package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// RefuseDimensions returns an error if the terms have dimensions by which the meter does not group. Set
// returns the same error.
func (s Prices) RefuseDimensions(ctx context.Context, tenant metering.TenantID, meter metering.MeterID, t billing.Terms) error {
	return pg.Coded(refuseDimensions(ctx, s.pool, tenant, meter, t))
}

func refuseDimensions(ctx context.Context, q pg.Querier, tenant metering.TenantID, meter metering.MeterID, t billing.Terms) error {
	if t.Dimensions == nil {
		return nil
	}
	rows, err := q.Query(ctx, `
		select v.group_by
		from meters m
		join meter_versions v on v.tenant_id = m.tenant_id and v.meter_id = m.id and v.status <> 'retired'
		where m.tenant_id = $1
		  and m.id = $2
		order by v.id`, tenant, meter)
	if err != nil {
		return err
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	for _, groupBy := range versions {
		for _, property := range t.Dimensions.By {
			switch next := versions[len(versions)-1]; {
			case slices.Contains(groupBy, property):
			case slices.Contains(next, property):
				return metering.Errorf(metering.CodeConflict, "dimensions.by has %s, by which the meter does not group yet; set the price when the meter is complete", property)
			default:
				return metering.Errorf(metering.CodeConflict, "dimensions.by has %s, which is not in the meter's group_by (%s); add it to group_by first, or remove it from dimensions.by",
					property, strings.Join(groupBy, ", "))
			}
		}
	}
	return err
}

// refuseRegrouping returns CodeConflict if a change of a meter removes a property from group_by that a price
// of the meter has in its dimensions. This includes prices of plans and customers, prices that begin later,
// and prices that have charged events that are still stored. An open period is charged by its price even if
// the price has a later version. Late usage of a closed period is charged by the price of that period, even
// if that price was replaced since. Prices that were replaced before the oldest stored event are ignored.
func refuseRegrouping(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, next metering.MeterVersion) error {
	var property *string
	err := tx.QueryRow(ctx, `
		select min(b.property)
		from meter_prices p
		join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
		cross join lateral jsonb_array_elements_text(t.terms -> 'dimensions' -> 'by') b (property)
		where p.tenant_id = $1
		  and p.meter_id = $2
		  and b.property <> all($3)
		  and (p.withdrawn_at is null or exists (
		    select
		    from billing_period_totals l
		    where l.tenant_id = p.tenant_id
		      and l.meter_id = p.meter_id
		      and l.price_version = p.version
		      and l.late_count is null))
		  and not exists (
		    select
		    from meter_prices n
		    where n.tenant_id = p.tenant_id
		      and n.meter_id = p.meter_id
		      and coalesce(n.plan_id, 0) = coalesce(p.plan_id, 0)
		      and coalesce(n.customer_id, 0) = coalesce(p.customer_id, 0)
		      and n.withdrawn_at is null
		      and n.effective_from <= (select kept_from from event_retention)
		      and (n.effective_from, n.version) > (p.effective_from, p.version))`, tenant, next.MeterID, notNil(next.GroupBy)).Scan(&property)
	if err != nil || property == nil {
		return err
	}
	return metering.Errorf(metering.CodeConflict, "group_by must keep %s: a price of the meter has it in dimensions.by and charges usage by it, or has charged events that are still stored; withdraw the price if it has not begun, or create another meter", *property)
}

// DimensionMeter is a meter with prices by dimension. The prices are the meter's own, of plans or
// of customers.
type DimensionMeter struct {
	metering.Meter
	Terms []billing.Terms // distinct terms of these prices
}

// maxDimensionBytes is the maximum size of the terms that DimensionMeters returns, as JSON. A caller can replace a price
// any number of times, and the terms that it replaces are kept.
const maxDimensionBytes = 512 << 10

// DimensionMeters returns the tenant's meters with prices by dimension, up to maxDimensionBytes. It includes
// withdrawn prices, because these may have charged a closed period. The latest price of each owner comes first, and
// withdrawn prices come last.
func (s Prices) DimensionMeters(ctx context.Context, tenant metering.TenantID) (all []DimensionMeter, err error) {
	rows, err := s.pool.Query(ctx, `
		select meter_id, terms
		from (
		  select meter_id, terms, sum(octet_length(terms::text)) over (order by withdrawn, age, meter_id, hash) as bytes
		  from (
		    select p.meter_id, t.hash, t.terms, bool_and(p.withdrawn_at is not null) as withdrawn, min(p.age) as age
		    from (
		      select p.*, row_number() over (partition by p.meter_id, p.plan_id, p.customer_id, p.withdrawn_at is null order by p.effective_from desc, p.version desc) as age
		      from meter_prices p
		      where p.tenant_id = $1) p
		    join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
		    where t.terms ? 'dimensions'
		    group by p.meter_id, t.tenant_id, t.hash) d) sized
		where bytes <= $2`, tenant, maxDimensionBytes)
	if err != nil {
		return nil, pg.Coded(err)
	}
	terms := make(map[metering.MeterID][]billing.Terms)
	var meter metering.MeterID
	read := new(billing.Terms)
	_, err = pgx.ForEachRow(rows, []any{&meter, &read}, func() error {
		terms[meter], read = append(terms[meter], *read), new(billing.Terms)
		return nil
	})
	if err != nil || len(terms) == 0 {
		return nil, pg.Coded(err)
	}
	meters, err := CollectMeters(ctx, s.pool, `order by m.id`, tenant)
	for _, m := range meters {
		if of := terms[m.ID]; len(of) > 0 {
			all = append(all, DimensionMeter{m, of})
		}
	}
	return all, err
}
