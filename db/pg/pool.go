// Package pg connects the stores to PostgreSQL: the pool of connections with its shares by tenant, transactions with
// their audit entries, coded errors, pages, and the schema's migrations and grants.
//
// It owns no table.
package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// turnTimeout is the maximum time that a statement waits for a connection of its tenant's share.
const turnTimeout = 10 * time.Second

// Pool is a pool of connections to the database. Each tenant may use only a share of the connections, so that one
// tenant cannot block the others. Further statements of the tenant wait for their turn.
type Pool struct {
	*pgxpool.Pool

	shares *fair.Shares[metering.TenantID]
	audit  audit.Key

	Stopwatch func() (elapsed func() time.Duration) // measures how long a tenant's lock is held
}

// AuditKey returns the key of the audit log, or nil if the pool was opened without the service's secret.
func (p *Pool) AuditKey() audit.Key { return p.audit }

// shared returns the number of connections that the tenants share: half of the pool. The other half is
// for statements without a tenant. More busy connections would slow each other down. If only one tenant
// is active, it gets a quarter of the pool.
func shared(config *pgxpool.Config) int32 { return max(1, config.MaxConns/2) }

type tenantKey struct{}

// For returns a context in which statements use the tenant's share of the connections. Statements in a context
// without a tenant do not wait for a share.
func For(ctx context.Context, tenant metering.TenantID) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// turn waits until the tenant of ctx may use one more connection. end gives the connection back to the tenant's
// share. turn returns CodeOverloaded after turnTimeout.
func (p *Pool) turn(ctx context.Context) (end func(), err error) {
	tenant, known := ctx.Value(tenantKey{}).(metering.TenantID)
	if !known {
		return func() {}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	if err := p.shares.Wait(waiting, tenant); err != nil {
		return nil, metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant wait for the database; try again").Because(err)
	}
	return sync.OnceFunc(func() { p.shares.Give(tenant, 1) }), nil
}

// Exec runs a statement on a connection of the share of ctx's tenant.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	end, err := p.turn(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer end()
	return p.Pool.Exec(ctx, sql, args...)
}

// AcquireFunc calls fn with a connection of the share of ctx's tenant.
func (p *Pool) AcquireFunc(ctx context.Context, fn func(*pgxpool.Conn) error) error {
	end, err := p.turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	return p.Pool.AcquireFunc(ctx, fn)
}

// ErrOneConnection is the error of AcquireTwo if the pool is too small.
var ErrOneConnection = errors.New("the pool has only one connection; two are needed")

// AcquireTwo calls fn with two connections, of which only the first uses the tenant's share. The shares of all
// tenants are half of the pool, so the other half has a second connection for every caller. Callers that hold
// their first connection therefore do not wait for each other.
func (p *Pool) AcquireTwo(ctx context.Context, tenant metering.TenantID, fn func(first, second *pgxpool.Conn) error) error {
	if p.Stat().MaxConns() < 2 {
		return ErrOneConnection
	}
	return p.AcquireFunc(For(ctx, tenant), func(first *pgxpool.Conn) error {
		return p.Pool.AcquireFunc(ctx, func(second *pgxpool.Conn) error { return fn(first, second) })
	})
}

// Query runs a statement on a connection of the share of ctx's tenant. The statement uses the share until its rows
// are closed.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	end, err := p.turn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := p.Pool.Query(ctx, sql, args...)
	if err != nil {
		end()
		return rows, err
	}
	return turnRows{rows, end}, nil
}

// QueryRow is Query for one row. The statement uses the share until the row is scanned.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	end, err := p.turn(ctx)
	if err != nil {
		return noRow{err}
	}
	return turnRow{p.Pool.QueryRow(ctx, sql, args...), end}
}

// Begin begins a transaction on a connection of the share of ctx's tenant. The transaction uses the share until it
// ends.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) {
	return p.BeginTx(ctx, pgx.TxOptions{})
}

// BeginTx is Begin with options.
func (p *Pool) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	end, err := p.turn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := p.Pool.BeginTx(ctx, options)
	if err != nil {
		end()
		return nil, err
	}
	return turnTx{tx, end}, nil
}

type turnRows struct {
	pgx.Rows

	end func()
}

// Next ends the turn after the last row, because pgx closes the rows at that point.
func (r turnRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.end()
	return false
}

func (r turnRows) Close() {
	r.Rows.Close()
	r.end()
}

type turnRow struct {
	pgx.Row

	end func()
}

func (r turnRow) Scan(into ...any) error {
	defer r.end()
	return r.Row.Scan(into...)
}

type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }

type turnTx struct {
	pgx.Tx

	end func()
}

func (t turnTx) Commit(ctx context.Context) error {
	defer t.end()
	return t.Tx.Commit(ctx)
}

func (t turnTx) Rollback(ctx context.Context) error {
	defer t.end()
	return t.Tx.Rollback(ctx)
}

// stopwatch returns a function that returns the time since stopwatch was called.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
