package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// WithLock runs fn while the connection holds an advisory lock. lock is the SQL of the lock's key, with args as its
// arguments; $1 is the tenant.
func WithLock(ctx context.Context, conn *pgxpool.Conn, lock string, args []any, fn func() error) error {
	if _, err := conn.Exec(ctx, `select pg_advisory_lock(`+lock+`)`, args...); err != nil {
		return Coded(err)
	}
	err := fn()
	if _, unlocked := conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock(`+lock+`)`, args...); unlocked != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // closing the connection releases the lock as well
	}
	return err
}

// LockTenant locks the tenant exclusively until the end of the transaction. Ingest holds the same lock
// shared, so only this transaction can change how the tenant's events are counted.
func LockTenant(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(`+TenantLock+`)`, tenant)
	return err
}

// LockTenantShared makes LockTenant in other transactions wait until the end of this transaction.
func LockTenantShared(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock_shared(`+TenantLock+`)`, tenant)
	return err
}

// TenantLock is the SQL of the advisory lock key of LockTenant.
const TenantLock = `$1`

// LockAccess serializes the transactions of a tenant that call it. Examples are transactions that create credentials
// or plans, or that change the owner or the billing connection. It does not block ingest.
func LockAccess(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select from tenants where id = $1 for no key update`, tenant)
	return err
}
