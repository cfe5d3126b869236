// Package db combines the stores of its subpackages, and adds the stores of tenants, erasure, retention and
// maintenance. Together, these packages contain all SQL of the program, hand-written for pgx: one small type
// per noun. Methods take ctx first and the tenant second; an exported method is a transaction boundary.
// Errors that a caller can act on are metering.Errors.
//
// These packages own the stored data. They do not own the schema (package migrations) nor the rules (packages
// metering and billing).
package db

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
)

// The stores of each package, with different names, so that DB can embed all of them.
type (
	accessStores   = access.Stores
	accessCreators = access.Creators
	catalogStores  = catalog.Stores
	usageStores    = usage.Stores
	ledgerStores   = ledger.Stores
	limitStores    = limits.Stores
)

// DB is a pool of connections, with one store per noun that uses the pool. The stores of other packages are
// embedded.
type DB struct {
	pool *pg.Pool

	accessStores
	catalogStores
	usageStores
	ledgerStores
	limitStores

	Tenants       Tenants
	Erasures      Erasures
	Attention     Attention
	Discrepancies Discrepancies
	Maintenance   Maintenance
}

// Open connects to TimescaleDB. url is a PostgreSQL connection URL; pool_max_conns in it bounds the pool.
//
// The service's secret yields the keys of the audit log and of the digests that identify erased events.
// With a nil secret, audited operations and ingest fail. read decodes stored prices of providers; nil: none
// are read.
func Open(ctx context.Context, url string, secret []byte, read ledger.ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read)
}

// OpenWarm is like Open, and always keeps a minimum number of connections open: those that all tenants share.
// Opening a connection costs more than most statements, and would delay all requests of a burst.
func OpenWarm(ctx context.Context, url string, secret []byte, read ledger.ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read, pg.KeepWarm)
}

// OpenForIngest is like OpenWarm, for a Writer and a Folder. Their statements look up many rows by full key.
// PostgreSQL plans these statements while tables are small, and would reuse a plan that builds a bitmap of
// pages per key. Bitmap scans are therefore disabled.
func OpenForIngest(ctx context.Context, url string, secret []byte, read ledger.ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read, pg.KeepWarm, pg.AvoidBitmapScans)
}

// OpenSmall opens a fixed number of connections for lookups by key, even if the URL sets a different number. Each
// statement is planned once for all arguments, because planning took twice as long as the lookup. The plan
// uses an index even while the table is small.
func OpenSmall(ctx context.Context, url string, secret []byte, connections int32) (*DB, error) {
	return open(ctx, url, secret, nil, pg.PlanOncePerStatement(connections))
}

func open(ctx context.Context, url string, secret []byte, read ledger.ReadPrice, tunings ...pg.Tuning) (*DB, error) {
	key, err := audit.NewKey(secret)
	if err != nil {
		return nil, err
	}
	pool, err := pg.Open(ctx, url, key, tunings...)
	if err != nil {
		return nil, err
	}
	books := ledger.New(pool, read, limits.NewPeriodAlerts)
	return &DB{
		pool:          pool,
		accessStores:  access.New(pool),
		catalogStores: catalog.New(pool),
		usageStores:   usage.New(pool),
		ledgerStores:  books,
		limitStores:   limits.New(pool, read),
		Tenants:       Tenants{pool},
		Erasures:      Erasures{pool, books.Ledger},
		Attention:     Attention{pool},
		Discrepancies: Discrepancies{pool},
		Maintenance:   Maintenance{pool, books.Ledger},
	}, nil
}

// Migrate applies the missing migrations, adapts the schema to the edition of TimescaleDB, and grants privileges to
// the roles. It is idempotent, and concurrent calls wait for each other. It returns OtherSchemaError, and changes
// nothing, if the applied migrations differ from this binary's.
func (d *DB) Migrate(ctx context.Context, roles pg.Roles) error { return d.pool.Migrate(ctx, roles) }

// Migrated reports whether every migration of this binary was applied, with the same content.
func (d *DB) Migrated(ctx context.Context) (bool, error) { return d.pool.Migrated(ctx) }

// Health probes the database with a small write. err is the reason if it is not healthy.
func (d *DB) Health(ctx context.Context) (h pg.Health, err error) { return d.pool.Health(ctx) }

// ReadClock returns the database's time.
func (d *DB) ReadClock(ctx context.Context) (now time.Time, err error) { return d.pool.ReadClock(ctx) }

// SetTurnTimeout sets the maximum time that a statement waits for a connection of its tenant's share. Call it before
// the first statement.
func (d *DB) SetTurnTimeout(timeout time.Duration) { d.pool.TurnTimeout = timeout }

// Close waits until the connections in use are released, and closes the pool.
func (d *DB) Close() { d.pool.Close() }
