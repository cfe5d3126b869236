package db

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// EventsAfter is the progress of the erasure of a customer's events.
type EventsAfter struct {
	At   time.Time `json:"at"`
	ID   uuid.UUID `json:"id"`
	Done bool      `json:"done"`
}

// Events erases up to limit of the customer's events after a position, and returns the new position. The
// caller must have called Groups before.
func (s Erasures) Events(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after EventsAfter, limit int) (last EventsAfter, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// The lock prevents another transaction from publishing a meter version between the lookup of the
		// definitions below and the update of the events.
		if err := pg.LockTenantShared(ctx, tx, tenant); err != nil {
			return err
		}
		if err := decompressOwn(ctx, tx); err != nil {
			return err
		}
		definitions, err := definitionsInUse(ctx, tx, tenant)
		if err != nil {
			return err
		}
		used, err := groupsOf(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		stay := make(kept)
		for _, g := range used {
			if err := stay.add(g.Key); err != nil {
				return err
			}
		}
		batch, err := s.readEvents(ctx, tx, tenant, customer, after, limit)
		if err != nil {
			return err
		}
		if last = after; len(batch.ids) > 0 {
			last = EventsAfter{At: batch.instants[len(batch.ids)-1], ID: batch.ids[len(batch.ids)-1]}
		}
		last.Done = len(batch.ids) < limit
		if err := batch.replace(s.pool.AuditKey(), tenant, stay, definitions); err != nil {
			return err
		}
		return batch.write(ctx, tx, tenant, customer)
	})
	if err != nil {
		return EventsAfter{}, fmt.Errorf("erase events: %w", err)
	}
	return last, nil
}

// definition is a meter version in use.
type definition struct {
	metering.MeterVersion

	read bool // usage of the meter is read from this version, and the meter is not archived
}

// definitionsInUse returns the meter versions in use (not retired), by event type.
func definitionsInUse(ctx context.Context, q pg.Querier, tenant metering.TenantID) (map[string][]definition, error) {
	rows, err := q.Query(ctx, `
		select m.meter_version_id = g.id and m.archived_at is null, `+catalog.MeterVersionColumns+`
		from meter_versions g
		join meters m on m.tenant_id = g.tenant_id and m.id = g.meter_id
		where g.tenant_id = $1
		  and g.status <> 'retired'`, tenant)
	if err != nil {
		return nil, err
	}
	definitions := make(map[string][]definition)
	var d definition
	_, err = pgx.ForEachRow(rows, append([]any{&d.read}, catalog.MeterVersionFields(&d.MeterVersion)...), func() error {
		definitions[d.EventType] = append(definitions[d.EventType], d)
		return nil
	})
	return definitions, err
}

