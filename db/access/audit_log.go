package access

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// AuditLog reads the audit log, and records events that change no stored data.
type AuditLog struct{ pool *pg.Pool }

// Record writes an entry about an event that changes no stored data: a refused request, a read, or a
// started operation.
func (s AuditLog) Record(ctx context.Context, tenant metering.TenantID, e metering.AuditEntry) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return audit.RecordEntry(ctx, tx, tenant, e) })
}

// Attempted is a member with the e-mail of a refused sign-in attempt.
type Attempted struct {
	Tenant metering.TenantID
	Member metering.MemberID
}

// maxAttempted bounds the number of tenants that log one refused sign-in.
const maxAttempted = 20

// Attempted returns the members with this e-mail, in any tenant, at most maxAttempted.
func (s AuditLog) Attempted(ctx context.Context, email string) ([]Attempted, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, id
		from members
		where lower(email collate "C") = $1
		  and removed_at is null
		order by tenant_id
		limit $2`, metering.FoldEmail(email), maxAttempted)
	if err != nil {
		return nil, pg.Coded(err)
	}
	attempted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Attempted])
	return attempted, pg.Coded(err)
}

// AuditFilter selects the entries to list. An empty or nil field matches every entry.
type AuditFilter struct {
	Actor     metering.Actor
	Action    string // an action, or a prefix of it
	Resource  string // the first resource that the entry names
	RequestID string
	Start     *time.Time // inclusive
	End       *time.Time // exclusive
}

// List returns up to limit entries, newest first. If before is not 0, it returns only entries with a smaller ID.
func (s AuditLog) List(ctx context.Context, tenant metering.TenantID, f AuditFilter, before metering.AuditID, limit int) (page pg.Page[metering.AuditEntry], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+audit.Columns+`
		from audit_log
		where tenant_id = @tenant
		  and (@before = 0 or id < @before)
		  and (@actor = '' or actor = @actor)
		  and starts_with(action, @action)
		  and (@resource = '' or resource = @resource or starts_with(resource, @resource || ' '))
		  and (@request = '' or request_id = @request)
		  and (@start::timestamptz is null or at >= @start)
		  and (@end::timestamptz is null or at < @end)
		order by id desc
		limit @limit`, pgx.NamedArgs{
		"tenant": tenant, "before": before, "actor": f.Actor, "action": f.Action, "resource": f.Resource, "request": f.RequestID,
		"start": f.Start, "end": f.End, "limit": limit + 1,
	})
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (e metering.AuditEntry, err error) {
		return e, row.Scan(audit.Destinations(&e)...)
	})
	return page, pg.Coded(err)
}

// Verify recomputes the chain of the tenant's audit log. It returns the head of the chain and a description
// of each break. expected is a head that the caller has stored earlier, or nil.
func (s AuditLog) Verify(ctx context.Context, tenant metering.TenantID, expected *metering.AuditHead) (head metering.AuditHead, breaks []string, err error) {
	if s.pool.AuditKey() == nil {
		return head, nil, errors.New("verify audit log: the store was opened without the secret")
	}
	err = pg.ReadAtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local statement_timeout = 0`); err != nil { // a log may be long
			return err
		}
		head, breaks, err = s.pool.AuditKey().Verify(ctx, tx, tenant, expected)
		return err
	})
	if err != nil {
		return head, nil, fmt.Errorf("verify audit log: %w", err)
	}
	return head, breaks, nil
}

// CheckSecret returns CodeConflict if the audit log was written with a secret that
// differs from the secret of the store. An empty log fits every secret.
func (s AuditLog) CheckSecret(ctx context.Context) error {
	var tenant metering.TenantID
	var head metering.AuditHead
	var seal []byte
	err := s.pool.QueryRow(ctx, `select tenant_id, last_id, mac, seal from audit_heads order by tenant_id limit 1`).Scan(&tenant, &head.Last, &head.MAC, &seal)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("check the secret: %w", pg.Coded(err))
	case !hmac.Equal(seal, s.pool.AuditKey().Seal(tenant, head)):
		return metering.Errorf(metering.CodeConflict, "ODOMETER_SECRET is not the secret of this database; use the one of its API and worker")
	}
	return nil
}
