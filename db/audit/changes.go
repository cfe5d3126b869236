package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Fields holds the audited fields of a resource, by their names in the API.
type Fields map[string]any

// Personal is a value that may identify a person, or that a tenant wrote about a customer. Entries are immutable,
// so they store a MAC of the value with the key of the log, and not the value. A reader of the log cannot guess the
// value, and erased data does not survive in the log.
type Personal string

// Secret is an audited field that reports whether a secret is set. The log never stores the secret.
type Secret bool

// RecordChange records the change of a resource, with the fields that differ. The fields before the change are nil for
// a new resource, and the fields after the change are nil for a deleted one.
func RecordChange(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string, before, after Fields) error {
	return RecordDecision(ctx, tx, tenant, Decision{Actor: actor, Action: action, Resource: resource}, before, after)
}

// Decision is an action of an actor on a resource, and the reason that the actor gave.
type Decision struct {
	Actor                    metering.Actor
	Action, Resource, Reason string
}

// RecordDecision is RecordChange with the reason that the actor gave.
func RecordDecision(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, d Decision, before, after Fields) error {
	return addEntry(ctx, tx, auditedEntry{
		tenant: tenant, AuditEntry: metering.AuditEntry{Actor: d.Actor, Action: d.Action, Resource: d.Resource, Reason: d.Reason},
		before: differing(before, after), after: differing(after, before),
	})
}

// differing returns the fields of the first set that the second set lacks, or has with a different value.
func differing(first, second Fields) Fields {
	var fields Fields
	for name, value := range first {
		if former, had := second[name]; had && reflect.DeepEqual(value, former) {
			continue
		}
		if fields == nil {
			fields = Fields{}
		}
		fields[name] = value
	}
	return fields
}

// json renders fields. It returns nil if fields is nil.
func (k Key) json(tenant metering.TenantID, fields Fields) (json.RawMessage, error) {
	if fields == nil {
		return nil, nil
	}
	rendered := make(map[string]any, len(fields))
	for name, value := range fields {
		switch v := value.(type) {
		case Personal:
			mac := k.MAC([]byte("personal"), []byte(tenant.String()), []byte(name), []byte(v))
			rendered[name] = map[string]string{"digest": hex.EncodeToString(mac[:16])}
		case Secret:
			rendered[name] = map[string]bool{"set": bool(v)}
		default:
			rendered[name] = value
		}
	}
	return json.Marshal(rendered)
}

// State returns Fields with the state of a resource as the only field.
func State[T ~string | ~bool](is T) Fields { return Fields{"state": is} }

// Origin identifies the HTTP request that causes a change.
type Origin struct{ Address, RequestID string }

type originKey struct{}

// From returns a context in which audit entries record origin as their cause.
func From(ctx context.Context, origin Origin) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// RecordAction records an action of actor that changes no audited field. Use RecordChange or RecordDecision for
// changes of fields.
func RecordAction(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string) error {
	return RecordEntry(ctx, tx, tenant, metering.AuditEntry{Actor: actor, Action: action, Resource: resource})
}

// RecordEntry records e with the origin in ctx.
func RecordEntry(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e metering.AuditEntry) error {
	return addEntry(ctx, tx, auditedEntry{tenant: tenant, AuditEntry: e})
}

// addEntry adds an entry to the entries that the transaction writes at its end.
func addEntry(ctx context.Context, tx pgx.Tx, e auditedEntry) error {
	within, ok := tx.(*auditedTx)
	if !ok {
		return errors.New("audit: the transaction was not begun with Wrap")
	}
	if origin, ok := ctx.Value(originKey{}).(Origin); ok {
		e.Address, e.RequestID = origin.Address, origin.RequestID
	}
	within.entries = append(within.entries, e)
	return nil
}

// Columns are the columns of audit_log, except for tenant_id and mac, in the order of Destinations.
const Columns = `id, at, actor, action, resource, reason, address, request_id, before, after`

// Destinations returns the destinations of Columns in a Scan.
func Destinations(e *metering.AuditEntry) []any {
	return []any{&e.ID, &e.At, &e.Actor, &e.Action, &e.Resource, &e.Reason, &e.Address, &e.RequestID, &e.Before, &e.After}
}
