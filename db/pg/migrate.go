package pg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/odometer-metering/odometer/migrations"
)

// Migrate applies the missing migrations, adapts the schema to the edition of TimescaleDB, and grants
// privileges to the roles. It is idempotent, and concurrent calls wait for each other. It returns
// OtherSchemaError, and changes nothing, if the applied migrations differ from this binary's.
func (p *Pool) Migrate(ctx context.Context, roles Roles) (err error) {
	config := p.Config().ConnConfig.Copy()
	delete(config.RuntimeParams, "statement_timeout") // a migration may run long, but its lock timeout stays
	pool := stdlib.OpenDB(*config)
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", Coded(err))
	}
	defer func() { _ = conn.Close() }()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // every second, up to 300 times
	if err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	if err := applyMigrations(ctx, pool); err != nil {
		return err
	}
	if err := p.fitEdition(ctx); err != nil {
		return err
	}
	return p.grant(ctx, roles)
}

// applyMigrations applies the missing migrations. The caller holds the migration lock.
func applyMigrations(ctx context.Context, pool *sql.DB) error {
	digests, err := migrations.Digests()
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := checkAppliedMigrations(ctx, pool, digests); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, pool, migrations.Files)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	_, err = provider.Up(ctx)
	if err = errors.Join(err, recordOrigin(ctx, pool, digests)); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Migrated reports whether every migration of this binary was applied, with the same content.
func (p *Pool) Migrated(ctx context.Context) (bool, error) {
	digests, err := migrations.Digests()
	if err != nil {
		return false, fmt.Errorf("read migrations: %w", err)
	}
	pool := stdlib.OpenDBFromPool(p.Pool)
	defer pool.Close()
	applied, recorded, err := appliedMigrations(ctx, pool)
	if err != nil {
		return false, Coded(err)
	}
	for version, digest := range digests {
		if !slices.Contains(applied, version) || recorded[version] != digest {
			return false, nil
		}
	}
	return true, nil
}

const dailyUsage = `
	select time_bucket(interval '1 day', ts) as day, tenant_id, customer_id, event_type, sum(value) as sum, count(*) as count
	from events
	group by 1, 2, 3, 4`

// fitEdition creates usage_daily. In TimescaleDB's Community edition it is a real-time continuous
// aggregate. In the Apache edition it is a plain view with the same columns and rows. If a database has
// moved to the Community edition, the aggregate replaces the view.
func (p *Pool) fitEdition(ctx context.Context) error {
	return InTx(ctx, p, func(tx pgx.Tx) error {
		if err := LockTenant(ctx, tx, 0); err != nil { // tenant 0 does not exist; concurrent calls wait for its lock
			return err
		}
		return fitEdition(ctx, tx)
	})
}

// fitEdition is Pool.fitEdition in a transaction of the caller. It also allows compression in the Community edition.
func fitEdition(ctx context.Context, tx pgx.Tx) error {
	var community bool
	if err := tx.QueryRow(ctx, `select _timescaledb_functions.tsl_loaded()`).Scan(&community); err != nil {
		return fmt.Errorf("ask for the TimescaleDB edition: %w", err)
	}
	var kind string
	err := tx.QueryRow(ctx, `
		select case
		  when exists (select from timescaledb_information.continuous_aggregates where view_name = 'usage_daily' and view_schema = current_schema) then 'aggregate'
		  when to_regclass('usage_daily') is not null then 'view'
		  else 'none'
		end`).Scan(&kind)
	if err != nil {
		return fmt.Errorf("look for usage_daily: %w", err)
	}
	switch {
	case community && kind != "aggregate":
		_, err = tx.Exec(ctx, `drop view if exists usage_daily`)
		if err == nil {
			_, err = tx.Exec(ctx, `create materialized view usage_daily
				with (timescaledb.continuous, timescaledb.materialized_only = false) as `+dailyUsage+` with no data`)
		}
	case !community && kind == "none":
		_, err = tx.Exec(ctx, `create view usage_daily as `+dailyUsage)
	}
	if err != nil {
		return fmt.Errorf("make usage_daily: %w", err)
	}
	if !community {
		return nil
	}
	return allowCompression(ctx, tx)
}

// allowCompression enables compression of the table events. Maintenance compresses its chunks.
func allowCompression(ctx context.Context, tx pgx.Tx) error {
	var allowed bool
	err := tx.QueryRow(ctx, `
		select compression_enabled
		from timescaledb_information.hypertables
		where hypertable_schema = current_schema
		  and hypertable_name = 'events'`).Scan(&allowed)
	if err == nil && !allowed {
		_, err = tx.Exec(ctx, `
			alter table events set (
			  timescaledb.compress, timescaledb.compress_segmentby = 'tenant_id, customer_id', timescaledb.compress_orderby = 'ts, id')`)
	}
	if err != nil {
		return fmt.Errorf("allow compression of events: %w", err)
	}
	return nil
}
