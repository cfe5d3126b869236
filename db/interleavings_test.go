package db_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// The plans below cover the autumn of 2026. New York changes its clocks on the first of November.
var (
	planStart = time.Date(2026, 9, 10, 0, 0, 0, 0, time.UTC)
	planNow   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	planTypes = []string{"call", "token", "quiet"}
	planNames = []string{"acme", "beta", "gamma", "delta"}
)

// plan holds the batches that sixteen clients send, and the changes that operators make meanwhile.
type plan struct {
	scripts   [16][][]metering.Event
	operators [3][]change
}

// change is one change that an operator makes to a meter, or the closing of a customer's periods.
type change struct {
	after       int // number of answered batches before the change
	slug        string
	eventType   string
	aggregation metering.Aggregation
	groupBy     []string
	killAfter   int    // number of counted days after which one of the two backfill runners is killed
	closes      string // if not "", the change closes this customer's September and October instead
}

func drawInstant(t *rapid.T) time.Time {
	anywhere := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMicro(rapid.Int64Range(planStart.UnixMicro(), planNow.UnixMicro()).Draw(t, "instant"))
	})
	edges := rapid.Custom(func(t *rapid.T) time.Time {
		month := rapid.SampledFrom([]time.Month{time.October, time.November}).Draw(t, "month")
		quarters := rapid.IntRange(-8*4, 8*4).Draw(t, "quarters of an hour")
		off := rapid.SampledFrom([]time.Duration{-time.Microsecond, 0, 0, time.Microsecond}).Draw(t, "off")
		return time.Date(2026, month, 1, 0, 15*quarters, 0, 0, time.UTC).Add(off)
	})
	recent := rapid.Just(planNow)
	return rapid.OneOf(anywhere, edges, recent).Draw(t, "at").UTC()
}

func drawEvent(t *rapid.T) metering.Event {
	sent := metering.SentEvent{
		EventType:  rapid.SampledFrom(planTypes).Draw(t, "type"),
		CustomerID: rapid.SampledFrom(planNames).Draw(t, "customer"),
		Value: json.RawMessage(rapid.SampledFrom([]string{
			"null", "1", "0", "0.1", "-2.5", "1e3", "0.000000000001", "123456789012345678.123456789012",
		}).Draw(t, "value")),
		Properties: json.RawMessage(rapid.SampledFrom([]string{
			"null", "{}", `{"model":"a"}`, `{"model":"b","region":"eu"}`, `{"region":"us","model":1}`, `{"model":1.0}`, `{"model":10e-1}`,
			`{"model":true,"region":null}`, `{"model":{"x":[1, "y"]}}`, `{"model":"\u0061"}`, `{"region":"eu"}`,
		}).Draw(t, "properties")),
	}
	if rapid.IntRange(0, 9).Draw(t, "with a timestamp") > 0 {
		at := drawInstant(t).Format(time.RFC3339Nano)
		sent.Timestamp = &at
	}
	if key := rapid.IntRange(0, 300).Draw(t, "key"); key > 0 && key < 200 {
		name := "key " + strconv.Itoa(key)
		sent.IdempotencyKey = &name
		if key%3 > 0 { // most repeats have the same content
			sent.EventType, sent.CustomerID = planTypes[key%2], planNames[key%4]
			sent.Timestamp, sent.Value, sent.Properties = nil, nil, nil
		}
	}
	later := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "sent later"))
	event, rejection := sent.Judge(planNow.Add(-later))
	if rejection != nil {
		t.Fatalf("%v", rejection)
	}
	return event
}

var plans = rapid.Custom(func(t *rapid.T) (p plan) {
	events := rapid.Custom(drawEvent)
	for i := range p.scripts {
		p.scripts[i] = rapid.SliceOfN(rapid.SliceOfN(events, 1, 12), 6, 10).Draw(t, "batches")
	}
	for i := range p.operators {
		p.operators[i] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) change {
			slug := "m" + strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "meter"))
			c := change{
				after:       rapid.IntRange(0, 130).Draw(t, "after"),
				slug:        slug,
				eventType:   planTypes[int(slug[1])%3],
				aggregation: rapid.SampledFrom([]metering.Aggregation{metering.Sum, metering.Count}).Draw(t, "aggregation"),
				groupBy:     rapid.SampledFrom([][]string{{}, {"model"}, {"model", "region"}, {"region"}}).Draw(t, "group by"),
				killAfter:   rapid.IntRange(0, 60).Draw(t, "killed after"),
			}
			if rapid.IntRange(0, 4).Draw(t, "close") == 0 {
				c.closes = rapid.SampledFrom(planNames[:2]).Draw(t, "closed customer")
			}
			return c
		}), 2, 3).Draw(t, "changes")
		slices.SortStableFunc(p.operators[i], func(a, b change) int { return a.after - b.after })
	}
	p.operators[0][0].closes = "" // each plan defines a meter
	return p
})

