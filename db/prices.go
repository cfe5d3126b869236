package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Prices keeps the versions of each meter's price, its own and its products'.
type Prices struct{ pool *pgxpool.Pool }

const selectPrices = `
	select meter_id, coalesce(product_id, 0), version, base_price, included_units, overage_rate, currency, effective_from, created_at
	from meter_prices where tenant_id = $1 `

func scanPrice(row pgx.CollectableRow) (p billing.Price, err error) {
	err = row.Scan(&p.MeterID, &p.ProductID, &p.Version, &p.BasePrice, &p.IncludedUnits, &p.OverageRate, &p.Currency, &p.EffectiveFrom, &p.CreatedAt)
	return p, err
}

func collectPrices(ctx context.Context, q querier, where string, args ...any) ([]billing.Price, error) {
	rows, err := q.Query(ctx, selectPrices+where, args...)
	if err != nil {
		return nil, coded(err)
	}
	prices, err := pgx.CollectRows(rows, scanPrice)
	return prices, coded(err)
}

// Set adds a version to a meter's price, its own or a product's. The first of
// them holds from the beginning, whatever its EffectiveFrom.
func (s Prices) Set(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p billing.Price) (set billing.Price, err error) {
	if err := p.Validate(); err != nil {
		return billing.Price{}, err
	}
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		// The meter's row orders two changes at once.
		tag, err := tx.Exec(ctx, `select from meters where tenant_id = $1 and id = $2 for update`, tenant, p.MeterID)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return metering.Errorf(metering.CodeNotFound, "there is no such meter")
		}
		rows, err := tx.Query(ctx, `
			insert into meter_prices
			  (tenant_id, meter_id, product_id, version, base_price, included_units, overage_rate, currency, effective_from, created_by)
			select @tenant, @meter, nullif(@product, 0), former.n + 1, @base, @included, @overage, @currency,
			  case when former.alike = 0 then timestamptz '0001-01-01' else @effective_from end, @actor
			from (
			  select count(*), count(*) filter (where coalesce(product_id, 0) = @product)
			  from meter_prices
			  where tenant_id = @tenant
			    and meter_id = @meter) former (n, alike)
			returning meter_id, coalesce(product_id, 0), version, base_price, included_units, overage_rate, currency, effective_from, created_at`,
			pgx.NamedArgs{
				"tenant": tenant, "meter": p.MeterID, "product": int64(p.ProductID), "base": p.BasePrice, "included": p.IncludedUnits,
				"overage": p.OverageRate, "currency": p.Currency, "effective_from": p.EffectiveFrom, "actor": actor,
			})
		if err != nil {
			return err
		}
		if set, err = pgx.CollectExactlyOneRow(rows, scanPrice); err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "price.set", p.MeterID.String())
	})
	return set, err
}

// Versions returns a meter's prices in a product, or its own (0), oldest first.
func (s Prices) Versions(ctx context.Context, tenant metering.TenantID, meter metering.MeterID, product metering.ProductID) ([]billing.Price, error) {
	return collectPrices(ctx, s.pool, `and meter_id = $2 and coalesce(product_id, 0) = $3 order by version`, tenant, meter, product)
}

func allPrices(ctx context.Context, q querier, tenant metering.TenantID) (map[metering.MeterID][]billing.Price, error) {
	prices, err := collectPrices(ctx, q, `order by meter_id, version`, tenant)
	byMeter := make(map[metering.MeterID][]billing.Price)
	for _, p := range prices {
		byMeter[p.MeterID] = append(byMeter[p.MeterID], p)
	}
	return byMeter, err
}
