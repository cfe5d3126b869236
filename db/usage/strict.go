package usage

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Unknown holds the customers (by external_id) and event types that a batch of events names, but that the tenant
// does not have. The tenant has an event type if a meter that is not archived counts it.
type Unknown struct {
	Customers, EventTypes map[string]bool
	contents              map[string]int64 // known idempotency keys, with the content digests of their events
	meters                map[string][]namedVersion
}

// namedVersion is a meter version with its meter's slug.
type namedVersion struct {
	metering.MeterVersion
	slug string
}

// Unusable returns the first meter, by id, that would count the event if its value were usable. It evaluates the
// latest version of each meter, even if its backfill is not complete. It returns false if there is no such meter.
func (u Unknown) Unusable(e *metering.Event) (UnusableValue, bool, error) {
	for _, g := range u.meters[e.EventType] {
		m, err := g.Measure(e)
		if err != nil {
			return UnusableValue{}, false, err
		}
		if m.Verdict == metering.ValueMissing || m.Verdict == metering.ValueInvalid {
			return UnusableValue{g.slug, g.ValueProperty, m.Verdict}, true, nil
		}
	}
	return UnusableValue{}, false, nil
}

// Repeats reports whether the event was stored earlier under the same key.
func (u Unknown) Repeats(e metering.Event) bool {
	content, known := u.contents[e.IdempotencyKey]
	return known && content == contentDigest(&e)
}

// Conflicts reports whether an event with other content was stored earlier under the same key.
func (u Unknown) Conflicts(e metering.Event) bool {
	content, known := u.contents[e.IdempotencyKey]
	return known && content != contentDigest(&e)
}

// Unknown looks up the customers, event types and keys of events before ingest, in one round trip.
func (w *Writer) Unknown(ctx context.Context, tenant metering.TenantID, events []metering.Event) (Unknown, error) {
	customers, types, contents := make(map[string]bool), make(map[string]bool), make(map[string]int64)
	meters := make(map[string][]namedVersion)
	var keys []string
	var claimed []eventKey
	for _, e := range events {
		customers[e.ExternalID], types[e.EventType] = true, true
		if e.IdempotencyKey != "" {
			keys, claimed = append(keys, e.IdempotencyKey), append(claimed, eventKeyOf(e.IdempotencyKey))
		}
	}
	sentTypes := namesIn(types)
	var batch pgx.Batch
	batch.Queue(`select external_id from customers where tenant_id = $1 and external_id = any($2)`, tenant, namesIn(customers)).Query(without(customers))
	batch.Queue(`select event_type from meters where tenant_id = $1 and event_type = any($2) and archived_at is null`, tenant, sentTypes).Query(without(types))
	batch.Queue(`
		select sent.text, k.digest
		from event_keys k
		join unnest($2::text[], $3::uuid[]) as sent (text, key) on k.key = sent.key
		where k.tenant_id = $1`, tenant, keys, claimed).Query(func(rows pgx.Rows) error {
		var key string
		var content int64
		_, err := pgx.ForEachRow(rows, []any{&key, &content}, func() error {
			contents[key] = content
			return nil
		})
		return err
	})
	batch.Queue(`
		select distinct on (g.meter_id) `+catalog.MeterVersionColumns+`, m.slug
		from meter_versions g
		join meters m on m.tenant_id = g.tenant_id and m.id = g.meter_id and m.archived_at is null
		where g.tenant_id = $1
		  and g.event_type = any($2)
		  and g.status <> 'retired'
		order by g.meter_id, g.id desc`, tenant, sentTypes).Query(func(rows pgx.Rows) error {
		var g namedVersion
		_, err := pgx.ForEachRow(rows, append(catalog.MeterVersionFields(&g.MeterVersion), &g.slug), func() error {
			if g.ValueProperty != "" {
				meters[g.EventType] = append(meters[g.EventType], g)
			}
			return nil
		})
		return err
	})
	err := w.store.pool.SendBatch(ctx, &batch).Close()
	return Unknown{customers, types, contents, meters}, pg.Coded(err)
}

func namesIn(set map[string]bool) (names []string) {
	for name := range set {
		names = append(names, name)
	}
	return names
}

// without returns a function that deletes the names in a query's rows from a set.
func without(set map[string]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		_, err := pgx.ForEachRow(rows, []any{&name}, func() error {
			delete(set, name)
			return nil
		})
		return err
	}
}
