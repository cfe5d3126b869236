package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// persist stores the events. Until ctx ends, it retries after a transient error, if the failed attempt has
// certainly stored nothing. settles is nil unless the events settle a reservation.
func (w *Writer) persist(ctx context.Context, tenant metering.TenantID, events []metering.Event, settles *settlement, written func()) ([]Outcome, error) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		attempt := &attempt{writer: w, tenant: tenant, events: events, settles: settles, written: written, outcomes: make([]Outcome, len(events)), keys: make([]eventKey, len(events))}
		attempt.erasures, _ = w.erasures.Get(tenant)
		err := attempt.prepare(ctx)
		if err == nil {
			err = attempt.run(ctx)
		}
		if attempt.unanswered {
			committed, unknown := attempt.recoverCommit(ctx)
			if unknown != nil {
				return nil, metering.Errorf(metering.CodeUnavailable, "the connection to the database was lost during COMMIT, "+
					"so these events may or may not be stored; repeating events that have an idempotency_key is safe").Because(unknown)
			}
			if committed {
				err = nil
			}
		}
		if err == nil {
			attempt.remember()
			w.options.Uncounted.add(tenant, attempt.uncounted)
			attempt.unarchive(ctx)
			return attempt.outcomes, nil
		}
		if !isRetryable(err) || pg.Wait(ctx, pause) != nil {
			return nil, pg.Coded(err)
		}
	}
}

// prepare sets the id and the customer of each event, and creates missing chunks.
func (a *attempt) prepare(ctx context.Context) error {
	for i := range a.events {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make event id: %w", err)
		}
		a.events[i].ID = id
	}
	if err := a.resolveCustomers(ctx); err != nil {
		return err
	}
	return a.writer.chunks.Ensure(ctx, a.events)
}

// resolveCustomers sets the customer of each event, and creates the customers that do not exist.
func (a *attempt) resolveCustomers(ctx context.Context) error {
	entryOf := func(externalID string) customerEntry {
		return customerEntry{CustomerName{a.tenant, externalID}, a.erasures}
	}
	unknown := make(map[string]time.Time) // earliest ReceivedAt, by external id
	for i := range a.events {
		e := &a.events[i]
		known, ok := a.writer.customers.Get(entryOf(e.ExternalID))
		if since, seen := unknown[e.ExternalID]; !ok && (!seen || e.ReceivedAt.Before(since)) {
			unknown[e.ExternalID] = e.ReceivedAt
		}
		e.CustomerID, e.CustomerSince = known.ID, known.Since
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := a.writer.store.customers.Resolve(ctx, a.tenant, unknown)
	if err != nil {
		return err
	}
	for externalID, customer := range found {
		a.writer.customers.Add(entryOf(externalID), customer)
	}
	for i := range a.events {
		if customer, ok := found[a.events[i].ExternalID]; ok {
			a.events[i].CustomerID, a.events[i].CustomerSince = customer.ID, customer.Since
		}
	}
	return nil
}

// isRetryable reports whether a failed attempt was rolled back for a reason that may be transient.
func isRetryable(err error) bool {
	state := pg.SQLState(err)
	return errors.Is(err, errErased) || state == pg.StateDeadlock || state == pg.StateSerialization || claimedMeanwhile(err) || pg.IsServerFault(err)
}

// attempt is one execution of the transaction that stores a group of events.
type attempt struct {
	writer   *Writer
	tenant   metering.TenantID
	events   []metering.Event
	outcomes []Outcome
	keys     []eventKey // by position in events; zero for events without an idempotency key
	settles  *settlement
	written  func() // called before the last round trip, which ends with COMMIT

	// erasures is the tenant's number of erasures that was known before the attempt looked up its customers,
	// groups and keys. An erasure raises the number under the tenant's exclusive lock. The transaction holds the
	// lock shared and stores nothing if the number differs.
	erasures int64

	backend    backend
	meters     meterVersions
	bills      bool                                  // whether the tenant has a price or a billing provider
	closed     map[metering.CustomerID]closedStreams // closed periods, in which usage is late
	fresh      []*metering.Event                     // events to store: with a new key, or without a key
	places     []int                                 // index in events of each fresh event
	types      []string                              // event types that this process has not seen yet
	archived   []metering.CustomerID                 // archived customers that have an event in this attempt
	unanswered bool                                  // COMMIT was sent and not answered
	witness    *metering.Event                       // if this event is stored, an unanswered COMMIT succeeded
	groups     map[groupName]bool                    // registered by this attempt
	uncounted  []uncountedReference                  // fresh events that a meter cannot count
}

// run executes the transaction on one connection. It rolls the transaction back after an error, unless COMMIT was sent.
func (a *attempt) run(ctx context.Context) error {
	return a.writer.store.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := a.transaction(ctx, conn)
		if err != nil && !conn.Conn().IsClosed() && !a.unanswered {
			_, rollback := conn.Exec(ctx, `rollback`)
			return errors.Join(err, rollback)
		}
		return err
	})
}

