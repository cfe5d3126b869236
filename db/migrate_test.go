package db_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/migrations"
)

// schema lists the columns, indexes, constraints and hypertables of a database, so that tests can compare two states.
func schema(t testing.TB, address string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `
		select format('column %s.%s %s null %s default %s', c.table_name, c.column_name, c.data_type, c.is_nullable, c.column_default)
		from information_schema.columns c where c.table_schema = 'public'
		union all
		select 'index ' || indexdef from pg_indexes where schemaname = 'public'
		union all
		select format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid)) from pg_constraint where connamespace = 'public'::regnamespace
		union all
		select 'hypertable ' || hypertable_name from timescaledb_information.hypertables
		order by 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func goosed(t testing.TB, address string) *goose.Provider {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	conn := stdlib.OpenDB(*config)
	t.Cleanup(func() { conn.Close() })
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, migrations.Files)
	require.NoError(t, err)
	return provider
}

func migrate(t testing.TB, address string) error {
	store, err := db.Open(t.Context(), address, nil, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrate(t.Context(), dbtest.Roles)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	whole := schema(t, address)
	twoAtOnce := func(t *testing.T, address string) {
		failures := make(chan error)
		for range 2 {
			go func() { failures <- migrate(t, address) }()
		}
		require.NoError(t, errors.Join(<-failures, <-failures))
		require.Equal(t, whole, schema(t, address))
	}

	t.Run("RepeatedMigrationChangesNothing", func(t *testing.T) {
		require.NoError(t, migrate(t, address))
		require.Equal(t, whole, schema(t, address))
	})

	t.Run("ConcurrentMigrationsSucceed", func(t *testing.T) {
		twoAtOnce(t, dbtest.Empty(t, dbtest.ServerURL(t)))
	})

	t.Run("ConcurrentMigrationsCreateUsageDailyOnce", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), address)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		dropDays(t, conn)
		twoAtOnce(t, address)
	})

	t.Run("EachMigrationCanBeRevertedAndRepeated", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "k", ""))

		provider := goosed(t, address)
		for version := int64(len(provider.ListSources())); version > 0; version-- {
			_, err := provider.DownTo(t.Context(), version-1)
			require.NoError(t, err)
			below := schema(t, address)
			_, err = provider.UpTo(t.Context(), version)
			require.NoError(t, err)
			_, err = provider.DownTo(t.Context(), version-1)
			require.NoError(t, err)
			require.Equal(t, below, schema(t, address), "version %d", version)
		}
		for _, line := range schema(t, address) {
			require.Contains(t, line, "goose_db_version")
		}
		require.NoError(t, migrate(t, address))
		require.Equal(t, whole, schema(t, address))
	})
}

func TestMigrated(t *testing.T) {
	t.Parallel()
	address := dbtest.Empty(t, dbtest.ServerURL(t))
	store, err := db.Open(t.Context(), address, nil, nil)
	require.NoError(t, err)
	defer store.Close()
	requireMigrated := func(want bool) {
		t.Helper()
		migrated, err := store.Migrated(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, migrated)
	}

	requireMigrated(false)
	require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
	requireMigrated(true)
	_, err = goosed(t, address).Down(t.Context())
	require.NoError(t, err)
	requireMigrated(false)
	require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
	requireMigrated(true)

	t.Run("NewerSchemaIsAccepted", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), address)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), `insert into goose_db_version (version_id, is_applied) values (99999, true)`)
		require.NoError(t, err)
		requireMigrated(true)
	})
}

func TestMigrateDoesNotChangeSchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, want string }{
		"NoDigests": {`comment on table goose_db_version is null`, "migration 00001 does not match the one in this binary"},
		"Changed":   {`comment on table goose_db_version is '{"1":"0123456789abcdef"}'`, "migration 00001 does not match the one in this binary"},
		"Later":     {`insert into goose_db_version (version_id, is_applied) values (99999, true)`, "migration 99999 is not known here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, address := dbtest.Fresh(t)
			conn, err := pgx.Connect(t.Context(), address)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			_, err = conn.Exec(t.Context(), c.change)
			require.NoError(t, err)
			dropDays(t, conn) // Migrate would create usage_daily again
			before := schema(t, address)

			err = store.Migrate(t.Context(), dbtest.Roles)
			var other *pg.OtherSchemaError
			require.ErrorAs(t, err, &other)
			require.EqualError(t, err, "the database has the schema of another version of odometer: "+c.want+
				". Nothing was changed. Use that version; or, in development, delete the data with make clean-dev")
			require.Equal(t, before, schema(t, address))
			migrated, err := store.Migrated(t.Context())
			require.NoError(t, err)
			require.Equal(t, name == "Later", migrated)
		})
	}
}

func TestEveryTableHasAComment(t *testing.T) {
	t.Parallel()
	rows, err := dbtest.Conn(t).Query(t.Context(), `
		select relname from pg_class
		where relnamespace = current_schema::regnamespace
		  and relkind in ('r', 'p')
		  and not relispartition
		  and relname <> 'goose_db_version'
		  and coalesce(obj_description(oid, 'pg_class'), '') !~ '^[A-Z].*[.]$'`)
	require.NoError(t, err)
	silent, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, silent, "tables without a comment that is a sentence")
}

// requireDailyEqualsARecount compares usage_daily with a recount of the events by UTC day, which does not use
// time_bucket.
func requireDailyEqualsARecount(t testing.TB, conn *pgx.Conn, tenant metering.TenantID) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		with recount as (
		  select customer_id, event_type, (ts at time zone 'UTC')::date as day, sum(value) as sum, count(*) as count
		  from events where tenant_id = $1 group by 1, 2, 3
		),
		daily as (
		  select customer_id, event_type, (day at time zone 'UTC')::date as day, sum, count
		  from usage_daily where tenant_id = $1 and day = date_trunc('day', day, 'UTC')
		)
		select format('customer %s, %s, %s: events say %s, usage_daily says %s', customer_id, event_type, day,
		  (recount.sum, recount.count), (daily.sum, daily.count))
		from recount full join daily using (customer_id, event_type, day)
		where (recount.sum, recount.count) is distinct from (daily.sum, daily.count)
		limit 10`, tenant)
	require.NoError(t, err)
	differences, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, differences)
}