// decompressOwn lets the transaction change any number of one customer's events in compressed
// chunks. TimescaleDB decompresses only this customer's events if the plan contains the parameter
// values. Therefore, the transaction uses custom plans. The Apache edition compresses no chunks.
func decompressOwn(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		select set_config(name, case name when 'plan_cache_mode' then 'force_custom_plan' else '0' end, true)
		from pg_settings
		where name in ('plan_cache_mode', 'timescaledb.max_tuples_decompressed_per_dml_transaction')`)
	return err
}

// eventsErased contains a batch of events to erase, by column.
type eventsErased struct {
	events     []metering.Event // with the fields that meters read
	instants   []time.Time
	ids        []uuid.UUID
	properties []*string
	keys       []*string // idempotency keys as they were sent
	names      []*string // replacements of the keys
	digests    [][]byte  // of the events
	keyDigests [][]byte
}

func (s Erasures) readEvents(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, after EventsAfter, limit int) (b eventsErased, err error) {
	rows, err := tx.Query(ctx, `
		select ts, id, event_type, value, properties::text, `+usage.SentKey+`
		from events e
		where tenant_id = $1
		  and customer_id = $2
		  and (ts, id) > ($3, $4)
		  and erased is null
		order by ts, id
		limit $5`, tenant, customer, after.At, after.ID, limit)
	if err != nil {
		return b, err
	}
	var at time.Time
	var id uuid.UUID
	var eventType string
	var value metering.Decimal
	var properties, key *string
	_, err = pgx.ForEachRow(rows, []any{&at, &id, &eventType, &value, &properties, &key}, func() error {
		e := metering.Event{EventType: eventType, Value: value}
		if properties != nil {
			e.Properties = json.RawMessage(*properties)
		}
		b.events = append(b.events, e)
		b.instants, b.ids = append(b.instants, at), append(b.ids, id)
		b.properties, b.keys = append(b.properties, properties), append(b.keys, key)
		return nil
	})
	return b, err
}

// replace replaces personal values in the events. The groups of the usage and the values that
// meters count do not change.
func (b *eventsErased) replace(k audit.Key, tenant metering.TenantID, stay kept, definitions map[string][]definition) error {
	for i := range b.ids {
		properties, key := "", ""
		if b.properties[i] != nil {
			properties = *b.properties[i]
		}
		if b.keys[i] != nil {
			key = *b.keys[i]
		}
		b.digests = append(b.digests, k.MAC([]byte("erased event"), []byte(tenant.String()), []byte(b.ids[i].String()), []byte(properties), []byte(key)))
		b.names = append(b.names, nil)
		if key != "" {
			digest := usage.ErasedKey(k, tenant, key)
			b.keyDigests = append(b.keyDigests, digest)
			b.names[i] = new(erasedPrefix + hex.EncodeToString(digest[:erasedBytes]))
		}
		left, err := erasedProperties(k, tenant, &b.events[i], stay)
		if err != nil {
			return err
		}
		kept, err := measurements(&b.events[i], definitions[b.events[i].EventType])
		if err != nil {
			return err
		}
		if kept != nil {
			left[metering.MeasuredProperty] = kept
		}
		if b.properties[i] == nil && len(left) == 0 {
			continue
		}
		text, err := json.Marshal(left)
		if err != nil {
			return err
		}
		b.properties[i] = new(string(text))
	}
	return nil
}

// erasedProperties returns the properties by which the customer's usage is grouped, each under its whole
// path, with digests in place of personal values.
func erasedProperties(k audit.Key, tenant metering.TenantID, e *metering.Event, stay kept) (map[string]json.RawMessage, error) {
	left := make(map[string]json.RawMessage)
	for name := range stay {
		value, err := e.Property(name)
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if left[name] = value; !stay[name][string(value)] {
			left[name] = erasedValue(k, tenant, name, value)
		}
	}
	return left, nil
}

// measurements returns a JSON object with the value that each definition counts of an event (see MeasuredProperty). It
// returns nil if none counts the event.
func measurements(e *metering.Event, definitions []definition) (json.RawMessage, error) {
	values := make(map[string]*metering.Decimal)
	counted := false
	for _, d := range definitions {
		m, err := d.Measure(e)
		if err != nil {
			return nil, err
		}
		var value *metering.Decimal
		if m.Verdict == metering.Counted {
			value, counted = &m.Value, true
		}
		if d.read {
			values[d.MeterID.String()] = value
		}
		if value != nil && d.Selects() {
			values[d.DefinitionDigest()] = value
		}
	}
	if !counted {
		return nil, nil
	}
	return json.Marshal(values)
}

// write stores the replaced events, and replaces the stored keys by their digests.
func (b *eventsErased) write(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	if len(b.ids) == 0 {
		return nil
	}
	args := pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "from": b.instants[0], "until": b.instants[len(b.instants)-1],
		"instants": b.instants, "ids": b.ids, "properties": b.properties, "names": b.names, "digests": b.digests, "keys": b.keys, "key_digests": b.keyDigests,
	}
	for _, statement := range []string{
		`
		insert into erased_event_keys (tenant_id, digest)
		select distinct @tenant::bigint, digest
		from unnest(@key_digests::bytea[]) as erased (digest)
		order by digest
		on conflict do nothing`,
		`delete from event_keys where tenant_id = @tenant and key = any(array(select event_key(sent) from unnest(@keys::text[]) as sent))`,
		`delete from event_conflicts where tenant_id = @tenant and key = any(array(select event_key(sent) from unnest(@keys::text[]) as sent))`,
		`
		update events e
		set properties = x.properties::jsonb, idempotency_key = x.name, idempotency_uuid = null, erased = x.digest
		from unnest(@instants::timestamptz[], @ids::uuid[], @properties::text[], @names::text[], @digests::bytea[]) as x (ts, id, properties, name, digest)
		where e.tenant_id = @tenant
		  and e.customer_id = @customer
		  and e.ts between @from and @until
		  and e.ts = x.ts
		  and e.id = x.id`,
	} {
		if _, err := tx.Exec(ctx, statement, args); err != nil {
			return err
		}
	}
	return nil
}
