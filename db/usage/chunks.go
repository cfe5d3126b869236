package usage

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Widths of the chunks, as the migrations set them. Chunks are aligned to the Unix epoch.
const (
	EventsChunk = 7 * 24 * time.Hour
	hourlyChunk = 28 * 24 * time.Hour
)

// chunks creates missing chunks before the transaction that needs them, because creating a chunk while rows are
// locked deadlocks under load. To create a chunk, it inserts a row and deletes it again. TimescaleDB's function
// create_chunk exists only in the Community edition.
type chunks struct {
	pool  *pg.Pool
	mu    sync.Mutex
	known map[chunk]bool
	edge  time.Time // the latest known instant from which events are kept (see KeptFrom); never decreases
}

type chunk struct {
	hypertable string
	number     int64
}

// need describes the events that need a chunk. Ingest rejects an event with an idempotency key if events of its
// time are no longer kept, so such an event needs no chunk. Ingest stores an event without a key at any age.
type need struct {
	keyless  bool
	youngest time.Time // time of the latest event with a key
}

// withEvent returns the need of the events of n and of e.
func (n need) withEvent(e *metering.Event) need {
	if e.IdempotencyKey == "" {
		n.keyless = true
	} else if e.At.After(n.youngest) {
		n.youngest = e.At
	}
	return n
}

// isBehind reports whether all events of n are too old to be accepted: they have keys, and are earlier than edge.
func (n need) isBehind(edge time.Time) bool { return !n.keyless && n.youngest.Before(edge) }

// NewChunks returns chunks that has not looked up any chunk yet.
func NewChunks(pool *pg.Pool) *chunks { return &chunks{pool: pool, known: make(map[chunk]bool)} }

// Ensure creates the missing chunks that the events need. It skips a chunk if all its events are too old to be
// accepted.
func (c *chunks) Ensure(ctx context.Context, events []metering.Event) error {
	for missing, need := range c.missing(events) {
		edge, err := c.make(ctx, missing, need)
		if err != nil {
			return err
		}
		c.learn(missing, need, edge)
	}
	return nil
}

// learn records a chunk as existing, unless make has skipped it, and raises c.edge.
func (c *chunks) learn(k chunk, n need, edge time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if edge.After(c.edge) {
		c.edge = edge
	}
	if !n.isBehind(edge) {
		c.known[k] = true
	}
}

// missing returns the chunks of the events that are not known to exist. It omits a chunk if all of its events are too
// old to be accepted.
func (c *chunks) missing(events []metering.Event) map[chunk]need {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := make(map[chunk]need)
	for i := range events {
		e := &events[i]
		needed := [...]chunk{
			{"events", ChunkNumber(e.At, EventsChunk)},
			// A local hour may begin in the chunk before its events.
			{"usage_hourly", ChunkNumber(e.At.Add(-time.Hour), hourlyChunk)},
			{"usage_hourly", ChunkNumber(e.At, hourlyChunk)},
		}
		for _, k := range needed {
			if !c.known[k] {
				missing[k] = missing[k].withEvent(e)
			}
		}
	}
	maps.DeleteFunc(missing, func(_ chunk, n need) bool { return n.isBehind(c.edge) })
	return missing
}

// ChunkNumber returns the number of the chunk of a width that contains an instant, counted from the Unix epoch.
func ChunkNumber(at time.Time, width time.Duration) int64 {
	return at.Unix() / int64(width/time.Second)
}

// make creates a chunk, unless all events that need it are too old to be accepted. The row that it inserts and
// deletes has tenant 0, which does not exist. It locks event_retention, so that retention lists the chunks to
// drop only after this transaction is committed.
func (c *chunks) make(ctx context.Context, k chunk, n need) (edge time.Time, err error) {
	insert, remove, width := `
		insert into events (tenant_id, customer_id, ts, id, event_type, value, ingested_at, epoch)
		values (0, 0, $1, '00000000-0000-0000-0000-000000000000', '', 0, $1, 0)`,
		`delete from events where tenant_id = 0 and ts = $1`, EventsChunk
	if k.hypertable == "usage_hourly" {
		insert, remove, width = `
			insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
			values (0, 0, 0, '00000000-0000-0000-0000-000000000000', $1, 0, 0)
			on conflict do nothing`,
			`delete from usage_hourly where tenant_id = 0 and hour = $1`, hourlyChunk
	}
	start := metering.Instant(time.Unix(k.number*int64(width/time.Second), 0))
	err = pg.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if edge, err = lockEdge(ctx, tx); err != nil || n.isBehind(edge) {
			return err
		}
		if _, err := tx.Exec(ctx, insert, start); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, remove, start)
		return err
	})
	return edge, err
}
