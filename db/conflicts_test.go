package db_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// conflicts lists all conflicts of a tenant, newest first, page by page.
func conflicts(t testing.TB, store *db.DB, tenant metering.TenantID, page int) (all []metering.Event) {
	t.Helper()
	for before := uuid.Nil; ; before = all[len(all)-1].ID {
		some, err := dbtest.Items(store.Conflicts.List(t.Context(), tenant, before, page))
		require.NoError(t, err)
		if all = append(all, some...); len(some) < page {
			return all
		}
	}
}

func TestKeyConflictIsStoredOnceAndUnchanged(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant, other := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "5", "k", ""))
	of := dbtest.Event(t, "call", "bob", november.Add(time.Microsecond), "6.000000000001", "k", `{"model":"a","nested":{"b":[1]}}`)
	second := dbtest.Event(t, "visit", "bob", november, "7", "k", "")
	for range 3 {
		require.Equal(t, []usage.Outcome{{Duplicate: true, Conflict: true}}, ingest(t, store, tenant, of))
	}
	require.Equal(t, []usage.Outcome{{Duplicate: true, Conflict: true, Unmetered: true}, {Duplicate: true, Conflict: true}}, ingest(t, store, tenant, second, of))
	require.Equal(t, []usage.Outcome{{Duplicate: true}}, ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "5", "k", "")), "the same content is a plain duplicate")

	for _, page := range []int{1, 2, 10} {
		found := conflicts(t, store, tenant, page)
		require.Len(t, found, 2)
		require.Equal(t, []string{"7", "6.000000000001"}, []string{found[0].Value.String(), found[1].Value.String()})
		require.Equal(t, []string{"bob", "call", "k"}, []string{found[1].ExternalID, found[1].EventType, found[1].IdempotencyKey})
		require.Equal(t, of.At, found[1].At.UTC())
		require.JSONEq(t, string(of.Properties), string(found[1].Properties))
		require.Nil(t, found[0].Properties)
	}
	require.Empty(t, conflicts(t, store, other, 10))
}

func TestADismissedConflictIsGoneUntilItIsSentAgain(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant, other := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	conflict := dbtest.Event(t, "call", "bob", november, "6", "k", "")
	ingest(t, store, tenant, dbtest.Event(t, "call", "acme", november, "5", "k", ""), conflict)
	id := conflicts(t, store, tenant, 10)[0].ID
	dismiss := func(by metering.TenantID) error {
		return store.Conflicts.Dismiss(t.Context(), by, metering.Operator, id, "sent again")
	}
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(dismiss(other)))
	require.NoError(t, dismiss(tenant))
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(dismiss(tenant)))
	require.Empty(t, conflicts(t, store, tenant, 10))
	verified(t, store, tenant)

	ingest(t, store, tenant, conflict)
	require.Len(t, conflicts(t, store, tenant, 10), 1)
}

func TestATenantThatRejectsConflictsStoresNone(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	reject := metering.RejectConflicts
	_, _, err := store.Tenants.Update(t.Context(), tenant, metering.Operator, db.TenantChange{KeyConflicts: &reject})
	require.NoError(t, err)
	require.Equal(t, []usage.Outcome{{Unmetered: true}, {Conflict: true, Refused: true}, {Duplicate: true, Unmetered: true}, {Unmetered: true}}, ingest(t, store, tenant,
		dbtest.Event(t, "call", "acme", november, "5", "k", ""), dbtest.Event(t, "call", "bob", november, "6", "k", ""),
		dbtest.Event(t, "call", "acme", november, "5", "k", ""), dbtest.Event(t, "call", "bob", november, "6", "another", "")))
	require.Empty(t, conflicts(t, store, tenant, 10))
}

// TestAtMostTenThousandConflictsOfATenantAreStored checks that events beyond the limit are still
// answered as conflicts, and marked as not stored.
func TestAtMostTenThousandConflictsOfATenantAreStored(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	w := newWriter(t, store, dbtest.WriterOptions)
	_, err := w.Ingest(t.Context(), tenant, []metering.Event{dbtest.Event(t, "call", "acme", november, "0", "k", "")})
	require.NoError(t, err)
	const batch = 4000
	unkept := 0
	for n := range 3 {
		events := make([]metering.Event, batch)
		for i := range events {
			events[i] = dbtest.Event(t, "call", "acme", november, fmt.Sprint(1+n*batch+i), "k", "")
		}
		outcomes, err := w.Ingest(t.Context(), tenant, events)
		require.NoError(t, err)
		for _, o := range outcomes {
			require.True(t, o.Conflict && o.Duplicate)
			if o.Unkept {
				unkept++
			}
		}
	}
	require.Equal(t, 3*batch-10_000, unkept)
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from event_conflicts where tenant_id = $1`, tenant).Scan(&rows))
	require.Equal(t, 10_000, rows)
}

// TestConcurrentKeyConflictsAreStoredOnce lets six writers ingest the same few keys with different
// contents. One event of each key is stored, and each other content is stored once as a conflict.
func TestConcurrentKeyConflictsAreStoredOnce(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	const senders, keys, contents = 6, 5, 4
	outcomes := make([][]usage.Outcome, senders)
	failures := make([]error, senders)
	var all sync.WaitGroup
	for n := range senders {
		w := newWriter(t, store, dbtest.WriterOptions)
		var events []metering.Event
		for i := range keys * contents * 2 {
			at := (i*7 + n*3) % (keys * contents)
			events = append(events, dbtest.Event(t, "call", fmt.Sprint("customer ", at%contents), november, "1", fmt.Sprint("key ", at/contents), ""))
		}
		all.Go(func() { outcomes[n], failures[n] = w.Ingest(t.Context(), tenant, events) })
	}
	all.Wait()
	fresh, conflicting := 0, 0
	for n := range senders {
		require.NoError(t, failures[n])
		for _, o := range outcomes[n] {
			require.False(t, o.Unkept)
			if !o.Duplicate {
				fresh++
			}
			if o.Conflict {
				conflicting++
			}
		}
	}
	require.Equal(t, keys, fresh)
	require.Equal(t, senders*keys*2*(contents-1), conflicting, "every event with content that differs from the first event of its key")
	require.Len(t, conflicts(t, store, tenant, 1000), keys*(contents-1))
	var both int
	require.NoError(t, conn.QueryRow(t.Context(), `
		select count(*) from event_conflicts f join event_keys k using (tenant_id, key) where tenant_id = $1 and f.digest = k.digest`, tenant).Scan(&both))
	require.Zero(t, both, "an event that is stored is no conflict")
	requireRollupsEqualARecount(t, conn, tenant)
}

func TestOldKeyConflictsAreDeleted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	tenant := dbtest.Tenant(t, store).ID
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	events := []metering.Event{dbtest.Event(t, "call", "acme", november, "0", "k", "")}
	for hours := range 5 {
		e := dbtest.Event(t, "call", "acme", november, fmt.Sprint(hours+1), "k", "")
		e.ReceivedAt = november.Add(time.Duration(hours) * time.Hour)
		events = append(events, e)
	}
	ingest(t, store, tenant, events...)
	before := november.Add(3 * time.Hour)
	for _, removed := range []int64{2, 1, 0} {
		n, err := store.Conflicts.Sweep(t.Context(), before, 2)
		require.NoError(t, err)
		require.Equal(t, removed, n)
	}
	left := conflicts(t, store, tenant, 10)
	require.Len(t, left, 2)
	require.True(t, left[1].ReceivedAt.Equal(before))
}
