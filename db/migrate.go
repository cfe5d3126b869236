package db

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

// Migrate brings the schema up to date, fits it to the edition of TimescaleDB,
// and grants the roles what they need of it. It is repeatable, and two at once wait
// for each other. A schema that other migrations have made is left as it is.
func (d *DB) Migrate(ctx context.Context, roles Roles) (err error) {
	config := d.pool.Config().ConnConfig.Copy()
	delete(config.RuntimeParams, "statement_timeout") // a migration may take its time, but never waits long for a lock
	pool := stdlib.OpenDB(*config)
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", coded(err))
	}
	defer func() { _ = conn.Close() }()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // asks every second, for five minutes
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
	if err := d.fitEdition(ctx); err != nil {
		return err
	}
	return d.grant(ctx, roles)
}

// applyMigrations is for whoever holds the lock.
func applyMigrations(ctx context.Context, pool *sql.DB) error {
	digests, err := migrations.Digests()
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := refuseOther(ctx, pool, digests); err != nil {
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

// Migrated says whether the schema has every migration this binary knows.
func (d *DB) Migrated(ctx context.Context) (bool, error) {
	digests, err := migrations.Digests()
	if err != nil {
		return false, fmt.Errorf("read migrations: %w", err)
	}
	pool := stdlib.OpenDBFromPool(d.pool.Pool)
	defer pool.Close()
	applied, recorded, err := appliedMigrations(ctx, pool)
	if err != nil {
		return false, coded(err)
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

// fitEdition makes usage_daily: a real-time continuous aggregate in
// TimescaleDB's Community edition, a plain view with the same columns and
// answers in the Apache edition. A database that has moved to Community since
// gets the aggregate in the view's place.
func (d *DB) fitEdition(ctx context.Context) error {
	return inTx(ctx, d.pool, func(tx pgx.Tx) error {
		if err := lockTenant(ctx, tx, 0); err != nil { // nobody's lock: two at once take turns
			return err
		}
		return fitEdition(ctx, tx)
	})
}

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

// allowCompression of events, which Maintenance carries out.
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
