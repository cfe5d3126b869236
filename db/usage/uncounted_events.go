package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// UncountedEvents stores references to the stored events that a meter cannot count, because their value is
// not usable. References are written asynchronously, so a killed process loses its unwritten references.
type UncountedEvents struct{ pool *pg.Pool }

const (
	maxUncounted        = 1_000  // references per meter and hour of receipt, in UTC
	maxUncountedWaiting = 20_000 // references in the memory of a process, of some 100 bytes each; one tenant may have half
	cachedUncounted     = 10_000 // combinations of meter and hour for which a process counts references
)

// UncountedEvent is an event, with the rule that its value breaks for a meter.
type UncountedEvent struct {
	ListedEvent

	Rule metering.Verdict
}

// UncountedFilter selects the uncounted events of a meter that were received in a range.
type UncountedFilter struct {
	metering.Range

	Meter    metering.MeterID
	Customer metering.CustomerID // 0 for all
	Rule     metering.Verdict    // "" for all
}

// UncountedCursor is the position of an uncounted event in the list of its meter.
type UncountedCursor struct {
	ReceivedAt time.Time
	ID         uuid.UUID
	Rule       metering.Verdict
}

// Cursor returns the position of the event.
func (e UncountedEvent) Cursor() UncountedCursor { return UncountedCursor{e.IngestedAt, e.ID, e.Rule} }

// List returns up to limit uncounted events in descending order of receipt. With a cursor, it begins after the
// cursor's position. It skips events that retention has deleted.
func (u UncountedEvents) List(ctx context.Context, tenant metering.TenantID, f UncountedFilter, before *UncountedCursor, limit int) (page pg.Page[UncountedEvent], err error) {
	if before == nil {
		before = &UncountedCursor{ReceivedAt: f.End}
	}
	rows, err := u.pool.Query(ctx, selectUncounted(f), pgx.NamedArgs{
		"tenant": tenant, "meter": f.Meter, "customer": f.Customer, "rule": f.Rule, "start": f.Start,
		"before": before.ReceivedAt, "before_id": [16]byte(before.ID), "before_rule": before.Rule, "limit": limit + 1,
	})
	if err != nil {
		return page, fmt.Errorf("list uncounted events: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (e UncountedEvent, err error) {
		e.ListedEvent, err = scanListed(row, &e.Rule)
		return e, err
	})
	if err != nil {
		return page, fmt.Errorf("list uncounted events: %w", pg.Coded(err))
	}
	return page, nil
}

// selectUncounted returns the SQL that looks up each event by its customer and time. A join that was
// planned while there were few events would read all of the tenant's events.
func selectUncounted(f UncountedFilter) string {
	where := ""
	if f.Customer != 0 {
		where += " and customer_id = @customer"
	}
	if f.Rule != "" {
		where += " and rule = @rule"
	}
	return `
		select ` + listedColumns + `, u.rule
		from (
		  select received_at, event_id, rule, customer_id, ts
		  from uncounted_events
		  where tenant_id = @tenant
		    and meter_id = @meter
		    and received_at >= @start
		    and (received_at, event_id, rule) < (@before, @before_id::uuid, @before_rule)
		    and customer_id not in (select id from customers where tenant_id = @tenant and erased_at is not null and erasure_done_at is null)
		    and ts >= coalesce((select kept_from from event_retention), '-infinity')` + where + `
		  order by received_at desc, event_id desc, rule desc
		  limit @limit) u
		cross join lateral (
		  select ` + storedColumns + `
		  from events
		  where tenant_id = @tenant
		    and customer_id = u.customer_id
		    and ts = u.ts
		    and id = u.event_id
		  limit 1) e
		join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		order by u.received_at desc, u.event_id desc, u.rule desc`
}

// Sweep deletes up to limit references, of any tenant, to events that were received before an instant.
func (u UncountedEvents) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "uncounted_events", Key: "tenant_id, meter_id, received_at, event_id, rule", By: "received_at", Noun: "references to uncounted events"}.Sweep(ctx, u.pool, before, limit)
}

// uncountedReference is a row of uncounted_events, without its tenant.
type uncountedReference struct {
	meter    metering.MeterID
	received time.Time
	event    uuid.UUID
	rule     metering.Verdict
	customer metering.CustomerID
	at       time.Time
}

