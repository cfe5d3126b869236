package usage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// claimedMeanwhile reports whether another transaction has claimed one of the idempotency keys after
// the attempt looked them up.
func claimedMeanwhile(err error) bool {
	return pg.ViolatedUnique(err) == "event_keys_pkey"
}

// erasedDigest returns the digest under which the key would be stored if its customer was erased.
// It returns nil if the tenant has erased no customer.
func (a *attempt) erasedDigest(key string) []byte {
	if a.erasures == 0 {
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

// separate separates the fresh events from the repeats. A repeat with different content gets the outcome
// Conflict. If a key is neither claimed nor known, queueClaims has skipped it, and its events get the outcome
// Forgotten.
func (a *attempt) separate(ctx context.Context, conn *pgxpool.Conn, claimed map[eventKey]bool) error {
	first := make(map[eventKey]*metering.Event)
	var repeats []int
	var unclaimed []int // the first event of each key that this attempt has not claimed
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
			unclaimed = append(unclaimed, i)
		}
		a.outcomes[i].Duplicate = true
		repeats = append(repeats, i)
	}
	contents, err := a.contentsOf(ctx, conn, unclaimed)
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

// store adds the event at an index to the fresh events, which the attempt stores.
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
