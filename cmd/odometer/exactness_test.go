package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// temporalAddress returns the address of the test run's Temporal server.
func temporalAddress(t testing.TB) string {
	t.Helper()
	address := os.Getenv("TEST_TEMPORAL_ADDRESS")
	if address == "" {
		t.Fatal("TEST_TEMPORAL_ADDRESS is not set: run make test, or dev/up test go test ./...")
	}
	return address
}

// sender creates batches of random events, and repeats earlier batches in random order.
type sender struct {
	random *rand.Rand
	name   int
	sent   []client.EventBatch
}

// batch returns a new batch of random events, or an earlier batch.
func (s *sender) batch(now time.Time) client.EventBatch {
	if len(s.sent) > 0 && s.random.IntN(4) == 0 {
		return s.sent[s.random.IntN(len(s.sent))]
	}
	b := client.EventBatch{}
	for i := range 1 + s.random.IntN(60) {
		e := client.Event{
			EventType:  fmt.Sprintf("type-%d", s.random.IntN(3)),
			CustomerId: fmt.Sprintf("customer/%d ü", s.random.IntN(7)),
			Value:      number(json.Number(fmt.Sprintf("%d.%012d", s.random.Int64N(1e17)-5e16, s.random.Int64N(1e12)))),
			Properties: &map[string]any{"model": s.random.IntN(3), "region": []string{"eu", "us"}[s.random.IntN(2)]},
		}
		// Every event has a key, so that a repeat of the batch adds nothing. Senders share some keys.
		key := fmt.Sprintf("%d-%d-%d", s.name, len(s.sent), i)
		if s.random.IntN(10) == 0 {
			key = fmt.Sprintf("common-%d", s.random.IntN(50))
		}
		e.IdempotencyKey = &key
		if s.random.IntN(3) > 0 { // late and out of order, over three months
			at := now.Add(-time.Duration(s.random.Int64N(int64(90 * 24 * time.Hour))))
			e.Timestamp = &at
		}
		b.Events = append(b.Events, e)
	}
	s.sent = append(s.sent, b)
	return b
}

func number(n json.Number) *json.Number { return &n }

// TestRollupsEqualARecount sends events through two api processes concurrently, while meters are created and
// regrouped. It then compares every rollup with a recount of the raw events in plain SQL.
func TestRollupsEqualARecount(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	apis := []*client.ClientWithResponses{proc.Dial(t, system.API(t).URL, key), proc.Dial(t, system.API(t).URL, key)}
	system.Worker(t)
	createMeter(t, apis[0], "first", "type-0", "model")

	const senders, batches = 16, 25
	now := time.Now().UTC()
	var group sync.WaitGroup
	for name := range senders {
		group.Go(func() {
			s := &sender{random: rand.New(rand.NewPCG(uint64(name), 7)), name: name}
			for range batches {
				answer, err := apis[s.random.IntN(2)].IngestEventsWithResponse(t.Context(), s.batch(now))
				if err != nil || answer.StatusCode() != http.StatusOK || answer.JSON200.Rejected != 0 {
					t.Errorf("batch: %v %s", err, answer.Body)
					return
				}
			}
		})
	}
	group.Go(func() {
		createMeter(t, apis[1], "second", "type-1", "region", "model")
		createMeter(t, apis[0], "third", "type-2")
		createMeter(t, apis[1], "fourth", "type-0")
		for i, by := range [][]string{{"region"}, {}, {"model", "region"}} {
			groupBy := by
			answer, err := apis[i%2].UpdateMeterWithResponse(t.Context(), "first", client.UpdateMeterJSONRequestBody{GroupBy: &groupBy})
			if err != nil || answer.StatusCode() != http.StatusOK {
				t.Errorf("regroup: %v", err)
			}
		}
	})
	group.Wait()

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	awaitBackfills(t, conn)
	for _, rollup := range []struct{ table, column, unit string }{{"usage_hours", "hour", "hour"}, {"usage_months", "month", "month"}} {
		requireNoDiscrepancy(t, conn, rollup.table, rollup.column, rollup.unit)
	}
	var events, keys int
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*), count(distinct idempotency_key) from events`).Scan(&events, &keys))
	require.Equal(t, keys, events)
	require.Greater(t, events, 1000)
}

func createMeter(t testing.TB, c *client.ClientWithResponses, slug, eventType string, groupBy ...string) {
	answer, err := c.CreateMeterWithResponse(t.Context(), nil, client.CreateMeterJSONRequestBody{
		Slug: slug, EventType: eventType, GroupBy: &groupBy,
	})
	if err != nil || answer.StatusCode() != http.StatusCreated {
		t.Errorf("create meter %s: %v %s", slug, err, answer.Body)
	}
}

// requireNoDiscrepancy compares a rollup with a recount, by customer and for the whole tenant. It recounts the
// meter versions that reads use. It compares group keys as jsonb, while ingest creates them in another way.
func requireNoDiscrepancy(t testing.TB, conn *pgx.Conn, table, column, unit string) {
	t.Helper()
	sql := strings.NewReplacer("{table}", table, "{column}", column, "{unit}", unit).Replace(`
		with read as (
		  select g.* from meter_versions g join meters m on m.tenant_id = g.tenant_id and m.meter_version_id = g.id
		), recount as (
		  select g.tenant_id, c.customer, g.id as meter_version_id, date_trunc('{unit}', e.ts) as start,
		    (select coalesce(jsonb_object_agg(name, e.properties -> name), '{}') from unnest(g.group_by) as name) as group_key,
		    sum(e.value) as sum, count(*) as count
		  from read g join events e on e.tenant_id = g.tenant_id and e.event_type = g.event_type,
		    lateral (values (e.customer_id), (0)) as c (customer)
		  group by 1, 2, 3, 4, 5
		), kept as (
		  select u.tenant_id, u.customer_id, u.meter_version_id, u.{column} as start, d.group_key, u.sum + u.late_sum as sum, u.count + u.late_count as count
		  from {table} u
		  join read g on g.tenant_id = u.tenant_id and g.id = u.meter_version_id
		  left join usage_groups d on d.tenant_id = u.tenant_id and d.meter_version_id = u.meter_version_id and d.group_id = u.group_id
		)
		select count(*), count(*) filter (where r.sum is distinct from k.sum or r.count is distinct from k.count)
		from recount r full join kept k
		  on k.tenant_id = r.tenant_id and k.customer_id = r.customer and k.meter_version_id = r.meter_version_id
		  and k.start = r.start and k.group_key = r.group_key`)
	var rows, different int
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&rows, &different))
	require.Positive(t, rows, table)
	require.Zero(t, different, "rows of %s that differ from a recount, of %d", table, rows)
}
