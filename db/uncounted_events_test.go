package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// sampling is a process that samples a tenant's uncounted events.
type sampling struct {
	*testing.T
	store   *db.DB
	tenant  metering.TenantID
	sampler *usage.UncountedSampler
	writer  *usage.Writer
}

func newSampling(t *testing.T, store *db.DB, tenant metering.TenantID) *sampling {
	s := &sampling{T: t, store: store, tenant: tenant, sampler: store.NewUncountedSampler(func(err error) { t.Log(err) })}
	options := dbtest.WriterOptions
	options.Uncounted = s.sampler
	s.writer = store.NewWriter(options)
	t.Cleanup(func() {
		s.writer.Close()
		s.sampler.Close()
	})
	return s
}

// propertyMeter creates a meter of llm events that sums the property.
func propertyMeter(t *testing.T, store *db.DB, tenant metering.TenantID, property string) metering.MeterID {
	t.Helper()
	m, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
		Slug: property, EventType: "llm", Version: metering.MeterVersion{Aggregation: metering.Sum, ValueProperty: property},
	})
	require.NoError(t, err)
	return m.ID
}

// send ingests an event that was received at the given time.
func (s *sampling) send(customer, properties string, received time.Time) {
	s.Helper()
	s.sendAll(s.event(customer, properties, received))
}

func (s *sampling) event(customer, properties string, received time.Time) metering.Event {
	e := dbtest.Event(s.T, "llm", customer, november, "1", "", properties)
	e.ReceivedAt = metering.Instant(received)
	return e
}

func (s *sampling) sendAll(events ...metering.Event) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, events)
	require.NoError(s, err)
}

func (s *sampling) write() {
	s.Helper()
	require.NoError(s, s.sampler.Flush(s.Context()))
}

// listed returns "customer rule" of each listed event, and reads pages of the given size.
func (s *sampling) listed(f usage.UncountedFilter, size int) (all []string) {
	s.Helper()
	if f.Range == (metering.Range{}) {
		f.Range = metering.Range{Start: november, End: november.Add(24 * time.Hour)}
	}
	for before := (*usage.UncountedCursor)(nil); ; {
		page, err := s.store.UncountedEvents.List(s.Context(), s.tenant, f, before, size)
		require.NoError(s, err)
		require.LessOrEqual(s, len(page.Items), size)
		for _, e := range page.Items {
			all = append(all, e.ExternalID+" "+string(e.Rule))
		}
		if !page.More {
			return all
		}
		before = new(page.Items[len(page.Items)-1].Cursor())
	}
}

func (s *sampling) stored(conn *pgx.Conn) (rows int) {
	s.Helper()
	require.NoError(s, conn.QueryRow(s.Context(), `select count(*) from uncounted_events where tenant_id = $1`, s.tenant).Scan(&rows))
	return rows
}

