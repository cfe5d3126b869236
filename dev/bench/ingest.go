package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

// The size of the load.
const (
	batchEvents       = 1000
	batchesPerRound   = 80
	tenants           = 1000
	tenantsBatch      = 250 // events in the batch of each tenant
	batchConnections  = 4
	singlesPerRound   = 20_000
	uncoalescedSingle = 4_000
	singleConnections = 64
	manyConnections   = 256 // the number of requests that a process handles at once for one tenant
)

// shape describes the events of a measurement and the meters that count them.
type shape struct {
	figure    string // the name of the figure
	eventType string
	customers int
	meters    int
	groupBy   []string
	reach     float64 // minimum ratio to COPY
	former    float64 // the ratio before usage was appended; never: not measured
	bytes     bool    // also measure bytes of WAL and disk
	name      string  // format of a customer's id by number; "": customer-%d
	ordered   bool    // keys of UUID version 7, ordered by time; otherwise random keys
	calls     bool    // the events are calls of a language model, with nested properties
}

var (
	tenCustomers      = shape{"ingest-batch-vs-copy", "request", 10, 1, nil, 0.55, 0.47, false, "", false, false}
	thousandCustomers = shape{"ingest-batch-1000-customers-vs-copy", "completion", 1000, 1, []string{"model"}, 0.4, 0.24, true, "", false, false}
	hotCustomer       = shape{"ingest-batch-hot-customer-vs-copy", "call", 1, 1, []string{"model"}, 0.3, 0.46, false, "", false, false}
	keysInOrder       = shape{"ingest-batch-1000-customers-keys-in-order-vs-copy", "answer", 1000, 1, []string{"model"}, 0.4, never, true, "", true, false}
	eightMeters       = shape{"ingest-batch-eight-meters-vs-copy", "job", 10, 8, nil, 0.3, 0.44, false, "", false, false}
)

var models = []string{"small", "medium", "large", "vision"}

// event is one event. The benchmark encodes it as part of a request, and as a row for COPY.
type event struct {
	eventType, key string
	properties     string // a JSON object
	customer       int
	customerName   string
	at             time.Time
}

// events returns n new events of the shape. Their times are a millisecond apart and end now.
func (s shape) events(n int) []event {
	made := make([]event, n)
	now := time.Now().UTC()
	for i := range made {
		at := now.Add(-time.Duration(n-i) * time.Millisecond).Truncate(time.Microsecond)
		customer := i % s.customers
		made[i] = event{s.eventType, s.key(), s.properties(), customer, fmt.Sprintf(cmp.Or(s.name, "customer-%d"), customer), at}
	}
	return made
}

// properties returns the properties of an event, with a random model, as a JSON object.
func (s shape) properties() string {
	model := models[rand.IntN(len(models))]
	if !s.calls {
		return fmt.Sprintf(`{"model":%q,"region":"eu"}`, model)
	}
	prompt := 1 + rand.IntN(4000)
	return fmt.Sprintf(`{"model":%q,"provider":"example","stream":true,"usage":{"prompt_tokens":%d,"completion_tokens":310,"total_tokens":%d},"cost":%v}`,
		model, prompt, prompt+310, float64(prompt)*0.0001+0.2)
}

// key returns a new idempotency key.
func (s shape) key() string {
	if s.ordered {
		return uuid.Must(uuid.NewV7()).String()
	}
	return uuid.NewString()
}

// suffix returns the suffix of figures with ordered keys, or "".
func (s shape) suffix() string {
	if s.ordered {
		return "-keys-in-order"
	}
	return ""
}

// fields returns the event in the form of the API.
func (e event) fields() map[string]any {
	return map[string]any{
		"event_type": e.eventType, "customer_id": e.customerName, "timestamp": e.at.Format(time.RFC3339Nano), "value": 1.5,
		"properties": json.RawMessage(e.properties), "idempotency_key": e.key,
	}
}

// batchAgainstCopy sends batches of 1,000 events with keys over HTTP. The baseline is COPY of the same rows
// into the same hypertable over one connection.
func (b *bench) batchAgainstCopy(s shape) []figure.Figure {
	b.Helper()
	for i := range s.meters {
		b.createMeter(fmt.Sprintf("%s-%d", s.eventType, i), s.eventType, s.groupBy...)
	}
	ours, copied := b.alternate(func() (batches [][]event, requests [][]byte) {
		for range batchesPerRound {
			batch := s.events(batchEvents)
			batches, requests = append(batches, batch), append(requests, batchRequest(b.key, batch))
		}
		return batches, requests
	})
	figures := []figure.Figure{compare(s.figure, "events/s", ours.rate, copied.rate, s.reach, s.former)}
	if s.bytes {
		figures = append(figures,
			bounded("wal-bytes-per-event"+s.suffix(), "bytes", ours.wal, copied.wal, 500, 993),
			bounded("disk-bytes-per-event"+s.suffix(), "bytes", ours.disk, copied.disk, 370, 501))
	}
	return figures
}

// tenantsAgainstCopy compares one batch of each of 1,000 tenants with COPY of the same rows.
func (b *bench) tenantsAgainstCopy() figure.Figure {
	b.Helper()
	keys := b.createTenants(tenants)
	for _, key := range keys {
		b.createMeterOf(key, "completions", thousandCustomers.eventType, thousandCustomers.groupBy...)
	}
	s := thousandCustomers
	s.customers = 10 // for each tenant
	ours, copied := b.alternate(func() (batches [][]event, requests [][]byte) {
		for _, key := range keys {
			batch := s.events(tenantsBatch)
			batches, requests = append(batches, batch), append(requests, batchRequest(key, batch))
		}
		return batches, requests
	})
	return compare("ingest-1000-tenants-vs-copy", "events/s", ours.rate, copied.rate, 0.3, never)
}