// add stores references, up to maxUncounted per meter and hour. If another transaction holds the tenant's lock
// exclusively, add stores nothing and returns false. The lock orders add and an erasure: either add skips the
// erased customer, or the erasure deletes the new rows. A second lock serializes the calls of add for a tenant.
func (u UncountedEvents) add(ctx context.Context, tenant metering.TenantID, references []uncountedReference) (stored bool, err error) {
	n := len(references)
	meters, received, events, rules := make([]int64, n), make([]time.Time, n), make([][16]byte, n), make([]string, n)
	customers, instants := make([]int64, n), make([]time.Time, n)
	for i, r := range references {
		meters[i], received[i], events[i], rules[i] = int64(r.meter), r.received, r.event, string(r.rule)
		customers[i], instants[i] = int64(r.customer), r.at
	}
	err = pg.InTx(ctx, u.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock_shared(`+pg.TenantLock+`)`, tenant).Scan(&stored); err != nil || !stored {
			return err
		}
		var batch pgx.Batch
		batch.Queue(`select pg_advisory_xact_lock(hashtextextended('uncounted events', $1))`, tenant)
		batch.Queue(`
			with sent as materialized (
			  select *, row_number() over (partition by meter_id, hour order by received_at, event_id, rule) as place
			  from (
			    select *, date_trunc('hour', received_at, 'UTC') as hour
			    from unnest($2::bigint[], $3::timestamptz[], $4::uuid[], $5::text[], $6::bigint[], $7::timestamptz[]) as s (meter_id, received_at, event_id, rule, customer_id, ts)
			  ) hours),
			stored as materialized (
			  select meter_id, hour, (
			    select count(*) from uncounted_events u
			    where u.tenant_id = $1
			      and u.meter_id = h.meter_id
			      and u.received_at >= h.hour
			      and u.received_at < h.hour + interval '1 hour') as events
			  from (select distinct meter_id, hour from sent) h)
			insert into uncounted_events (tenant_id, meter_id, received_at, event_id, rule, customer_id, ts)
			select $1, meter_id, received_at, event_id, rule, customer_id, ts
			from sent
			join stored using (meter_id, hour)
			join customers c on c.tenant_id = $1 and c.id = customer_id and c.erased_at is null
			where place + events <= $8
			on conflict do nothing`, tenant, meters, received, events, rules, customers, instants, maxUncounted)
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return false, fmt.Errorf("store references to uncounted events: %w", err)
	}
	return stored, nil
}

// UncountedSampler collects references to uncounted events in memory, so that ingest does not wait for
// them. It writes them to UncountedEvents every few seconds.
type UncountedSampler struct {
	events  UncountedEvents
	flusher *pg.Repeater

	writing sync.Mutex // serializes Flush

	mu        sync.Mutex
	collected *lru.Cache[uncountedHour, int]
	waiting   map[metering.TenantID][]uncountedReference
	held      map[metering.TenantID]int // number of references that are waiting or being written
	heldOfAll int
}

// uncountedHour identifies an hour of receipt of a meter's events.
type uncountedHour struct {
	tenant metering.TenantID
	meter  metering.MeterID
	hour   int64 // hours since the Unix epoch
}

// NewUncountedSampler starts an UncountedSampler. If a write fails, the sampler calls failed with the error, and
// the next write retries the references.
func (s Stores) NewUncountedSampler(failed func(error)) *UncountedSampler {
	sampler := &UncountedSampler{
		events: s.UncountedEvents, collected: newCache[uncountedHour, int](cachedUncounted), waiting: make(map[metering.TenantID][]uncountedReference),
		held: make(map[metering.TenantID]int),
	}
	sampler.flusher = s.pool.StartFlusher(sampler.Flush, failed)
	return sampler
}

// add collects references for the next write. It drops references beyond maxUncounted per meter and hour, and
// beyond maxUncountedWaiting. A nil sampler collects none.
func (s *UncountedSampler) add(tenant metering.TenantID, references []uncountedReference) {
	if s == nil || len(references) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range references {
		hour := uncountedHour{tenant, r.meter, r.received.Unix() / int64(time.Hour/time.Second)}
		collected, _ := s.collected.Get(hour)
		if collected >= maxUncounted || s.heldOfAll >= maxUncountedWaiting || s.held[tenant] >= maxUncountedWaiting/2 {
			continue
		}
		s.collected.Add(hour, collected+1)
		s.waiting[tenant] = append(s.waiting[tenant], r)
		s.hold(tenant, 1)
	}
}

// hold adds to the number of references that are held for a tenant. The caller holds mu.
func (s *UncountedSampler) hold(tenant metering.TenantID, references int) {
	s.heldOfAll += references
	if s.held[tenant] += references; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}

// Flush stores the collected references. If a tenant is locked or the write fails, it retains the tenant's
// references for the next write.
func (s *UncountedSampler) Flush(ctx context.Context) (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = make(map[metering.TenantID][]uncountedReference)
	s.mu.Unlock()
	for tenant, references := range waiting {
		stored, failed := s.events.add(ctx, tenant, references)
		err = errors.Join(err, failed)
		s.mu.Lock()
		if stored {
			s.hold(tenant, -len(references))
		} else {
			s.waiting[tenant] = append(references, s.waiting[tenant]...)
		}
		s.mu.Unlock()
	}
	return err
}

// Close writes the remaining references.
func (s *UncountedSampler) Close() { s.flusher.Close() }
