package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// A customer's October is frozen; then usage arrives for October, and for the
// open November.
func TestAFrozenPeriodKeepsItsValuesAndShowsWhatCameLate(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	october := metering.CalendarPeriod(time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC), time.UTC)
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 10, day, hour, minute, 0, 0, time.UTC) }

	frozen := func(t *testing.T, aggregation metering.Aggregation) (metering.TenantID, metering.Meter, metering.Customer) {
		tenant := dbtest.Tenant(t, store).ID
		m, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
			Slug: "calls", EventType: "call", Generation: metering.Generation{Aggregation: aggregation, GroupBy: []string{"model"}},
		})
		require.NoError(t, err)
		ingest(t, store, tenant,
			dbtest.Event(t, "call", "acme", at(1, 0, 0), "1", "", ""),
			dbtest.Event(t, "call", "acme", at(20, 10, 10), "2", "", ""),
			dbtest.Event(t, "call", "acme", at(20, 10, 40), "4", "", ""),
			dbtest.Event(t, "call", "acme", october.End, "8", "", ""),
			dbtest.Event(t, "call", "beta", at(20, 10, 10), "16", "", ""))
		acme, err := store.Customers.Get(t.Context(), tenant, "acme")
		require.NoError(t, err)
		freeze(t, conn, tenant, acme.ID, october)
		ingest(t, store, tenant,
			dbtest.Event(t, "call", "acme", october.Start, "100", "", ""),
			dbtest.Event(t, "call", "acme", at(20, 10, 59), "200", "", ""),
			dbtest.Event(t, "call", "acme", october.End.Add(-time.Microsecond), "400", "", ""),
			dbtest.Event(t, "call", "acme", october.Start.Add(-time.Microsecond), "1000", "", ""), // before what is frozen
			dbtest.Event(t, "call", "acme", october.End, "2000", "", ""),                          // after it
			dbtest.Event(t, "call", "beta", at(20, 10, 10), "4000", "", ""))                       // of another
		return tenant, m, acme
	}
	windows := func(t *testing.T, tenant metering.TenantID, m metering.Meter, customer metering.CustomerID, r metering.Range, g metering.Granularity) db.WindowPage {
		page, err := store.Usage.Windows(t.Context(), tenant, db.WindowQuery{Customer: customer, Meter: m, Range: r, Granularity: g, Limit: 1000})
		require.NoError(t, err)
		return page
	}
	type line struct {
		start, value, late string
		final              bool
	}
	lines := func(page db.WindowPage) (lines []line) {
		for _, w := range page.Windows {
			lines = append(lines, line{w.Start.Format("01-02 15:04"), w.Value.String(), w.LateValue.String(), w.Final})
		}
		return lines
	}
	quarter := metering.Range{Start: october.Start.AddDate(0, -1, 0), End: october.End.AddDate(0, 1, 0)}

	t.Run("ByMonth", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Sum)
		page := windows(t, tenant, m, acme.ID, quarter, metering.Month)
		require.Equal(t, []line{
			{"09-01 00:00", "1000", "0", false}, {"10-01 00:00", "7", "700", true}, {"11-01 00:00", "2008", "0", false},
		}, lines(page))
		require.Equal(t, "3715", page.Total.String())
		require.Equal(t, "3715", page.Groups[0].Total.String())
	})

	t.Run("ByHour", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Sum)
		require.Equal(t, []line{
			{"10-01 00:00", "1", "100", true}, {"10-20 10:00", "6", "200", true}, {"10-31 23:00", "0", "400", true},
		}, lines(windows(t, tenant, m, acme.ID, october, metering.Hour)))
	})

	t.Run("InPartsOfHours", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Sum)
		require.Equal(t, []line{{"10-20 10:30", "4", "200", true}},
			lines(windows(t, tenant, m, acme.ID, metering.Range{Start: at(20, 10, 30), End: at(20, 11, 0)}, metering.Hour)))
		page := windows(t, tenant, m, acme.ID, metering.Range{Start: at(20, 10, 30), End: at(40, 0, 0)}, metering.Month)
		require.Equal(t, []line{{"10-20 10:30", "4", "600", true}, {"11-01 00:00", "2008", "0", false}}, lines(page))
		require.Equal(t, "2612", page.Total.String())
	})

	t.Run("ByCount", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Count)
		require.Equal(t, []line{{"10-01 00:00", "3", "3", true}}, lines(windows(t, tenant, m, acme.ID, october, metering.Month)))
	})

	t.Run("AWindowThatReachesOutOfThePeriodIsNotFinal", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Sum)
		conn := dbtest.Conn(t)
		_, err := conn.Exec(t.Context(), `update customers set frozen_until = $3 where tenant_id = $1 and id = $2`, tenant, acme.ID, at(20, 10, 30))
		require.NoError(t, err)
		for _, l := range lines(windows(t, tenant, m, acme.ID, metering.Range{Start: at(20, 10, 0), End: at(20, 11, 0)}, metering.Hour)) {
			require.False(t, l.final)
		}
	})

	t.Run("TotalsIncludeBothForTheCustomerAndTheTenant", func(t *testing.T) {
		tenant, _, acme := frozen(t, metering.Sum)
		require.Equal(t, "707", total(t, store, tenant, "acme", october)[0].Usage.String())
		require.EqualValues(t, 6, total(t, store, tenant, "acme", october)[0].Count)
		require.Equal(t, "4016", total(t, store, tenant, "beta", october)[0].Usage.String())
		requireTotalsEqualARecount(t, store, conn, tenant, acme.ID, october)
		requireTotalsEqualARecount(t, store, conn, tenant, metering.WholeTenant, october)
		requireRollupsEqualARecount(t, conn, tenant)
	})

	t.Run("ANewWayOfCountingKeepsThemApart", func(t *testing.T) {
		tenant, m, acme := frozen(t, metering.Sum)
		_, filling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", metersBy([]string{}))
		require.NoError(t, err)
		require.NoError(t, backfill(t.Context(), store, tenant, filling.ID))
		m, err = store.Meters.Get(t.Context(), tenant, m.Slug)
		require.NoError(t, err)
		require.Equal(t, []line{{"10-01 00:00", "7", "700", true}}, lines(windows(t, tenant, m, acme.ID, october, metering.Month)))
		requireRollupsEqualARecount(t, conn, tenant)
	})
}
