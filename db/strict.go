package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Unknown are the customers, by external_id, and the event types of events that
// do not exist. Of an event type, a meter is what makes it exist.
type Unknown struct {
	Customers, EventTypes map[string]bool
	repeats               map[string]bool // the keys of events that are stored, which come again as they were
}

// Repeats says whether the event was stored earlier under the same key.
func (u Unknown) Repeats(e metering.Event) bool {
	return e.IdempotencyKey != "" && u.repeats[e.IdempotencyKey]
}

// Unknown looks up what a strict tenant's events name, in one round trip.
func (w *Writer) Unknown(ctx context.Context, tenant metering.TenantID, events []metering.Event) (Unknown, error) {
	customers, types, repeats := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	var keys []string
	var claimed []eventKey
	var contents []int64
	for _, e := range events {
		customers[e.ExternalID], types[e.EventType] = true, true
		if e.IdempotencyKey != "" {
			keys, claimed, contents = append(keys, e.IdempotencyKey), append(claimed, eventKeyOf(e.IdempotencyKey)), append(contents, contentDigest(&e))
		}
	}
	var batch pgx.Batch
	batch.Queue(`select external_id from customers where tenant_id = $1 and external_id = any($2)`, tenant, namesIn(customers)).Query(without(customers))
	batch.Queue(`select event_type from meters where tenant_id = $1 and event_type = any($2) and archived_at is null`, tenant, namesIn(types)).Query(without(types))
	batch.Queue(`
		select sent.text
		from event_keys k
		join unnest($2::text[], $3::uuid[], $4::bigint[]) as sent (text, key, digest) on k.key = sent.key and k.digest = sent.digest
		where k.tenant_id = $1`, tenant, keys, claimed, contents).Query(eachName(func(key string) { repeats[key] = true }))
	err := w.store.pool.SendBatch(ctx, &batch).Close()
	return Unknown{customers, types, repeats}, coded(err)
}

func namesIn(set map[string]bool) (names []string) {
	for name := range set {
		names = append(names, name)
	}
	return names
}

// without removes the names that are found from a set.
func without(set map[string]bool) func(pgx.Rows) error {
	return eachName(func(name string) { delete(set, name) })
}

func eachName(use func(name string)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		_, err := pgx.ForEachRow(rows, []any{&name}, func() error {
			use(name)
			return nil
		})
		return err
	}
}
