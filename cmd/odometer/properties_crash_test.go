package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/reference"
)

// The size of the drill, unless EVENTS and KILLS are set: make recount runs a larger one.
const (
	fewEvents        = 20_000
	fewKills         = 3
	recountBatch     = 500
	recountCustomers = 50
)

// recountedMeter is a meter, with its definition for the reference and in SQL.
type recountedMeter struct {
	slug       string
	definition reference.Definition
	inSQL      countedInSQL
}

// earlyMeters count from the first event. lateMeters are defined when about half of the events are stored. The last of
// lateMeters redefines the last of earlyMeters.
var (
	earlyMeters = []recountedMeter{
		{"input", reference.Definition{Aggregation: "sum", ValueProperty: "usage.prompt_tokens", GroupBy: []string{"model"}}, countedInSQL{
			`pg_temp.usable(properties #> '{usage,prompt_tokens}')`, `true`, `jsonb_build_object('model', properties -> 'model')`,
		}},
		{"reasoning", reference.Definition{
			Aggregation: "sum", ValueProperty: "usage.details.reasoning", GroupBy: []string{"model", "user.region"},
			Filters: []reference.Filter{reference.Where("usage.details.reasoning", "gt", `100`), reference.Where("model", "in", `"small"`, `"large"`)},
		}, countedInSQL{
			`pg_temp.usable(properties #> '{usage,details,reasoning}')`,
			`properties ->> 'model' in ('small', 'large') and (properties #>> '{usage,details,reasoning}')::numeric > 100`,
			`jsonb_build_object('model', properties -> 'model', 'user.region', coalesce(properties #> '{user,region}', 'null'))`,
		}},
		{"total", reference.Definition{
			Aggregation: "sum", ValueProperty: "usage.total_tokens", Filters: []reference.Filter{reference.Where("usage.cached", "exists")},
		}, countedInSQL{
			`pg_temp.usable(coalesce(properties -> 'usage.total_tokens', properties #> '{usage,total_tokens}'))`,
			`jsonb_typeof(properties #> '{usage,cached}') = 'boolean'`, `'{}'::jsonb`,
		}},
		{"cost", reference.Definition{Aggregation: "sum", ValueProperty: "cost"}, countedInSQL{}},
	}
	lateMeters = []recountedMeter{
		{"requests", reference.Definition{
			Aggregation: "count", ValueProperty: "usage.prompt_tokens", GroupBy: []string{"usage.cached"}, Filters: []reference.Filter{reference.Where("user.region", "ne", `"us"`)},
		}, countedInSQL{
			`pg_temp.usable(properties #> '{usage,prompt_tokens}')`, `properties #>> '{user,region}' is distinct from 'us'`,
			`jsonb_build_object('usage.cached', coalesce(properties #> '{usage,cached}', 'null'))`,
		}},
		{"cheap", reference.Definition{
			Aggregation: "sum", GroupBy: []string{"user.region"}, Filters: []reference.Filter{reference.Where("cost", "lte", `0.5`)},
		}, countedInSQL{
			`value`, `jsonb_typeof(properties -> 'cost') = 'number' and (properties ->> 'cost')::numeric <= 0.5`,
			`jsonb_build_object('user.region', coalesce(properties #> '{user,region}', 'null'))`,
		}},
		{"cost", reference.Definition{
			Aggregation: "sum", ValueProperty: "cost", GroupBy: []string{"model"}, Filters: []reference.Filter{reference.Where("model", "not_in", `"local"`, `"vision"`)},
		}, countedInSQL{
			`pg_temp.usable(properties -> 'cost')`, `properties ->> 'model' not in ('local', 'vision')`, `jsonb_build_object('model', properties -> 'model')`,
		}},
	}
)

// recountedEvent is an event that is sent.
type recountedEvent struct {
	customer   int
	at         time.Time
	value      int
	properties string
}

// recount is a run of the drill.
type recount struct {
	*testing.T
	events, kills int
	start         time.Time // of the drill; all timestamps are relative to it
	key, service  string
	next          atomic.Int64 // number of the next batch
	stored        atomic.Int64 // events in answered batches, without repeats
	retries       atomic.Int64
}