// rounds returns the number of plans to run in each time zone. It is a fiftieth of histories.Count, because each plan
// takes seconds.
func rounds() int { return max(1, histories.Count()/50) }

func TestPropertyRollupsEqualARecountOfTheEvents(t *testing.T) {
	_, address := dbtest.Fresh(t)
	var stores [2]*db.DB
	var writers [2]*usage.Writer
	for i := range stores {
		store, err := dbtest.Connect(t.Context(), address+"&pool_max_conns=8")
		require.NoError(t, err)
		stores[i], writers[i] = store, store.NewWriter(usage.WriterOptions{GroupEvents: 60, Deadline: dbtest.Deadline})
		folder := store.NewFolder(failUnlessLate(t))
		t.Cleanup(func() {
			folder.Close()
			writers[i].Close()
			store.Close()
		})
	}
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/New_York"} {
		t.Run("In "+zone, func(t *testing.T) {
			for range rounds() {
				seed := int(time.Now().UnixNano() % 1e9)
				t.Logf("seed %d", seed)
				play(t, stores, writers, conn, zone, seed)
			}
		})
	}
}

func play(t *testing.T, stores [2]*db.DB, writers [2]*usage.Writer, conn *pgx.Conn, zone string, seed int) {
	p := plans.Example(seed)
	tenant := dbtest.Tenant(t, stores[0], zone).ID
	for _, name := range planNames {
		dbtest.Customer(t, stores[0], tenant, name)
	}
	s := &stage{T: t, stores: stores, address: conn.Config().ConnString(), tenant: tenant, zone: zone, kept: make(map[string]int), closed: make(map[string]bool)}
	s.progress.L = &s.mu
	var clients, operators sync.WaitGroup
	for i, script := range p.scripts {
		clients.Go(func() { s.send(writers[i%2], script) })
	}
	for i, changes := range p.operators {
		operators.Go(func() { s.operate(stores[i%2], changes) })
	}
	clients.Wait()
	s.answer(math.MaxInt / 2)
	operators.Wait()
	if t.Failed() {
		return
	}
	backfilling, err := stores[0].Backfills.Unfinished(t.Context())
	require.NoError(t, err)
	for _, f := range backfilling {
		require.NoError(t, backfill(t.Context(), stores[0], f.Tenant, f.Version))
	}
	s.requireEveryEventOnce(conn)
	requireRollupsEqualARecount(t, conn, tenant)
	s.requireReadsEqualARecount(conn, seed)
}

// stage runs one plan against a tenant.
type stage struct {
	*testing.T
	stores  [2]*db.DB
	address string
	tenant  metering.TenantID
	zone    string

	mu       sync.Mutex
	progress sync.Cond
	answered int            // batches
	keyless  int            // events without a key that were answered
	kept     map[string]int // by key, the number of answers without Duplicate
	told     []told
	closed   map[string]bool
}

// told is the outcome that a client received for an event with a key.
type told struct {
	key     string
	hash    [32]byte
	outcome usage.Outcome
}

func (s *stage) send(w *usage.Writer, script [][]metering.Event) {
	for _, batch := range script {
		outcomes, err := w.Ingest(s.Context(), s.tenant, batch)
		if err != nil {
			s.Errorf("ingest: %v", err)
			return
		}
		s.mu.Lock()
		for i, e := range batch {
			if e.IdempotencyKey == "" {
				s.keyless++
				continue
			}
			s.told = append(s.told, told{e.IdempotencyKey, e.Hash, outcomes[i]})
			if !outcomes[i].Duplicate {
				s.kept[e.IdempotencyKey]++
			}
		}
		s.mu.Unlock()
		s.answer(1)
	}
}

func (s *stage) answer(batches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered += batches
	s.progress.Broadcast()
}

