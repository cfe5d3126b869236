package db

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// EventFilter is which events to list. What is empty, or 0, holds for all.
type EventFilter struct {
	metering.Range
	Customer       metering.CustomerID
	EventType      string
	IdempotencyKey string
}

// ListedEvent is a stored event, and what has come of it.
type ListedEvent struct {
	metering.Event
	IngestedAt time.Time
	CountedBy  []Counting
}

// Counting is a meter in whose usage an event is.
type Counting struct {
	MeterSlug string          `json:"meter_slug"`
	Late      bool            `json:"late"`   // it came for a period that was closed
	Period    *CountingPeriod `json:"period"` // nil: none is stored yet
}

// CountingPeriod is the billing period that the time of an event is in.
type CountingPeriod struct {
	ID    metering.PeriodID `json:"id"`
	Start time.Time         `json:"start"`
	End   time.Time         `json:"end"`
}

// List returns up to limit events, newest first, from before the cursor where one
// is given, and whether more follow; fewer where they are large. It reads the chunks
// of the filter's range, from the end on. It answers CodeInvalid where the range
// begins before events are kept.
func (s Events) List(ctx context.Context, tenant metering.TenantID, f EventFilter, before *EventCursor, limit int) (events []ListedEvent, more bool, err error) {
	if before == nil {
		before = &EventCursor{At: f.End}
	}
	rows, err := s.pool.Query(ctx, selectEvents(f), pgx.NamedArgs{
		"tenant": tenant, "start": f.Start, "end": f.End, "customer": f.Customer, "event_type": f.EventType, "key": f.IdempotencyKey,
		"before": before.At, "before_id": [16]byte(before.ID), "limit": limit + 1,
	})
	if err != nil {
		return nil, false, coded(err)
	}
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		if len(events) == limit || bytes >= pageBytes {
			more = true
			break
		}
		e, err := scanListed(rows)
		if err != nil {
			return nil, false, coded(err)
		}
		events, bytes = append(events, e), bytes+len(e.Properties)+len(e.IdempotencyKey)+len(e.EventType)
	}
	if rows.Close(); rows.Err() != nil {
		return nil, false, coded(rows.Err())
	}
	return events, more, requireKept(ctx, s.pool, f.Range)
}

func scanListed(row pgx.CollectableRow) (e ListedEvent, err error) {
	var counted []byte
	err = row.Scan((*[16]byte)(&e.ID), &e.CustomerID, &e.ExternalID, &e.EventType, &e.At, &e.Value, &e.Properties, &e.IdempotencyKey, &e.IngestedAt, &counted)
	if err != nil {
		return e, err
	}
	e.At, e.IngestedAt = e.At.UTC(), e.IngestedAt.UTC()
	return e, json.Unmarshal(counted, &e.CountedBy)
}

// selectEvents names only what the filter does, so that its index is used. A key
// that was never claimed is none of an event's, and nothing is read for it.
func selectEvents(f EventFilter) string {
	where := ""
	if f.Customer != 0 {
		where += " and customer_id = @customer"
	}
	if f.EventType != "" {
		where += " and event_type = @event_type"
	}
	if f.IdempotencyKey != "" {
		where += " and idempotency_key = @key and exists (select from event_keys where tenant_id = @tenant and key = @key)"
	}
	return `
		select e.id, e.customer_id, c.external_id, e.event_type, e.ts, e.value, e.properties, coalesce(e.idempotency_key, ''), e.ingested_at, ` + countedBy + `
		from (
		  select tenant_id, id, customer_id, event_type, ts, value, properties, idempotency_key, ingested_at, epoch
		  from events
		  where tenant_id = @tenant
		    and ts >= @start
		    and ts < @end
		    and (ts, id) < (@before, @before_id::uuid)` + where + `
		  order by ts desc, id desc
		  limit @limit) e
		join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		order by e.ts desc, e.id desc`
}

// countedBy are the Countings of an event e, by the rules of ingest and of
// backfills: of meters whose past is counted, by slug.
var countedBy = `(
		  select coalesce(jsonb_agg(jsonb_build_object(
		    'meter_slug', m.slug, 'late', ` + isLate("m.id") + `, 'period', (
		      select jsonb_build_object('id', p.id, 'start', p.starts_at, 'end', p.ends_at)
		      from billing_periods p
		      where p.tenant_id = e.tenant_id
		        and p.customer_id = e.customer_id
		        and p.starts_at <= e.ts
		        and e.ts < p.ends_at
		        and p.stream = ` + streamAt("e.tenant_id", "e.customer_id", "m.id", "e.ts") + `)
		    ) order by m.slug), '[]')
		  from meters m
		  join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
		  where m.tenant_id = e.tenant_id
		    and g.event_type = e.event_type
		    and g.status = 'complete'
		    and (g.until_epoch is null or e.epoch < g.until_epoch)
		    and (e.epoch >= g.epoch or g.counted_from is null or e.ts >= g.counted_from))`
