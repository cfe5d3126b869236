package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

// The amount of the load.
const (
	batchEvents       = 1000
	batchesPerRound   = 80
	batchConnections  = 4
	singlesPerRound   = 20_000
	uncoalescedSingle = 4_000
	singleConnections = 64
)

// shape is whose events are sent, and how many meters count them.
type shape struct {
	figure    string // the name of its figure
	eventType string
	customers int
	meters    int
	groupBy   []string
	reach     float64 // of COPY
	former    float64 // what was measured before usage was appended
	bytes     bool    // are figures too
}

var (
	tenCustomers      = shape{"ingest-batch-vs-copy", "request", 10, 1, nil, 0.55, 0.47, false}
	thousandCustomers = shape{"ingest-batch-1000-customers-vs-copy", "completion", 1000, 1, []string{"model"}, 0.4, 0.24, true}
	hotCustomer       = shape{"ingest-batch-hot-customer-vs-copy", "call", 1, 1, []string{"model"}, 0.3, 0.46, false}
	eightMeters       = shape{"ingest-batch-eight-meters-vs-copy", "job", 10, 8, nil, 0.3, 0.44, false}
)

var models = []string{"small", "medium", "large", "vision"}

// event is one event, in the forms that the two sides take it in.
type event struct {
	eventType, model, key string
	customer              int
	at                    time.Time
}

func (s shape) events(n int) []event {
	made := make([]event, n)
	now := time.Now().UTC()
	for i := range made {
		at := now.Add(-time.Duration(n-i) * time.Millisecond).Truncate(time.Microsecond)
		made[i] = event{s.eventType, models[rand.IntN(len(models))], uuid.NewString(), i % s.customers, at}
	}
	return made
}

func (e event) fields() map[string]any {
	return map[string]any{
		"event_type": e.eventType, "customer_id": fmt.Sprintf("customer-%d", e.customer), "timestamp": e.at.Format(time.RFC3339Nano), "value": 1.5,
		"properties": map[string]string{"model": e.model, "region": "eu"}, "idempotency_key": e.key,
	}
}

// batchAgainstCopy compares batches of 1,000 keyed events over HTTP with COPY of
// the same rows into the same hypertable by one connection.
func (b *bench) batchAgainstCopy(ctx context.Context, s shape) ([]figure.Figure, error) {
	for i := range s.meters {
		if err := b.createMeter(fmt.Sprintf("%s-%d", s.eventType, i), s.eventType, s.groupBy...); err != nil {
			return nil, err
		}
	}
	var ours, copied written
	for round := range rounds + 1 { // the first warms up
		batches := make([][]event, batchesPerRound)
		requests := make([][]byte, batchesPerRound)
		for i := range batches {
			batches[i] = s.events(batchEvents)
			requests[i] = b.batchRequest(batches[i])
		}
		rows := b.copyRows(batches)
		if round == 1 {
			ours, copied = written{}, written{}
		}
		if err := ours.measure(ctx, b.conn, func() (time.Duration, error) { return load(b.coalesced, batchConnections, requests) }); err != nil {
			return nil, err
		}
		if err := copied.measure(ctx, b.conn, func() (time.Duration, error) { return b.copy(ctx, rows) }); err != nil {
			return nil, fmt.Errorf("copy: %w", err)
		}
	}
	figures := []figure.Figure{compare(s.figure, "events/s", ours.rate, copied.rate, s.reach, s.former)}
	if s.bytes {
		figures = append(figures,
			compareBytes("wal-bytes-per-event", ours.wal, copied.wal, 500, 993),
			compareBytes("disk-bytes-per-event", ours.disk, copied.disk, 370, 501))
	}
	return figures, nil
}

// written is what rounds of batches came to: events a second, and bytes of the
// database server for each event.
type written struct{ rate, wal, disk []float64 }

