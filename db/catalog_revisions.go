package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// ErrCatalogMoved is returned by AtRevision if another write came first.
var ErrCatalogMoved = errors.New("the catalog has another revision")

// Catalog contains the stores that can change charges, bound to one transaction.
type Catalog struct {
	catalogStores

	Tenants Tenants
}

// AtRevision runs a write of the tenant's catalog in one transaction if the catalog still
// has that revision, and returns ErrCatalogMoved otherwise. Concurrent writes of one
// tenant wait for each other.
func (d *DB) AtRevision(ctx context.Context, tenant metering.TenantID, revision int64, write func(within Catalog) error) error {
	return pg.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		raised, err := catalog.RaiseRevision(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if raised != revision+1 {
			return ErrCatalogMoved
		}
		return write(Catalog{catalog.New(tx), Tenants{tx}})
	})
}
