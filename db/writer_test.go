package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

func newWriter(t testing.TB, store *db.DB, options usage.WriterOptions) *usage.Writer {
	t.Helper()
	w := store.NewWriter(options)
	t.Cleanup(w.Close)
	return w
}

// stored returns the number of the tenant's events, and the number of transactions that stored them.
func stored(t testing.TB, conn *pgx.Conn, tenant metering.TenantID) (events, transactions int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `select count(*), count(distinct xmin::text) from events where tenant_id = $1`, tenant).
		Scan(&events, &transactions)
	require.NoError(t, err)
	return events, transactions
}

func TestConcurrentWritersCountEachKeyOnce(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call")
	other, err := dbtest.Connect(t.Context(), dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(other.Close)
	writers := []*usage.Writer{newWriter(t, store, dbtest.WriterOptions), newWriter(t, other, dbtest.WriterOptions)}

	const batches, keys = 12, 150
	var senders sync.WaitGroup
	failures := make([]error, 2*batches)
	fresh := make([]int, 2*batches)
	for n := range batches {
		batch := make([]metering.Event, keys)
		for i := range batch { // half of each batch is in the next one too
			batch[i] = dbtest.Event(t, "call", fmt.Sprint("customer ", i%7), november, "1", fmt.Sprint("key ", n*keys/2+i), "")
		}
		reversed := slices.Clone(batch)
		slices.Reverse(reversed)
		for i, events := range [][]metering.Event{batch, reversed} {
			senders.Go(func() {
				outcomes, err := writers[i].Ingest(t.Context(), tenant, events)
				failures[2*n+i] = err
				for _, o := range outcomes {
					if !o.Duplicate {
						fresh[2*n+i]++
					}
				}
			})
		}
	}
	senders.Wait()
	require.NoError(t, errors.Join(failures...))
	const distinct = (batches + 1) * keys / 2
	answered := 0
	for _, n := range fresh {
		answered += n
	}
	require.Equal(t, distinct, answered, "answers that an event was new")
	events, _ := stored(t, conn, tenant)
	require.Equal(t, distinct, events)
	requireRollupsEqualARecount(t, conn, tenant)
}

func TestRequestsOfOneTenantShareTransactions(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)

	const clients, each = 64, 10
	send := func(t *testing.T, options usage.WriterOptions) (transactions int) {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		w := newWriter(t, store, options)
		failures := make([]error, clients)
		var all sync.WaitGroup
		for i := range clients {
			event := dbtest.Event(t, "call", "acme", november, "1", "", "")
			all.Go(func() {
				for range each {
					if _, err := w.Ingest(t.Context(), tenant, []metering.Event{event}); err != nil {
						failures[i] = err
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(failures...))
		events, transactions := stored(t, conn, tenant)
		require.Equal(t, clients*each, events)
		return transactions
	}

	t.Run("TransactionsAreFewerThanRequests", func(t *testing.T) {
		require.Less(t, send(t, dbtest.WriterOptions), clients*each/5)
	})

	t.Run("GroupOfOneEventNeedsOwnTransaction", func(t *testing.T) {
		require.Equal(t, clients*each, send(t, usage.WriterOptions{GroupEvents: 1, Deadline: dbtest.Deadline}))
	})
}

// queued holds the tenant's lock until all requests wait. The first request waits for the lock, and the others queue
// behind it, so that they become one group. queued then releases the lock and returns the results of the requests.
func queued(t testing.TB, w *usage.Writer, tenant metering.TenantID, requests [][]metering.Event) ([][]usage.Outcome, []error) {
	t.Helper()
	observer := dbtest.Conn(t)
	tx, err := dbtest.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, tenant)
	require.NoError(t, err)
	outcomes, failures := make([][]usage.Outcome, len(requests)), make([]error, len(requests))
	var all sync.WaitGroup
	for i, events := range requests {
		all.Go(func() { outcomes[i], failures[i] = w.Ingest(t.Context(), tenant, events) })
		if i == 0 {
			dbtest.Eventually(t, func() error { return checkLockIsAwaited(observer) })
		}
	}
	dbtest.Eventually(t, func() error {
		if n := w.Queued(tenant); n < len(requests)-1 {
			return fmt.Errorf("%d requests wait", n)
		}
		return nil
	})
	require.NoError(t, tx.Rollback(t.Context()))
	all.Wait()
	return outcomes, failures
}

// checkLockIsAwaited returns an error if no statement waits for an advisory lock of this database.
func checkLockIsAwaited(conn *pgx.Conn) error {
	var found int
	err := conn.QueryRow(context.Background(), `
		select count(*) from pg_locks where locktype = 'advisory' and not granted
		  and database = (select oid from pg_database where datname = current_database())`).Scan(&found)
	if err == nil && found == 0 {
		err = errors.New("no statement waits for a lock")
	}
	return err
}

func TestUnstorableRequestDoesNotFailOtherRequests(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	good := func(i int) metering.Event {
		return dbtest.Event(t, "call", "acme", november, "1", fmt.Sprint("good ", i), "")
	}
	for name, poison := range map[string]func(*metering.Event){
		"PropertiesNotJSON":  func(e *metering.Event) { e.Properties = json.RawMessage(`{"a":`) },
		"PropertiesNotJSONB": func(e *metering.Event) { e.Properties = json.RawMessage(`{"a":"\u0000"}`) },
		"EventTypeWithNUL":   func(e *metering.Event) { e.EventType = "ca\x00ll" },
		"CustomerWithNUL":    func(e *metering.Event) { e.ExternalID = "ac\x00me" },
		"KeyNotUTF8":         func(e *metering.Event) { e.IdempotencyKey = "\xff" },
		"InstantOutOfRange":  func(e *metering.Event) { e.At = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		t.Run(name, func(t *testing.T) {
			tenant := dbtest.Tenant(t, store).ID
			dbtest.Meter(t, store, tenant, "calls", "call")
			w := newWriter(t, store, usage.WriterOptions{Lanes: 1, Deadline: dbtest.Deadline})
			requests := make([][]metering.Event, 24)
			for i := range requests {
				requests[i] = []metering.Event{good(2 * i), good(2*i + 1)}
			}
			const poisoned = 11
			poison(&requests[poisoned][1])

			outcomes, failures := queued(t, w, tenant, requests)
			for i := range requests {
				if i == poisoned {
					require.Error(t, failures[i])
					require.Equal(t, metering.CodeInternal, metering.CodeOf(failures[i]))
					continue
				}
				require.NoError(t, failures[i])
				require.Equal(t, []usage.Outcome{{}, {}}, outcomes[i])
			}
			events, _ := stored(t, conn, tenant)
			require.Equal(t, 2*(len(requests)-1), events)
			requireRollupsEqualARecount(t, conn, tenant)

			_, err := w.Ingest(t.Context(), tenant, []metering.Event{good(2 * poisoned)})
			require.NoError(t, err, "the failed request does not affect later requests")
			require.Equal(t, fmt.Sprint(2*(len(requests)-1)+1), total(t, store, tenant, "acme", billing.CalendarPeriod(november, time.UTC))[0].Usage.String())
		})
	}
}

// TestIngestReturnsOverloadedWhileDatabaseIsLocked checks that a lock in the database delays clients for a bounded
// time, and that nothing remains of their events.
func TestIngestReturnsOverloadedWhileDatabaseIsLocked(t *testing.T) {
	t.Parallel()
	shared := func(t testing.TB) (*db.DB, string) { return dbtest.Open(t), dbtest.URL(t) }
	for name, c := range map[string]struct {
		database func(testing.TB) (*db.DB, string)
		lock     string
	}{
		"ByItsEvents": {dbtest.Fresh, `lock table events in access exclusive mode`},
		"ByItsUsage":  {dbtest.Fresh, `lock table usage_added in share mode`},
		"ByTheTenant": {shared, `select pg_advisory_xact_lock(@tenant)`},
		"ByItsKeys":   {shared, `insert into event_keys values (@tenant, event_key('k'), 0)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, address := c.database(t)
			tenant := dbtest.Tenant(t, store).ID
			dbtest.Meter(t, store, tenant, "calls", "call")
			impatient, err := dbtest.Connect(t.Context(), dbtest.With(t, dbtest.As(t, address, dbtest.Roles.API), "lock_timeout", "250"))
			require.NoError(t, err)
			t.Cleanup(impatient.Close)
			w := newWriter(t, impatient, dbtest.WriterOptions)
			ingestWith := func(at time.Time) error {
				_, err := w.Ingest(t.Context(), tenant, []metering.Event{dbtest.Event(t, "call", "acme", at, "1", "k", "")})
				return err
			}
			conn, err := pgx.Connect(t.Context(), address)
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close(context.Background()) })
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), c.lock, pgx.NamedArgs{"tenant": tenant})
			require.NoError(t, err)

			err = ingestWith(november)
			require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err), "%v", err)

			require.NoError(t, tx.Rollback(t.Context()))
			var left int
			err = conn.QueryRow(t.Context(), `
				select (select count(*) from events where tenant_id = $1) + (select count(*) from event_keys where tenant_id = $1)
				  + (select count(*) from usage_hours where tenant_id = $1) + (select count(*) from usage_months where tenant_id = $1)
				  + (select count(*) from event_types where tenant_id = $1)`, tenant).Scan(&left)
			require.NoError(t, err)
			require.Zero(t, left, "rows of an event that was not stored")
			dbtest.Eventually(t, func() error { return ingestWith(november) }) // ingest succeeds again
			requireRollupsEqualARecount(t, conn, tenant)
		})
	}
}

func TestWriterCloseStoresAcceptedEventsAndRefusesLaterEvents(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	w := store.NewWriter(dbtest.WriterOptions)
	event := dbtest.Event(t, "call", "acme", november, "1", "", "")
	var accepted, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	begun := make(chan struct{}, 1)
	for range 16 {
		all.Go(func() {
			for {
				_, err := w.Ingest(t.Context(), tenant, []metering.Event{event})
				mu.Lock()
				if err != nil {
					refused++
					mu.Unlock()
					return
				}
				accepted++
				mu.Unlock()
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	<-begun
	w.Close()
	all.Wait()
	require.Equal(t, 16, refused)
	events, _ := stored(t, conn, tenant)
	require.Equal(t, accepted, events)
	_, err := w.Ingest(t.Context(), tenant, []metering.Event{event})
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err))
	w.Close() // a second Close does nothing
}

func TestEventsOfAnUnknownTenantAreRefused(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	w := newWriter(t, store, dbtest.WriterOptions)
	_, err := w.Ingest(t.Context(), 1<<60, []metering.Event{dbtest.Event(t, "call", "acme", november, "1", "", "")})
	require.Error(t, err)
	require.Equal(t, 0, w.Queued(1<<60))
}
