package db_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// TestRolesLackUnneededPrivileges checks that the roles of the API and the worker lack privileges that they do not
// need. Most tests do not detect that one role lacks a grant, because their store has the privileges of both roles.
func TestRolesLackUnneededPrivileges(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	dbtest.Tenant(t, store) // adds an entry to the audit log
	for _, role := range []string{dbtest.Roles.API, dbtest.Roles.Worker} {
		conn, err := pgx.Connect(t.Context(), dbtest.As(t, address, role))
		require.NoError(t, err)
		defer conn.Close(t.Context())
		var entries int
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from audit_log`).Scan(&entries))
		require.Equal(t, 1, entries)
		var verbosity string
		require.NoError(t, conn.QueryRow(t.Context(), `show log_error_verbosity`).Scan(&verbosity))
		require.Equal(t, "terse", verbosity, "PostgreSQL logs no values of rows that it refuses")
		for _, refused := range []string{
			`update audit_log set actor = 'somebody else'`,
			`delete from audit_log`,
			`truncate audit_log`,
			`alter table audit_log disable trigger all`,
			`delete from billing_reports`,
			`delete from billing_period_totals`,
			`delete from billing_invoices`,
			`delete from tenants`,
			`update goose_db_version set is_applied = false`,
			`drop table events`,
			`drop table if exists event_keys cascade`,
			`create table mine (n int)`,
			`copy tenants to program 'true'`,
		} {
			_, err := conn.Exec(t.Context(), refused)
			require.ErrorContains(t, err, "(SQLSTATE 42501)", "%s: %s", role, refused)
		}
	}
	api, err := pgx.Connect(t.Context(), dbtest.As(t, address, dbtest.Roles.API))
	require.NoError(t, err)
	defer api.Close(t.Context())
	for _, refused := range []string{
		`select drop_chunks('events', older_than => timestamptz '2026-01-01')`,
		`delete from event_keys`,
		`delete from outbox`,
		`set role odometer`,
		`set role odometer_worker`,
	} {
		_, err := api.Exec(t.Context(), refused)
		require.ErrorContains(t, err, "(SQLSTATE 42501)", refused)
	}
}

func TestMigrateRefusesARoleThatCannotBeGranted(t *testing.T) {
	t.Parallel()
	store := dbtest.Owner(t, dbtest.Empty(t, dbtest.ServerURL(t)))
	for role, want := range map[string]string{
		"nobody_at_all": "names a role that does not exist",
		"odometer":      "must not name the tables' owner",
	} {
		err := store.Migrate(t.Context(), pg.Roles{API: dbtest.Roles.API, Worker: role})
		var refused *metering.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "WORKER_ROLE", refused.Fields[0].Location)
		require.Contains(t, refused.Fields[0].Message, want)
	}
}

// TestMigrateWorksForOwnerThatIsNotSuperuser migrates as an owner that may not set the log verbosity of other
// roles.
func TestMigrateWorksForOwnerThatIsNotSuperuser(t *testing.T) {
	t.Parallel()
	address := dbtest.Empty(t, dbtest.ServerURL(t))
	administrator, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer administrator.Close(t.Context())
	owner := "owner_of_" + administrator.Config().Database
	for _, statement := range []string{
		`create extension timescaledb`,
		`create role ` + owner + ` login`,
		`alter database ` + administrator.Config().Database + ` owner to ` + owner,
	} {
		_, err := administrator.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	defer func() {
		_, err := administrator.Exec(context.WithoutCancel(t.Context()), `drop owned by `+owner+` cascade; alter database `+
			administrator.Config().Database+` owner to current_user; drop role `+owner)
		require.NoError(t, err)
	}()
	store, err := dbtest.Connect(t.Context(), dbtest.As(t, address, owner))
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
}

// TestMigrateRepeatsGrantsOnHypertableWithChunks migrates repeatedly with chunks. TimescaleDB 2.19.3 crashes if a
// prepared grant on a hypertable with chunks is executed again.
func TestMigrateRepeatsGrantsOnHypertableWithChunks(t *testing.T) {
	t.Parallel()
	_, address := dbtest.Fresh(t)
	owner := dbtest.Owner(t, address)
	require.NoError(t, owner.Maintenance.MakeChunks(t.Context(), november))
	for range 3 {
		require.NoError(t, owner.Migrate(t.Context(), dbtest.Roles))
	}
}

// TestTablesWithDeletePrivilegeAreDocumented compares the grants with docs/operating/database.md.
func TestTablesWithDeletePrivilegeAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operating/database.md")
	require.NoError(t, err)
	_, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for setting, role := range map[string]string{"API_ROLE": dbtest.Roles.API, "WORKER_ROLE": dbtest.Roles.Worker} {
		rows, err := conn.Query(t.Context(), `
			select relname::text
			from pg_class
			where relnamespace = current_schema::regnamespace
			  and relkind in ('r', 'p')
			  and has_table_privilege($1, oid, 'DELETE')`, role)
		require.NoError(t, err)
		granted, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		listed := regexp.MustCompile("(?s)- `" + setting + "`: (.*?)\n(?:-|\n)").FindSubmatch(page)
		require.NotNil(t, listed)
		require.ElementsMatch(t, granted, strings.Fields(strings.NewReplacer("`", "", ",", " ").Replace(string(listed[1]))))
	}
}