func (s *stage) await(batches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.answered < batches {
		s.progress.Wait()
	}
}

func (s *stage) operate(store *db.DB, changes []change) {
	for _, c := range changes {
		s.await(c.after)
		if c.closes != "" {
			s.closePeriods(c.closes)
			continue
		}
		version, err := s.apply(store, c)
		if err != nil {
			s.Errorf("change %+v: %v", c, err)
			return
		}
		if version != nil {
			s.fill(*version, c.killAfter)
		}
	}
}

func (s *stage) closePeriods(customer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed[customer] {
		return
	}
	s.closed[customer] = true
	conn, err := pgx.Connect(s.Context(), s.address)
	require.NoError(s, err)
	defer conn.Close(s.Context())
	c, err := s.stores[0].Customers.Get(s.Context(), s.tenant, customer)
	require.NoError(s, err)
	october := billing.CalendarPeriod(time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC), metering.Location(s.zone))
	september := billing.CalendarPeriod(october.Start.Add(-time.Hour), metering.Location(s.zone))
	closePeriods(s, conn, s.tenant, c.ID, september, october)
}

// apply creates the meter, or changes it if it exists. It returns the version to backfill, or nil.
func (s *stage) apply(store *db.DB, c change) (*metering.MeterVersionID, error) {
	m, err := store.Meters.Create(s.Context(), s.tenant, metering.Operator, metering.Meter{
		Slug: c.slug, EventType: c.eventType, Version: metering.MeterVersion{Aggregation: c.aggregation, GroupBy: c.groupBy},
	})
	if err == nil && m.Version.Status == metering.Backfilling {
		return &m.Version.ID, nil
	}
	if metering.CodeOf(err) != metering.CodeConflict {
		return nil, err
	}
	_, backfilling, err := store.Meters.Update(s.Context(), s.tenant, metering.Operator, c.slug,
		catalog.MeterChange{Aggregation: &c.aggregation, GroupBy: &c.groupBy})
	if backfilling == nil {
		return nil, err
	}
	return &backfilling.ID, err
}

// fill runs a backfill in two concurrent runners. One of them is killed in the middle, and starts again.
func (s *stage) fill(version metering.MeterVersionID, killAfter int) {
	var runners sync.WaitGroup
	runners.Go(func() {
		ctx, kill := context.WithCancel(s.Context())
		defer kill()
		go s.killAt(ctx, kill, version, killAfter)
		_ = backfill(ctx, s.stores[0], s.tenant, version)
		s.retryBackfill(s.stores[0], version)
	})
	runners.Go(func() { s.retryBackfill(s.stores[1], version) })
	runners.Wait()
}

// killAt cancels a backfill runner once about the given number of days, or all days, are counted.
func (s *stage) killAt(ctx context.Context, kill func(), version metering.MeterVersionID, days int) {
	for ctx.Err() == nil {
		left, err := s.stores[1].Backfills.Days(ctx, s.tenant, version)
		if err != nil || len(left) == 0 || 80-len(left) >= days {
			kill()
		}
	}
}

// retryBackfill runs a backfill, and repeats it while the database is overloaded.
func (s *stage) retryBackfill(store *db.DB, version metering.MeterVersionID) {
	for {
		err := backfill(s.Context(), store, s.tenant, version)
		if metering.CodeOf(err) == metering.CodeOverloaded {
			continue
		}
		if err != nil {
			s.Errorf("backfill: %v", err)
		}
		return
	}
}

