package db_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// personal lists texts that an erasure must remove from every table.
var personal = []string{"ada@example.com", "Lovelace", "0441234567", "ada-laptop", "order-of-ada"}

// requireGone requires that no row of any table contains a personal text, or its bytes.
func requireGone(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select relname::text
		from pg_class
		where relnamespace = current_schema::regnamespace
		  and relkind in ('r', 'p')
		  and not relispartition`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 40)
	for _, table := range tables {
		rows, err := conn.Query(t.Context(), `select x::text from `+pgx.Identifier{table}.Sanitize()+` x`)
		require.NoError(t, err)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, text := range texts {
			for _, word := range personal {
				require.NotContains(t, text, word, table)
				require.NotContains(t, text, hex.EncodeToString([]byte(word)), "the bytes of %s", table)
			}
		}
	}
}

// TestErasuresOfCustomersWithSameValuesKeepTotals erases two customers with the same
// external_id, one after the other. Both sent an event with the same values in the same hour.
func TestErasuresOfCustomersWithSameValuesKeepTotals(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn := dbtest.ConnTo(t, address)
	tenant := dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call", "user")
	for range 2 {
		ingest(t, store, tenant, dbtest.Event(t, "call", "gone", november, "1.5", "", `{"user":"ada"}`))
		c, err := store.Customers.Get(t.Context(), tenant, "gone")
		require.NoError(t, err)
		_, err = store.Erasures.Begin(t.Context(), tenant, "key_1", "gone", "asked for", clock.Now())
		require.NoError(t, err)
		eraseAll(t, store, tenant, c.ID)
	}
	requireRollupsEqualARecount(t, conn, tenant)
	requireTotalsEqualARecount(t, store, conn, tenant, metering.WholeTenant, metering.WindowOf(november, metering.Hour, time.UTC))
}

// TestChangedMeterCountsErasedEventsAsBefore changes the value property of a meter after an erasure. The open period of
// the erased customer may be billed already, so its usage must not change. Another meter had the new value property.
func TestChangedMeterCountsErasedEventsAsBefore(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn := dbtest.ConnTo(t, address)
	tenant := dbtest.Tenant(t, store).ID
	calls := dbtest.Meter(t, store, tenant, "calls", "call")
	_, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
		Slug: "tokens", EventType: "call", Version: metering.MeterVersion{Aggregation: metering.Sum, ValueProperty: "n"},
	})
	require.NoError(t, err)
	ingest(t, store, tenant, dbtest.Event(t, "call", "gone", november, "1.5", "", `{"n":100}`), dbtest.Event(t, "call", "gone", november, "2", "", ""))
	c, err := store.Customers.Get(t.Context(), tenant, "gone")
	require.NoError(t, err)
	_, err = store.Erasures.Begin(t.Context(), tenant, "key_1", "gone", "asked for", clock.Now())
	require.NoError(t, err)
	eraseAll(t, store, tenant, c.ID)
	_, version, err := store.Meters.Update(t.Context(), tenant, metering.Operator, calls.Slug, catalog.MeterChange{ValueProperty: new("n")})
	require.NoError(t, err)
	require.NoError(t, backfill(t.Context(), store, tenant, version.ID))
	var usage string
	require.NoError(t, conn.QueryRow(t.Context(), `
		select sum(sum)::text
		from (
		  select tenant_id, customer_id, meter_version_id, sum from usage_monthly
		  union all
		  select tenant_id, customer_id, meter_version_id, sum from usage_unfolded) u
		where tenant_id = $1 and customer_id = $2 and meter_version_id = $3`, tenant, c.ID, version.ID).Scan(&usage))
	require.Equal(t, "3.5", usage)
}

// TestABackfillWaitsForAnErasure creates a meter between the steps of an erasure. A backfill that
// counted at that time would register groups with personal values.
func TestABackfillWaitsForAnErasure(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn := dbtest.ConnTo(t, address)
	ctx, tenant := t.Context(), dbtest.Tenant(t, store).ID
	dbtest.Meter(t, store, tenant, "calls", "call", "model")
	for i := range 3 {
		ingest(t, store, tenant, dbtest.Event(t, "call", "gone", november.Add(time.Duration(i)*time.Minute), "1.5", "", `{"model":"a","device":"ada-laptop"}`))
	}
	customer, err := store.Customers.Get(ctx, tenant, "gone")
	require.NoError(t, err)
	_, err = store.Erasures.Begin(ctx, tenant, "key_1", "gone", "asked for", clock.Now())
	require.NoError(t, err)
	require.NoError(t, store.Erasures.Groups(ctx, tenant, customer.ID, clock.Now()))
	after, err := store.Erasures.Events(ctx, tenant, customer.ID, db.EventsAfter{}, 1)
	require.NoError(t, err)

	devices := dbtest.Meter(t, store, tenant, "devices", "call", "device").Version.ID
	_, err = store.Backfills.CountDay(ctx, tenant, devices, november)
	require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err), err)
	require.NoError(t, store.Erasures.Groups(ctx, tenant, customer.ID, clock.Now()), "a repeat does not wait for the backfill")
	for !after.Done {
		after, err = store.Erasures.Events(ctx, tenant, customer.ID, after, 1)
		require.NoError(t, err)
	}
	require.NoError(t, store.Erasures.Finish(ctx, tenant, customer.ID, clock.Now()))

	counted, err := store.Backfills.CountDay(ctx, tenant, devices, november)
	require.NoError(t, err)
	require.EqualValues(t, 3, counted)
	require.NoError(t, store.Backfills.Complete(ctx, tenant, devices))
	requireGone(t, conn)
	requireRollupsEqualARecount(t, conn, tenant)
}

// eraseAll runs every step of an erasure more than once, as repeats after interruptions do.
func eraseAll(t *testing.T, store *db.DB, tenant metering.TenantID, customer metering.CustomerID) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		require.NoError(t, store.Erasures.Groups(ctx, tenant, customer, clock.Now()))
	}
	_, err := store.Erasures.Events(ctx, tenant, customer, db.EventsAfter{}, 2)
	require.NoError(t, err)
	for range 2 {
		for after := (db.EventsAfter{}); !after.Done; {
			after, err = store.Erasures.Events(ctx, tenant, customer, after, 3)
			require.NoError(t, err)
		}
		require.NoError(t, store.Erasures.Messages(ctx, tenant, customer))
		require.NoError(t, store.Erasures.Groups(ctx, tenant, customer, clock.Now()), "a repetition changes nothing")
	}
	for range 2 {
		require.NoError(t, store.Erasures.Finish(ctx, tenant, customer, clock.Now()))
	}
}

func TestNothingPersonalIsLeftOfAnErasedCustomer(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
		ctx, tenant := t.Context(), dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call", "model", "device")
		dbtest.Meter(t, store, tenant, "models", "call", "model")
		dbtest.Meter(t, store, tenant, "all", "call")
		claim := db.Claim{Key: "order-of-ada", Operation: "create-customer", Hash: []byte("x")}
		_, err := store.Once(ctx, tenant, claim, func(within db.Creators) ([]byte, error) {
			c, err := within.Customers.Create(ctx, tenant, "key_1", metering.Customer{
				ExternalID: "ada@example.com", Name: "Ada Lovelace", Metadata: json.RawMessage(`{"phone":"0441234567"}`),
			}, clock.Now())
			answer, _ := json.Marshal(map[string]any{"id": c.ID.String(), "external_id": c.ExternalID, "name": c.Name, "metadata": c.Metadata})
			return answer, err
		})
		require.NoError(t, err)
		customer, err := store.Customers.Get(ctx, tenant, "ada@example.com")
		require.NoError(t, err)
		writer := store.NewWriter(dbtest.WriterOptions)
		defer writer.Close()
		send := func(events ...metering.Event) []usage.Outcome {
			outcomes, err := writer.Ingest(ctx, tenant, events)
			require.NoError(t, err)
			return outcomes
		}
		old := clock.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -90)
		repeat := dbtest.Event(t, "call", "ada@example.com", old.Add(17*time.Minute), "7.5", "ada-laptop-1", `{"model":"a","device":"ada-laptop","who":{"name":"Lovelace"}}`)
		send(repeat)
		for i := range 9 {
			at := old.Add(time.Duration(i) * 97 * time.Hour)
			send(dbtest.Event(t, "call", "ada@example.com", at, fmt.Sprint(i+1), fmt.Sprint("ada@example.com ", i), fmt.Sprintf(`{"model":%q,"device":"ada-laptop %d","note":"0441234567"}`, string(rune('a'+i%2)), i%3)))
			send(dbtest.Event(t, "call", "ada@example.com", at.Add(time.Minute), "1", "", ""))
			send(dbtest.Event(t, "call", "bob", at, "1", "", `{"model":"a","device":"bobs"}`))
		}
		send(dbtest.Event(t, "call", "bob", old, "1", "of bob", ""))
		for _, conflict := range []metering.Event{
			dbtest.Event(t, "call", "ada@example.com", old, "99", "ada-laptop-1", `{"device":"ada-laptop"}`),
			dbtest.Event(t, "call", "ada@example.com", old, "99", "of bob", `{"device":"ada-laptop"}`),
			dbtest.Event(t, "call", "bob", old, "99", "ada-laptop-1", ""),
		} {
			require.True(t, send(conflict)[0].Conflict)
		}
		refresh(t, store, clock.Now(), community)
		require.Equal(t, community, compressedChunks(t, conn) > 0)
		span := metering.Range{Start: old.Add(5 * time.Minute), End: old.AddDate(0, 0, 80).Add(7 * time.Minute)}
		totals := func() string {
			text := ""
			for _, of := range []metering.CustomerID{customer.ID, metering.WholeTenant} {
				var sum, count string
				require.NoError(t, conn.QueryRow(ctx, `select sum(sum)::text, sum(count)::text from usage_months where tenant_id = $1 and customer_id = $2`, tenant, of).Scan(&sum, &count))
				text += sum + " of " + count + "; "
			}
			return text
		}
		before := totals()

		erased, err := store.Erasures.Begin(ctx, tenant, "key_1", "ada@example.com", "she has asked for it", clock.Now())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("erased-", int64(customer.ID)), erased.ExternalID)
		_, err = store.Erasures.Begin(ctx, tenant, "key_1", "ada@example.com", "again", clock.Now())
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
		unfinished, err := store.Erasures.Unfinished(ctx, clock.Now().Add(time.Minute))
		require.NoError(t, err)
		require.Contains(t, unfinished, db.ErasingCustomer{Tenant: tenant, ID: customer.ID})
		eraseAll(t, store, tenant, customer.ID)
		unfinished, err = store.Erasures.Unfinished(ctx, clock.Now().Add(time.Minute))
		require.NoError(t, err)
		require.NotContains(t, unfinished, db.ErasingCustomer{Tenant: tenant, ID: customer.ID})

		requireGone(t, conn)
		require.Equal(t, before, totals(), "every number stays")
		requireRollupsEqualARecount(t, conn, tenant)
		requireTotalsEqualARecount(t, store, conn, tenant, customer.ID, span)
		refresh(t, store, clock.Now(), community)
		requireDailyEqualsARecount(t, conn, tenant)
		var shared int
		require.NoError(t, conn.QueryRow(ctx, `select count(*) from usage_groups where tenant_id = $1 and group_key->>'model' = 'a' and group_key->>'device' = 'bobs'`, tenant).Scan(&shared))
		require.Equal(t, 1, shared, "another customer's groups stay")

		outcome := send(repeat)[0]
		require.True(t, outcome.Duplicate, "a repeat of an erased event is a duplicate")
		require.False(t, outcome.Conflict)
		require.Equal(t, before, totals())
		send(dbtest.Event(t, "call", "ada@example.com", old, "100", "", `{"model":"a","device":"ada-laptop 1"}`))
		another, err := store.Customers.Get(ctx, tenant, "ada@example.com")
		require.NoError(t, err)
		require.NotEqual(t, customer.ID, another.ID, "a new event creates a new customer")
		requireRollupsEqualARecount(t, conn, tenant)
		verified(t, store, tenant)
	})
}

// TestErasureDecompressesOnlyEventsOfItsCustomer makes generic plans the default of the database. PostgreSQL may choose
// a generic plan after it has planned a statement five times. With a generic plan, TimescaleDB decompresses all chunks,
// of all tenants, to update one event.
func TestErasureDecompressesOnlyEventsOfItsCustomer(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, community bool) {
		ctx, tenant := t.Context(), dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "call")
		old := clock.Now().UTC().AddDate(0, 0, -90)
		for i := range 3 {
			at := old.AddDate(0, 0, 7*i)
			ingest(t, store, tenant, dbtest.Event(t, "call", "ada@example.com", at, "1", fmt.Sprint(i), `{"a":"b"}`), dbtest.Event(t, "call", "bob", at, "1", "", `{"a":"b"}`))
		}
		refresh(t, store, clock.Now(), community)
		bob, err := store.Customers.Get(ctx, tenant, "bob")
		require.NoError(t, err)
		ada, err := store.Erasures.Begin(ctx, tenant, "key_1", "ada@example.com", "she has asked for it", clock.Now())
		require.NoError(t, err)

		_, err = conn.Exec(ctx, `alter database `+pgx.Identifier{conn.Config().Database}.Sanitize()+` set plan_cache_mode = force_generic_plan`)
		require.NoError(t, err)
		planning, err := dbtest.Connect(ctx, dbtest.As(t, conn.Config().ConnString(), dbtest.Roles.Worker))
		require.NoError(t, err)
		defer planning.Close()
		eraseAll(t, planning, tenant, ada.ID)
		require.Equal(t, community, decompressed(t, conn, ada.ID) > 0)
		require.Zero(t, decompressed(t, conn, bob.ID))
		refresh(t, store, clock.Now(), community)
		require.Zero(t, decompressed(t, conn, ada.ID), "they are compressed again")
	})
}

func TestErasureReplacesExternalIDInReportsAndMessages(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	store, ctx := b.store, t.Context()
	_, err := store.Webhooks.Create(ctx, b.tenant, "key_1", metering.Endpoint{
		URL: "https://hooks.example.com/", EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded, metering.MessagePeriodClosed}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, b.now)
	require.NoError(t, err)
	b.use("60")
	refused := func(why string) {
		_, err := store.Erasures.Begin(ctx, b.tenant, "key_1", "acme", "asked for", b.now)
		b.requireConflict(err, why)
	}
	refused("with POST /v1/billing/sync")
	planned := b.next(anew).ID
	b.lease(planned)
	refused("with POST /v1/billing/sync")
	b.complete(planned, "accepted")
	b.plan(anew)
	sync, err := store.Syncs.Request(ctx, b.tenant, "key_1", b.customer.ID, metering.Manual, b.now)
	require.NoError(t, err)
	refused(sync.ID.String())
	pass := b.begin().PassID
	refused(sync.ID.String())
	b.finish(pass, ledger.Answer{})

	erased, err := store.Erasures.Begin(ctx, b.tenant, "key_1", "acme", "asked for", b.now)
	require.NoError(t, err)
	eraseAll(t, store, b.tenant, b.customer.ID)
	var reports, messages string
	b.scan(`select coalesce(string_agg(convert_from(body, 'UTF8'), ' '), '') from billing_reports where tenant_id = $1`, []any{b.tenant}, &reports)
	b.scan(`select coalesce(string_agg(payload::text, ' '), '') from outbox where tenant_id = $1`, []any{b.tenant}, &messages)
	for _, text := range []string{reports, messages} {
		require.NotContains(t, text, `"acme"`)
		require.Contains(t, text, erased.ExternalID)
	}
	require.Contains(t, reports, `"usage":60`)
	require.True(t, json.Valid([]byte(strings.TrimSpace(reports))))
	ended, err := store.Syncs.EndPause(ctx, b.tenant, ledger.Steering{Actor: "key_1", Sync: sync.ID, Customer: b.customer.ID, Reason: "a slip"}, b.now)
	require.NoError(t, err)
	require.False(t, ended, "no operator has paused it")
	_, err = store.Ledger.Plan(ctx, b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
	require.Equal(t, metering.CodePaused, metering.CodeOf(err), "the receiver knows the customer by its previous name")
}

// race is a tenant in its own database, with a writer that writes two groups at once. Every request is a group.
type race struct {
	*testing.T
	store    *db.DB
	address  string
	observer *pgx.Conn
	tenant   metering.TenantID
	writer   *usage.Writer
}

func newRace(t *testing.T, groupBy ...string) *race {
	t.Helper()
	store, address := dbtest.Fresh(t)
	r := &race{T: t, store: store, address: address, tenant: dbtest.Tenant(t, store).ID}
	r.observer = r.connect()
	dbtest.Meter(t, store, r.tenant, "calls", "call", groupBy...)
	r.writer = newWriter(t, store, usage.WriterOptions{GroupEvents: 1, Lanes: 2, Deadline: dbtest.Deadline})
	return r
}

func (r *race) connect() *pgx.Conn {
	r.Helper()
	conn, err := pgx.Connect(r.Context(), r.address)
	require.NoError(r, err)
	r.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// hold returns an open transaction that holds the locks of a statement. The first argument of the statement is
// the tenant.
func (r *race) hold(statement string) pgx.Tx {
	r.Helper()
	tx, err := r.connect().Begin(r.Context())
	require.NoError(r, err)
	_, err = tx.Exec(r.Context(), statement, r.tenant)
	require.NoError(r, err)
	return tx
}

// send returns the error of a request with one event of each customer.
func (r *race) send(customers ...string) error {
	events := make([]metering.Event, len(customers))
	for i, name := range customers {
		events[i] = dbtest.Event(r, "call", name, november, "1", "", "")
	}
	_, err := r.writer.Ingest(r.Context(), r.tenant, events)
	return err
}

// start runs fn and returns the channel of its error.
func start(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

func (r *race) erase(externalID string) error {
	_, err := r.store.Erasures.Begin(r.Context(), r.tenant, "key_1", externalID, "asked for", clock.Now())
	return err
}

// events returns the number of events of the customer that has the external ID now.
func (r *race) events(externalID string) (n int) {
	r.Helper()
	require.NoError(r, r.observer.QueryRow(r.Context(), `
		select count(*)
		from events e
		join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
		where c.tenant_id = $1
		  and c.external_id = $2`, r.tenant, externalID).Scan(&n))
	return n
}

// TestIngestWaitingForErasureStoresNothingForErasedCustomer erases a customer while two groups of one process wait
// for the tenant's lock. Both groups have looked up the customer before.
func TestIngestWaitingForErasureStoresNothingForErasedCustomer(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	require.NoError(t, r.send("gone"))
	gone, err := r.store.Customers.Get(t.Context(), r.tenant, "gone")
	require.NoError(t, err)

	holder := r.hold(`select pg_advisory_xact_lock($1)`)
	erased := start(func() error { return r.erase("gone") })
	awaitLockWaiters(t, r.observer, 1)
	first, second := start(func() error { return r.send("gone") }), start(func() error { return r.send("gone") })
	awaitLockWaiters(t, r.observer, 3)
	require.NoError(t, holder.Rollback(t.Context()))
	for _, done := range []<-chan error{erased, first, second} {
		require.NoError(t, <-done)
	}

	require.Equal(t, 1, r.events(metering.ErasedName(gone.ID)), "the event before the erasure")
	require.Equal(t, 2, r.events("gone"), "the events of a new customer")
	requireRollupsEqualARecount(t, r.observer, r.tenant)
}

// TestACustomerThatWasLookedUpBeforeItsErasureIsLookedUpAgain erases a customer after a group has looked it up. The
// group waits for the creation of another customer. Meanwhile, another group learns of the erasure.
func TestACustomerThatWasLookedUpBeforeItsErasureIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	gone := dbtest.Customer(t, r.store, r.tenant, "gone")

	holder := r.hold(`insert into customers (tenant_id, external_id, created_at) values ($1, 'new', timestamptz 'epoch')`)
	sent := start(func() error { return r.send("gone", "new") })
	awaitLockWaiters(t, r.observer, 1)
	require.NoError(t, r.erase("gone"))
	require.NoError(t, r.send("another"))
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-sent)
	require.NoError(t, r.send("gone"))

	require.Zero(t, r.events(metering.ErasedName(gone.ID)))
	require.Equal(t, 2, r.events("gone"))
	requireRollupsEqualARecount(t, r.observer, r.tenant)
}

// TestAGroupThatAnErasureHasReplacedIsRegisteredAgain delays the response to the COMMIT that registers a group. Until
// then, an erasure replaces the group, and another request of the process learns of the erasure.
func TestAGroupThatAnErasureHasReplacedIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	r := newRace(t, "model")
	proxied, delay := delayCommits(t, r.address)
	store, err := dbtest.Connect(t.Context(), proxied)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	r.writer = newWriter(t, store, usage.WriterOptions{GroupEvents: 1, Lanes: 2, Deadline: dbtest.Deadline})
	use := func(customer string) error {
		_, err := r.writer.Ingest(t.Context(), r.tenant, []metering.Event{dbtest.Event(t, "call", customer, november, "1", "", `{"model":"a"}`)})
		return err
	}
	gone := dbtest.Customer(t, r.store, r.tenant, "gone")
	require.NoError(t, r.send("another"))

	release := delay()
	used := start(func() error { return use("gone") })
	dbtest.Eventually(t, func() error {
		if r.events("gone") == 0 {
			return errors.New("the event is not stored")
		}
		return nil
	})
	require.NoError(t, r.erase("gone"))
	require.NoError(t, r.store.Erasures.Groups(t.Context(), r.tenant, gone.ID, clock.Now()))
	require.NoError(t, r.send("another"))
	release()
	require.NoError(t, <-used)
	require.NoError(t, use("another"))

	var unregistered int
	require.NoError(t, r.observer.QueryRow(t.Context(), `
		select count(*)
		from usage_months u
		where u.tenant_id = $1
		  and not exists (
		    select
		    from usage_groups g
		    where g.tenant_id = u.tenant_id
		      and g.meter_version_id = u.meter_version_id
		      and g.group_id = u.group_id)`, r.tenant).Scan(&unregistered))
	require.Zero(t, unregistered, "usage in groups without a key")
	eraseAll(t, r.store, r.tenant, gone.ID)
	requireRollupsEqualARecount(t, r.observer, r.tenant)
}

// delayCommits starts a proxy to the database and returns its address. Each call of delay makes the proxy hold the
// next response to a COMMIT, until the caller calls release.
func delayCommits(t *testing.T, address string) (proxied string, delay func() (release func())) {
	t.Helper()
	target, err := url.Parse(address)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	held := make(chan chan struct{}, 1)
	server := target.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go forward(client, backend, nil)
			go forward(backend, client, held)
		}
	}()
	target.Host = listener.Addr().String()
	return target.String(), func() func() {
		released := make(chan struct{})
		held <- released
		return func() { close(released) }
	}
}

// forward copies bytes until an error. Before it forwards a response to COMMIT, it waits for the next channel in
// held, if there is one.
func forward(from, to net.Conn, held <-chan chan struct{}) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("COMMIT\x00")) {
			select {
			case released := <-held:
				<-released
			default:
			}
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestAnErasureIsRefusedForUsageThatArrivesWhileItWaits begins an erasure while an event is being stored. The erasure
// waits for the tenant's lock, and the event waits for its key.
func TestAnErasureIsRefusedForUsageThatArrivesWhileItWaits(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	b.use("1")
	b.accept()
	require.Empty(t, b.outOfSync())

	observer := b.connect()
	holder, err := b.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `insert into event_keys values ($1, event_key('k'), 0)`, b.tenant)
	require.NoError(t, err)
	used := start(func() error {
		event := dbtest.Event(t, "api_call", "acme", b.now, "1", "k", "")
		_, err := b.writer.Ingest(t.Context(), b.tenant, []metering.Event{event})
		return err
	})
	awaitLockWaiters(t, observer, 1)
	erased := start(func() error {
		_, err := store.Erasures.Begin(t.Context(), b.tenant, "key_1", "acme", "asked for", b.now)
		return err
	})
	awaitLockWaiters(t, observer, 2)
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-used)
	b.requireConflict(<-erased, "with POST /v1/billing/sync")

	b.accept()
	_, err = store.Erasures.Begin(t.Context(), b.tenant, "key_1", "acme", "asked for", b.now)
	require.NoError(t, err)
}

// TestAnErasureIsRefusedForUsageOfAPeriodThatHasNotBegun ingests an event with a time after the end of the customer's
// period, because the clock of the sender is ahead. No plan reports the event before the next period begins.
func TestAnErasureIsRefusedForUsageOfAPeriodThatHasNotBegun(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.now = month.End.Add(-time.Minute)
	b.use("1")
	b.accept()
	b.useAt("1", month.End)
	require.Empty(t, b.outOfSync(), "a sync has nothing to send yet")
	erase := func() error {
		_, err := b.store.Erasures.Begin(t.Context(), b.tenant, "key_1", "acme", "asked for", b.now)
		return err
	}
	b.requireConflict(erase(), "after the end of its latest billing period")
	b.exec(`
		insert into billing_periods (tenant_id, customer_id, stream, starts_at, ends_at, closed_at, complete)
		select tenant_id, customer_id, 1, starts_at, ends_at + interval '1 year', ends_at, true
		from billing_periods
		where tenant_id = $1
		order by ends_at desc
		limit 1`, b.tenant)
	b.requireConflict(erase(), "after the end of its latest billing period")
	b.exec(`delete from billing_periods where tenant_id = $1 and stream = 1`, b.tenant)

	b.now = month.End
	b.requireConflict(erase(), "with POST /v1/billing/sync")
	b.acceptAll()
	require.NoError(t, erase())
}
