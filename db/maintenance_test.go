package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// refresh calls Maintenance.Refresh and requires that it reports the edition of the database.
func refresh(t testing.TB, store *db.DB, now time.Time, community bool) {
	t.Helper()
	available, err := store.Maintenance.Refresh(t.Context(), now)
	require.NoError(t, err)
	require.Equal(t, community, available)
}

func compressedChunks(t testing.TB, conn *pgx.Conn) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `
		select count(*) from timescaledb_information.chunks where hypertable_name = 'events' and is_compressed`).Scan(&n))
	return n
}

// decompressed returns the number of the customer's events that are stored uncompressed in compressed chunks.
func decompressed(t testing.TB, conn *pgx.Conn, customer metering.CustomerID) (n int) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select format('%I.%I', chunk_schema, chunk_name) from timescaledb_information.chunks where hypertable_name = 'events' and is_compressed`)
	require.NoError(t, err)
	chunks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, chunk := range chunks {
		var in int
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from only `+chunk+` where customer_id = $1`, customer).Scan(&in))
		n += in
	}
	return n
}

func TestARefreshMakesUsageDailyEqualARecount(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 10, 29, 0, 0, 0, 0, time.UTC)
	now := start.AddDate(0, 0, 14)
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
		tenant := dbtest.Tenant(t, store).ID
		spread(t, store, tenant, start)
		requireDailyEqualsARecount(t, conn, tenant)
		refresh(t, store, now, community)
		requireDailyEqualsARecount(t, conn, tenant)

		spread(t, store, tenant, start.AddDate(0, -3, 0)) // before the watermark
		var shown int
		require.NoError(t, conn.QueryRow(t.Context(), `select coalesce(sum(count), 0) from usage_daily where tenant_id = $1`, tenant).Scan(&shown))
		if community {
			require.Equal(t, 400, shown, "usage before the watermark is shown after a refresh")
		}
		for range 2 {
			refresh(t, store, now, community)
			requireDailyEqualsARecount(t, conn, tenant)
		}

		spread(t, store, tenant, now) // after the watermark
		requireDailyEqualsARecount(t, conn, tenant)
	})
}

func TestCompressionOfEventsChangesNoRead(t *testing.T) {
	t.Parallel()
	old := clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -90)
	month := metering.Range{Start: old, End: old.AddDate(0, 0, 30)}
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call", "model")
		spread(t, store, tenant, old)
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", old.Add(time.Hour), "7.5", "k", `{"model":"a"}`))
		customer, err := store.Customers.Get(t.Context(), tenant, "acme")
		require.NoError(t, err)
		acme := customer.ID
		read := func() []metering.Event {
			events, err := store.Events.Page(t.Context(), tenant, acme, month, nil, nil, 1000)
			require.NoError(t, err)
			return events
		}
		audit := func(day time.Time) int {
			found, err := store.Discrepancies.Audit(t.Context(), tenant, day, clock.Now())
			require.NoError(t, err)
			return found
		}
		before := read()
		require.Len(t, before, 300, "one of the 301 lies before the day")

		refresh(t, store, clock.Now(), community)
		chunks := compressedChunks(t, conn)
		require.Equal(t, community, chunks > 0)
		require.Equal(t, before, read())
		requireRollupsEqualARecount(t, conn, tenant)

		for round := range 2 {
			ingest(t, store, tenant,
				dbtest.Event(t, "call", "acme", old.Add(time.Hour), "7.5", "k", `{"model":"a"}`), // a repeat
				dbtest.Event(t, "call", "acme", old.Add(90*time.Minute), "0.000000000001", fmt.Sprint("late", round), `{"model":"b"}`),
				dbtest.Event(t, "call", "new", old.Add(26*time.Hour), "3", "", ""))
			require.Len(t, read(), len(before)+round+1)
			requireRollupsEqualARecount(t, conn, tenant)
			require.Zero(t, audit(old), "before a refresh")
			refresh(t, store, clock.Now(), community)
			refresh(t, store, clock.Now(), community)
			require.Equal(t, chunks, compressedChunks(t, conn))
			require.Len(t, read(), len(before)+round+1)
			requireRollupsEqualARecount(t, conn, tenant)
			requireDailyEqualsARecount(t, conn, tenant)
			require.Zero(t, audit(old), "after a refresh")
		}

		past := dbtest.Meter(t, store, tenant, "unknown", "unknown")
		require.Equal(t, metering.Backfilling, past.Version.Status)
		require.NoError(t, backfill(t.Context(), store, tenant, past.Version.ID))
		requireRollupsEqualARecount(t, conn, tenant)
		requireTotalsEqualARecount(t, store, conn, tenant, acme, metering.Range{Start: old.Add(17 * time.Minute), End: month.End.Add(-time.Minute)})

		require.NoError(t, store.Folds.Tenant(t.Context(), tenant))
		requireRollupsEqualARecount(t, conn, tenant)
		_, err = conn.Exec(t.Context(), `
			update usage_hourly set sum = sum + 1 where tenant_id = $1 and customer_id = $2 and hour = $3 and meter_version_id = $4`,
			tenant, acme, old.Add(time.Hour), past.Version.ID)
		require.NoError(t, err)
		require.Equal(t, 1, audit(old))
	})
}

func TestIngestContinuesDuringCompressionOfChunk(t *testing.T) {
	t.Parallel()
	old := clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -90)
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call", "model")
		spread(t, store, tenant, old)
		writer := store.NewWriter(usage.WriterOptions{GroupEvents: 10, Deadline: dbtest.Deadline})
		defer writer.Close()
		failed := make(chan error)
		for sender := range 3 {
			go func() {
				for i := range 40 {
					at := old.Add(time.Duration(i) * time.Hour)
					_, err := writer.Ingest(t.Context(), tenant, []metering.Event{
						dbtest.Event(t, "call", fmt.Sprint("c", sender), at, "1", fmt.Sprint(sender, i), ""),
						dbtest.Event(t, "call", "acme", at, "2", "", ""),
					})
					if err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for senders := 3; senders > 0; {
			select {
			case err := <-failed:
				require.NoError(t, err)
				senders--
			default:
				refresh(t, store, clock.Now(), community)
			}
		}
		requireRollupsEqualARecount(t, conn, tenant)
		refresh(t, store, clock.Now(), community)
		requireDailyEqualsARecount(t, conn, tenant)
		var stored int
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from events where tenant_id = $1`, tenant).Scan(&stored))
		require.Equal(t, 400+3*40*2, stored)
	})
}
