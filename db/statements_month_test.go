package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// TestStatementsEndingSelectsPeriodsByTheirEnd checks that a period that ends in the middle of a month belongs to that
// month. A period that ends at the first instant of a month belongs to the month before.
func TestStatementsEndingSelectsPeriodsByTheirEnd(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	tenant := dbtest.Tenant(t, store)
	dbtest.Meter(t, store, tenant.ID, "calls", "call")
	ingest(t, store, tenant.ID, dbtest.Event(t, "call", "acme", planStart, "1", "", `{}`))
	acme, err := store.Customers.Get(t.Context(), tenant.ID, "acme")
	require.NoError(t, err)
	day := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 0, 0, 0, 0, time.UTC) }
	borders := []time.Time{day(time.September, 1), day(time.September, 15), day(time.October, 15), day(time.November, 1)}
	for i := range borders[1:] {
		closePeriods(t, conn, tenant.ID, acme.ID, metering.Range{Start: borders[i], End: borders[i+1]})
	}
	for month, want := range map[time.Month][]time.Time{
		time.August:    nil,
		time.September: {day(time.September, 15)},
		time.October:   {day(time.October, 15), day(time.November, 1)},
		time.November:  {day(time.December, 1)},
	} {
		statements, err := store.Ledger.StatementsEnding(t.Context(), tenant.ID, acme.ID, metering.WindowOf(day(month, 10), metering.Month, time.UTC), planNow)
		require.NoError(t, err)
		var ends []time.Time
		for _, s := range statements {
			ends = append(ends, s.End.UTC())
		}
		require.Equal(t, want, ends, month)
	}
}
