package db

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// HoldLocksFor makes every lock of a tenant seem to have been held for that long.
func (d *DB) HoldLocksFor(elapsed time.Duration) {
	d.pool.Stopwatch = func() func() time.Duration { return func() time.Duration { return elapsed } }
}

// StatementsOfAPlan returns the number of SQL statements that read the facts of a plan, and the facts.
func StatementsOfAPlan(ctx context.Context, store *DB, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (n int, f billing.Facts, err error) {
	err = pg.AtOneInstant(ctx, store.pool, func(tx pgx.Tx) error {
		counted := &counting{Tx: tx}
		read, err := readStreams(ctx, counted, store.Ledger.read, tenant, customer, now)
		if err == nil {
			n, f = counted.statements, read[0].facts
		}
		return err
	})
	return n, f, err
}

// StatementsOfAStatement returns the number of SQL statements that read a period's statement, and the
// statement.
func StatementsOfAStatement(ctx context.Context, store *DB, tenant metering.TenantID, period metering.PeriodID, now time.Time) (n int, s PeriodStatement, err error) {
	err = pg.AtOneInstant(ctx, store.pool, func(tx pgx.Tx) error {
		counted := &counting{Tx: tx}
		s, err = readStatement(ctx, counted, store.Ledger.read, tenant, period, ReportPage{Before: math.MaxInt64, Limit: 1000}, now)
		n = counted.statements
		return err
	})
	return n, s, err
}

// Alarm publishes a reconciliation as the plan that stores it does.
func Alarm(ctx context.Context, store *DB, tenant metering.TenantID, customer metering.CustomerID, r billing.Reconciliation, now time.Time) error {
	return pg.InTx(ctx, store.pool, func(tx pgx.Tx) error {
		w := &planWriter{factReader: &factReader{ctx: ctx, q: tx, tenant: tenant, customer: customer}, tx: tx}
		w.facts.Now = metering.Instant(now)
		return w.alarm(r)
	})
}

// Publish publishes a message.
func Publish(ctx context.Context, store *DB, tenant metering.TenantID, customer metering.CustomerID, data outbox.MessageData, now time.Time) error {
	return pg.InTx(ctx, store.pool, func(tx pgx.Tx) error { return outbox.Publish(ctx, tx, tenant, customer, data, now) })
}

// counting counts the statements of a transaction.
type counting struct {
	pgx.Tx
	statements int
}

func (c *counting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.statements++
	return c.Tx.Exec(ctx, sql, args...)
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.statements++
	return c.Tx.Query(ctx, sql, args...)
}

func (c *counting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.statements++
	return c.Tx.QueryRow(ctx, sql, args...)
}

func (c *counting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.statements += b.Len()
	return c.Tx.SendBatch(ctx, b)
}

// BatchSizes bounds the next batch of each tenant in an Evaluator.
type BatchSizes = batchSizes

// After returns the tenant's next size after a batch.
func (s batchSizes) After(tenant metering.TenantID, customers int, elapsed time.Duration, err error) int {
	s.adjust(tenant, customers, elapsed, err)
	return s.of(tenant)
}

// NewIdleEvaluator returns an Evaluator that evaluates only when Pass is called.
func NewIdleEvaluator(store *DB, now func() time.Time, failed func(error)) *Evaluator {
	return store.newEvaluator(now, failed)
}

// Pass evaluates one batch of each tenant.
func (e *Evaluator) Pass() (more bool) { return e.pass() }

// EvaluateBatch evaluates the largest batch of a tenant.
func EvaluateBatch(ctx context.Context, store *DB, tenant metering.TenantID, now time.Time) error {
	_, err := store.Evaluations.evaluateBatch(ctx, tenant, largestBatch, now)
	return err
}

// StatementsOfAnEvaluation returns the number of statements that evaluate customers.
func StatementsOfAnEvaluation(ctx context.Context, store *DB, tenant metering.TenantID, customers []int64, now time.Time) (n int, err error) {
	err = pg.AtOneInstant(ctx, store.pool, func(tx pgx.Tx) error {
		counted := &counting{Tx: tx}
		err := store.Evaluations.evaluate(ctx, counted, tenant, customers, nil, now)
		n = counted.statements
		return err
	})
	return n, err
}
