package db

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Chunk widths, as the migrations set them. Chunks are aligned to 1970.
const (
	eventsChunk = 7 * 24 * time.Hour
	hourlyChunk = 28 * 24 * time.Hour
)

// chunks makes missing chunks before the transaction that needs them: creating
// one inside, while rows are locked, deadlocks under load. A row is inserted
// and deleted because create_chunk exists only in the Community edition.
type chunks struct {
	pool  *pgxpool.Pool
	mu    sync.Mutex
	known map[chunk]bool
}

type chunk struct {
	hypertable string
	number     int64
}

func newChunks(pool *pgxpool.Pool) *chunks { return &chunks{pool: pool, known: make(map[chunk]bool)} }

// ensure makes the chunks that events at these instants fall into.
func (c *chunks) ensure(ctx context.Context, instants []time.Time) error {
	for _, missing := range c.missing(instants) {
		if err := c.make(ctx, missing); err != nil {
			return err
		}
		c.mu.Lock()
		c.known[missing] = true
		c.mu.Unlock()
	}
	return nil
}

func (c *chunks) missing(instants []time.Time) []chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	var missing []chunk
	seen := make(map[chunk]bool)
	for _, at := range instants {
		needed := []chunk{
			{"events", number(at, eventsChunk)},
			// A local hour may begin in the chunk before its events.
			{"usage_hourly", number(at.Add(-time.Hour), hourlyChunk)},
			{"usage_hourly", number(at, hourlyChunk)},
		}
		for _, k := range needed {
			if !c.known[k] && !seen[k] {
				seen[k] = true
				missing = append(missing, k)
			}
		}
	}
	return missing
}

func number(at time.Time, width time.Duration) int64 {
	return at.Unix() / int64(width/time.Second)
}

// make uses tenant 0, which does not exist, and leaves no row behind.
func (c *chunks) make(ctx context.Context, k chunk) error {
	insert, remove, width := `
		insert into events (tenant_id, customer_id, ts, id, event_type, value, ingested_at, epoch)
		values (0, 0, $1, '00000000-0000-0000-0000-000000000000', '', 0, $1, 0)`,
		`delete from events where tenant_id = 0 and ts = $1`, eventsChunk
	if k.hypertable == "usage_hourly" {
		insert, remove, width = `
			insert into usage_hourly (tenant_id, customer_id, meter_version_id, group_id, hour, sum, count)
			values (0, 0, 0, '00000000-0000-0000-0000-000000000000', $1, 0, 0)
			on conflict do nothing`,
			`delete from usage_hourly where tenant_id = 0 and hour = $1`, hourlyChunk
	}
	start := metering.Instant(time.Unix(k.number*int64(width/time.Second), 0))
	return inTx(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insert, start); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, remove, start)
		return err
	})
}
