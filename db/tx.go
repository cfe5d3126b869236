package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/metering"
)

// holding runs fn while a connection holds an advisory lock. lock is SQL; its first argument is the tenant.
func holding(ctx context.Context, conn *pgxpool.Conn, lock string, args []any, fn func() error) error {
	if _, err := conn.Exec(ctx, `select pg_advisory_lock(`+lock+`)`, args...); err != nil {
		return coded(err)
	}
	err := fn()
	if _, unlocked := conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock(`+lock+`)`, args...); unlocked != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // closing the connection releases the lock as well
	}
	return err
}

// querier is the interface that a pool and a transaction share.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// beginner is a pool or a transaction. Begin of a transaction creates a savepoint.
type beginner interface {
	querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// inTx runs fn in one read-committed transaction and commits it together with the audit entries of fn.
func inTx(ctx context.Context, pool beginner, fn func(tx pgx.Tx) error) error {
	return coded(pgx.BeginFunc(ctx, pool, audit.Wrap(ctx, pool, fn)))
}

var repeatableRead = pgx.TxOptions{IsoLevel: pgx.RepeatableRead}

// Options of transactions that look up a few rows by key, hundreds of times a second. Their statements are
// planned once for all arguments, because planning takes longer than running them, and with an index even
// while the tables are small.
var (
	lookUp     = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read; " + planOnce}
	readLookUp = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + planOnce}
)

const planOnce = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off"

// readAtOneInstant runs fn in a read-only transaction that sees one snapshot of the database.
func readAtOneInstant(ctx context.Context, pool *pool, fn func(tx pgx.Tx) error) error {
	return coded(pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn))
}

// lockTenant locks the tenant exclusively until the end of the transaction. Ingest holds the same lock
// shared, so only this transaction can change how the tenant's events are counted.
func lockTenant(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(`+tenantLock+`)`, tenant)
	return err
}

// lockTenantShared blocks lockTenant of other transactions until the end of this one.
func lockTenantShared(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock_shared(`+tenantLock+`)`, tenant)
	return err
}

// tenantLock is the SQL of the advisory lock key of lockTenant.
const tenantLock = `$1`

// oneAtATime serializes the transactions that change access to a tenant, or its billing connection. It does
// not block ingest.
func oneAtATime(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select from tenants where id = $1 for no key update`, tenant)
	return err
}

// raiseEpoch separates the events ingested before this transaction from later ones. The caller holds the
// tenant's lock.
func raiseEpoch(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update tenants set epoch = epoch + 1 where id = $1 returning epoch`, tenant).Scan(&epoch)
	return epoch, err
}

// allowLongStatements raises the statement timeout of the transaction to ten minutes, for work that no
// request waits for.
func allowLongStatements(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `set local statement_timeout = '10min'`)
	return err
}

// batcher is a querier that can send several statements in one round trip.
type batcher interface {
	querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read queues a statement, and calls add with each of its rows.
func read[T any](batch *pgx.Batch, sql string, args []any, scan pgx.RowToFunc[T], add func(T)) {
	readEach(batch, sql, args, scan, func(one T) error {
		add(one)
		return nil
	})
}

func readEach[T any](batch *pgx.Batch, sql string, args []any, scan pgx.RowToFunc[T], add func(T) error) {
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, scan)
		for _, one := range all {
			if err := add(one); err != nil {
				return err
			}
		}
		return err
	})
}

// atOneInstant runs fn in a repeatable-read transaction, and commits fn's changes with their audit entries.
// It retries after serialization failures, deadlocks and unique violations.
func atOneInstant(ctx context.Context, pool beginnerTx, fn func(tx pgx.Tx) error) error {
	return atOneInstantOn(ctx, pool, pool, repeatableRead, fn)
}

// atOneInstantOn is atOneInstant on one connection of a pool, with options of a repeatable-read
// transaction.
func atOneInstantOn(ctx context.Context, conn, pool beginnerTx, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	const tries = 25 // of many transactions that wait for one customer, one succeeds at a time
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, conn, options, audit.Wrap(ctx, pool, fn))
		switch sqlState(err) {
		case stateSerialization, stateDeadlock, stateUniqueViolation:
			if try < tries {
				continue
			}
		}
		return coded(err)
	}
}

// beginnerTx is a pool or one of its connections.
type beginnerTx interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}
