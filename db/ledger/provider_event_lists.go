package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// EventWalk is the position of a walk through the provider's list of a connection's events. A walk reads pages
// of the list, from the newest event back to events that are known.
type EventWalk struct {
	Connection metering.ConnectionID
	Since      time.Time  // events created before this time are known
	BeganAt    *time.Time // nil: the walk has not begun
	After      string     // id of the last event of the previous page; "": none
}

// listedAgain is the overlap of consecutive walks. It covers clock differences, and events that the provider
// lists only after events that were created later.
const listedAgain = time.Hour

// Walk returns the current walk of a connection. The first walk goes back to the creation of the
// connection, less listedAgain.
func (s ProviderEvents) Walk(ctx context.Context, tenant metering.TenantID, connection metering.ConnectionID) (w EventWalk, err error) {
	w.Connection = connection
	err = s.pool.QueryRow(ctx, `
		select coalesce(l.seen_until, k.created_at - $3::interval), l.began_at, coalesce(l.last_event, '')
		from billing_connections k
		left join provider_event_lists l on l.tenant_id = k.tenant_id and l.connection_id = k.id
		where k.tenant_id = $1
		  and k.id = $2`, tenant, connection, listedAgain).Scan(&w.Since, &w.BeganAt, &w.After)
	if err != nil {
		return w, fmt.Errorf("read list of provider events: %w", pg.Coded(err))
	}
	return w, nil
}

// HasGap reports whether a new walk needs events that the provider no longer lists. from is the creation time of the
// oldest events that the provider still lists. HasGap returns false for a walk that has begun.
func (w EventWalk) HasGap(from time.Time) bool {
	return w.BeganAt == nil && w.Since.Add(listedAgain).Before(from)
}

// Skip restarts the walk at the given time, because the provider no longer lists earlier events. To make up for
// them, it makes the invoice lists of the connection due now (DueLists).
func (s ProviderEvents) Skip(ctx context.Context, tenant metering.TenantID, w EventWalk, from time.Time) (EventWalk, error) {
	next := EventWalk{Connection: w.Connection, Since: from}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			update billing_destinations
			set invoices_due_at = null
			where tenant_id = $1
			  and connection_id = $2`, tenant, w.Connection); err != nil {
			return err
		}
		return saveWalk(ctx, tx, tenant, next)
	})
	if err != nil {
		return w, fmt.Errorf("skip provider events: %w", err)
	}
	return next, nil
}

// StoreListed stores a page of listed events, and the ID of the last listed event as the position of the walk. An
// empty ID ends the walk. StoreListed stores and returns only new events of the tenant's customers, oldest first.
func (s ProviderEvents) StoreListed(ctx context.Context, tenant metering.TenantID, w EventWalk, events []metering.ProviderEvent, last string, now time.Time) (kept []KeptEvent, err error) {
	if w.BeganAt == nil {
		w.BeganAt = &now
	}
	if w.After = last; last == "" {
		w = EventWalk{Connection: w.Connection, Since: w.BeganAt.Add(-listedAgain)}
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if kept, err = insertListed(ctx, tx, tenant, w.Connection, events, now); err != nil {
			return err
		}
		return saveWalk(ctx, tx, tenant, w)
	})
	if err != nil {
		return nil, fmt.Errorf("store listed provider events: %w", err)
	}
	return kept, nil
}

// insertListed stores the new events of the tenant's customers, oldest first, and returns them. events is newest first.
func insertListed(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, connection metering.ConnectionID, events []metering.ProviderEvent, now time.Time) ([]KeptEvent, error) {
	var ids, kinds, objects, customers []string
	var invoices []bool
	var made []time.Time
	for _, e := range slices.Backward(events) {
		if strings.ContainsRune(e.EventID+e.Kind+e.ObjectID+e.Customer, 0) {
			continue // PostgreSQL text cannot have a zero byte, and the provider sends none
		}
		ids, kinds, objects, customers = append(ids, e.EventID), append(kinds, e.Kind), append(objects, e.ObjectID), append(customers, e.Customer)
		invoices, made = append(invoices, e.Invoice), append(made, e.MadeAt)
	}
	rows, err := tx.Query(ctx, `
		insert into provider_events as e (tenant_id, connection_id, event_id, kind, invoice, object_id, provider_customer, made_at, received_at)
		select @tenant, @connection, l.id, l.kind, l.invoice, l.object, l.customer, l.made, @now
		from unnest(@ids::text[], @kinds::text[], @invoices::boolean[], @objects::text[], @customers::text[], @made::timestamptz[])
		  with ordinality l (id, kind, invoice, object, customer, made, place)
		where exists (
		  select
		  from customers c
		  where c.tenant_id = @tenant
		    and c.billing_provider_id = l.customer)
		order by l.place
		on conflict (tenant_id, connection_id, event_id) do nothing
		returning `+keptEvent, pgx.NamedArgs{
		"tenant": tenant, "connection": connection, "now": now,
		"ids": ids, "kinds": kinds, "invoices": invoices, "objects": objects, "customers": customers, "made": made,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[KeptEvent])
}

func saveWalk(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, w EventWalk) error {
	_, err := tx.Exec(ctx, `
		insert into provider_event_lists (tenant_id, connection_id, seen_until, began_at, last_event)
		values ($1, $2, $3, $4, $5)
		on conflict (tenant_id, connection_id) do update
		set seen_until = excluded.seen_until, began_at = excluded.began_at, last_event = excluded.last_event`,
		tenant, w.Connection, w.Since, w.BeganAt, w.After)
	return err
}
