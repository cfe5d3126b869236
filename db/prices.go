package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Prices keeps the versions of each meter's price.
type Prices struct{ pool *pgxpool.Pool }

const selectPrices = `
	select meter_id, version, base_price, included_units, overage_rate, currency, effective_from, created_at
	from meter_prices where tenant_id = $1 `

func scanPrice(row pgx.CollectableRow) (p metering.Price, err error) {
	err = row.Scan(&p.MeterID, &p.Version, &p.BasePrice, &p.IncludedUnits, &p.OverageRate, &p.Currency, &p.EffectiveFrom, &p.CreatedAt)
	return p, err
}

func collectPrices(ctx context.Context, q querier, where string, args ...any) ([]metering.Price, error) {
	rows, err := q.Query(ctx, selectPrices+where, args...)
	if err != nil {
		return nil, coded(err)
	}
	prices, err := pgx.CollectRows(rows, scanPrice)
	return prices, coded(err)
}

// Set adds a version to a meter's price. The first version holds from the
// beginning, whatever its EffectiveFrom.
func (s Prices) Set(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p metering.Price) (set metering.Price, err error) {
	if err := p.Validate(); err != nil {
		return metering.Price{}, err
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
			  (tenant_id, meter_id, version, base_price, included_units, overage_rate, currency, effective_from, created_by)
			select @tenant, @meter, former.n + 1, @base, @included, @overage, @currency,
			  case when former.n = 0 then timestamptz '0001-01-01' else @effective_from end, @actor
			from (select count(*) from meter_prices where tenant_id = @tenant and meter_id = @meter) former (n)
			returning meter_id, version, base_price, included_units, overage_rate, currency, effective_from, created_at`,
			pgx.NamedArgs{
				"tenant": tenant, "meter": p.MeterID, "base": p.BasePrice, "included": p.IncludedUnits,
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

// Versions returns a meter's prices, oldest first.
func (s Prices) Versions(ctx context.Context, tenant metering.TenantID, meter metering.MeterID) ([]metering.Price, error) {
	return collectPrices(ctx, s.pool, `and meter_id = $2 order by version`, tenant, meter)
}

// All returns the tenant's prices by meter, oldest first.
func (s Prices) All(ctx context.Context, tenant metering.TenantID) (map[metering.MeterID][]metering.Price, error) {
	return allPrices(ctx, s.pool, tenant)
}

func allPrices(ctx context.Context, q querier, tenant metering.TenantID) (map[metering.MeterID][]metering.Price, error) {
	prices, err := collectPrices(ctx, q, `order by meter_id, version`, tenant)
	byMeter := make(map[metering.MeterID][]metering.Price)
	for _, p := range prices {
		byMeter[p.MeterID] = append(byMeter[p.MeterID], p)
	}
	return byMeter, err
}