// requireEveryEventOnce compares the answers with the stored events and conflicts.
func (s *stage) requireEveryEventOnce(conn *pgx.Conn) {
	s.Helper()
	stored := make(map[string]int)
	rows, err := conn.Query(s.Context(), `
		select coalesce(idempotency_key, ''), count(*) from events where tenant_id = $1 group by 1`, s.tenant)
	require.NoError(s, err)
	var key string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error { stored[key] = n; return nil })
	require.NoError(s, err)
	require.Equal(s, s.keyless, stored[""], "events without a key")
	delete(stored, "")
	require.Equal(s, s.kept, stored, "the events that were answered as new, and the stored events, by key")
	for key, n := range stored {
		require.Equal(s, 1, n, "events of %s", key)
	}

	digests := make(map[string]int64)
	rows, err = conn.Query(s.Context(), `
		select e.idempotency_key, k.digest
		from events e
		join event_keys k on k.tenant_id = e.tenant_id and k.key = event_key(e.idempotency_key)
		where e.tenant_id = $1`, s.tenant)
	require.NoError(s, err)
	var digest int64
	_, err = pgx.ForEachRow(rows, []any{&key, &digest}, func() error { digests[key] = digest; return nil })
	require.NoError(s, err)
	want := make(map[string]bool)
	for _, told := range s.told {
		require.Equal(s, int64(binary.BigEndian.Uint64(told.hash[:8])) != digests[told.key], told.outcome.Conflict, "conflict of %s", told.key)
		require.False(s, told.outcome.Conflict && !told.outcome.Duplicate)
		if told.outcome.Conflict {
			want[fmt.Sprint(told.key, " ", int64(binary.BigEndian.Uint64(told.hash[:8])))] = true
		}
	}
	found := make(map[string]bool)
	rows, err = conn.Query(s.Context(), `select idempotency_key, digest from event_conflicts where tenant_id = $1`, s.tenant)
	require.NoError(s, err)
	_, err = pgx.ForEachRow(rows, []any{&key, &digest}, func() error { found[fmt.Sprint(key, " ", digest)] = true; return nil })
	require.NoError(s, err)
	require.Equal(s, want, found, "conflicts that were answered, and those that are stored")
}

func (s *stage) requireReadsEqualARecount(conn *pgx.Conn, seed int) {
	s.Helper()
	meters, err := dbtest.Items(s.stores[0].Meters.List(s.Context(), s.tenant, 0, 100, false))
	require.NoError(s, err)
	customers := map[string]metering.CustomerID{"": metering.WholeTenant}
	for _, name := range planNames {
		c, err := s.stores[0].Customers.Get(s.Context(), s.tenant, name)
		require.NoError(s, err)
		customers[name] = c.ID
	}
	queries := rapid.Custom(func(t *rapid.T) usage.WindowQuery {
		q := usage.WindowQuery{
			Customer:    customers[rapid.SampledFrom(slices.Sorted(maps.Keys(customers))).Draw(t, "customer")],
			Meter:       rapid.SampledFrom(meters).Draw(t, "meter"),
			Granularity: rapid.SampledFrom(metering.Hour.Values()).Draw(t, "granularity"),
			Limit:       rapid.SampledFrom([]int{1, 2, 7, 50, 1000}).Draw(t, "limit"),
		}
		q.Range = metering.Range{Start: drawInstant(t), End: drawInstant(t)}
		if q.Range.End.Before(q.Range.Start) {
			q.Range.Start, q.Range.End = q.Range.End, q.Range.Start
		}
		if rapid.IntRange(0, 3).Draw(t, "within two hours") == 0 {
			q.Range.End = q.Range.Start.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "length"))).Truncate(time.Microsecond)
		}
		if rapid.IntRange(0, 2).Draw(t, "filter") == 0 {
			model := rapid.SampledFrom([]string{`"a"`, `1`, `"1"`, `null`, `true`, `"none"`}).Draw(t, "model")
			q.Groups = map[string][]json.RawMessage{"model": {json.RawMessage(model)}}
			if rapid.Bool().Draw(t, "or b") {
				q.Groups["model"] = append(q.Groups["model"], json.RawMessage(`"b"`))
			}
			if rapid.Bool().Draw(t, "region too") {
				q.Groups["region"] = []json.RawMessage{json.RawMessage(`"eu"`)}
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "another zone") == 0 {
			zones := []string{"UTC", "America/New_York", "Asia/Tokyo"} // other zones would cut hours of the meter's zone
			if q.Meter.Version.Timezone == "Asia/Kathmandu" {
				zones = []string{"Asia/Kathmandu", "Australia/Eucla"}
			}
			q.Zone = metering.Location(rapid.SampledFrom(zones).Draw(t, "zone"))
		}
		if rapid.IntRange(0, 2).Draw(t, "group by") == 0 {
			q.GroupBy = rapid.SampledFrom([][]string{{}, {"model"}, {"region"}, {"region", "model"}}).Draw(t, "by")
		}
		return q
	})
	for i := range 40 {
		q := queries.Example(seed + i)
		requireTotalsEqualARecount(s, s.stores[0], conn, s.tenant, q.Customer, q.Range)
		requireWindowsEqualARecount(s, s.stores[0], conn, s.tenant, q)
	}
}
