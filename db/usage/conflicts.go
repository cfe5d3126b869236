package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Conflicts stores conflicts: accepted events that were not counted, because their idempotency key belongs to
// an event with other content.
type Conflicts struct{ pool *pg.Pool }

// maxConflicts bounds the stored conflicts of a tenant. Further conflicts are counted in EventCounts, and
// their responses state that they are not stored.
const maxConflicts = 10_000

// List returns up to limit conflicts, newest first. If before is not zero, it returns only conflicts with a
// smaller ID.
func (c Conflicts) List(ctx context.Context, tenant metering.TenantID, before uuid.UUID, limit int) (page pg.Page[metering.Event], err error) {
	rows, err := c.pool.Query(ctx, `
		select f.id, f.customer_id, c.external_id, f.event_type, f.ts, f.value, f.properties, f.idempotency_key, f.received_at
		from event_conflicts f
		join customers c on c.tenant_id = f.tenant_id and c.id = f.customer_id
		where f.tenant_id = $1
		  and ($2 or f.id < $3)
		order by f.id desc
		limit $4`, tenant, before == uuid.Nil, [16]byte(before), limit+1)
	if err != nil {
		return page, fmt.Errorf("list conflicts: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (e metering.Event, err error) {
		err = row.Scan((*[16]byte)(&e.ID), &e.CustomerID, &e.ExternalID, &e.EventType, &e.At, &e.Value, &e.Properties, &e.IdempotencyKey, &e.ReceivedAt)
		return e, err
	})
	if err != nil {
		return page, fmt.Errorf("list conflicts: %w", pg.Coded(err))
	}
	return page, nil
}

// Dismiss deletes a conflict that an operator has handled, or returns CodeNotFound. Sending the same event
// again creates the conflict again.
func (c Conflicts) Dismiss(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id uuid.UUID, reason string) error {
	err := pg.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		var customer metering.CustomerID
		var received time.Time
		err := tx.QueryRow(ctx, `
			delete from event_conflicts where tenant_id = $1 and id = $2
			returning customer_id, received_at`, tenant, [16]byte(id)).Scan(&customer, &received)
		if errors.Is(err, pgx.ErrNoRows) {
			return metering.Errorf(metering.CodeNotFound, "there is no such conflict")
		}
		if err != nil {
			return err
		}
		dismissed := audit.Fields{"customer_id": customer.String(), "received_at": received.UTC()}
		return audit.RecordDecision(ctx, tx, tenant, audit.Decision{Actor: actor, Action: "conflict.dismiss", Resource: id.String(), Reason: reason}, dismissed, nil)
	})
	if err != nil {
		return fmt.Errorf("dismiss conflict: %w", pg.Coded(err))
	}
	return nil
}

// Sweep deletes up to limit conflicts, of any tenant, that were received before the instant.
func (c Conflicts) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "event_conflicts", Key: "tenant_id, id", By: "received_at", Noun: "conflicts"}.Sweep(ctx, c.pool, before, limit)
}

// conflict is the primary key of a row of event_conflicts.
type conflict struct {
	key    eventKey
	digest int64
}

// settleConflicts stores the conflicts among the events. If the tenant rejects conflicts, it sets their outcomes
// to refused instead.
func (a *attempt) settleConflicts(ctx context.Context, conn *pgxpool.Conn, policy metering.ConflictPolicy) error {
	var places []int
	for i := range a.outcomes {
		if !a.outcomes[i].Conflict {
			continue
		}
		if policy == metering.RejectConflicts {
			a.outcomes[i] = Outcome{Conflict: true, Refused: true}
			continue
		}
		places = append(places, i)
	}
	if len(places) == 0 {
		return nil
	}
	stored, err := a.storeConflicts(ctx, conn, places)
	if err != nil {
		return fmt.Errorf("store conflicts: %w", err)
	}
	for _, i := range places {
		a.outcomes[i].Unkept = !stored[conflict{a.keys[i], contentDigest(&a.events[i])}]
	}
	return nil
}

// storeConflicts stores each conflict once, even if clients send it several times, up to maxConflicts per
// tenant. It returns those of the conflicts that are stored, now or earlier.
func (a *attempt) storeConflicts(ctx context.Context, conn *pgxpool.Conn, places []int) (map[conflict]bool, error) {
	n := len(places)
	ids, keys, digests, customers, types := make([][16]byte, n), make([]eventKey, n), make([]int64, n), make([]int64, n), make([]string, n)
	instants, received, values, properties, sent := make([]time.Time, n), make([]time.Time, n), make([]string, n), make([]*string, n), make([]string, n)
	for at, i := range places {
		e := &a.events[i]
		ids[at], keys[at], digests[at], customers[at], types[at] = e.ID, a.keys[i], contentDigest(e), int64(e.CustomerID), e.EventType
		instants[at], received[at], values[at], sent[at] = e.At, e.ReceivedAt, e.Value.String(), e.IdempotencyKey
		if e.Properties != nil {
			properties[at] = new(string(e.Properties))
		}
	}
	var batch pgx.Batch
	batch.Queue(`
		insert into event_conflicts (tenant_id, id, key, digest, customer_id, event_type, ts, value, properties, idempotency_key, received_at)
		select distinct on (key, digest) @tenant::bigint, sent.*
		from unnest(@ids::uuid[], @keys::uuid[], @digests::bigint[], @customers::bigint[], @types::text[], @instants::timestamptz[],
		  @values::text[]::numeric[], @properties::text[]::jsonb[], @sent::text[], @received::timestamptz[])
		  as sent (id, key, digest, customer_id, event_type, ts, value, properties, idempotency_key, received_at)
		where not exists (select from event_conflicts c where c.tenant_id = @tenant and c.key = sent.key and c.digest = sent.digest)
		order by key, digest
		limit (select greatest(0, @most - count(*)) from event_conflicts where tenant_id = @tenant)
		on conflict (tenant_id, key, digest) do nothing`, pgx.NamedArgs{
		"tenant": a.tenant, "ids": ids, "keys": keys, "digests": digests, "customers": customers, "types": types, "instants": instants,
		"values": values, "properties": properties, "sent": sent, "received": received, "most": maxConflicts,
	})
	stored := make(map[conflict]bool, n)
	batch.Queue(`
		select c.key, c.digest
		from event_conflicts c
		join unnest($2::uuid[], $3::bigint[]) as sent (key, digest) on c.key = sent.key and c.digest = sent.digest
		where c.tenant_id = $1`, a.tenant, keys, digests).Query(func(rows pgx.Rows) error {
		var one conflict
		_, err := pgx.ForEachRow(rows, []any{&one.key, &one.digest}, func() error {
			stored[one] = true
			return nil
		})
		return err
	})
	return stored, conn.SendBatch(ctx, &batch).Close()
}