// spread ingests 200 calls of two customers over 5 days. A microsecond before each call, it ingests an event of another
// type, which has no meter. If from is the 29th of a month, some events are in the next month.
func spread(t *testing.T, store *db.DB, tenant metering.TenantID, from time.Time) {
	t.Helper()
	var events []metering.Event
	for i := range 200 {
		at := from.Add(time.Duration(i) * 37 * time.Minute)
		events = append(events,
			dbtest.Event(t, "call", []string{"acme", "beta"}[i%2], at, fmt.Sprintf("%d.000000000001", i), "", ""),
			dbtest.Event(t, "unknown", "acme", at.Add(-time.Microsecond), "-0.5", "", ""))
	}
	ingest(t, store, tenant, events...)
}

func TestUsageDailyEqualsARecount(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 10, 29, 0, 0, 0, 0, time.UTC)

	t.Run("LateEventsIncluded", func(t *testing.T) {
		store, conn := dbtest.Open(t), dbtest.Conn(t)
		tenant := dbtest.Tenant(t, store).ID
		spread(t, store, tenant, start)
		requireDailyEqualsARecount(t, conn, tenant)
		spread(t, store, tenant, start.AddDate(0, -3, 0))
		requireDailyEqualsARecount(t, conn, tenant)
	})

	t.Run("AfterTheSwitchFromTheView", func(t *testing.T) {
		eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
			tenant := dbtest.Tenant(t, store).ID
			spread(t, store, tenant, start)
			dropDays(t, conn)
			_, err := conn.Exec(t.Context(), `
				create view usage_daily as select ts as day, tenant_id, customer_id, event_type, value as sum, 1::bigint as count from events`)
			require.NoError(t, err)
			var aggregates int
			for range 2 {
				require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
				require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from timescaledb_information.continuous_aggregates`).Scan(&aggregates))
				require.Equal(t, community, aggregates == 1)
			}
			if !community {
				return // the operator has to replace the existing view
			}
			requireDailyEqualsARecount(t, conn, tenant)
			refresh(t, store, start.AddDate(0, 0, 14), community)
			requireDailyEqualsARecount(t, conn, tenant)
		})
	})
}
