package usage

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Events reads raw events; Writer stores them.
type Events struct{ pool *pg.Pool }

// EventCursor is the position of the last event of a page.
type EventCursor struct {
	At time.Time
	ID uuid.UUID

	Customer metering.CustomerID `json:"customer,omitzero"` // set if the pages contain the events of all customers
}

// conditionAfter returns the SQL condition that selects a customer's events after the cursor, and the columns that
// order them. For WholeTenant, it selects the events of all customers and orders them by customer first.
func (c EventCursor) conditionAfter(customer metering.CustomerID) (where, order string) {
	if customer == metering.WholeTenant {
		return "customer_id >= @after_customer and (customer_id, ts, id) > (@after_customer, @after, @after_id)", "customer_id, ts, id"
	}
	return "customer_id = @customer and (ts, id) > (@after, @after_id)", "ts, id"
}

// conditionUpTo returns the SQL condition that selects events up to the cursor, and adds its arguments to args. A nil
// cursor selects all events.
func (c *EventCursor) conditionUpTo(customer metering.CustomerID, args pgx.NamedArgs) (where string) {
	if c == nil {
		return "true"
	}
	args["last_customer"], args["last"], args["last_id"] = c.Customer, c.At, [16]byte(c.ID)
	if customer == metering.WholeTenant {
		return "customer_id <= @last_customer and (customer_id, ts, id) <= (@last_customer, @last, @last_id)"
	}
	return "(ts, id) <= (@last, @last_id)"
}

// arguments returns the SQL arguments of the cursor, the range and the limit.
func (c EventCursor) arguments(tenant metering.TenantID, customer metering.CustomerID, r metering.Range, limit int) pgx.NamedArgs {
	return pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "from": r.Start, "until": r.End, "limit": limit,
		"after_customer": c.Customer, "after": c.At, "after_id": [16]byte(c.ID),
	}
}

// Page returns up to limit events of a customer, or of WholeTenant, in the order of EventCursor.conditionAfter. The
// page contains the events after the first cursor, up to and including the second. A nil cursor sets no bound. Page
// returns fewer events if they are large, so read pages until one is empty. It holds no connection after it has
// returned. It returns CodeInvalid if the range begins before the events that are kept.
func (s Events) Page(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, r metering.Range, after, last *EventCursor, limit int) ([]metering.Event, error) {
	if after == nil {
		after = &EventCursor{At: r.Start.Add(-time.Microsecond)}
	}
	where, order := after.conditionAfter(customer)
	args := after.arguments(tenant, customer, r, limit)
	where += " and " + last.conditionUpTo(customer, args)
	rows, err := s.pool.Query(ctx, `
		select e.id, e.customer_id, c.external_id, e.event_type, e.ts, e.value, e.properties, coalesce(`+SentKey+`, '')
		from (
		  select *
		  from events
		  where tenant_id = @tenant and ts >= @from and ts < @until and `+where+`
		  order by `+order+`
		  limit @limit) e
		join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		order by e.`+strings.ReplaceAll(order, ", ", ", e."), args)
	if err != nil {
		return nil, pg.Coded(err)
	}
	defer rows.Close()
	var events []metering.Event
	for bytes := 0; bytes < pg.PageBytes && rows.Next(); {
		var e metering.Event
		err := rows.Scan((*[16]byte)(&e.ID), &e.CustomerID, &e.ExternalID, &e.EventType, &e.At, &e.Value, &e.Properties, &e.IdempotencyKey)
		if err != nil {
			return nil, pg.Coded(err)
		}
		e.At = e.At.UTC()
		events, bytes = append(events, e), bytes+len(e.Properties)+len(e.IdempotencyKey)+len(e.EventType)
	}
	if rows.Close(); rows.Err() != nil {
		return nil, pg.Coded(rows.Err())
	}
	return events, requireKept(ctx, s.pool, r, "query.start")
}
