package db_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// exceeded returns the messages quota.exceeded so far, in the order of their windows.
func (w *watcher) exceeded() (messages []db.QuotaExceeded) {
	w.Helper()
	rows, err := w.connect().Query(w.Context(), `select payload from outbox where tenant_id = $1 and kind = 'quota.exceeded' order by payload ->> 'occurred_at'`, w.tenant)
	require.NoError(w, err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
	require.NoError(w, err)
	for _, payload := range payloads {
		var m db.QuotaExceeded
		require.NoError(w, json.Unmarshal(payload, &m))
		messages = append(messages, m)
	}
	return messages
}

func TestAnExceededQuotaIsNotifiedOnceInEachWindow(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t) // it sweeps
	w := newWatcherOn(t, store, address)
	w.now = billing.CalendarPeriod(w.now, time.UTC).Start.Add(time.Hour)
	_, err := w.store.Webhooks.Create(t.Context(), w.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/quotas", EventTypes: []metering.MessageKind{metering.MessageQuotaExceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, w.now)
	require.NoError(t, err)
	set := func(limit string) db.StoredQuota {
		quota, err := w.store.Quotas.Set(t.Context(), w.tenant, metering.Operator, metering.Quota{
			CustomerID: w.customer.ID, Meter: w.meter, Limit: new(metering.MustDecimal(limit)), Mode: metering.HardQuota, Period: metering.PerMonth,
		}, w.now)
		require.NoError(t, err)
		return quota
	}
	quota := set("10")
	w.use("10")
	w.evaluate()
	require.Empty(t, w.exceeded(), "a quota that is used up is not exceeded")
	for range 2 {
		w.use("1")
		w.evaluate()
	}
	require.Len(t, w.exceeded(), 1)
	month := metering.WindowOf(w.now, metering.Month, time.UTC)
	m := w.exceeded()[0]
	require.Equal(t, []any{quota.ID.String(), "api-calls", "10", "11", month.End.UTC(), "acme"}, []any{
		m.QuotaID, m.MeterSlug, m.Limit.String(), m.Used.String(), m.ResetsAt.UTC(), m.CustomerExternalID,
	})
	w.now = month.Start.Add(-time.Hour)
	w.useAt("20", w.now)
	w.evaluate()
	require.Len(t, w.exceeded(), 2, "another window")

	var deleted int64
	deleted, err = w.store.Quotas.SweepExceeded(t.Context(), month.Start.Add(time.Second), 100)
	require.NoError(t, err)
	require.Positive(t, deleted)
	require.NoError(t, w.store.Quotas.Delete(t.Context(), w.tenant, metering.Operator, quota.ID))
	w.now = month.Start.Add(2 * time.Hour)
	set("5")
	w.evaluate()
	require.Len(t, w.exceeded(), 3, "a quota that is already exceeded is notified at once")
}
