package pg

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// turnTimeout is the default of Pool.TurnTimeout.
const turnTimeout = 10 * time.Second

// turn waits until the tenant of ctx may use one more connection. end gives the connection back to the tenant's
// share. turn returns CodeOverloaded after TurnTimeout.
func (p *Pool) turn(ctx context.Context) (end func(), err error) {
	tenant, known := ctx.Value(tenantKey{}).(metering.TenantID)
	if !known {
		return func() {}, nil
	}
	if err := p.shares.WaitFor(ctx, tenant, p.TurnTimeout); err != nil {
		return nil, metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant wait for the database; try again").Because(err)
	}
	return sync.OnceFunc(func() { p.shares.Give(tenant, 1) }), nil
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
