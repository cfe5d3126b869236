package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// unfolded returns the number of the tenant's rows in usage_added. Each row has usage that no fold has merged into the
// rollups.
func unfolded(t testing.TB, conn *pgx.Conn, tenant metering.TenantID) (rows int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from usage_added where tenant_id = $1`, tenant).Scan(&rows))
	return rows
}

// someEvents returns n events of ten customers and three models, at random minutes of 40 days.
func someEvents(t testing.TB, n int) []metering.Event {
	events := make([]metering.Event, n)
	for i := range events {
		at := november.Add(-time.Duration(rand.IntN(40*24*60)) * time.Minute)
		properties := fmt.Sprintf(`{"model":"%d"}`, rand.IntN(3))
		events[i] = dbtest.Event(t, "call", fmt.Sprint("customer ", rand.IntN(10)), at, fmt.Sprintf("%d.%03d", rand.IntN(9), rand.IntN(1000)), "", properties)
	}
	return events
}

func TestAFoldChangesNoTotal(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/New_York"} {
		tenant, other := dbtest.Tenant(t, store, zone).ID, dbtest.Tenant(t, store, zone).ID
		for _, id := range []metering.TenantID{tenant, other} {
			dbtest.Meter(t, store, id, "calls", "call", "model")
			dbtest.Meter(t, store, id, "all-calls", "call")
		}
		w := newWriter(t, store, dbtest.WriterOptions)
		send := func() {
			for range 3 {
				_, err := w.Ingest(t.Context(), tenant, someEvents(t, 50))
				require.NoError(t, err)
				_, err = w.Ingest(t.Context(), other, someEvents(t, 5))
				require.NoError(t, err)
			}
			requireRollupsEqualARecount(t, conn, tenant)
		}
		send()
		require.Equal(t, 3, unfolded(t, conn, tenant), "each transaction adds a row")
		for range 2 {
			require.NoError(t, store.Folds.Tenant(t.Context(), tenant))
			require.Zero(t, unfolded(t, conn, tenant))
			requireRollupsEqualARecount(t, conn, tenant)
		}
		require.Equal(t, 3, unfolded(t, conn, other), "the rows of the other tenant are not folded")
		send() // adds to existing rollups, and creates others
		for _, id := range []metering.TenantID{tenant, other} {
			require.NoError(t, store.Folds.Tenant(t.Context(), id))
			require.Zero(t, unfolded(t, conn, id))
		}
		requireRollupsEqualARecount(t, conn, tenant)
		requireRollupsEqualARecount(t, conn, other)
	}
}

// TestFoldMergesManyRowsAndKeepsLateUsage folds more rows than one transaction of a fold merges. All usage is folded,
// and late usage stays late.
func TestFoldMergesManyRowsAndKeepsLateUsage(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.created(b.now.AddDate(0, 0, -93))
	b.use("5")
	b.now = billing.CalendarPeriod(b.now, time.UTC).End.Add(100 * time.Hour)
	b.plan(anew)
	b.closePeriods()
	for range 1_050 {
		b.useAt("0.5", b.now.Add(-150*time.Hour))
		b.use("1")
	}
	conn := b.connect()
	require.Greater(t, unfolded(t, conn, b.tenant), 2_000, "more than one transaction folds")
	requireRollupsEqualARecount(t, conn, b.tenant)
	require.NoError(t, b.store.Folds.Tenant(t.Context(), b.tenant))
	require.Zero(t, unfolded(t, conn, b.tenant))
	requireRollupsEqualARecount(t, conn, b.tenant)
	var late string
	b.scan(`select trim_scale(sum(late_sum))::text from usage_monthly where tenant_id = $1 and customer_id = $2`, []any{b.tenant, b.customer.ID}, &late)
	require.Equal(t, "525", late)
}

// TestFoldAlternatesBetweenTenants gives two tenants more usage than one transaction folds. Neither waits for all usage
// of the other.
func TestFoldAlternatesBetweenTenants(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	w := newWriter(t, store, dbtest.WriterOptions)
	var tenants []metering.TenantID
	for range 2 {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		_, err := w.Ingest(t.Context(), tenant, someEvents(t, 1))
		require.NoError(t, err)
		tenants = append(tenants, tenant)
	}
	for _, statement := range []string{
		`insert into usage_added (tenant_id, customer_ids, meter_version_ids, group_ids, hours, months, sums, counts)
		select tenant_id, customer_ids, meter_version_ids, group_ids, hours, months, sums, counts
		from usage_added, generate_series(1, 2000)`,
		`create table folded (at bigint generated always as identity, tenant_id bigint)`,
		`create function note_folded() returns trigger language plpgsql security definer as
		'begin insert into folded (tenant_id) select distinct tenant_id from old_rows; return null; end'`,
		`create trigger note_folded after delete on usage_added referencing old table as old_rows
		for each statement execute function note_folded()`,
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}

	require.NoError(t, store.Folds.All(t.Context()))
	rows, err := conn.Query(t.Context(), `select tenant_id from folded order by at`)
	require.NoError(t, err)
	folded, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	require.NoError(t, err)
	require.ElementsMatch(t, tenants, folded[:2])
	require.ElementsMatch(t, tenants, folded[2:])
}

// TestAKilledFoldCountsNothingTwice terminates folds. A terminated fold must have merged all of its rows, or none.
func TestAKilledFoldCountsNothingTwice(t *testing.T) { killFolds(t, 10) }

func TestDrillAKilledFoldCountsNothingTwice(t *testing.T) { killFolds(t, 200) }

func killFolds(t *testing.T, kills int) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call", "model")
	victims, err := dbtest.Connect(t.Context(), dbtest.URL(t)+"&application_name=fold-"+fmt.Sprint(int64(tenant)))
	require.NoError(t, err)
	t.Cleanup(victims.Close)
	w := newWriter(t, store, dbtest.WriterOptions)

	ctx, stop := context.WithCancel(t.Context())
	folded := make(chan struct{})
	go func() {
		defer close(folded)
		for ctx.Err() == nil {
			_ = victims.Folds.Tenant(ctx, tenant) // fails when its connection is terminated
		}
	}()
	killed := 0
	for killed < kills {
		for range 5 {
			_, err := w.Ingest(t.Context(), tenant, someEvents(t, 40))
			require.NoError(t, err)
		}
		var n int
		err := conn.QueryRow(t.Context(), `
			select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
			where application_name = $1 and state = 'active' and query ~ 'usage_unfolded'`, "fold-"+fmt.Sprint(int64(tenant))).Scan(&n)
		require.NoError(t, err)
		killed += n
	}
	requireRollupsEqualARecount(t, conn, tenant)
	stop()
	<-folded
	dbtest.Eventually(t, func() error { // the transaction of the last fold may still be ending
		if err := store.Folds.Tenant(t.Context(), tenant); err != nil || unfolded(t, conn, tenant) == 0 {
			return err
		}
		return errors.New("something is left")
	})
	requireRollupsEqualARecount(t, conn, tenant)
}

// failUnlessLate returns a function for the errors of a Folder. It fails the test, unless the fold exceeded its time
// limit. The next fold then folds the same events.
func failUnlessLate(t testing.TB) func(error) {
	return func(err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// TestReadsDuringFoldsCountEachEventOnce checks that reads during ingest and folds count each
// answered event once.
func TestReadsDuringFoldsCountEachEventOnce(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	w := newWriter(t, store, dbtest.WriterOptions)
	folder := store.NewFolder(failUnlessLate(t))
	t.Cleanup(folder.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := store.Folds.Tenant(t.Context(), tenant); err != nil {
				t.Error(err)
			}
		}
	}()
	month := billing.CalendarPeriod(november, time.UTC)
	for sent := 1; sent <= 300; sent++ {
		_, err := w.Ingest(t.Context(), tenant, []metering.Event{dbtest.Event(t, "call", "acme", november.Add(time.Duration(sent)*time.Hour), "1", "", "")})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(sent), total(t, store, tenant, "acme", month)[0].Usage.String())
	}
	stop()
	<-ended
}

// TestPagesContainEveryUnfoldedWindow reads usage of 90 transactions that no fold has merged yet. Pages must
// contain every window, even with a small limit.
func TestPagesContainEveryUnfoldedWindow(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	tenant := dbtest.Tenant(t, store).ID
	m := dbtest.Meter(t, store, tenant, "calls", "call", "model")
	hour := november.Truncate(time.Hour)
	for n := range 90 {
		at := hour.Add(-time.Duration(n%3) * time.Hour)
		ingest(t, store, tenant, dbtest.Event(t, "call", "acme", at, "1.5", "", fmt.Sprintf(`{"model":"%d"}`, n%2)))
	}
	require.Equal(t, 90, unfolded(t, conn, tenant))
	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	for _, limit := range []int{1, 2, 3, 50} {
		for _, by := range metering.Hour.Values() {
			for _, end := range []time.Time{hour.Add(time.Hour), hour.Add(time.Minute)} {
				requireWindowsEqualARecount(t, store, conn, tenant, usage.WindowQuery{
					Customer: acme.ID, Meter: m, Range: metering.Range{Start: hour.Add(-90 * time.Minute), End: end}, Granularity: by, Limit: limit,
				})
				requireWindowsEqualARecount(t, store, conn, tenant, usage.WindowQuery{
					Customer: acme.ID, Meter: m, Range: metering.Range{Start: hour.Add(-90 * time.Minute), End: end}, Granularity: by, Limit: limit, GroupBy: []string{},
				})
			}
		}
	}
}
