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

// Chunk widths, as the migrations set them. Chunks are aligned to 1970.
const (
	EventsChunk = 7 * 24 * time.Hour
	hourlyChunk = 28 * 24 * time.Hour
)

// chunks creates missing chunks before the transaction that needs them. Creating a chunk while rows are
// locked deadlocks under load. It inserts and deletes a row, because create_chunk exists only in the
// Community edition.
type chunks struct {
	pool  *pg.Pool
	mu    sync.Mutex
	known map[chunk]bool
	edge  time.Time // the start of the kept events when last read; it only rises
}

type chunk struct {
	hypertable string
	number     int64
}

// need is the reason to create a chunk. An event with a key is rejected, and needs no chunk, if the event is
// older than the edge of retention. An event without a key is stored at any age.
type need struct {
	keyless  bool
	youngest time.Time // of the events with a key
}

func (n need) and(e *metering.Event) need {
	if e.IdempotencyKey == "" {
		n.keyless = true
	} else if e.At.After(n.youngest) {
		n.youngest = e.At
	}
	return n
}

func (n need) behind(edge time.Time) bool { return !n.keyless && n.youngest.Before(edge) }

func NewChunks(pool *pg.Pool) *chunks { return &chunks{pool: pool, known: make(map[chunk]bool)} }

// Ensure creates the chunks of these events. It skips chunks that only events need that are too old to be
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

func (c *chunks) learn(k chunk, n need, edge time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if edge.After(c.edge) {
		c.edge = edge
	}
	if !n.behind(edge) {
		c.known[k] = true
	}
}

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
				missing[k] = missing[k].and(e)
			}
		}
	}
	maps.DeleteFunc(missing, func(_ chunk, n need) bool { return n.behind(c.edge) })
	return missing
}

func ChunkNumber(at time.Time, width time.Duration) int64 {
	return at.Unix() / int64(width/time.Second)
}

// make creates a chunk, unless it is needed only by events behind the edge. It uses tenant 0, which does not
// exist, and leaves no row. It locks the edge, so that the new chunk is visible when the edge rises and the
// chunks behind it are listed for dropping.
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
		if edge, err = lockEdge(ctx, tx); err != nil || n.behind(edge) {
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