// event returns the event with number n, which is the same in each call. 5 % of all events are of the previous
// month, and 1 % have a value that is not usable.
func (r *recount) event(n int) recountedEvent {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	e := recountedEvent{customer: random.IntN(recountCustomers), at: r.start.Add(-time.Duration(random.Int64N(int64(3 * time.Hour)))), value: 1 + random.IntN(5)}
	if random.IntN(20) == 0 {
		closed, open := r.closed()
		e.at = closed.Add(time.Duration(random.Int64N(int64(open.Sub(closed)))))
	}
	e.at = e.at.Truncate(time.Microsecond)
	prompt, completion := 1+random.IntN(4000), random.IntN(1000)
	sent, cost := pick(`%d`, `%d`, `%d.0`, `"%d"`), strconv.FormatFloat(float64(prompt)*0.0001+0.2, 'g', -1, 64)
	promptText := fmt.Sprintf(sent, prompt)
	if random.IntN(100) == 0 {
		promptText, cost = pick(`"n/a"`, `null`, `true`, `1e18`, `{"n":1}`), pick(`"free"`, `null`, `[0.1]`)
	}
	fields := []string{
		fmt.Sprintf(`"model":%q`, pick("small", "large", "local", "vision")), `"cost":` + cost,
		fmt.Sprintf(`"usage":{"prompt_tokens":%s,"total_tokens":%d%s,"details":{"reasoning":%d}}`,
			promptText, prompt+completion, pick(``, `,"cached":true`, `,"cached":false`, `,"cached":null`), random.IntN(500)),
		pick(`"user":{"region":"eu"}`, `"user":{"region":"us"}`, `"user":{}`, `"user":"none"`),
	}
	if random.IntN(30) == 0 {
		fields = append(fields, fmt.Sprintf(`"usage.total_tokens":%d`, completion))
	}
	e.properties = "{" + strings.Join(fields, ",") + "}"
	return e
}

// closed returns the previous month. It is closed for customers with even numbers.
func (r *recount) closed() (start, end time.Time) {
	end = time.Date(r.start.Year(), r.start.Month(), 1, 0, 0, 0, 0, time.UTC)
	return end.AddDate(0, -1, 0), end
}

// isLate reports whether an event is in a period that closes while events are sent.
func (r *recount) isLate(e recountedEvent) bool {
	start, end := r.closed()
	return e.customer%2 == 0 && !e.at.Before(start) && e.at.Before(end)
}

// batch returns the body of a batch. After one in 20 events, it repeats an earlier event.
func (r *recount) batch(n int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), 2))
	var events []map[string]any
	add := func(number int) {
		e := r.event(number)
		events = append(events, map[string]any{
			"event_type": "llm", "customer_id": customerName(e.customer), "timestamp": e.at.Format(time.RFC3339Nano), "value": e.value,
			"properties": json.RawMessage(e.properties), "idempotency_key": fmt.Sprint("call-", number),
		})
	}
	for number := n * recountBatch; number < min((n+1)*recountBatch, r.events); number++ {
		add(number)
		if random.IntN(20) == 0 {
			add(random.IntN(number + 1))
		}
	}
	body, err := json.Marshal(map[string]any{"events": events})
	if err != nil {
		panic(err) // maps of valid JSON
	}
	return body
}

func customerName(n int) string { return fmt.Sprint("customer-", n) }

// send sends batches until none is left, and repeats each batch until it is answered.
func (r *recount) send() {
	for {
		n := int(r.next.Add(1)) - 1
		if n*recountBatch >= r.events {
			return
		}
		body := string(r.batch(n))
		dbtest.Eventually(r, func() error {
			status, answer := call(r.T, "POST", r.service+"/v1/events/batch", r.key, body)
			if status == 0 || status == http.StatusServiceUnavailable {
				r.retries.Add(1)
				return errors.New(answer)
			}
			var counted struct{ Rejected int }
			if err := json.Unmarshal([]byte(answer), &counted); err != nil || status != http.StatusOK || counted.Rejected > 0 {
				r.Errorf("batch: %d %.500s", status, answer)
			}
			return nil
		})
		if r.Failed() {
			return
		}
		r.stored.Add(int64(min((n+1)*recountBatch, r.events) - n*recountBatch))
	}
}

// await waits until this number of events is stored.
func (r *recount) await(events int) {
	r.Helper()
	dbtest.Eventually(r, func() error {
		if n := r.stored.Load(); n < int64(events) && !r.Failed() {
			return fmt.Errorf("%d of %d events are stored", n, r.events)
		}
		return nil
	})
}

