package usage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
		err := w.prepare(ctx, tenant, events)
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
		if !repeatable(err) || pg.Wait(ctx, pause) != nil {
			return nil, pg.Coded(err)
		}
	}
}

// prepare sets the id and the customer of each event, and creates missing chunks.
func (w *Writer) prepare(ctx context.Context, tenant metering.TenantID, events []metering.Event) error {
	for i := range events {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make event id: %w", err)
		}
		events[i].ID = id
	}
	if err := w.resolveCustomers(ctx, tenant, events); err != nil {
		return err
	}
	return w.chunks.Ensure(ctx, events)
}

func (w *Writer) resolveCustomers(ctx context.Context, tenant metering.TenantID, events []metering.Event) error {
	unknown := make(map[string]time.Time) // earliest ReceivedAt, by external id
	for i := range events {
		e := &events[i]
		known, ok := w.customers.Get(CustomerName{tenant, e.ExternalID})
		if since, seen := unknown[e.ExternalID]; !ok && (!seen || e.ReceivedAt.Before(since)) {
			unknown[e.ExternalID] = e.ReceivedAt
		}
		e.CustomerID, e.CustomerSince = known.ID, known.Since
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := w.store.customers.Resolve(ctx, tenant, unknown)
	if err != nil {
		return err
	}
	for name, customer := range found {
		w.customers.Add(CustomerName{tenant, name}, customer)
	}
	for i := range events {
		if customer, ok := found[events[i].ExternalID]; ok {
			events[i].CustomerID, events[i].CustomerSince = customer.ID, customer.Since
		}
	}
	return nil
}

// repeatable reports whether the attempt was rolled back for a reason that may be transient.
func repeatable(err error) bool {
	state := pg.SQLState(err)
	return errors.Is(err, errErased) || state == pg.StateDeadlock || state == pg.StateSerialization || claimedMeanwhile(err) || pg.IsServerFault(err)
}

// claimedMeanwhile reports whether another transaction has claimed one of the idempotency keys after
// the attempt looked them up.
func claimedMeanwhile(err error) bool {
	return pg.ViolatedUnique(err) == "event_keys_pkey"
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

	backend    backend
	meters     meterVersions
	bills      bool                                  // whether the tenant has a price or a billing provider
	closed     map[metering.CustomerID]closedStreams // closed periods, in which usage is late
	fresh      []*metering.Event                     // events to store: with a new key, or without a key
	places     []int                                 // index in events of each fresh event
	types      []string                              // event types that this process has not seen yet
	archived   []metering.CustomerID                 // archived customers that have an event in this attempt
	unanswered bool                                  // COMMIT was sent and not answered
	witness    *metering.Event                       // if it is stored, an unanswered COMMIT succeeded
	groups     map[groupName]bool                    // registered by this attempt
	uncounted  []uncountedReference                  // fresh events that a meter cannot count
}

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
	if a.writer.forgetErased(a.tenant, erasures) {
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

// errErased makes persist repeat an attempt: a customer was erased after this process cached data of
// the tenant.
var errErased = errors.New("a customer was erased")

// erasedDigest returns the digest under which the key would be stored if its customer was erased.
// It returns nil if the tenant has erased no customer.
func (a *attempt) erasedDigest(key string) []byte {
	if erasures, known := a.writer.erasures.Get(a.tenant); !known || erasures == 0 {
		return nil
	}
	return ErasedKey(a.writer.store.pool.AuditKey(), a.tenant, key)
}

// keyedEvent is an event with the stored form of its idempotency key.
type keyedEvent struct {
	*metering.Event
	key eventKey
}

// firstOfEachKey sets a.keys, and returns the first event of each idempotency key, ordered by key.
func (a *attempt) firstOfEachKey() []keyedEvent {
	seen := make(map[eventKey]bool, len(a.events))
	keyed := make([]keyedEvent, 0, len(a.events))
	for i := range a.events {
		e := &a.events[i]
		if e.IdempotencyKey == "" {
			continue
		}
		a.keys[i] = eventKeyOf(e.IdempotencyKey)
		if !seen[a.keys[i]] {
			seen[a.keys[i]] = true
			keyed = append(keyed, keyedEvent{e, a.keys[i]})
		}
	}
	slices.SortFunc(keyed, func(a, b keyedEvent) int { return bytes.Compare(a.key[:], b.key[:]) })
	return keyed
}

// queueClaims queues the INSERT that claims the keys. The INSERT skips known keys and keys of erased customers'
// events. It also skips events before the retention limit, because their keys may be deleted already. If another
// transaction claims one of the keys at the same time, the attempt fails and is retried. This is rare, whereas
// "on conflict" would write a third of each key's WAL. Each key has its own subquery, because a join that was
// planned while there were few keys reads all keys of the tenant.
func (a *attempt) queueClaims(batch *pgx.Batch, keyed []keyedEvent, claimed map[eventKey]bool) {
	n := len(keyed)
	keys, contents, instants, undated, erased := make([]eventKey, n), make([]int64, n), make([]time.Time, n), make([]bool, n), make([][]byte, n)
	for i, e := range keyed {
		keys[i], contents[i], instants[i], undated[i] = e.key, contentDigest(e.Event), e.At, !e.Dated
		erased[i] = a.erasedDigest(e.IdempotencyKey)
	}
	batch.Queue(`
		insert into event_keys (tenant_id, key, digest, undated)
		select $1, key, digest, nullif(undated, false) from unnest($2::uuid[], $3::bigint[], $4::timestamptz[], $5::bool[], $6::bytea[]) as sent (key, digest, ts, undated, erased)
		where ts >= coalesce((select kept_from from event_retention), '-infinity')
		  and (select k.key from event_keys k where k.tenant_id = $1 and k.key = sent.key) is null
		  and not exists (select from erased_event_keys e where e.tenant_id = $1 and e.digest = sent.erased)
		returning key`, a.tenant, keys, contents, instants, undated, erased).Query(func(rows pgx.Rows) error {
		var key eventKey
		_, err := pgx.ForEachRow(rows, []any{&key}, func() error {
			claimed[key] = true
			return nil
		})
		return err
	})
}

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

// separate separates the fresh events from the repeats. A repeat with different content gets the outcome
// Conflict. If a key is neither claimed nor known, queueClaims has skipped it, and its events get the outcome
// Forgotten.
func (a *attempt) separate(ctx context.Context, conn *pgxpool.Conn, claimed map[eventKey]bool) error {
	first := make(map[eventKey]*metering.Event)
	var repeats []int
	var strangers []int // the first event of each key that this attempt has not claimed
	for i := range a.events {
		e := &a.events[i]
		if len(a.meters.byType[e.EventType]) == 0 {
			a.outcomes[i].Unmetered, a.outcomes[i].Archived = true, a.meters.archived[e.EventType]
		}
		if e.IdempotencyKey == "" {
			a.store(i)
			continue
		}
		if key := a.keys[i]; first[key] == nil {
			first[key] = e
			if claimed[key] {
				a.store(i)
				continue
			}
			strangers = append(strangers, i)
		}
		a.outcomes[i].Duplicate = true
		repeats = append(repeats, i)
	}
	contents, err := a.contentsOf(ctx, conn, strangers)
	if err != nil {
		return fmt.Errorf("compare repeats: %w", err)
	}
	for _, i := range repeats {
		e, key := &a.events[i], a.keys[i]
		known, ok := contents[key]
		switch {
		case ok && known == nil: // the stored event was erased, so its content is unknown
			continue
		case !ok && !claimed[key]:
			a.outcomes[i] = Outcome{Forgotten: true}
			continue
		case !ok:
			known = new(contentDigest(first[key]))
		}
		a.outcomes[i].Conflict = *known != contentDigest(e)
	}
	return nil
}

func (a *attempt) store(place int) {
	a.fresh, a.places = append(a.fresh, &a.events[place]), append(a.places, place)
}

// contentsOf looks up the idempotency keys of the events at places. It returns the content digest of the event
// that first used each known key, or nil if that event was erased.
func (a *attempt) contentsOf(ctx context.Context, conn *pgxpool.Conn, places []int) (map[eventKey]*int64, error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys, erased := make([]eventKey, len(places)), make([][]byte, len(places))
	for i, place := range places {
		keys[i], erased[i] = a.keys[place], a.erasedDigest(a.events[place].IdempotencyKey)
	}
	rows, err := conn.Query(ctx, `
		select key, digest
		from event_keys
		where tenant_id = $1
		  and key = any($2)
		union all
		select sent.key, null
		from unnest($2::uuid[], $3::bytea[]) as sent (key, erased)
		join erased_event_keys e on e.tenant_id = $1 and e.digest = sent.erased`, a.tenant, keys, erased)
	if err != nil {
		return nil, err
	}
	contents := make(map[eventKey]*int64, len(keys))
	var key eventKey
	var digest *int64
	_, err = pgx.ForEachRow(rows, []any{&key, &digest}, func() error {
		contents[key] = digest
		return nil
	})
	return contents, err
}

// sum adds the fresh events to the rollups, and registers the groups that this process has not seen
// yet. It counts one meter version after another, and writes the rollups whenever they are full.
// Every transaction registers groups in the order of the meter versions, which avoids deadlocks.
func (a *attempt) sum(ctx context.Context, conn *pgxpool.Conn, sums *rollups) error {
	places := a.placesByType()
	a.groups = make(map[groupName]bool)
	for _, g := range a.feeding(places) {
		for _, i := range places[g.EventType] {
			if err := a.count(sums, g, i); err != nil {
				return err
			}
		}
		if !sums.isFull() {
			continue
		}
		if err := a.settle(ctx, conn, sums); err != nil {
			return err
		}
		if err := sums.write(ctx, conn, a.tenant); err != nil {
			return fmt.Errorf("store usage: %w", err)
		}
	}
	return a.settle(ctx, conn, sums)
}

// placesByType returns the indexes in a.fresh by event type. It sets a.types to the event types that this
// process has not seen yet.
func (a *attempt) placesByType() map[string][]int {
	places := make(map[string][]int)
	for i, e := range a.fresh {
		places[e.EventType] = append(places[e.EventType], i)
	}
	for eventType := range places {
		if !a.writer.types.Contains(typeName{a.tenant, eventType}) {
			a.types = append(a.types, eventType)
		}
	}
	slices.Sort(a.types)
	return places
}

// feeding returns the meter versions that count events of these types, ordered by id.
func (a *attempt) feeding(places map[string][]int) (versions []metering.MeterVersion) {
	for eventType := range places {
		versions = append(versions, a.meters.byType[eventType]...)
	}
	slices.SortFunc(versions, func(a, b metering.MeterVersion) int { return cmp.Compare(a.ID, b.ID) })
	return versions
}

// count adds a fresh event to the rollups of a meter version.
func (a *attempt) count(sums *rollups, g metering.MeterVersion, fresh int) error {
	e, outcome, slug := a.fresh[fresh], &a.outcomes[a.places[fresh]], a.meters.slugs[g.MeterID]
	m, err := sums.add(g, e, a.closed[e.CustomerID].contains(g.MeterID, e.At))
	if err != nil {
		return err
	}
	if m.Verdict != metering.Counted {
		if outcome.noteUncounted(slug, g, m.Verdict) {
			a.uncounted = append(a.uncounted, uncountedReference{g.MeterID, e.ReceivedAt, e.ID, m.Verdict, e.CustomerID, e.At})
		}
		return nil
	}
	outcome.Ungrouped = append(outcome.Ungrouped, g.Missing(m.Group, e)...)
	if len(m.Group.Key) > metering.MaxGroupKeyBytes {
		outcome.LongKeys = append(outcome.LongKeys, slug)
	}
	if a.bills && e.At.Before(e.CustomerSince) {
		outcome.Early = append(outcome.Early, slug)
	}
	if g.Aggregation == metering.Count && m.Value.IsNegative() {
		outcome.Negative = append(outcome.Negative, slug)
	}
	if g.ValueProperty != "" && e.Value.IsNegative() {
		outcome.Unread = append(outcome.Unread, UnreadValue{slug, g.ValueProperty})
	}
	return nil
}

func (a *attempt) settle(ctx context.Context, conn *pgxpool.Conn, sums *rollups) error {
	registered, err := sums.settle(ctx, conn, a.tenant, a.writer.groups.Contains)
	maps.Copy(a.groups, registered)
	if err != nil || len(sums.groups) == 0 {
		return err
	}
	return a.noteCrowded(sums.groups)
}

// noteCrowded adds the meter's slug to the outcome of each event in a group that was not registered,
// because the meter has metering.MaxGroupsPerMeter groups already.
func (a *attempt) noteCrowded(unregistered groupsMet) error {
	versions := versionsOf(inInsertOrder(unregistered))
	for i, e := range a.fresh {
		for _, g := range a.meters.byType[e.EventType] {
			if !slices.Contains(versions, int64(g.ID)) {
				continue
			}
			m, err := g.Measure(e)
			if err != nil {
				return err
			}
			if _, found := unregistered[groupName{g.ID, m.Group.ID}]; found && len(m.Group.Key) <= metering.MaxGroupKeyBytes {
				outcome := &a.outcomes[a.places[i]]
				outcome.Crowded = append(outcome.Crowded, a.meters.slugs[g.MeterID])
			}
		}
	}
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
	// An error from the server has ended the transaction. After a lost connection, it is unknown whether
	// COMMIT succeeded.
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
		a.writer.groups.Add(name, struct{}{})
	}
}

// TenantBills is the SQL condition that tenant $1 has a price or a billing provider.
const TenantBills = `(exists (select from meter_prices where tenant_id = $1 and withdrawn_at is null)
		  or exists (select from billing_connections where tenant_id = $1 and retired_at is null))`
