package db_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// TestIngestAndSQLEncodeEventKeysAlike checks that ingest stores each key as the value that event_key returns
// in SQL. Retention, erasures and event lists use event_key.
func TestIngestAndSQLEncodeEventKeysAlike(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	id := uuid.Must(uuid.NewV7()).String()
	keys := []string{id, id + "\n", id[:35], "{" + id + "}", "urn:uuid:" + id, fmt.Sprintf("%032X", uuid.MustParse(id)), "0199E2A4-7C6B-7000-8000-00000000000F", "0199e2a4-7c6b-7000-8000-00000000000g",
		"00000000-0000-0000-0000-000000000000", "0199e2a4-7c6b-8000-8000-00000000000f", "0199e2a4-7c6b-9000-8000-00000000000f", "k", "k ", "naïve-ключ-🔑", `\x00`, "\x01", "k\n"}
	for i, key := range keys {
		event := dbtest.Event(t, "call", "acme", november, fmt.Sprint(i+1), key, "")
		require.Equal(t, []usage.Outcome{{Unmetered: true}, {Unmetered: true, Duplicate: true}}, ingest(t, store, tenant, event, event), "%q", key)
		require.Equal(t, []usage.Outcome{{Unmetered: true, Duplicate: true}}, ingest(t, store, tenant, event), "%q", key)
		other := dbtest.Event(t, "call", "acme", november.Add(time.Second), fmt.Sprint(i+1), key, "")
		require.Equal(t, []usage.Outcome{{Unmetered: true, Duplicate: true, Conflict: true}}, ingest(t, store, tenant, other), "%q", key)
		var known int
		err := conn.QueryRow(t.Context(), `select count(*) from event_keys where tenant_id = $1 and key = event_key($2)`, tenant, key).Scan(&known)
		require.NoError(t, err)
		require.Equal(t, 1, known, "%q", key)
	}
	var known, itself int
	err := conn.QueryRow(t.Context(), `select count(*), count(*) filter (where key = $2) from event_keys where tenant_id = $1`, tenant, id).Scan(&known, &itself)
	require.NoError(t, err)
	require.Equal(t, [2]int{len(keys), 1}, [2]int{known, itself}, "all keys differ, and a UUID is its own key")
}

// TestNoUUIDIsTheDigestOfAnotherKey checks that a key that is a UUID is never stored as the digest of
// another key. A client can compute the digest of any key, and send it as a UUID.
func TestNoUUIDIsTheDigestOfAnotherKey(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	key := "order-1"
	for range 3 { // the digest of a digest is another key too
		require.Equal(t, []usage.Outcome{{Unmetered: true}}, ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", key, "")), key)
		sum := sha256.Sum256([]byte(key))
		whole := uuid.UUID(sum[:16]).String()
		require.Equal(t, []usage.Outcome{{Unmetered: true}}, ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", whole, "")), whole)
		require.NoError(t, conn.QueryRow(t.Context(), `select event_key($1)::text`, key).Scan(&key))
	}
	var known int
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from event_keys where tenant_id = $1`, tenant).Scan(&known))
	require.Equal(t, 6, known)
}

// TestStoredKeyOfDatedEventHasMinimalRowSize checks the size of rows. The header of a row has
// 24 bytes, and PostgreSQL aligns rows to 8 bytes.
func TestStoredKeyOfDatedEventHasMinimalRowSize(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	undated := dbtest.Event(t, "call", "acme", november, "1", "undated", "")
	undated.Dated = false
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "1", "dated", ""), undated)
	for _, key := range []struct {
		name  string
		bytes int
	}{{"dated", 24 + 8 + 16 + 8}, {"undated", 24 + 8 + 16 + 8 + 1}} {
		var bytes int
		row := conn.QueryRow(t.Context(), `select pg_column_size(k) from event_keys k where tenant_id = $1 and key = event_key($2)`, tenant, key.name)
		require.NoError(t, row.Scan(&bytes))
		require.Equal(t, key.bytes, bytes, key.name)
	}
}

// TestClaimOfEventKeysReadsNoOtherKeys claims many keys with a statement that was prepared while the table had few
// keys. PostgreSQL reuses the plan until the table is analyzed. The plan must not read the other keys.
func TestClaimOfEventKeysReadsNoOtherKeys(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `alter table event_keys set (autovacuum_enabled = off)`)
	require.NoError(t, err)
	tenant := dbtest.Tenant(t, store).ID
	w := newWriter(t, store, usage.WriterOptions{Lanes: 1, Deadline: dbtest.Deadline})
	send := func(groups, events int) {
		for range groups {
			sent := make([]metering.Event, events)
			for i := range sent {
				sent[i] = dbtest.Event(t, "call", "acme", november, "1", uuid.NewString(), "")
			}
			_, err := w.Ingest(t.Context(), tenant, sent)
			require.NoError(t, err)
		}
	}
	send(10, 20) // afterwards, PostgreSQL keeps the plan
	send(1, 5_000)
	send(10, 20)
	store.Close() // so that its connections report their statistics
	var read int
	dbtest.Eventually(t, func() error {
		var claimed int
		err := conn.QueryRow(t.Context(), `
			select t.n_tup_ins, t.seq_tup_read + i.idx_tup_read from pg_stat_user_tables t join pg_stat_user_indexes i using (relid)
			where t.relname = 'event_keys'`).Scan(&claimed, &read)
		if err == nil && claimed < 5_400 {
			err = fmt.Errorf("%d keys are said to be claimed", claimed)
		}
		return err
	})
	require.Less(t, read, 5_000, "keys read to claim 5,400")
}
