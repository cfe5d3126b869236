package pg

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// OtherSchemaError reports that another version of Odometer created the database's schema: an applied migration
// differs from the migration with the same number in this binary, or this binary does not have it.
type OtherSchemaError struct {
	Migration int64
	Unknown   bool // whether this binary has no migration with the number
}

func (e *OtherSchemaError) Error() string {
	what := "does not match the one in this binary"
	if e.Unknown {
		what = "is not known here"
	}
	return fmt.Sprintf("the database has the schema of another version of odometer: migration %05d %s. "+
		"Nothing was changed. Use that version; or, in development, delete the data with make clean-dev", e.Migration, what)
}

// checkAppliedMigrations returns an OtherSchemaError if digests does not have the number and digest of an applied
// migration.
func checkAppliedMigrations(ctx context.Context, pool *sql.DB, digests map[int64]string) error {
	applied, recorded, err := appliedMigrations(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the applied migrations: %w", Coded(err))
	}
	for _, version := range applied {
		digest, known := digests[version]
		if !known || recorded[version] != digest {
			return &OtherSchemaError{version, !known}
		}
	}
	return nil
}

// recordOrigin stores the digest of every applied migration in the comment on goose's table.
func recordOrigin(ctx context.Context, pool *sql.DB, digests map[int64]string) error {
	applied, recorded, err := appliedMigrations(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the applied migrations: %w", Coded(err))
	}
	now := make(map[int64]string, len(applied))
	for _, version := range applied {
		now[version] = digests[version]
	}
	if len(now) == 0 || maps.Equal(now, recorded) {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	_, err = pool.ExecContext(ctx, fmt.Sprintf(`comment on table goose_db_version is '%s'`, text)) // numbers and hexadecimal digits
	return Coded(err)
}

// appliedMigrations returns the versions that goose has applied, in order, and the digests that
// recordOrigin has stored, by version.
func appliedMigrations(ctx context.Context, pool *sql.DB) (applied []int64, recorded map[int64]string, err error) {
	var text string
	err = pool.QueryRowContext(ctx, `
		select coalesce(obj_description(to_regclass('goose_db_version'), 'pg_class'), '{}')
		where to_regclass('goose_db_version') is not null`).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal([]byte(text), &recorded); err != nil {
		recorded = nil // recordOrigin did not write the comment
	}
	rows, err := pool.QueryContext(ctx, `select version_id from goose_db_version where version_id > 0 and is_applied order by 1`)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return nil, nil, err
		}
		applied = append(applied, version)
	}
	return applied, recorded, rows.Err()
}
