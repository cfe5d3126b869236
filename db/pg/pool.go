// Package pg connects the stores to PostgreSQL: the pool of connections with its shares by tenant, transactions with
// their audit entries, coded errors, pages, and the schema's migrations and grants.
//
// It owns no table.
package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// Pool is a pool of connections to the database. Each tenant may use only a share of the connections, so that one
// tenant cannot block the others. Further statements of the tenant wait for their turn.
type Pool struct {
	*pgxpool.Pool

	shares *fair.Shares[metering.TenantID]
	audit  audit.Key

	Stopwatch    func() (elapsed func() time.Duration) // measures how long a tenant's lock is held
	TurnTimeout  time.Duration                         // maximum time that a statement waits for a connection of its tenant's share
	FlushEvery   time.Duration                         // interval of the writes of each flusher
	FlushTimeout time.Duration                         // time limit of each write of a flusher
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

// stopwatch returns a function that returns the time since stopwatch was called.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
