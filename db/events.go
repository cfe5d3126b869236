package db

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Events reads raw events; Writer stores them.
type Events struct{ pool *pool }

// EventCursor is the last event of the former page.
type EventCursor struct {
	At time.Time
	ID uuid.UUID
}

// Page returns up to limit events of a customer in time order, after the
// cursor where one is given, and fewer where they are large: more follow until
// none comes. It holds no connection once it has returned. It answers
// CodeInvalid where the range begins before events are kept.
func (s Events) Page(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, r metering.Range, after *EventCursor, limit int) ([]metering.Event, error) {
	if after == nil {
		after = &EventCursor{At: r.Start.Add(-time.Microsecond)}
	}
	rows, err := s.pool.Query(ctx, `
		select e.id, e.customer_id, c.external_id, e.event_type, e.ts, e.value, e.properties, coalesce(`+sentKey+`, '')
		from events e join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		where e.tenant_id = $1 and e.customer_id = $2 and e.ts >= $3 and e.ts < $4 and (e.ts, e.id) > ($5, $6)
		order by e.ts, e.id
		limit $7`, tenant, customer, r.Start, r.End, after.At, [16]byte(after.ID), limit)
	if err != nil {
		return nil, coded(err)
	}
	defer rows.Close()
	var events []metering.Event
	for bytes := 0; bytes < pageBytes && rows.Next(); {
		var e metering.Event
		err := rows.Scan((*[16]byte)(&e.ID), &e.CustomerID, &e.ExternalID, &e.EventType, &e.At, &e.Value, &e.Properties, &e.IdempotencyKey)
		if err != nil {
			return nil, coded(err)
		}
		e.At = e.At.UTC()
		events, bytes = append(events, e), bytes+len(e.Properties)+len(e.IdempotencyKey)+len(e.EventType)
	}
	if rows.Close(); rows.Err() != nil {
		return nil, coded(rows.Err())
	}
	return events, requireKept(ctx, s.pool, r, "query.start")
}
