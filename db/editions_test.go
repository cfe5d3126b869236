package db_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
)

// eachEdition runs the test on TimescaleDB's Apache edition, and on the
// Community edition, which Debian's package is not, where somebody has a server
// of it and says so; make test tells who does not.
func eachEdition(t *testing.T, test func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool)) {
	run := func(server string, community bool) func(*testing.T) {
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
			test(t, store, conn, community)
		}
	}
	t.Run("Apache", run(dbtest.ServerURL(t), false))
	server := os.Getenv("TEST_COMMUNITY_DATABASE_URL")
	if server == "" {
		t.Run("Community", func(t *testing.T) { t.Skip("TEST_COMMUNITY_DATABASE_URL is not set: this ran on the Apache edition alone") })
		return
	}
	t.Run("Community", run(server, true))
}
