package db

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// told holds the audited fields of a resource, by their names in the API.
type told map[string]any

// personal is a value that may identify a person, or that a tenant wrote about a customer. Entries are
// immutable, so they store a digest of the value under the log's key. A reader of the log cannot guess the
// value, and erased data does not survive in the log.
type personal string

// secret reports whether a secret is set. The log never stores the secret.
type secret bool

// auditChange notes an entry with the fields that differ between before and after. before is nil for a new
// resource, after for a deleted one.
func auditChange(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string, before, after told) error {
	return note(ctx, tx, auditedEntry{
		tenant: tenant, AuditEntry: metering.AuditEntry{Actor: actor, Action: action, Resource: resource},
		before: differing(before, after), after: differing(after, before),
	})
}

// decision is an action of an actor on a resource, and the reason that the actor gave.
type decision struct {
	actor                    metering.Actor
	action, resource, reason string
}

// auditDecision is auditChange with the reason that the actor gave.
func auditDecision(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, d decision, before, after told) error {
	return note(ctx, tx, auditedEntry{
		tenant: tenant, AuditEntry: metering.AuditEntry{Actor: d.actor, Action: d.action, Resource: d.resource, Reason: d.reason},
		before: differing(before, after), after: differing(after, before),
	})
}

// differing returns the fields of one that other lacks, or that have another value there.
func differing(one, other told) told {
	var fields told
	for name, value := range one {
		if former, had := other[name]; had && reflect.DeepEqual(value, former) {
			continue
		}
		if fields == nil {
			fields = told{}
		}
		fields[name] = value
	}
	return fields
}

// json renders fields. It returns nil if fields is nil.
func (k auditKey) json(tenant metering.TenantID, fields told) (json.RawMessage, error) {
	if fields == nil {
		return nil, nil
	}
	rendered := make(map[string]any, len(fields))
	for name, value := range fields {
		switch v := value.(type) {
		case personal:
			mac := k.mac([]byte("personal"), []byte(tenant.String()), []byte(name), []byte(v))
			rendered[name] = map[string]string{"digest": hex.EncodeToString(mac[:16])}
		case secret:
			rendered[name] = map[string]bool{"set": bool(v)}
		default:
			rendered[name] = value
		}
	}
	return json.Marshal(rendered)
}

// state returns the single field of a resource that changes from one state to another.
func state[T ~string | ~bool](is T) told { return told{"state": is} }

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

const auditColumns = `id, at, actor, action, resource, reason, address, request_id, before, after`

func auditFields(e *metering.AuditEntry) []any {
	return []any{&e.ID, &e.At, &e.Actor, &e.Action, &e.Resource, &e.Reason, &e.Address, &e.RequestID, &e.Before, &e.After}
}