func TestUncountedEventsAreListedByMeterTheLatestReceivedFirst(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	store.FlushOnRequest(dbtest.Deadline)
	ours, theirs := newSampling(t, store, dbtest.Tenant(t, store).ID), newSampling(t, store, dbtest.Tenant(t, store).ID)
	tokens, cost := propertyMeter(t, store, ours.tenant, "tokens"), propertyMeter(t, store, ours.tenant, "cost")
	propertyMeter(t, store, theirs.tenant, "tokens")
	for i, event := range [][]string{
		{"a", `{"cost":1}`}, {"b", `{"tokens":"many","cost":1}`}, {"c", `{"tokens":1,"cost":1}`}, {"d", `{"tokens":null}`}, {"a", `{"tokens":[],"cost":{}}`},
	} {
		ours.send(event[0], event[1], november.Add(time.Duration(i)*time.Hour))
	}
	theirs.send("a", `{}`, november)
	require.Empty(t, ours.listed(usage.UncountedFilter{Meter: tokens}, 10), "nothing is written yet")
	ours.write()
	theirs.write()
	a, err := store.Customers.Get(t.Context(), ours.tenant, "a")
	require.NoError(t, err)
	for _, size := range []int{1, 2, 10} {
		require.Equal(t, []string{"a value_invalid", "d value_missing", "b value_invalid", "a value_missing"}, ours.listed(usage.UncountedFilter{Meter: tokens}, size))
		require.Equal(t, []string{"a value_invalid", "d value_missing"}, ours.listed(usage.UncountedFilter{Meter: cost}, size))
		require.Equal(t, []string{"d value_missing", "a value_missing"}, ours.listed(usage.UncountedFilter{Meter: tokens, Rule: metering.ValueMissing}, size))
		require.Equal(t, []string{"a value_invalid", "a value_missing"}, ours.listed(usage.UncountedFilter{Meter: tokens, Customer: a.ID}, size))
		within := metering.Range{Start: november.Add(time.Hour), End: november.Add(3 * time.Hour)}
		require.Equal(t, []string{"b value_invalid"}, ours.listed(usage.UncountedFilter{Meter: tokens, Range: within}, size))
	}
	require.Empty(t, theirs.listed(usage.UncountedFilter{Meter: tokens}, 10), "the meter is another tenant's")
	page, err := store.UncountedEvents.List(t.Context(), ours.tenant, usage.UncountedFilter{Meter: tokens, Range: metering.Range{End: november.Add(2 * time.Hour)}}, nil, 1)
	require.NoError(t, err)
	listed := page.Items[0]
	require.Equal(t, []any{`{"cost": 1, "tokens": "many"}`, november.Add(time.Hour), []usage.Counting{{MeterSlug: "cost"}}}, []any{string(listed.Properties), listed.IngestedAt, listed.CountedBy})
}