// transaction executes the statements of the attempt, from BEGIN to COMMIT.
func (a *attempt) transaction(ctx context.Context, conn *pgxpool.Conn) error {
	if err := a.begin(ctx, conn); err != nil {
		return fmt.Errorf("claim keys: %w", err)
	}
	room := a.writer.store.Backfills.memory.roomFor(a.tenant)
	defer room.give()
	sums := newRollups(room)
	if err := a.sum(ctx, conn, sums); err != nil {
		return err
	}
	if len(a.fresh) > insertedAtMost {
		if err := copyEvents(ctx, conn.Conn(), a.tenant, a.meters.epoch, a.fresh); err != nil {
			return fmt.Errorf("copy events: %w", err)
		}
	}
	return a.finish(ctx, conn, sums)
}

// begin takes the tenant's lock and claims the idempotency keys, in one round trip. It reads the epoch in a
// statement after the lock, because the epoch cannot change while the lock is held. Then it loads the meters
// and finds the fresh events.
func (a *attempt) begin(ctx context.Context, conn *pgxpool.Conn) error {
	a.backend.pid = conn.Conn().PgConn().PID()
	var epoch, erasures int64
	var conflicts metering.ConflictPolicy
	keyed := a.firstOfEachKey()
	claimed := make(map[eventKey]bool, len(keyed))

	var batch pgx.Batch
	batch.Queue(`begin`)
	batch.Queue(`select pg_advisory_xact_lock_shared(`+pg.TenantLock+`)`, a.tenant)
	batch.Queue(`select epoch, erasures, idempotency_conflicts, `+TenantBills+`, clock_timestamp() from tenants where id = $1`, a.tenant).QueryRow(func(row pgx.Row) error {
		return row.Scan(&epoch, &erasures, &conflicts, &a.bills, &a.backend.at)
	})
	a.queueClosed(&batch)
	var settled error
	if a.settles != nil {
		a.settles.queueSettled(&batch, a.tenant, &settled)
	}
	if len(keyed) > 0 {
		a.queueClaims(&batch, keyed, claimed)
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	if settled != nil {
		return settled
	}
	if erasures != a.erasures {
		a.writer.erasures.Add(a.tenant, erasures)
		return errErased
	}
	if err := a.loadMeters(ctx, conn, epoch); err != nil {
		return err
	}
	if err := a.separate(ctx, conn, claimed); err != nil {
		return err
	}
	if a.settles != nil {
		if err := requireStored(a.outcomes); err != nil {
			return err
		}
	}
	return a.settleConflicts(ctx, conn, conflicts)
}

// errErased makes persist repeat an attempt. The attempt's number of erasures is outdated, so one of its customers
// may be erased.
var errErased = errors.New("a customer was erased")

// queueClosed queues the read of the customers' closed periods and archive states, which sets a.closed and a.archived.
func (a *attempt) queueClosed(batch *pgx.Batch) {
	seen := make(map[metering.CustomerID]bool)
	var customers []int64
	for i := range a.events {
		if id := a.events[i].CustomerID; !seen[id] {
			seen[id] = true
			customers = append(customers, int64(id))
		}
	}
	a.closed = make(map[metering.CustomerID]closedStreams)
	batch.Queue(`
		select c.id, coalesce(c.closed_from, timestamptz '0001-01-01'), coalesce(c.closed_until, timestamptz '0001-01-01'), `+FeedsOfCustomer+`, `+closedOfCustomer+`, c.archived_at is not null
		from customers c
		where c.tenant_id = $1 and c.id = any($2) and (c.closed_until is not null or c.streams > 1 or c.archived_at is not null)`, a.tenant, customers).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id metering.CustomerID
			var archived bool
			closed, err := scanClosedStreams(rows, &id, &archived)
			if err != nil {
				return err
			}
			if a.closed[id] = closed; archived {
				a.archived = append(a.archived, id)
			}
		}
		return rows.Err()
	})
}

