package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
)

const (
	paceSeconds  = 8 // per round
	floorSeconds = 2 // per round, with a handler that stores nothing

	// pacedConnections exceeds the number of connections in use at once, so that no event waits for a
	// connection. It is below the number of requests that a process handles at once for one tenant.
	pacedConnections = 200

	quietP99     = 10
	busyP99      = 30
	busyHistory  = 1_000_000 // events that are exported and counted by backfills
	busyCustomer = busyHistory / eventsPerCustomer

	// workConnections is the number of the worker's database connections. docs/operating/scale.md
	// recommends it for a worker that shares two cores with all other processes.
	workConnections = "1"
)

// latency measures the p99 of single events at half of the saturation rate. It measures on an idle server, and
// during an export, a backfill, an Auto-Sync and folds.
func latency(b *bench) []figure.Figure {
	b.grow(busyHistory)
	b.createMeter(tenCustomers.eventType, tenCustomers.eventType)
	rate := b.saturation()
	fmt.Printf("saturated by %.0f single events a second over %d connections; sent from now on: half of that\n", rate, singleConnections)
	quiet, quietFloor := b.latencies(rate/2, func(int) func() { return func() {} })
	busy, busyFloor := b.latencies(rate/2, b.newWork().begin)
	return []figure.Figure{
		bounded("single-event-p99", "ms", quiet, quietFloor, quietP99, never),
		bounded("single-event-p99-beside-work", "ms", busy, busyFloor, busyP99, never),
	}
}

// saturation returns the maximum rate at which the server stores single events, per second: the median of
// several rounds.
func (b *bench) saturation() float64 {
	b.Helper()
	var rates []float64
	for round := range rounds + 1 { // the first warms up
		took := b.load(singleConnections, b.singleRequests(singlesPerRound)...)
		if round > 0 {
			rates = append(rates, singlesPerRound/took.Seconds())
		}
	}
	return figure.Median(rates)
}

// latencies returns the p99 of single events in each round. The function begin starts the work that runs during the
// round, and returns a function that ends it. floor is the p99 of the same kind of requests, at the same rate, to a
// handler that does nothing.
func (b *bench) latencies(rate float64, begin func(round int) (end func())) (stored, floor []float64) {
	b.Helper()
	idle := httptest.NewServer(http.HandlerFunc(doNothing))
	defer idle.Close()
	for round := range rounds {
		end := begin(round)
		nothing, err := pace(idle.Listener.Addr().String(), pacedConnections, rate, b.singleRequests(int(rate*floorSeconds)))
		require.NoError(b, err)
		took, err := pace(b.coalesced, pacedConnections, rate, b.singleRequests(int(rate*paceSeconds)))
		require.NoError(b, err)
		end()
		stored, floor = append(stored, milliseconds(figure.P99(took))), append(floor, milliseconds(figure.P99(nothing)))
		fmt.Printf("round %d: half of the events within %.1f ms, 99 of 100 within %.1f ms; where a handler does nothing %.1f and %.1f ms\n", round+1,
			milliseconds(figure.Median(took)), stored[round], milliseconds(figure.Median(nothing)), floor[round])
	}
	return stored, floor
}

// pace sends requests at a rate without waiting for earlier answers, as long as connections are free. For each
// request, it returns the time from the instant at which the request was due until its answer.
func pace(address string, connections int, rate float64, requests [][]byte) ([]time.Duration, error) {
	defer withoutCollecting()()
	return sendPaced(address, connections, rate, requests)
}

// sendPaced is pace without the control of garbage collection, so that two calls can run at the same time.
func sendPaced(address string, connections int, rate float64, requests [][]byte) ([]time.Duration, error) {
	took := make([]time.Duration, len(requests))
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, connections)
	start := time.Now()
	for range connections {
		group.Go(func() {
			failures <- func() error {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					return fmt.Errorf("connect: %w", err)
				}
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for {
					i := int(next.Add(1)) - 1
					if i >= len(requests) {
						return nil
					}
					due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
					time.Sleep(time.Until(due))
					if err := send(conn, reader, requests[i]); err != nil {
						return err
					}
					took[i] = time.Since(due)
				}
			}()
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

// work is the load that runs in parallel with single events.
type work struct {
	*bench

	received atomic.Int64 // number of statements
}

// newWork starts a worker, and a receiver for its statements.
func (b *bench) newWork() *work {
	b.Helper()
	w := &work{bench: b}
	receiver := proc.Serve(b, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the content is not needed
		w.received.Add(1)
	}))
	b.startWorker()
	b.must(http.MethodPut, "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q}`, receiver), http.StatusOK, nil)
	b.must(http.MethodPut, "/v1/billing/auto-sync", `{"enabled":true,"schedule":"0 0 29 2 *"}`, http.StatusOK, nil)
	return w
}

// begin starts a backfill, an Auto-Sync of every customer, and a sequence of exports. end stops the exports.
func (w *work) begin(round int) (end func()) {
	w.Helper()
	used := shape{eventType: thousandCustomers.eventType, customers: busyCustomer, name: "filled-%d"}
	w.load(1, batchRequest(w.key, used.events(batchEvents)))
	w.createMeter(fmt.Sprintf("past-%d", round), thousandCustomers.eventType)
	w.must(http.MethodPost, "/v1/billing/auto-sync/trigger", "", http.StatusAccepted, nil)
	reported := w.received.Load()
	stop, exported := make(chan struct{}), make(chan error, 1)
	exports := 0
	go func() {
		for {
			select {
			case <-stop:
				exported <- nil
				return
			default:
			}
			exports++
			path := fmt.Sprintf("/v1/usage/export?customer=filled-%d", 1+exports%busyCustomer)
			if err := w.callAs(w.key, http.MethodGet, path, "", http.StatusOK, nil); err != nil {
				exported <- fmt.Errorf("export: %w", err)
				return
			}
		}
	}()
	return func() {
		close(stop)
		require.NoError(w, <-exported)
		counted, still := 0, 0
		require.NoError(w, w.pool.QueryRow(w.Context(), `select count(*) filter (where status = 'complete'), count(*) filter (where status = 'backfilling')
			from meter_versions where event_type = $1`, thousandCustomers.eventType).Scan(&counted, &still))
		fmt.Printf("beside round %d: %d exports, %d statements reported, meters: %d counted, %d being backfilled\n",
			round+1, exports, w.received.Load()-reported, counted, still)
	}
}
