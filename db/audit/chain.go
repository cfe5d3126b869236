// Package audit writes and verifies the audit log: a chain of entries per tenant. Each entry has a MAC of the entry
// and of the previous entry's MAC.
//
// It owns the format of entries and the transactions that write them. It does not own the pool of
// connections, nor the operations that are audited.
package audit

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Key is the HMAC key of the audit log's chain. Without it, write access to the database is not enough
// to forge or change an entry undetected.
type Key []byte

// NewKey derives the key from the service's secret. It returns nil if secret is nil.
func NewKey(secret []byte) (Key, error) {
	if secret == nil {
		return nil, nil
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "odometer/audit-log", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key of the audit log: %w", err)
	}
	return key, nil
}

// MAC returns the MAC of parts. Each part is preceded by its length, so that bytes cannot move from one part to the
// next without changing the MAC. It panics if k is nil.
func (k Key) MAC(parts ...[]byte) []byte {
	if k == nil {
		panic("audit: the store was opened without the secret") // without the key, anyone could compute this MAC
	}
	mac := hmac.New(sha256.New, k)
	for _, part := range parts {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// entryMAC returns the MAC of an entry. The input includes the MAC of the previous entry, so the MAC covers all
// earlier entries too.
func (k Key) entryMAC(tenant metering.TenantID, former []byte, e metering.AuditEntry) []byte {
	return k.MAC([]byte("entry"), []byte(tenant.String()), former, []byte(e.ID.String()),
		strconv.AppendInt(nil, e.At.UnixMicro(), 10), []byte(e.Actor), []byte(e.Action), []byte(e.Resource), []byte(e.Reason),
		[]byte(e.Address), []byte(e.RequestID), e.Before, e.After)
}

// Seal returns the MAC of a head, which detects a truncation of the log. A truncated log needs the head of an
// earlier entry, and the seal of that head cannot be computed without the key.
func (k Key) Seal(tenant metering.TenantID, h metering.AuditHead) []byte {
	return k.MAC([]byte("head"), []byte(tenant.String()), []byte(h.Last.String()), h.MAC)
}

// auditedTx is a transaction that collects audit entries and writes them at its end. Writing an entry locks the
// tenant's head, which all audited transactions of the tenant need. Writing last holds the lock for the shortest
// time.
type auditedTx struct {
	pgx.Tx

	entries []auditedEntry
}

type auditedEntry struct {
	tenant metering.TenantID
	metering.AuditEntry
	before, after Fields // rendered when the entry is written; if nil, the JSON in AuditEntry is written
}

// keyHolder is a pool of connections that can have the key of the audit log.
type keyHolder interface {
	AuditKey() Key // nil if the pool was opened without the service's secret
}

// Wrap returns a function that runs fn in an auditedTx, and then writes the entries that fn has recorded. The parent
// is the pool or, for a nested transaction, the outer transaction. To write entries, the pool needs a method AuditKey.
func Wrap(ctx context.Context, parent any, fn func(tx pgx.Tx) error) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		audited := &auditedTx{Tx: tx}
		if err := fn(audited); err != nil {
			return err
		}
		return audited.finish(ctx, parent)
	}
}

// finish writes the entries. If the parent is an outer transaction, finish adds them to that transaction's entries
// instead.
func (t *auditedTx) finish(ctx context.Context, parent any) error {
	if outer, nested := parent.(*auditedTx); nested {
		outer.entries = append(outer.entries, t.entries...)
		return nil
	}
	if len(t.entries) == 0 {
		return nil
	}
	keyed, ok := parent.(keyHolder)
	if !ok || keyed.AuditKey() == nil {
		return errors.New("write audit log: the store was opened without the secret")
	}
	slices.SortStableFunc(t.entries, func(a, b auditedEntry) int { return int(a.tenant - b.tenant) })
	for len(t.entries) > 0 {
		tenant := t.entries[0].tenant
		n := slices.IndexFunc(t.entries, func(e auditedEntry) bool { return e.tenant != tenant })
		if n < 0 {
			n = len(t.entries)
		}
		if err := keyed.AuditKey().write(ctx, t.Tx, tenant, t.entries[:n]); err != nil {
			return fmt.Errorf("write audit log: %w", err)
		}
		t.entries = t.entries[n:]
	}
	return nil
}

// rendered returns the entry with its changed fields as JSON.
func (k Key) rendered(noted auditedEntry) (e metering.AuditEntry, err error) {
	e = noted.AuditEntry
	if noted.before != nil {
		e.Before, err = k.json(noted.tenant, noted.before)
	}
	if noted.after != nil && err == nil {
		e.After, err = k.json(noted.tenant, noted.after)
	}
	return e, err
}

// write appends entries to the tenant's chain. It locks the tenant's head until the transaction ends, so
// two concurrent writers cannot append after the same entry.
func (k Key) write(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, entries []auditedEntry) error {
	var head metering.AuditHead
	var at time.Time
	err := tx.QueryRow(ctx, `
		insert into audit_heads as h (tenant_id, last_id, mac, seal)
		values ($1, $2, '', '')
		on conflict (tenant_id) do update set last_id = h.last_id + $2
		returning last_id - $2, mac, clock_timestamp()`, tenant, len(entries)).Scan(&head.Last, &head.MAC, &at)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	for i := range entries {
		e, err := k.rendered(entries[i])
		if err != nil {
			return err
		}
		e.At, e.ID = at, head.Last+1
		head = metering.AuditHead{Last: e.ID, MAC: k.entryMAC(tenant, head.MAC, e)}
		batch.Queue(`
			insert into audit_log (tenant_id, id, at, actor, action, resource, reason, address, request_id, before, after, mac)
			values (@tenant, @id, @at, @actor, @action, @resource, @reason, @address, @request, @before, @after, @mac)`, pgx.NamedArgs{
			"tenant": tenant, "id": e.ID, "at": e.At, "actor": e.Actor, "action": e.Action, "resource": e.Resource, "reason": e.Reason,
			"address": e.Address, "request": e.RequestID, "before": e.Before, "after": e.After, "mac": head.MAC,
		})
	}
	batch.Queue(`update audit_heads set mac = $2, seal = $3 where tenant_id = $1`, tenant, head.MAC, k.Seal(tenant, head))
	return tx.SendBatch(ctx, &batch).Close()
}