// set sends a request, and requires one of the statuses.
func (r *recount) set(method, path string, body any, statuses ...int) {
	r.Helper()
	text, err := json.Marshal(body)
	require.NoError(r, err)
	status, answer := call(r.T, method, r.service+path, r.key, string(text))
	require.Contains(r, statuses, status, answer)
}

// define creates a meter, or changes its definition if it exists.
func (r *recount) define(m recountedMeter) {
	r.Helper()
	fields := map[string]any{"aggregation": m.definition.Aggregation, "value_property": m.definition.ValueProperty, "filters": m.definition.Filters, "group_by": m.definition.GroupBy}
	if m.definition.Filters == nil {
		delete(fields, "filters")
	}
	if status, _ := call(r.T, "GET", r.service+"/v1/meters/"+m.slug, r.key, ""); status == http.StatusOK {
		r.set("PATCH", "/v1/meters/"+m.slug, fields, http.StatusOK)
		return
	}
	fields["slug"], fields["event_type"] = m.slug, "llm"
	r.set("POST", "/v1/meters", fields, http.StatusCreated)
}

// TestDrillMetersOverPropertiesEqualARecount sends events with repeats, late events and unusable values.
// Meanwhile, the API and the worker are killed repeatedly, and meters are created and changed. At the end, all
// rollups and totals equal a recount in SQL and the reference.
func TestDrillMetersOverPropertiesEqualARecount(t *testing.T) {
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	api, worker := system.API(t), system.Worker(t)
	r := &recount{T: t, events: proc.Number(t, "EVENTS", fewEvents), kills: proc.Number(t, "KILLS", fewKills), start: time.Now().UTC(), key: key, service: api.URL}
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for n := range recountCustomers {
		r.set("POST", "/v1/customers", map[string]any{"external_id": customerName(n)}, http.StatusCreated)
	}
	r.closePreviousMonth(conn)
	for _, m := range earlyMeters {
		r.define(m)
	}

	var senders sync.WaitGroup
	for range 4 {
		senders.Go(r.send)
	}
	for n := range r.kills {
		r.await(r.events * (n + 1) / (r.kills + 1))
		if n == r.kills/2 {
			for _, m := range lateMeters {
				r.define(m)
			}
		}
		if n%2 == 0 {
			api.Restart(t)
		}
		if n%3 < 2 {
			worker.Restart(t)
		}
	}
	senders.Wait()
	require.False(t, t.Failed())
	require.Positive(t, r.retries.Load(), "no kill has met a request")
	awaitBackfills(r, conn)

	var stored int
	require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from events`).Scan(&stored))
	require.Equal(t, r.events, stored)
	meters := slices.Concat(earlyMeters[:len(earlyMeters)-1], lateMeters)
	for _, m := range meters {
		requireRecounted(t, conn, m.slug, m.inSQL)
	}
	rows := r.requireReference(conn, meters)
	t.Logf("%d events, %d kills, %d retries of batches, %d rows", r.events, r.kills, r.retries.Load(), rows)
}

// closePreviousMonth closes the previous month for customers with even numbers, as the worker closes a period:
// under the tenant's lock, with a new epoch.
func (r *recount) closePreviousMonth(conn *pgx.Conn) {
	r.Helper()
	start, end := r.closed()
	require.NoError(r, pgx.BeginFunc(r.Context(), conn, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`select pg_advisory_xact_lock(id) from tenants where $1::timestamptz < $2::timestamptz`,
			`update tenants set epoch = epoch + 1 where $1::timestamptz < $2::timestamptz`,
			`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at, closed_at, closed_epoch)
			 select c.tenant_id, c.id, $1, $2, $2, t.epoch from customers c join tenants t on t.id = c.tenant_id
			 where right(c.external_id, 1)::int % 2 = 0`,
			`update customers set closed_from = $1, closed_until = $2 where right(external_id, 1)::int % 2 = 0`,
		} {
			if _, err := tx.Exec(r.Context(), sql, start, end); err != nil {
				return err
			}
		}
		return nil
	}))
}

// usageRow is a row of the rollups.
type usageRow struct {
	meter, customer string
	hour            int64 // in seconds
	group           string
}

// usageSums contains the figures of a row. Sums are in units of 10^-12.
type usageSums struct {
	sum, lateSum     big.Int
	count, lateCount int64
}

func (u *usageSums) String() string {
	if u == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v of %d, late %v of %d", &u.sum, u.count, &u.lateSum, u.lateCount)
}

// add counts an event with its value.
func (u *usageSums) add(value *big.Rat, late bool) {
	units := new(big.Rat).Mul(value, big.NewRat(1e12, 1)).Num()
	if late {
		u.lateSum.Add(&u.lateSum, units)
		u.lateCount++
		return
	}
	u.sum.Add(&u.sum, units)
	u.count++
}

// requireReference compares each hour of each customer, and the totals of the API, with the
// reference, and returns the number of rows.
func (r *recount) requireReference(conn *pgx.Conn, meters []recountedMeter) int {
	r.Helper()
	want := make(map[usageRow]*usageSums)
	totals := make(map[[2]string]*big.Rat)
	for n := range r.events {
		e := r.event(n)
		properties := reference.Decode(e.properties)
		for _, m := range meters {
			value := m.definition.Value(strconv.Itoa(e.value), properties)
			if value == nil {
				continue
			}
			row := usageRow{m.slug, customerName(e.customer), e.at.Truncate(time.Hour).Unix(), m.definition.Group(properties)}
			if want[row] == nil {
				want[row] = new(usageSums)
			}
			want[row].add(value, r.isLate(e))
			total := [2]string{m.slug, row.customer}
			if totals[total] == nil {
				totals[total] = new(big.Rat)
			}
			if m.definition.Aggregation == "count" {
				value = big.NewRat(1, 1)
			}
			totals[total].Add(totals[total], value)
		}
	}
	require.Empty(r, differences(want, r.rollups(conn, meters)))
	start, _ := r.closed()
	span := "&start=" + start.Format(time.RFC3339) + "&end=" + r.start.AddDate(0, 0, 1).Format(time.RFC3339)
	for of, total := range totals {
		status, body := call(r.T, "GET", r.service+"/v1/usage/total?meter="+of[0]+"&customer="+of[1]+span, r.key, "")
		require.Equal(r, http.StatusOK, status, body)
		var answer struct{ Total json.Number }
		require.NoError(r, json.Unmarshal([]byte(body), &answer))
		require.Equal(r, total.RatString(), rational(answer.Total).RatString(), "total of %v", of)
	}
	require.Len(r, totals, len(meters)*recountCustomers)
	return len(want)
}

// rollups reads the hours of all customers.
func (r *recount) rollups(conn *pgx.Conn, meters []recountedMeter) map[usageRow]*usageSums {
	r.Helper()
	found := make(map[usageRow]*usageSums)
	for _, m := range meters {
		rows, err := conn.Query(r.Context(), `
			select c.external_id, extract(epoch from u.hour)::bigint, coalesce(g.group_key, '{}')::text,
			  (u.sum * 1e12)::numeric(60)::text, u.count, (u.late_sum * 1e12)::numeric(60)::text, u.late_count
			from usage_hours u
			join meters m on m.tenant_id = u.tenant_id and m.meter_version_id = u.meter_version_id and m.slug = $1
			join customers c on c.tenant_id = u.tenant_id and c.id = u.customer_id
			left join usage_groups g on g.tenant_id = u.tenant_id and g.meter_version_id = u.meter_version_id and g.group_id = u.group_id`, m.slug)
		require.NoError(r, err)
		row := usageRow{meter: m.slug}
		var group, sum, lateSum string
		var count, lateCount int64
		_, err = pgx.ForEachRow(rows, []any{&row.customer, &row.hour, &group, &sum, &count, &lateSum, &lateCount}, func() error {
			row.group = m.definition.GroupOf(reference.Decode(group))
			u := &usageSums{count: count, lateCount: lateCount}
			u.sum.SetString(sum, 10)
			u.lateSum.SetString(lateSum, 10)
			if found[row] != nil {
				return fmt.Errorf("row %v is there twice", row)
			}
			found[row] = u
			return nil
		})
		require.NoError(r, err)
	}
	return found
}

// differences describes at most ten rows that differ.
func differences(want, found map[usageRow]*usageSums) (rows []string) {
	for row, sums := range want {
		if other := found[row]; other == nil || other.String() != sums.String() {
			rows = append(rows, fmt.Sprintf("%v: the reference has %v, and the rollup %v", row, sums, other))
		}
	}
	for row, sums := range found {
		if want[row] == nil {
			rows = append(rows, fmt.Sprintf("%v: only the rollup has %v", row, sums))
		}
	}
	return rows[:min(len(rows), 10)]
}