// measure asks the server for its whole WAL, so nobody else may use it meanwhile.
func (w *written) measure(ctx context.Context, conn *pgx.Conn, write func() (time.Duration, error)) error {
	var wal, disk [2]int64
	look := func(i int) error {
		return conn.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_database_size(current_database())`).Scan(&wal[i], &disk[i])
	}
	if err := look(0); err != nil {
		return err
	}
	took, err := write()
	if err != nil {
		return err
	}
	const events = batchesPerRound * batchEvents
	w.rate = append(w.rate, events/took.Seconds())
	err = look(1)
	w.wal, w.disk = append(w.wal, float64(wal[1]-wal[0])/events), append(w.disk, float64(disk[1]-disk[0])/events)
	return err
}

func (b *bench) batchRequest(batch []event) []byte {
	list := make([]map[string]any, len(batch))
	for i, e := range batch {
		list[i] = e.fields()
	}
	body, err := json.Marshal(map[string]any{"events": list})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return rawRequest("/v1/events/batch", b.key, body)
}

var eventColumns = []string{"tenant_id", "customer_id", "ts", "ingested_at", "epoch", "id", "idempotency_uuid", "event_type", "value", "properties"}

func (b *bench) copyRows(batches [][]event) [][][]any {
	rows := make([][][]any, len(batches))
	for i, batch := range batches {
		for _, e := range batch {
			id := uuid.Must(uuid.NewV7())
			rows[i] = append(rows[i], []any{b.copyTenant, int64(e.customer + 1), e.at, e.at, int64(1), [16]byte(id), [16]byte(uuid.MustParse(e.key)), e.eventType,
				"1.5", fmt.Sprintf(`{"model":%q,"region":"eu"}`, e.model)})
		}
	}
	return rows
}

// copy writes one transaction per batch.
func (b *bench) copy(ctx context.Context, rows [][][]any) (time.Duration, error) {
	start := time.Now()
	for _, batch := range rows {
		if _, err := b.conn.CopyFrom(ctx, pgx.Identifier{"events"}, eventColumns, pgx.CopyFromRows(batch)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// singleAgainstUncoalesced compares 64 clients that send one event a request
// with the same server when every request has a transaction of its own.
func (b *bench) singleAgainstUncoalesced(ctx context.Context) (figure.Figure, error) {
	var ours, baseline []float64
	for round := range rounds + 1 {
		took, err := load(b.coalesced, singleConnections, b.singleRequests(singlesPerRound))
		if err != nil {
			return figure.Figure{}, err
		}
		alone, err := load(b.uncoalesced, singleConnections, b.singleRequests(uncoalescedSingle))
		if err != nil {
			return figure.Figure{}, fmt.Errorf("uncoalesced: %w", err)
		}
		if round == 0 {
			continue
		}
		ours = append(ours, singlesPerRound/took.Seconds())
		baseline = append(baseline, uncoalescedSingle/alone.Seconds())
	}
	if err := b.orientation(ctx); err != nil {
		return figure.Figure{}, err
	}
	return compare("ingest-single-vs-uncoalesced", "events/s", ours, baseline, 8, 6.6), nil
}

func (b *bench) singleRequests(n int) [][]byte {
	requests := make([][]byte, n)
	for i, e := range tenCustomers.events(n) {
		body, err := json.Marshal(e.fields())
		if err != nil {
			panic(err)
		}
		requests[i] = rawRequest("/v1/events", b.key, body)
	}
	return requests
}

// orientation prints what the machine does with less: a handler that does
// nothing, and one that makes a plain INSERT.
func (b *bench) orientation(ctx context.Context) error {
	for _, floor := range []struct {
		name    string
		n       int
		handler http.HandlerFunc
	}{
		{"a handler that does nothing", 60_000, func(http.ResponseWriter, *http.Request) {}},
		{"a handler with a plain INSERT", 10_000, func(w http.ResponseWriter, r *http.Request) {
			_, err := b.pool.Exec(r.Context(), `
				insert into events (tenant_id, customer_id, ts, id, event_type, value, ingested_at, epoch)
				values ($1, 1, now(), gen_random_uuid(), 'request', 1, now(), 1)`, b.copyTenant)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: floor.handler, ReadHeaderTimeout: time.Minute}
		go server.Serve(listener)
		took, err := load(listener.Addr().String(), singleConnections, b.singleRequests(floor.n))
		server.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", floor.name, err)
		}
		fmt.Printf("%-30s %.0f requests/s over the same %d connections\n", floor.name, float64(floor.n)/took.Seconds(), singleConnections)
	}
	return nil
}
