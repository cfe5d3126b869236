package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Health is the state of the database. Only Healthy serves requests.
type Health string

// The states of the database.
const (
	Healthy     Health = "ok"
	Unavailable Health = "unavailable"  // the database does not answer, or reports another fault
	NotMigrated Health = "not_migrated" // the schema lacks a migration
	ReadOnly    Health = "read_only"    // the database refuses writes, as after a failover
	Full        Health = "full"         // the disk of the database is full
)

// Health probes the database with a small write. err is the reason if it is not healthy.
func (p *Pool) Health(ctx context.Context) (h Health, err error) {
	migrated, err := p.Migrated(ctx)
	if err == nil && !migrated {
		return NotMigrated, errors.New("the database lacks a migration of this binary; run odometer migrate")
	}
	if err == nil {
		err = InTx(ctx, p, func(tx pgx.Tx) error { return probeWrites(ctx, tx) })
	}
	switch {
	case err == nil:
		return Healthy, nil
	case SQLState(err) == stateReadOnly:
		return ReadOnly, err
	case SQLState(err) == stateDiskFull:
		return Full, err
	}
	return Unavailable, err
}

// probeWrites tests whether the database can allocate disk space. A write into an existing page would not test it,
// because such a write allocates none. probeWrites also locks a row, so that COMMIT writes a record to the
// write-ahead log. It leaves no data behind.
func probeWrites(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select from tenants order by id limit 1 for key share skip locked`)
	if err != nil {
		return err
	}
	// The CTE exceeds work_mem, so the database spills it to a temporary file of 4 MiB on its own disk.
	_, err = tx.Exec(ctx, `select set_config('work_mem', '64kB', true), set_config('temp_tablespaces', '', true)`)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		with spilled as materialized (select repeat('0', 1048576) as part from generate_series(1, 4))
		select sum(length(part)) from spilled`)
	return err
}

// ReadClock returns the database's time.
func (p *Pool) ReadClock(ctx context.Context) (now time.Time, err error) {
	return now, Coded(p.QueryRow(ctx, `select clock_timestamp()`).Scan(&now))
}
