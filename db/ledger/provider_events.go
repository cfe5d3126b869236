package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// ProviderEvents stores the events of billing providers, each once.
type ProviderEvents struct{ pool *pg.Pool }

// KeptEvent is a stored event with the tenant's customer that it concerns. Customer is 0 if the event
// concerns none, or if its connection is no longer active.
type KeptEvent struct {
	Tenant   metering.TenantID
	Row      metering.ProviderEventID
	Customer metering.CustomerID
}

// keptEvent is the SQL of the columns of a KeptEvent, which are read from provider_events e.
const keptEvent = `e.tenant_id, e.id, ` + customerOfEvent

const customerOfEvent = `coalesce((
	  select min(c.id)
	  from customers c
	  join billing_connections r on r.tenant_id = c.tenant_id and r.retired_at is null
	  where c.tenant_id = e.tenant_id
	    and c.billing_provider_id = e.provider_customer
	    and r.id = e.connection_id), 0)`

// Store stores an event, or finds it if it is stored already. handled reports whether the event has
// been handled.
func (s ProviderEvents) Store(ctx context.Context, tenant metering.TenantID, e metering.ProviderEvent, now time.Time) (kept KeptEvent, handled bool, err error) {
	err = s.pool.QueryRow(ctx, `
		insert into provider_events as e (tenant_id, connection_id, event_id, kind, invoice, object_id, provider_customer, made_at, received_at)
		values (@tenant, @connection, @event, @kind, @invoice, @object, @customer, @made, @now)
		on conflict (tenant_id, connection_id, event_id) do update
		set event_id = excluded.event_id
		returning `+keptEvent+`, e.handled_at is not null`, pgx.NamedArgs{
		"tenant": tenant, "connection": e.Connection, "event": e.EventID, "kind": e.Kind, "invoice": e.Invoice, "object": e.ObjectID, "customer": e.Customer,
		"made": e.MadeAt, "now": now,
	}).Scan(&kept.Tenant, &kept.Row, &kept.Customer, &handled)
	if err != nil {
		return KeptEvent{}, false, fmt.Errorf("store provider event: %w", pg.Coded(err))
	}
	return kept, handled, nil
}

// Get returns an event and the customer that it concerns, as in a KeptEvent. It returns CodeNotFound if
// there is no such event.
func (s ProviderEvents) Get(ctx context.Context, tenant metering.TenantID, row metering.ProviderEventID) (e metering.ProviderEvent, customer metering.CustomerID, err error) {
	err = s.pool.QueryRow(ctx, `
		select e.connection_id, e.event_id, e.kind, e.invoice, e.object_id, e.provider_customer, e.made_at, `+customerOfEvent+`
		from provider_events e
		where e.tenant_id = $1
		  and e.id = $2`, tenant, row).Scan(&e.Connection, &e.EventID, &e.Kind, &e.Invoice, &e.ObjectID, &e.Customer, &e.MadeAt, &customer)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, 0, metering.Errorf(metering.CodeNotFound, "there is no such event")
	}
	if err != nil {
		return e, 0, fmt.Errorf("read provider event: %w", pg.Coded(err))
	}
	return e, customer, nil
}

// Handle marks an event as handled, with the outcome. It does not change an event that is handled.
func (s ProviderEvents) Handle(ctx context.Context, tenant metering.TenantID, row metering.ProviderEventID, outcome string, now time.Time) error {
	_, err := s.pool.Exec(ctx, `
		update provider_events
		set handled_at = $3, outcome = $4
		where tenant_id = $1
		  and id = $2
		  and handled_at is null`, tenant, row, now, outcome)
	if err != nil {
		return fmt.Errorf("record provider event: %w", pg.Coded(err))
	}
	return nil
}

// Open returns up to 1000 unhandled events of all tenants that were received before the given instant. It returns the
// oldest events of each tenant, and the same number for each tenant that has enough. A tenant with a
// provider that does not answer therefore cannot crowd out the events of other tenants.
func (s ProviderEvents) Open(ctx context.Context, before time.Time) ([]KeptEvent, error) {
	rows, err := s.pool.Query(ctx, `
		select `+keptEvent+`
		from (
		  select tenant_id, id, connection_id, provider_customer, received_at,
		    row_number() over (partition by tenant_id order by received_at) as place
		  from provider_events
		  where handled_at is null
		    and received_at < $1) e
		order by e.place, e.received_at
		limit 1000`, before)
	if err != nil {
		return nil, fmt.Errorf("list open provider events: %w", pg.Coded(err))
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeptEvent])
	if err != nil {
		return nil, fmt.Errorf("list open provider events: %w", pg.Coded(err))
	}
	return open, nil
}

// Sweep deletes up to limit events, of any tenant, that were handled before an instant. A deleted event that the provider
// sends again is handled again.
func (s ProviderEvents) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "provider_events", Key: "tenant_id, id", By: "handled_at", Noun: "provider events"}.Sweep(ctx, s.pool, before, limit)
}
