package db_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
)

// eachEdition runs the test on the server that all tests use. If this server comes from Debian's package, it has
// TimescaleDB's Apache edition. If TEST_COMMUNITY_DATABASE_URL is set, eachEdition also runs the test on that server,
// which must have the Community edition. If the variable is not set, make test prints a notice.
func eachEdition(t *testing.T, test func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool)) {
	run := func(server string) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			address := dbtest.Empty(t, server)
			store, err := dbtest.Connect(t.Context(), address)
			require.NoError(t, err)
			t.Cleanup(store.Close)
			require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
			conn, err := pgx.Connect(t.Context(), address)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			var community bool
			require.NoError(t, conn.QueryRow(t.Context(), `select _timescaledb_functions.tsl_loaded()`).Scan(&community))
			if server == os.Getenv(communityServer) {
				require.True(t, community, communityServer+" has to name a server of the Community edition")
			}
			test(t, store, conn, community)
		}
	}
	t.Run("Common", run(dbtest.ServerURL(t)))
	t.Run("Community", func(t *testing.T) {
		server := os.Getenv(communityServer)
		if server == "" {
			t.Skip(communityServer + " is not set")
		}
		run(server)(t)
	})
}

const communityServer = "TEST_COMMUNITY_DATABASE_URL"

// dropDays drops usage_daily, which is a continuous aggregate or a view, depending on the edition.
func dropDays(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `
		do $$
		begin
		  if exists (select from timescaledb_information.continuous_aggregates where view_name = 'usage_daily') then
		    drop materialized view usage_daily;
		  else
		    drop view usage_daily;
		  end if;
		end $$`)
	require.NoError(t, err)
}
