package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
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
func latency(ctx context.Context, b *bench) ([]figure.Figure, error) {
	if err := b.grow(ctx, busyHistory); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	if err := b.createMeter(tenCustomers.eventType, tenCustomers.eventType); err != nil {
		return nil, err
	}
	rate, err := b.saturation()
	if err != nil {
		return nil, err
	}
	fmt.Printf("saturated by %.0f single events a second over %d connections; sent from now on: half of that\n", rate, singleConnections)
	quiet, quietFloor, err := b.latencies(rate/2, func(int) (func() error, error) { return func() error { return nil }, nil })
	if err != nil {
		return nil, err
	}
	work, err := b.newWork(ctx)
	if err != nil {
		return nil, err
	}
	defer work.receiver.Close()
	busy, busyFloor, err := b.latencies(rate/2, work.begin)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		bounded("single-event-p99", "ms", quiet, quietFloor, quietP99, never),
		bounded("single-event-p99-beside-work", "ms", busy, busyFloor, busyP99, never),
	}, nil
}

// saturation returns the maximum rate at which the server stores single events, per second: the median of
// several rounds.
func (b *bench) saturation() (float64, error) {
	var rates []float64
	for round := range rounds + 1 { // the first warms up
		took, err := load(b.coalesced, singleConnections, b.singleRequests(singlesPerRound))
		if err != nil {
			return 0, err
		}
		if round > 0 {
			rates = append(rates, singlesPerRound/took.Seconds())
		}
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// latencies returns the p99 of single events in each round, while the work that begin starts is running. floor
// is the p99 of the same kind of requests, at the same rate, to a handler that does nothing.
func (b *bench) latencies(rate float64, begin func(round int) (end func() error, err error)) (stored, floor []float64, err error) {
	idle := httptest.NewServer(http.HandlerFunc(doNothing))
	defer idle.Close()
	for round := range rounds {
		end, err := begin(round)
		if err != nil {
			return nil, nil, err
		}
		nothing, err1 := pace(idle.Listener.Addr().String(), pacedConnections, rate, b.singleRequests(int(rate*floorSeconds)))
		took, err2 := pace(b.coalesced, pacedConnections, rate, b.singleRequests(int(rate*paceSeconds)))
		if err := errors.Join(err1, err2, end()); err != nil {
			return nil, nil, err
		}
		stored, floor = append(stored, milliseconds(p99(took))), append(floor, milliseconds(p99(nothing))) // p99 sorts its argument
		fmt.Printf("round %d: half of the events within %.1f ms, 99 of 100 within %.1f ms; where a handler does nothing %.1f and %.1f ms\n", round+1,
			milliseconds(took[len(took)/2]), stored[round], milliseconds(nothing[len(nothing)/2]), floor[round])
	}
	return stored, floor, nil
}

// pace sends requests at a rate without waiting for earlier answers, as long as connections are free. For each
// request, it returns the time from the instant at which the request was due until its answer.
func pace(address string, connections int, rate float64, requests [][]byte) ([]time.Duration, error) {
	defer withoutCollecting()()
	return sendPaced(address, connections, rate, requests)
}

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

	receiver *httptest.Server
	received atomic.Int64 // number of statements
}

// newWork starts a worker, and a receiver for its statements.
func (b *bench) newWork(ctx context.Context) (*work, error) {
	w := &work{bench: b}
	w.receiver = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the content is not needed
		w.received.Add(1)
	}))
	if err := b.startWorker(ctx); err != nil {
		return nil, err
	}
	if err := b.call(http.MethodPut, "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q}`, w.receiver.URL), http.StatusOK, nil); err != nil {
		return nil, fmt.Errorf("save provider: %w", err)
	}
	if err := b.call(http.MethodPut, "/v1/billing/auto-sync", `{"enabled":true,"schedule":"0 0 29 2 *"}`, http.StatusOK, nil); err != nil {
		return nil, fmt.Errorf("turn Auto-Sync on: %w", err)
	}
	return w, nil
}

// begin starts a backfill, an Auto-Sync of every customer, and a sequence of exports. end stops the exports.
func (w *work) begin(round int) (end func() error, err error) {
	used := shape{eventType: thousandCustomers.eventType, customers: busyCustomer, name: "filled-%d"}
	if _, err := load(w.coalesced, 1, [][]byte{batchRequest(w.key, used.events(batchEvents))}); err != nil {
		return nil, err
	}
	if err := w.createMeter(fmt.Sprintf("past-%d", round), thousandCustomers.eventType); err != nil {
		return nil, err
	}
	if err := w.call(http.MethodPost, "/v1/billing/auto-sync/trigger", "", http.StatusAccepted, nil); err != nil {
		return nil, fmt.Errorf("trigger Auto-Sync: %w", err)
	}
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
			if err := w.call(http.MethodGet, path, "", http.StatusOK, nil); err != nil {
				exported <- fmt.Errorf("export: %w", err)
				return
			}
		}
	}()
	return func() error {
		close(stop)
		err := <-exported
		counted, still := 0, 0
		err = errors.Join(err, w.pool.QueryRow(context.Background(), `select count(*) filter (where status = 'complete'), count(*) filter (where status = 'backfilling')
			from meter_versions where event_type = $1`, thousandCustomers.eventType).Scan(&counted, &still))
		fmt.Printf("beside round %d: %d exports, %d statements reported, meters: %d counted, %d being backfilled\n",
			round+1, exports, w.received.Load()-reported, counted, still)
		return err
	}, nil
}
