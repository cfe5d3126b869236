package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// AuditLog reads what audit wrote.
type AuditLog struct{ pool *pool }

// audit records who changed what, in the transaction that changes it.
func audit(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string) error {
	return auditBecause(ctx, tx, tenant, actor, action, resource, "")
}

// auditBecause is audit with the reason that the actor gave.
func auditBecause(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource, reason string) error {
	_, err := tx.Exec(ctx, `insert into audit_log (tenant_id, actor, action, resource, reason) values ($1, $2, $3, $4, $5)`,
		tenant, actor, action, resource, reason)
	return err
}

// List returns up to limit entries from before an entry, newest first; before
// 0 is the end of the log.
func (s AuditLog) List(ctx context.Context, tenant metering.TenantID, before metering.AuditID, limit int) ([]metering.AuditEntry, error) {
	rows, err := s.pool.Query(ctx, `
		select id, at, actor, action, resource, reason
		from audit_log
		where tenant_id = $1 and ($2 = 0 or id < $2)
		order by id desc
		limit $3`, tenant, before, limit)
	if err != nil {
		return nil, coded(err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e metering.AuditEntry, err error) {
		return e, row.Scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Resource, &e.Reason)
	})
	return entries, coded(err)
}
