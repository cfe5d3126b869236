package db

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// HoldLocksFor makes the store measure elapsed as the duration of each hold of a tenant's lock.
func (d *DB) HoldLocksFor(elapsed time.Duration) {
	d.pool.Stopwatch = func() func() time.Duration { return func() time.Duration { return elapsed } }
}

// FlushOnRequest makes the counters and samplers that are created later write only in Flush and Close. timeout limits
// the write in Close.
func (d *DB) FlushOnRequest(timeout time.Duration) {
	d.pool.FlushEvery, d.pool.FlushTimeout = 1000*time.Hour, timeout
}

// Publish publishes a message.
func Publish(ctx context.Context, store *DB, tenant metering.TenantID, customer metering.CustomerID, data outbox.MessageData, now time.Time) error {
	return pg.InTx(ctx, store.pool, func(tx pgx.Tx) error { return outbox.Publish(ctx, tx, tenant, customer, data, now) })
}

// Counter counts the SQL statements that a store sends.
type Counter struct{ statements atomic.Int64 }

// OpenCounted is Open with a Counter of its statements.
func OpenCounted(ctx context.Context, url string, secret []byte, read ledger.ReadPrice) (*DB, *Counter, error) {
	c := new(Counter)
	store, err := open(ctx, url, secret, read, func(config *pgxpool.Config) { config.ConnConfig.Tracer = c })
	return store, c, err
}

// Count returns the number of statements, with begin and commit, that fn sends.
func (c *Counter) Count(fn func()) int {
	before := c.statements.Load()
	fn()
	return int(c.statements.Load() - before)
}

// TraceQueryStart counts a statement, except the pool's probe of an idle connection.
func (c *Counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL != "-- ping" {
		c.statements.Add(1)
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (c *Counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts the statements of a batch.
func (c *Counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.statements.Add(int64(data.Batch.Len()))
	return ctx
}

// TraceBatchQuery does nothing.
func (c *Counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (c *Counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
