package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/odometer-metering/odometer/db/audit"
)

// Querier is the interface that a pool and a transaction share.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beginner is a pool or a transaction. Begin of a transaction creates a savepoint.
type Beginner interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// InTx runs fn in one read-committed transaction and commits it together with the audit entries of fn.
func InTx(ctx context.Context, pool Beginner, fn func(tx pgx.Tx) error) error {
	return Coded(pgx.BeginFunc(ctx, pool, audit.Wrap(ctx, pool, fn)))
}

// RepeatableRead are the options of a transaction that sees one snapshot of the database.
var RepeatableRead = pgx.TxOptions{IsoLevel: pgx.RepeatableRead}

// Options of transactions that look up a few rows by key, hundreds of times a second. The database plans each
// statement once for all arguments, because planning takes longer than execution. The plans use indexes even
// while the tables are small.
var (
	LookUp     = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read; " + planOnce}
	ReadLookUp = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + planOnce}
)

const planOnce = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off"

// ReadAtOneInstant runs fn in a read-only transaction that sees one snapshot of the database.
func ReadAtOneInstant(ctx context.Context, pool *Pool, fn func(tx pgx.Tx) error) error {
	return Coded(pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn))
}

// AllowLongStatements raises the statement timeout of the transaction to ten minutes, for work that no
// request waits for.
func AllowLongStatements(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `set local statement_timeout = '10min'`)
	return err
}

// AtOneInstant runs fn in a repeatable-read transaction, and commits fn's changes with their audit entries.
// It retries after serialization failures, deadlocks and unique violations.
func AtOneInstant(ctx context.Context, pool beginnerTx, fn func(tx pgx.Tx) error) error {
	return AtOneInstantOn(ctx, pool, pool, RepeatableRead, fn)
}

// AtOneInstantOn is AtOneInstant on one connection of a pool, with options of a repeatable-read
// transaction.
func AtOneInstantOn(ctx context.Context, conn, pool beginnerTx, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	const tries = 25 // if many transactions change the same customer, only one of them succeeds at a time
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, conn, options, audit.Wrap(ctx, pool, fn))
		switch SQLState(err) {
		case StateSerialization, StateDeadlock, stateUniqueViolation:
			if try < tries {
				continue
			}
		}
		return Coded(err)
	}
}

// beginnerTx is a pool or one of its connections.
type beginnerTx interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}
