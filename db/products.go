package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Products are the tenant's catalog, and which customer has what of it.
type Products struct{ pool beginner }

var selectProducts = `select id, slug, name, created_at, ` + archivedAt("p") + ` from products p where tenant_id = $1 `

func scanProduct(row pgx.CollectableRow) (p metering.Product, err error) {
	return p, row.Scan(&p.ID, &p.Slug, &p.Name, &p.CreatedAt, &p.ArchivedAt)
}

// Create makes a product. A slug that is taken is CodeConflict.
func (s Products) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p metering.Product) (made metering.Product, err error) {
	if err := p.Validate(); err != nil {
		return metering.Product{}, err
	}
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			insert into products as p (tenant_id, slug, name, created_by) values ($1, $2, $3, $4)
			returning id, slug, name, created_at, `+archivedAt("p"), tenant, p.Slug, p.Name, actor)
		if err != nil {
			return err
		}
		made, err = pgx.CollectExactlyOneRow(rows, scanProduct)
		if sqlState(err) == stateUniqueViolation {
			return metering.Errorf(metering.CodeConflict, "a product with this slug exists already").Because(err)
		}
		if err != nil {
			return err
		}
		return auditChange(ctx, tx, tenant, actor, "product.create", made.ID.String(), nil, tellProduct(made))
	})
	return made, err
}

// Get returns the product with that slug, or CodeNotFound.
func (s Products) Get(ctx context.Context, tenant metering.TenantID, slug string) (metering.Product, error) {
	rows, err := s.pool.Query(ctx, selectProducts+`and slug = $2`, tenant, slug)
	if err != nil {
		return metering.Product{}, fmt.Errorf("read product: %w", coded(err))
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanProduct)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Product{}, metering.Errorf(metering.CodeNotFound, "there is no product with this slug")
	}
	if err != nil {
		return metering.Product{}, fmt.Errorf("read product: %w", coded(err))
	}
	return p, nil
}

// List returns up to limit products with an id above after, in the order they were
// made: archived ones only where they are asked for.
func (s Products) List(ctx context.Context, tenant metering.TenantID, after metering.ProductID, limit int, archived bool) (page Page[metering.Product], err error) {
	rows, err := s.pool.Query(ctx, selectProducts+`and id > $2 and ($4 or archived_at is null) order by id limit $3`, tenant, after, limit+1, archived)
	if err != nil {
		return page, fmt.Errorf("list products: %w", coded(err))
	}
	page, err = readPage(ctx, rows, limit, scanProduct)
	if err != nil {
		return page, fmt.Errorf("list products: %w", coded(err))
	}
	return page, nil
}

// Assign gives a customer a product from an instant on, or none (0). It replaces the
// assignment from the same instant.
func (s Products) Assign(ctx context.Context, tenant metering.TenantID, actor metering.Actor, customer metering.CustomerID, a billing.Assignment) error {
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := raiseCatalogRevision(ctx, tx, tenant); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			insert into customer_products (tenant_id, customer_id, product_id, effective_from, created_by)
			values ($1, $2, nullif($3::bigint, 0), $4, $5)
			on conflict (tenant_id, customer_id, effective_from) do update
			set product_id = excluded.product_id, created_at = excluded.created_at, created_by = excluded.created_by`, tenant, customer, a.ProductID, metering.Instant(a.EffectiveFrom), actor)
		if err != nil {
			return err
		}
		assigned := told{"product_id": nil, "effective_from": metering.Instant(a.EffectiveFrom).UTC()}
		if a.ProductID != 0 {
			assigned["product_id"] = a.ProductID.String()
		}
		return auditChange(ctx, tx, tenant, actor, "product.assign", customer.String(), nil, assigned)
	})
	if err != nil {
		return fmt.Errorf("assign product: %w", err)
	}
	return nil
}

// Assignment is one of a customer's, with the product's slug.
type Assignment struct {
	billing.Assignment
	Slug string // "": none
}

// Assignments returns which products the customer has had, has and will have,
// in the order in which they hold.
func (s Products) Assignments(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) ([]Assignment, error) {
	rows, err := s.pool.Query(ctx, `
		select coalesce(a.product_id, 0), a.effective_from, coalesce(p.slug, '')
		from customer_products a
		left join products p on p.tenant_id = a.tenant_id and p.id = a.product_id
		where a.tenant_id = $1
		  and a.customer_id = $2
		order by a.effective_from`, tenant, customer)
	if err != nil {
		return nil, fmt.Errorf("list assignments: %w", coded(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Assignment, err error) {
		return a, row.Scan(&a.ProductID, &a.EffectiveFrom, &a.Slug)
	})
	if err != nil {
		return nil, fmt.Errorf("list assignments: %w", coded(err))
	}
	return list, nil
}

// productAt is the product that a customer has at an instant, or 0, as SQL.
func productAt(tenant, customer, at string) string {
	return `coalesce((
		select coalesce(a.product_id, 0)
		from customer_products a
		where a.tenant_id = ` + tenant + `
		  and a.customer_id = ` + customer + `
		  and a.effective_from <= ` + at + `
		order by a.effective_from desc
		limit 1), 0)`
}
