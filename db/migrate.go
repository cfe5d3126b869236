package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/odometer-metering/odometer/migrations"
)

// Migrate brings the schema up to date and then fits it to the edition of
// TimescaleDB. It is repeatable, and two at once wait for each other.
func (d *DB) Migrate(ctx context.Context) error {
	config := d.pool.Config().ConnConfig.Copy()
	delete(config.RuntimeParams, "statement_timeout") // a migration may take its time, but never waits long for a lock
	conn := stdlib.OpenDB(*config)
	defer conn.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // asks every second, for five minutes
	if err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, migrations.Files, goose.WithSessionLocker(locker),
		goose.WithAllowOutofOrder(true)) // migrations are independent where their numbers leave gaps
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return d.fitEdition(ctx)
}

// Migrated says whether the schema has every migration this binary knows.
func (d *DB) Migrated(ctx context.Context) (bool, error) {
	entries, err := migrations.Files.ReadDir(".")
	if err != nil {
		return false, fmt.Errorf("read migrations: %w", err)
	}
	var begun bool
	if err := d.pool.QueryRow(ctx, `select to_regclass('goose_db_version') is not null`).Scan(&begun); err != nil || !begun {
		return false, coded(err)
	}
	var applied int
	err = d.pool.QueryRow(ctx, `select count(*) from goose_db_version where version_id > 0 and is_applied`).Scan(&applied)
	return applied >= len(entries), coded(err)
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
