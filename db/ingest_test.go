package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

var november = time.Date(2026, 11, 3, 10, 20, 0, 0, time.UTC)

func total(t *testing.T, store *db.DB, tenant metering.TenantID, customer string, r metering.Range) []usage.MeterTotal {
	t.Helper()
	c, err := store.Customers.Get(t.Context(), tenant, customer)
	require.NoError(t, err)
	totals, err := store.Usage.MeterTotals(t.Context(), tenant, c.ID, r)
	require.NoError(t, err)
	return totals
}

func ingest(t *testing.T, store *db.DB, tenant metering.TenantID, events ...metering.Event) []usage.Outcome {
	t.Helper()
	w := store.NewWriter(dbtest.WriterOptions)
	defer w.Close()
	outcomes, err := w.Ingest(t.Context(), tenant, events)
	require.NoError(t, err)
	return outcomes
}

func TestIngest(t *testing.T) {
	store := dbtest.Open(t)
	month := billing.CalendarPeriod(november, time.UTC)

	t.Run("CustomerIsCreatedAtReceiptOfFirstEvent", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		event := func(received time.Time) metering.Event {
			e, rejection := metering.SentEvent{EventType: "call", CustomerID: "acme"}.Judge(received)
			require.Nil(t, rejection)
			return e
		}
		ingest(t, store, tenant, event(november.Add(time.Second)), event(november), event(november.Add(time.Hour)))
		ingest(t, store, tenant, event(november.Add(-time.Hour)))
		acme, err := store.Customers.Get(t.Context(), tenant, "acme")
		require.NoError(t, err)
		require.Equal(t, november, acme.CreatedAt.UTC())
	})

	t.Run("AnsweredEventIsInTotals", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		ingest(t, store, tenant,
			dbtest.Event(t, "call", "acme", november, "123456789012345678.123456789012", "", ""),
			dbtest.Event(t, "call", "acme", november, "0.000000000001", "", ""))
		totals := total(t, store, tenant, "acme", month)
		require.Len(t, totals, 1)
		require.Equal(t, "123456789012345678.123456789013", totals[0].Usage.String())
		require.EqualValues(t, 2, totals[0].Count)
	})

	t.Run("KeyCountsOnceForAnyTimestamp", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		key := "k"
		sent := metering.SentEvent{EventType: "call", CustomerID: "acme", IdempotencyKey: &key}
		for i, now := range []time.Time{november, november.Add(time.Hour), november.AddDate(0, 1, 0)} {
			event, rejection := sent.Judge(now)
			require.Nil(t, rejection)
			outcomes := ingest(t, store, tenant, event)
			require.Equal(t, usage.Outcome{Duplicate: i > 0}, outcomes[0])
		}
		require.Equal(t, "1", total(t, store, tenant, "acme", metering.Range{Start: month.Start, End: month.End.AddDate(0, 2, 0)})[0].Usage.String())
	})

	t.Run("RepeatWithOtherContentIsConflictAndAddsNothing", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		outcomes := ingest(t, store, tenant,
			dbtest.Event(t, "call", "acme", november, "5", "k", ""),
			dbtest.Event(t, "call", "acme", november, "5.0", "k", ""),
			dbtest.Event(t, "call", "acme", november, "6", "k", ""))
		require.Equal(t, []usage.Outcome{{}, {Duplicate: true}, {Duplicate: true, Conflict: true}}, outcomes)
		outcomes = ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "7", "k", ""))
		require.Equal(t, []usage.Outcome{{Duplicate: true, Conflict: true}}, outcomes)
		require.Equal(t, "5", total(t, store, tenant, "acme", month)[0].Usage.String())
	})

	t.Run("OneMillionTenthsAddUpExactly", func(t *testing.T) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		w := store.NewWriter(dbtest.WriterOptions)
		defer w.Close()
		event := dbtest.Event(t, "call", "acme", november, "0.1", "", "")
		for range 200 {
			batch := make([]metering.Event, 5000)
			for i := range batch {
				batch[i] = event
			}
			_, err := w.Ingest(t.Context(), tenant, batch)
			require.NoError(t, err)
		}
		require.Equal(t, "100000", total(t, store, tenant, "acme", month)[0].Usage.String())
	})
}