// alternate measures rounds of batches over HTTP, each followed by COPY of the same rows.
func (b *bench) alternate(prepare func() ([][]event, [][]byte)) (ours, copied written) {
	b.Helper()
	for round := range rounds + 1 { // the first warms up
		batches, requests := prepare()
		rows := b.copyRows(batches)
		if round == 1 {
			ours, copied = written{}, written{}
		}
		events := len(batches) * len(batches[0])
		b.measure(&ours, events, func() time.Duration { return b.load(batchConnections, requests...) })
		b.measure(&copied, events, func() time.Duration { return b.copy(rows) })
	}
	return ours, copied
}

// written is the result of rounds of batches: events per second, and bytes of WAL and of disk per event.
type written struct{ rate, wal, disk []float64 }

// measure runs write and appends its rate, and its bytes of WAL and of disk per event. It reads the WAL
// position of the whole server, so no other client may write at the same time.
func (b *bench) measure(w *written, events int, write func() time.Duration) {
	b.Helper()
	var wal, disk [2]int64
	look := func(i int) {
		const sizes = `select (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_database_size(current_database())`
		require.NoError(b, b.conn.QueryRow(b.Context(), sizes).Scan(&wal[i], &disk[i]))
	}
	look(0)
	w.rate = append(w.rate, float64(events)/write().Seconds())
	look(1)
	w.wal, w.disk = append(w.wal, float64(wal[1]-wal[0])/float64(events)), append(w.disk, float64(disk[1]-disk[0])/float64(events))
}

// batchRequest returns a request with a batch of events, in its wire format.
func batchRequest(key string, batch []event) []byte {
	list := make([]map[string]any, len(batch))
	for i, e := range batch {
		list[i] = e.fields()
	}
	body, err := json.Marshal(map[string]any{"events": list})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return rawRequest("/v1/events/batch", key, body)
}

var eventColumns = []string{"tenant_id", "customer_id", "ts", "ingested_at", "epoch", "id", "idempotency_uuid", "event_type", "value", "properties"}

// copyRows returns the rows of batches of events for COPY.
func (b *bench) copyRows(batches [][]event) [][][]any {
	rows := make([][][]any, len(batches))
	for i, batch := range batches {
		for _, e := range batch {
			id := uuid.Must(uuid.NewV7())
			rows[i] = append(rows[i], []any{b.copyTenant, int64(e.customer + 1), e.at, e.at, int64(1), [16]byte(id), [16]byte(uuid.MustParse(e.key)), e.eventType,
				"1.5", e.properties})
		}
	}
	return rows
}

// copy writes each batch in one transaction.
func (b *bench) copy(rows [][][]any) time.Duration {
	b.Helper()
	defer withoutCollecting()()
	start := time.Now()
	for _, batch := range rows {
		_, err := b.conn.CopyFrom(b.Context(), pgx.Identifier{"events"}, eventColumns, pgx.CopyFromRows(batch))
		require.NoError(b, err)
	}
	return time.Since(start)
}

// singleAgainstUncoalesced measures requests with one event each. It compares their rate with the rate of a
// server that uses one transaction per request.
func (b *bench) singleAgainstUncoalesced(name string, clients int, former float64) figure.Figure {
	b.Helper()
	var ours, baseline []float64
	for round := range rounds + 1 {
		took := b.load(clients, b.singleRequests(singlesPerRound)...)
		alone, err := load(b.uncoalesced, clients, b.singleRequests(uncoalescedSingle))
		require.NoError(b, err, "uncoalesced")
		if round == 0 {
			continue
		}
		ours = append(ours, singlesPerRound/took.Seconds())
		baseline = append(baseline, uncoalescedSingle/alone.Seconds())
	}
	return compare(name, "events/s", ours, baseline, 8, former)
}

// singleRequests returns n requests with one event each, of ten customers.
func (b *bench) singleRequests(n int) [][]byte { return b.singleRequestsOf(tenCustomers, n) }

// singleRequestsOf returns n requests with one event each, of the shape.
func (b *bench) singleRequestsOf(s shape, n int) [][]byte {
	requests := make([][]byte, n)
	for i, e := range s.events(n) {
		body, err := json.Marshal(e.fields())
		if err != nil {
			panic(err)
		}
		requests[i] = rawRequest("/v1/events", b.key, body)
	}
	return requests
}

// doNothing is a handler that answers at once, without any work.
func doNothing(http.ResponseWriter, *http.Request) {}

// orientation prints the rates of two simpler handlers on this machine, for comparison: one that does nothing,
// and one with a plain INSERT.
func (b *bench) orientation() {
	b.Helper()
	for _, floor := range []struct {
		name    string
		n       int
		handler http.HandlerFunc
	}{
		{"a handler that does nothing", 60_000, doNothing},
		{"a handler with a plain INSERT", 10_000, func(w http.ResponseWriter, r *http.Request) {
			_, err := b.pool.Exec(r.Context(), `
				insert into events (tenant_id, customer_id, ts, id, event_type, value, ingested_at, epoch)
				values ($1, 1, now(), gen_random_uuid(), 'request', 1, now(), 1)`, b.copyTenant)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}},
	} {
		server := httptest.NewServer(floor.handler)
		took, err := load(server.Listener.Addr().String(), singleConnections, b.singleRequests(floor.n))
		server.Close()
		require.NoError(b, err, floor.name)
		fmt.Printf("%-30s %.0f requests/s over the same %d connections\n", floor.name, float64(floor.n)/took.Seconds(), singleConnections)
	}
}
