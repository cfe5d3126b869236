package db_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// chunks returns the table and the start of each chunk in the database.
func (k *keeper) chunks() []string {
	k.Helper()
	rows, err := k.conn.Query(k.Context(), `select hypertable_name || ' ' || range_start from timescaledb_information.chunks order by 1`)
	require.NoError(k, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(k, err)
	return names
}

func (k *keeper) send(w *usage.Writer, days int, key string) usage.Outcome {
	k.Helper()
	outcomes, err := w.Ingest(k.Context(), k.tenant, []metering.Event{dbtest.Event(k, "call", "acme", k.daysAgo(days), "1", key, "")})
	require.NoError(k, err)
	return outcomes[0]
}

func TestRejectedOldEventDoesNotRecreateDroppedChunk(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	dbtest.Meter(t, store, k.tenant, "calls", "call")
	former, fresh := store.NewWriter(dbtest.WriterOptions), store.NewWriter(dbtest.WriterOptions)
	defer former.Close()
	defer fresh.Close()
	require.Equal(t, usage.Outcome{}, k.send(former, 10, "young"))
	require.Equal(t, usage.Outcome{}, k.send(former, 100, "old"))
	require.Equal(t, 1, k.retain(50))

	before := k.chunks()
	for _, w := range []*usage.Writer{former, fresh, former} {
		require.Equal(t, usage.Outcome{Forgotten: true}, k.send(w, 100, "old"))
		require.Equal(t, usage.Outcome{Forgotten: true}, k.send(w, 300, "older"))
	}
	require.Equal(t, before, k.chunks())
	require.Equal(t, usage.Outcome{}, k.send(fresh, 300, ""), "without a key it is stored at any age")
	require.Equal(t, 1, k.retain(50))
}

func TestEventRejectedByMovingRetentionEdgeCreatesNoChunk(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	k := newKeeperAt(t, store, address)
	w := store.NewWriter(dbtest.WriterOptions)
	defer w.Close()
	k.send(w, 10, "young")
	before := k.chunks()

	rising, err := k.conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = rising.Exec(t.Context(), `update event_retention set kept_from = date_bin('7 days', $1, timestamptz 'epoch')`, k.daysAgo(50))
	require.NoError(t, err)
	var outcomes []usage.Outcome
	var failure error
	var sending sync.WaitGroup
	event := dbtest.Event(t, "call", "acme", k.daysAgo(100), "1", "old", "")
	sending.Go(func() { outcomes, failure = w.Ingest(t.Context(), k.tenant, []metering.Event{event}) })
	awaitBlocked(t, rising)
	require.NoError(t, rising.Commit(t.Context()))
	sending.Wait()
	require.NoError(t, failure)
	require.True(t, outcomes[0].Forgotten)
	require.Equal(t, before, k.chunks())
}
