package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// RaiseRevision raises the revision of the tenant's catalog. Each write that can change charges
// calls it first, because it locks the revision until the end of the transaction, before any other
// lock.
func RaiseRevision(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (revision int64, err error) {
	err = tx.QueryRow(ctx, `
		insert into catalog_revisions as c (tenant_id, revision)
		values ($1, 1)
		on conflict (tenant_id) do update
		set revision = c.revision + 1
		returning revision`, tenant).Scan(&revision)
	return revision, err
}

// ReadRevision returns the revision of the tenant's catalog; 0: nothing was written yet.
func ReadRevision(ctx context.Context, q pg.Querier, tenant metering.TenantID) (revision int64, err error) {
	err = q.QueryRow(ctx, `select coalesce(max(revision), 0) from catalog_revisions where tenant_id = $1`, tenant).Scan(&revision)
	return revision, err
}
