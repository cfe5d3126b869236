package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

// The shape of the load.
const (
	batchEvents       = 1000
	batchesPerRound   = 80
	batchConnections  = 4
	singlesPerRound   = 20_000
	uncoalescedSingle = 4_000
	singleConnections = 64
	customers         = 10
)

// event is one event, in the forms that the two sides take it in.
type event struct {
	customer, key string
	at            time.Time
}

func events(n int) []event {
	made := make([]event, n)
	now := time.Now().UTC()
	for i := range made {
		made[i] = event{fmt.Sprintf("customer-%d", i%customers), uuid.NewString(), now.Add(-time.Duration(n-i) * time.Millisecond).Truncate(time.Microsecond)}
	}
	return made
}

func (e event) fields() map[string]any {
	return map[string]any{
		"event_type": "request", "customer_id": e.customer, "timestamp": e.at.Format(time.RFC3339Nano), "value": 1.5,
		"properties": map[string]string{"model": "small", "region": "eu"}, "idempotency_key": e.key,
	}
}

// batchAgainstCopy compares batches of 1,000 keyed events over HTTP with COPY of
// the same rows into the same hypertable by one connection.
func (b *bench) batchAgainstCopy(ctx context.Context) (figure.Figure, error) {
	var ours, baseline []float64
	for round := range rounds + 1 { // the first warms up
		batches := make([][]event, batchesPerRound)
		requests := make([][]byte, batchesPerRound)
		for i := range batches {
			batches[i] = events(batchEvents)
			requests[i] = b.batchRequest(batches[i])
		}
		took, err := load(b.coalesced, batchConnections, requests)
		if err != nil {
			return figure.Figure{}, err
		}
		copied, err := b.copy(ctx, batches)
		if err != nil {
			return figure.Figure{}, fmt.Errorf("copy: %w", err)
		}
		if round == 0 {
			continue
		}
		ours = append(ours, batchesPerRound*batchEvents/took.Seconds())
		baseline = append(baseline, batchesPerRound*batchEvents/copied.Seconds())
	}
	return compare("ingest-batch-vs-copy", "events/s", ours, baseline, 0.4), nil
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

// copy writes one transaction per batch; the rows are made outside the clock.
func (b *bench) copy(ctx context.Context, batches [][]event) (time.Duration, error) {
	columns := []string{"tenant_id", "customer_id", "ts", "id", "event_type", "value", "properties", "idempotency_key", "ingested_at", "epoch"}
	rows := make([][][]any, len(batches))
	for i, batch := range batches {
		for j, e := range batch {
			id := uuid.Must(uuid.NewV7())
			rows[i] = append(rows[i], []any{b.copyTenant, int64(j%customers + 1), e.at, [16]byte(id), "request", "1.5",
				`{"model":"small","region":"eu"}`, e.key, e.at, int64(1)})
		}
	}
	start := time.Now()
	for _, batch := range rows {
		if _, err := b.conn.CopyFrom(ctx, pgx.Identifier{"events"}, columns, pgx.CopyFromRows(batch)); err != nil {
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
	return compare("ingest-single-vs-uncoalesced", "events/s", ours, baseline, 5), nil
}

func (b *bench) singleRequests(n int) [][]byte {
	requests := make([][]byte, n)
	for i, e := range events(n) {
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