// TestTwoProcessesShareTheBoundOfUncountedEvents checks that two processes together store no more uncounted events of a
// meter and an hour than the bound. Each process collects no more than the bound either.
func TestTwoProcessesShareTheBoundOfUncountedEvents(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	for _, property := range []string{"tokens", "cost"} {
		propertyMeter(t, store, tenant, property)
	}
	processes := []*sampling{newSampling(t, store, tenant), newSampling(t, store, tenant)}
	hour := november.Truncate(time.Hour)
	var sending sync.WaitGroup
	for _, p := range processes {
		sending.Go(func() {
			for range 3 {
				var events []metering.Event
				for i := range 400 {
					events = append(events, p.event("acme", `{"cost":1}`, hour.Add(time.Duration(i)*time.Second)))
				}
				if _, err := p.writer.Ingest(t.Context(), tenant, events); err != nil {
					t.Error(err)
				}
				if err := p.sampler.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	require.Equal(t, 1000, processes[0].stored(conn))
	processes[0].send("acme", `{"tokens":1}`, hour)              // another meter
	processes[1].send("acme", `{"cost":1}`, hour.Add(time.Hour)) // another hour
	processes[1].send("acme", `{"cost":1}`, hour.Add(59*time.Minute))
	for _, p := range processes {
		p.write()
	}
	require.Equal(t, 1002, processes[0].stored(conn))
}

// TestAProcessHoldsABoundedNumberOfUncountedEvents checks the bound of a process while uncounted events cannot be
// written.
func TestAProcessHoldsABoundedNumberOfUncountedEvents(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	s := newSampling(t, store, dbtest.Tenant(t, store).ID)
	for i := range 20 {
		propertyMeter(t, store, s.tenant, fmt.Sprint("meter-", i))
	}
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table uncounted_events in access exclusive mode`)
	require.NoError(t, err)
	sendHour := func(hour int) {
		s.sendAll(slices.Repeat([]metering.Event{s.event("acme", `{}`, november.Add(time.Duration(hour)*time.Hour))}, 500)...)
	}
	sendHour(0)
	var writing sync.WaitGroup
	writing.Go(func() { _ = s.sampler.Flush(t.Context()) }) // while it waits for the table, references arrive
	dbtest.Eventually(t, func() error {
		var waiting int
		err := tx.QueryRow(t.Context(), `select count(*) from pg_locks where relation = 'uncounted_events'::regclass and not granted`).Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("nothing is being written")
		}
		return err
	})
	sendHour(1)
	sendHour(2)
	require.NoError(t, tx.Rollback(t.Context()))
	writing.Wait()
	s.write()
	require.Equal(t, 10_000, s.stored(conn), "10,000 of the 30,000 references of the tenant")
	_, err = conn.Exec(t.Context(), `alter table uncounted_events rename to elsewhere`)
	require.NoError(t, err)
	s.send("acme", `{}`, november.Add(3*time.Hour))
	require.Error(t, s.sampler.Flush(t.Context()))
	_, err = conn.Exec(t.Context(), `alter table elsewhere rename to uncounted_events`)
	require.NoError(t, err)
	s.write()
	require.Equal(t, 10_020, s.stored(conn), "including those of the failed write")
}

// TestUncountedEventsOfALockedTenantAreStoredLater checks that a write does not wait for a locked tenant, and that the
// next write stores the tenant's uncounted events.
func TestUncountedEventsOfALockedTenantAreStoredLater(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	store.FlushOnRequest(dbtest.Deadline)
	s := newSampling(t, store, dbtest.Tenant(t, store).ID)
	propertyMeter(t, store, s.tenant, "tokens")
	s.send("acme", `{}`, november)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, s.tenant)
	require.NoError(t, err)
	s.write()
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, s.stored(conn))
	s.write()
	require.Equal(t, 1, s.stored(conn))
}

func TestAnErasedCustomerHasNoUncountedEvents(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	s := newSampling(t, store, dbtest.Tenant(t, store).ID)
	meter := propertyMeter(t, store, s.tenant, "tokens")
	s.send("gone", `{}`, november)
	s.send("bob", `{}`, november)
	s.write()
	s.send("gone", `{"tokens":"x"}`, november)
	s.send("bob", `{"tokens":"x"}`, november)
	gone, err := store.Customers.Get(t.Context(), s.tenant, "gone")
	require.NoError(t, err)
	_, err = store.Erasures.Begin(t.Context(), s.tenant, "key_1", "gone", "asked for", clock.Now())
	require.NoError(t, err)
	eraseAll(t, store, s.tenant, gone.ID)
	s.write() // the references that were collected before the erasure
	require.ElementsMatch(t, []string{"bob value_invalid", "bob value_missing"}, s.listed(usage.UncountedFilter{Meter: meter}, 10))
	require.Equal(t, 2, s.stored(conn))
}

func TestDeletedEventsAreNotListedAsUncounted(t *testing.T) {
	t.Parallel()
	eachEdition(t, func(t *testing.T, store *db.DB, conn *pgx.Conn, _ bool) {
		k := newKeeper(t, store, conn, "UTC")
		s := newSampling(t, store, k.tenant)
		meter := propertyMeter(t, store, s.tenant, "tokens")
		for _, days := range []int{100, 40} {
			e := dbtest.Event(t, "llm", fmt.Sprint(days), k.daysAgo(days), "1", "", `{}`)
			e.ReceivedAt = metering.Instant(k.daysAgo(days))
			s.sendAll(e)
		}
		s.write()
		f := usage.UncountedFilter{Meter: meter, Range: metering.Range{Start: k.daysAgo(200), End: k.now}}
		require.Equal(t, []string{"40 value_missing", "100 value_missing"}, s.listed(f, 1))
		k.exec(`update customers set created_at = $1, billing_starts_at = $2`, k.daysAgo(250), k.daysAgo(10))
		require.Positive(t, k.retain(60))
		require.Equal(t, []string{"40 value_missing"}, s.listed(f, 1))
	})
}

func TestOldUncountedEventsAreDeleted(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	s := newSampling(t, store, dbtest.Tenant(t, store).ID)
	meter := propertyMeter(t, store, s.tenant, "tokens")
	for hours := range 5 {
		s.send(fmt.Sprint(hours), `{}`, november.Add(time.Duration(hours)*time.Hour))
	}
	s.write()
	for _, removed := range []int64{2, 1, 0} {
		n, err := store.UncountedEvents.Sweep(t.Context(), november.Add(3*time.Hour), 2)
		require.NoError(t, err)
		require.Equal(t, removed, n)
	}
	require.Equal(t, []string{"4 value_missing", "3 value_missing"}, s.listed(usage.UncountedFilter{Meter: meter}, 10))
}
