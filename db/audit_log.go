package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// AuditLog reads the audit log, and records events that change no stored data.
type AuditLog struct{ pool *pool }

// Origin identifies the HTTP request that causes a change.
type Origin struct{ Address, RequestID string }

type originKey struct{}

// From returns a context in which audit entries record origin as their cause.
func From(ctx context.Context, origin Origin) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// auditAsked records a request by actor that changes no field the log could show. Use auditChange and
// auditDecision for field changes.
func auditAsked(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string) error {
	return auditEntry(ctx, tx, tenant, metering.AuditEntry{Actor: actor, Action: action, Resource: resource})
}

// auditEntry notes e with the origin in ctx.
func auditEntry(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e metering.AuditEntry) error {
	return note(ctx, tx, auditedEntry{tenant: tenant, AuditEntry: e})
}

func note(ctx context.Context, tx pgx.Tx, e auditedEntry) error {
	within, ok := tx.(*auditedTx)
	if !ok {
		return errors.New("audit: only a transaction of inTx or atOneInstant can be audited")
	}
	if origin, ok := ctx.Value(originKey{}).(Origin); ok {
		e.Address, e.RequestID = origin.Address, origin.RequestID
	}
	within.entries = append(within.entries, e)
	return nil
}

// Record writes an entry about an event that changes no stored data: a refused request, a read, or a
// started operation.
func (s AuditLog) Record(ctx context.Context, tenant metering.TenantID, e metering.AuditEntry) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error { return auditEntry(ctx, tx, tenant, e) })
}

// Attempted is a member that a sign-in attempt may be for.
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
		return nil, coded(err)
	}
	attempted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Attempted])
	return attempted, coded(err)
}

const auditColumns = `id, at, actor, action, resource, reason, address, request_id, before, after`

func auditFields(e *metering.AuditEntry) []any {
	return []any{&e.ID, &e.At, &e.Actor, &e.Action, &e.Resource, &e.Reason, &e.Address, &e.RequestID, &e.Before, &e.After}
}

// AuditFilter selects the entries to list. An empty or nil field matches every entry.
type AuditFilter struct {
	Actor     metering.Actor
	Action    string // an action, or a prefix of it
	Resource  string // a resource; an entry that names several matches by its first
	RequestID string
	Start     *time.Time // inclusive
	End       *time.Time // exclusive
}

// List returns up to limit entries that precede the entry before, newest first. If before is 0, it starts
// at the end of the log.
func (s AuditLog) List(ctx context.Context, tenant metering.TenantID, f AuditFilter, before metering.AuditID, limit int) (page Page[metering.AuditEntry], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+auditColumns+`
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
		return page, coded(err)
	}
	page, err = readPage(ctx, rows, limit, func(row pgx.CollectableRow) (e metering.AuditEntry, err error) {
		return e, row.Scan(auditFields(&e)...)
	})
	return page, coded(err)
}
