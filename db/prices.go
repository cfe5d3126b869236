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
	select p.meter_id, coalesce(p.product_id, 0), p.version, t.terms, p.effective_from, p.created_at
	from meter_prices p
	join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
	where p.tenant_id = $1 `

func scanPrice(row pgx.CollectableRow) (p billing.Price, err error) {
	return p, row.Scan(&p.MeterID, &p.ProductID, &p.Version, &p.Terms, &p.EffectiveFrom, &p.CreatedAt)
}

// insertTerms stores terms, if they are new; termsOf are those of a meter's
// price version, or null.
const (
	insertTerms = `
		insert into price_terms (tenant_id, hash, schema, terms)
		values (@tenant, @hash, @schema, @terms)
		on conflict (tenant_id, hash) do nothing`
	termsOf = `(
			  select m.terms
			  from meter_prices m
			  where m.tenant_id = @tenant
			    and m.meter_id = @meter
			    and m.version = @price_version)`
)

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
func (s Prices) Set(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p billing.Price) (_ billing.Price, err error) {
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
		hash := p.Hash()
		args := pgx.NamedArgs{
			"tenant": tenant, "meter": p.MeterID, "product": int64(p.ProductID), "effective_from": p.EffectiveFrom, "actor": actor,
			"hash": hash[:], "schema": billing.TermsSchema, "terms": p.JSON(),
		}
		if _, err := tx.Exec(ctx, insertTerms, args); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			insert into meter_prices (tenant_id, meter_id, product_id, version, terms, effective_from, created_by)
			select @tenant, @meter, nullif(@product, 0), former.n + 1, @hash,
			  case when former.alike = 0 then timestamptz '0001-01-01' else @effective_from end, @actor
			from (
			  select count(*), count(*) filter (where coalesce(product_id, 0) = @product)
			  from meter_prices
			  where tenant_id = @tenant
			    and meter_id = @meter) former (n, alike)
			returning version, effective_from, created_at`, args).Scan(&p.Version, &p.EffectiveFrom, &p.CreatedAt)
		if err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "price.set", p.MeterID.String())
	})
	return p, err
}

// Versions returns a meter's prices in a product, or its own (0), oldest first.
func (s Prices) Versions(ctx context.Context, tenant metering.TenantID, meter metering.MeterID, product metering.ProductID) ([]billing.Price, error) {
	return collectPrices(ctx, s.pool, `and p.meter_id = $2 and coalesce(p.product_id, 0) = $3 order by p.version`, tenant, meter, product)
}

func allPrices(ctx context.Context, q querier, tenant metering.TenantID) (map[metering.MeterID][]billing.Price, error) {
	prices, err := collectPrices(ctx, q, `order by p.meter_id, p.version`, tenant)
	byMeter := make(map[metering.MeterID][]billing.Price)
	for _, p := range prices {
		byMeter[p.MeterID] = append(byMeter[p.MeterID], p)
	}
	return byMeter, err
}
