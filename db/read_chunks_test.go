package db_test

import (
	"context"
	"encoding/json"
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

// chunkScans is the number of scans of each chunk of the hypertables.
type chunkScans map[chunk]int

type chunk struct {
	table      string
	start, end time.Time
}

func (c chunk) contains(at time.Time) bool { return !at.Before(c.start) && at.Before(c.end) }

// chunkScansOf returns the scans so far. It terminates all other connections first, because a connection may report its
// statistics only when it ends.
func chunkScansOf(t *testing.T, conn *pgx.Conn) chunkScans {
	t.Helper()
	dbtest.Eventually(t, func() error {
		var others int
		err := conn.QueryRow(t.Context(), `
			select count(pg_terminate_backend(pid)) from pg_stat_activity
			where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&others)
		if err == nil && others > 0 {
			err = fmt.Errorf("%d others are connected", others)
		}
		return err
	})
	rows, err := conn.Query(t.Context(), `
		select c.hypertable_name, c.range_start, c.range_end, coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0)
		from timescaledb_information.chunks c
		join pg_stat_user_tables s on s.schemaname = c.chunk_schema and s.relname = c.chunk_name`)
	require.NoError(t, err)
	scans := make(chunkScans)
	var of chunk
	var n int
	_, err = pgx.ForEachRow(rows, []any{&of.table, &of.start, &of.end, &n}, func() error {
		scans[chunk{of.table, of.start.UTC(), of.end.UTC()}] = n
		return nil
	})
	require.NoError(t, err)
	return scans
}

// TestReadsScanOnlyTheChunksOfTheirWindow checks that a read scans no chunk outside its window, however many chunks
// there are. A read scans events only for hours that the window covers in part. A total scans no hours that months
// cover. The same holds for the generic plan that PostgreSQL uses after some executions, which excludes chunks at run
// time.
func TestReadsScanOnlyTheChunksOfTheirWindow(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tenant := dbtest.Tenant(t, store)
	meter := dbtest.Meter(t, store, tenant.ID, "calls", "call", "model")
	acme := dbtest.Customer(t, store, tenant.ID, "acme")
	const weeks = 40
	now := clock.Now().UTC().Truncate(time.Microsecond)
	var past []metering.Event
	for week := range weeks {
		for _, customer := range []string{"acme", "other"} {
			for _, model := range []string{"small", "large"} {
				past = append(past, dbtest.Event(t, "call", customer, now.AddDate(0, 0, -7*week), "1", "", `{"model":"`+model+`"}`))
			}
		}
	}
	_, err = newWriter(t, store, dbtest.WriterOptions).Ingest(t.Context(), tenant.ID, past)
	require.NoError(t, err)
	require.NoError(t, store.Folds.All(t.Context()))
	_, err = store.Ledger.Preview(t.Context(), tenant.ID, acme.ID, now) // the first looks for when the customer began
	require.NoError(t, err)
	store.Close()

	month := metering.WindowOf(now, metering.Month, time.UTC)
	weeksBack := metering.Range{Start: now.AddDate(0, 0, -7*30-3), End: now.AddDate(0, 0, -7*10-3)} // covers an hour in part at both ends
	months := metering.Split(weeksBack, time.UTC).Months
	windows := func(ctx context.Context, s *db.DB, groups map[string][]json.RawMessage) error {
		page, err := s.Usage.Windows(ctx, tenant.ID, usage.WindowQuery{
			Customer: acme.ID, Meter: meter, Range: weeksBack, Granularity: metering.Hour, Groups: groups, Limit: 1000,
		})
		if err == nil && len(page.Windows) == 0 {
			err = fmt.Errorf("nothing was counted")
		}
		return err
	}
	breakdown := func(ctx context.Context, s *db.DB, zone *time.Location, byValue bool) error {
		b, err := s.Usage.Breakdown(ctx, tenant.ID, usage.BreakdownQuery{
			Meter: meter, Range: weeksBack, Granularity: metering.Day, Zone: zone, Timezone: time.UTC,
			ByCustomer: true, ByPlan: true, Properties: []string{"model"}, ByValue: byValue, Limit: 1000,
		})
		if err == nil && b.Total.String() != "80" {
			err = fmt.Errorf("the total is %s", b.Total)
		}
		return err
	}
	for _, c := range []struct {
		name   string
		window metering.Range
		read   func(ctx context.Context, s *db.DB) error
	}{
		{"total", weeksBack, func(ctx context.Context, s *db.DB) error {
			totals, err := s.Usage.MeterTotals(ctx, tenant.ID, acme.ID, weeksBack)
			if err == nil && totals[0].Count != 40 {
				err = fmt.Errorf("%d events were counted", totals[0].Count)
			}
			return err
		}},
		{"series", weeksBack, func(ctx context.Context, s *db.DB) error { return windows(ctx, s, nil) }},
		{"dimension", weeksBack, func(ctx context.Context, s *db.DB) error {
			return windows(ctx, s, map[string][]json.RawMessage{"model": {json.RawMessage(`"large"`)}})
		}},
		{"comparison", metering.Range{Start: month.Start.AddDate(0, -1, 0), End: month.End}, func(ctx context.Context, s *db.DB) error {
			_, err := s.Usage.MeterTotals(ctx, tenant.ID, acme.ID, month)
			if err == nil {
				_, err = s.Usage.MeterTotals(ctx, tenant.ID, acme.ID, metering.Range{Start: month.Start.AddDate(0, -1, 0), End: month.Start})
			}
			return err
		}},
		{"breakdown by value", weeksBack, func(ctx context.Context, s *db.DB) error { return breakdown(ctx, s, nil, true) }},
		{"breakdown by key", weeksBack, func(ctx context.Context, s *db.DB) error { return breakdown(ctx, s, nil, false) }},
		{"breakdown of a time zone", weeksBack, func(ctx context.Context, s *db.DB) error {
			return breakdown(ctx, s, metering.Location("Europe/Berlin"), true)
		}},
		// For a customer without a stored period, a preview also reads events before the creation, where the first
		// period may begin.
		{"preview", metering.Range{Start: now.Add(-tenant.Grace).AddDate(0, 0, -33), End: month.End}, func(ctx context.Context, s *db.DB) error {
			_, err := s.Ledger.Preview(ctx, tenant.ID, acme.ID, now)
			return err
		}},
	} {
		before := chunkScansOf(t, conn)
		require.Greater(t, len(before), weeks, c.name)
		reader, err := dbtest.Connect(t.Context(), address+"&pool_max_conns=1")
		require.NoError(t, err)
		for range 10 {
			require.NoError(t, c.read(t.Context(), reader), c.name)
		}
		reader.Close()
		scanned := 0
		for of, n := range chunkScansOf(t, conn) {
			if n == before[of] {
				continue
			}
			scanned++
			if !of.start.Before(c.window.End) || !of.end.After(c.window.Start) {
				t.Errorf("%s of %s to %s scanned %d times what %s has from %s to %s", c.name, c.window.Start, c.window.End, n-before[of], of.table, of.start, of.end)
			}
			if of.table == "usage_hourly" && c.name == "total" && !of.start.Before(months.Start) && !of.end.After(months.End) {
				t.Errorf("%s of %s to %s read hours from %s to %s, which are in months", c.name, c.window.Start, c.window.End, of.start, of.end)
			}
			if of.table == "events" && c.window == weeksBack && !of.contains(weeksBack.Start) && !of.contains(weeksBack.End) {
				t.Errorf("%s of %s to %s read events from %s to %s", c.name, c.window.Start, c.window.End, of.start, of.end)
			}
		}
		if c.window == weeksBack {
			require.Positive(t, scanned, c.name)
		}
	}
}