// loadMeters sets a.meters to the meter versions of the epoch, which may be in the cache. The tenant's shared
// lock keeps the epoch unchanged until COMMIT.
func (a *attempt) loadMeters(ctx context.Context, conn *pgxpool.Conn, epoch int64) error {
	cached, ok := a.writer.meters.Get(a.tenant)
	if ok && cached.epoch == epoch {
		a.meters = cached
		return nil
	}
	rows, err := conn.Query(ctx, `
		select `+catalog.MeterVersionColumns+`, m.slug, g.until_epoch is not null
		from meter_versions g
		join meters m on m.tenant_id = g.tenant_id and m.id = g.meter_id
		where g.tenant_id = $1 and g.status <> 'retired' order by g.id`, a.tenant)
	if err != nil {
		return fmt.Errorf("load meters: %w", err)
	}
	a.meters = meterVersions{
		epoch: epoch, byType: make(map[string][]metering.MeterVersion), slugs: make(map[metering.MeterID]string), archived: make(map[string]string),
	}
	var g metering.MeterVersion
	var slug string
	var archived bool
	_, err = pgx.ForEachRow(rows, append(catalog.MeterVersionFields(&g), &slug, &archived), func() error {
		if archived {
			a.meters.archived[g.EventType] = slug
			return nil
		}
		a.meters.byType[g.EventType] = append(a.meters.byType[g.EventType], g)
		a.meters.slugs[g.MeterID] = slug
		return nil
	})
	if err != nil {
		return fmt.Errorf("load meters: %w", err)
	}
	a.writer.meters.Add(a.tenant, a.meters)
	return nil
}

// finish writes the rollups and commits, in one round trip. It also inserts the fresh events, unless they were
// already copied because there are more than insertedAtMost.
func (a *attempt) finish(ctx context.Context, conn *pgxpool.Conn, sums *rollups) error {
	var batch pgx.Batch
	if n := len(a.fresh); n > 0 && n <= insertedAtMost {
		insertEvents(&batch, a.tenant, a.meters.epoch, a.fresh)
	}
	if len(a.types) > 0 {
		batch.Queue(`insert into event_types (tenant_id, event_type) select $1, unnest($2::text[]) on conflict do nothing`, a.tenant, a.types)
	}
	sums.queue(&batch, a.tenant)
	if a.settles != nil {
		if err := a.settles.queueEnd(&batch, a.tenant, a.outcomes); err != nil {
			return err
		}
	}
	committed := false
	batch.Queue(`commit`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the transaction ended with %s", tag)
		}
		committed = true
		return nil
	})
	if len(a.fresh) > 0 {
		a.witness = a.fresh[0]
	}
	a.written()
	err := conn.SendBatch(ctx, &batch).Close()
	if committed {
		return nil
	}
	// An error from the server has ended the transaction. If the connection was lost, it is unknown whether COMMIT
	// succeeded.
	a.unanswered = a.witness != nil && (pg.SQLState(err) == "" || pg.IsDisconnected(err))
	return fmt.Errorf("store events and usage: %w", err)
}

// unarchive unarchives the customers that have a fresh event. It ignores an error, because the customer's next
// event unarchives the customer.
func (a *attempt) unarchive(ctx context.Context) {
	used := slices.DeleteFunc(a.archived, func(id metering.CustomerID) bool {
		return !slices.ContainsFunc(a.fresh, func(e *metering.Event) bool { return e.CustomerID == id })
	})
	if len(used) > 0 {
		_ = a.writer.store.customers.UnarchiveUsed(ctx, a.tenant, used)
	}
}

// remember adds the event types and groups of the committed attempt to the caches.
func (a *attempt) remember() {
	for _, eventType := range a.types {
		a.writer.types.Add(typeName{a.tenant, eventType}, struct{}{})
	}
	for name := range a.groups {
		a.writer.groups.Add(groupEntry{name, a.erasures}, struct{}{})
	}
}

// TenantBills is the SQL condition that tenant $1 has a price or a billing provider.
const TenantBills = `(exists (select from meter_prices where tenant_id = $1 and withdrawn_at is null)
		  or exists (select from billing_connections where tenant_id = $1 and retired_at is null))`
