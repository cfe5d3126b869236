package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

//go:embed growth.sql
var growthRows string

//go:embed usage.sql
var allUsage string

const (
	eventsPerCustomer = 1000 // of customers that growth.sql creates
	bytesPerFilled    = 600  // disk space for an event, its key, its share of the rollups, and their WAL
	readsPerRound     = 200  // of each read
)

// growth compares a database of 10^7 events with smaller ones.
func growth(ctx context.Context, b *bench) ([]figure.Figure, error) {
	return grown(ctx, b, 10_000_000)
}

// large is growth with LARGE_EVENTS events. Bench runs it only if an argument selects it.
func large(ctx context.Context, b *bench) ([]figure.Figure, error) {
	events, err := strconv.Atoi(os.Getenv("LARGE_EVENTS"))
	if err != nil || events < eventsPerCustomer {
		return nil, errors.New("LARGE_EVENTS is not set to how many events: run make bench-large")
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &disk); err != nil {
		return nil, err
	}
	need, free := int64(events)*bytesPerFilled, int64(disk.Bavail)*disk.Bsize
	fmt.Printf("%d events need %.0f GB; %s has %.0f GB free\n", events, float64(need)/1e9, os.TempDir(), float64(free)/1e9)
	if free < need {
		return nil, errors.New("that is too little: make room, set TMPDIR, or LARGE_EVENTS to fewer")
	}
	return grown(ctx, b, events)
}

// grown compares ingest with a database of 10^6 events, and reads with a database of 10^5 events. A larger
// database has more customers. Each customer has the same number of events in all databases, so answers have
// the same size.
func grown(ctx context.Context, b *bench, events int) ([]figure.Figure, error) {
	if err := b.grow(ctx, events); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	ingest, err := b.ingestAgainst(ctx, events, 1_000_000)
	if err != nil {
		return nil, err
	}
	reads, err := b.readsAgainst(ctx, events, 100_000)
	return append(ingest, reads...), err
}

// power returns a number of events in the notation of figure names, such as 1e7.
func power(events int) string {
	return strings.Replace(strconv.FormatFloat(float64(events), 'e', -1, 64), "e+0", "e", 1)
}

// grow creates a meter with a price. With SQL, it creates past events of the meter for the customers filled-1,
// filled-2 and so on.
func (b *bench) grow(ctx context.Context, events int) error {
	if err := b.createMeter("completions", thousandCustomers.eventType, thousandCustomers.groupBy...); err != nil {
		return err
	}
	if err := b.call(http.MethodPut, "/v1/meters/completions/pricing", `{"base_price":1.5,"included_units":10,"overage_rate":0.125}`, http.StatusOK, nil); err != nil {
		return fmt.Errorf("set price: %w", err)
	}
	first := shape{eventType: thousandCustomers.eventType, customers: 1}.events(100) // events of all models, to register their groups
	if _, err := load(b.coalesced, 1, [][]byte{batchRequest(b.key, first)}); err != nil {
		return err
	}
	began := time.Now()
	prepare, rest, _ := strings.Cut(growthRows, "-- step\n")
	step, finish, _ := strings.Cut(rest, "-- end\n")
	if _, err := b.conn.Exec(ctx, fmt.Sprintf(prepare, events/eventsPerCustomer)); err != nil {
		return err
	}
	for back := eventsPerCustomer/10 - 1; back >= 0; back-- { // in order of time, ten events for each customer per step
		if _, err := b.conn.Exec(ctx, step, back); err != nil {
			return err
		}
	}
	for statement := range strings.SplitSeq(finish, ";\n") {
		if _, err := b.conn.Exec(ctx, statement); err != nil { // one at a time, because vacuum cannot run in a transaction
			return err
		}
	}
	var bytes int64
	if err := b.conn.QueryRow(ctx, `select pg_database_size(current_database())`).Scan(&bytes); err != nil {
		return err
	}
	fmt.Printf("filled %d events in %.1f minutes; the database has %.2f GB\n", events, time.Since(began).Minutes(), float64(bytes)/1e9)
	return b.checkFilled()
}

// checkFilled checks the total usage of one customer.
func (b *bench) checkFilled() error {
	var answer struct{ Total float64 }
	end := time.Now().UTC()
	if err := b.call(http.MethodGet, readTotal.path(1, end.AddDate(0, 0, -90), end), "", http.StatusOK, &answer); err != nil {
		return err
	}
	if want := 1.5 * eventsPerCustomer; answer.Total != want {
		return fmt.Errorf("filled-1 has used %v, and not %v", answer.Total, want)
	}
	return nil
}

// ingestAgainst compares the ingest rate with that of a smaller database, for time-ordered and for random keys.
// Random keys change pages of the key index that have not changed since the last checkpoint. The first change
// of such a page writes the whole page to the WAL. So random keys are measured after a warm-up of a fiftieth of
// all events.
func (b *bench) ingestAgainst(ctx context.Context, events, fewer int) ([]figure.Figure, error) {
	smaller, err := b.smaller(ctx, fewer)
	if err != nil {
		return nil, err
	}
	defer smaller.close()
	name := fmt.Sprintf("ingest-at-%s-vs-%s", power(events), power(fewer))
	ordered := thousandCustomers
	ordered.ordered = true
	inOrder, inOrderFewer, err := besideEachOther(b, smaller, ordered, 1)
	if err != nil {
		return nil, err
	}
	atRandom, atRandomFewer, err := besideEachOther(b, smaller, thousandCustomers, max(1, events/50/batchEvents/batchesPerRound))
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		compare(name, "events/s", atRandom, atRandomFewer, 0.9, 42.0/47),
		compare(name+ordered.suffix(), "events/s", inOrder, inOrderFewer, 0.9, never),
	}, nil
}

// besideEachOther alternates rounds of batches between both databases. It returns the rates of the rounds that
// follow the first warmUps rounds.
func besideEachOther(ours, other *bench, s shape, warmUps int) (rates, others []float64, err error) {
	for round := range warmUps + rounds {
		of, err := ours.batchRate(s)
		if err != nil {
			return nil, nil, err
		}
		ofOther, err := other.batchRate(s)
		if err != nil {
			return nil, nil, err
		}
		if round == 0 && warmUps > 1 {
			fmt.Printf("right after a checkpoint: %.0f events/s, and %.0f where there are fewer\n", of, ofOther)
		}
		if round >= warmUps {
			rates, others = append(rates, of), append(others, ofOther)
		}
	}
	return rates, others, nil
}

// batchRate returns the events per second that a round of batches stores.
func (b *bench) batchRate(s shape) (float64, error) {
	var requests [][]byte
	for range batchesPerRound {
		requests = append(requests, batchRequest(b.key, s.events(batchEvents)))
	}
	took, err := load(b.coalesced, batchConnections, requests)
	return batchesPerRound * batchEvents / took.Seconds(), err
}

func (b *bench) smaller(ctx context.Context, events int) (*bench, error) {
	smaller, err := open(ctx, b.binary)
	if err != nil {
		return nil, err
	}
	if err := smaller.grow(ctx, events); err != nil {
		smaller.close()
		return nil, fmt.Errorf("fill: %w", err)
	}
	return smaller, nil
}

// read is a read request about a customer's usage.
type read struct {
	name, route string
	query       url.Values
	span        bool // a time range, otherwise the current period
}

var (
	readTotal = read{"total", "/v1/usage/total", url.Values{"meter": {"completions"}}, true}
	reads     = []read{
		readTotal,
		{"series", "/v1/usage", url.Values{"meter": {"completions"}, "granularity": {"hour"}, "page_size": {"1000"}}, true},
		{"dimension", "/v1/usage", url.Values{"meter": {"completions"}, "granularity": {"hour"}, "page_size": {"1000"}, "filter.model": {"large"}}, true},
		{"comparison", "/v1/usage/comparison", url.Values{"meter": {"completions"}}, false},
		{"preview", "/v1/billing/preview", nil, false},
	}
)

func (r read) path(customer int, start, end time.Time) string {
	query := url.Values{"customer": {fmt.Sprintf("filled-%d", customer)}}
	maps.Copy(query, r.query)
	if r.span {
		query.Set("start", start.Format(time.RFC3339Nano))
		query.Set("end", end.Format(time.RFC3339Nano))
	}
	return r.route + "?" + query.Encode()
}

// readsAgainst compares the p99 of reads with that in a smaller database. Each read is for a random customer
// and a range of 30 days that starts and ends in the middle of an hour. All usage is read once before the
// measurement, so that memory holds as much of it as possible.
func (b *bench) readsAgainst(ctx context.Context, events, fewer int) (figures []figure.Figure, err error) {
	smaller, err := b.smaller(ctx, fewer)
	if err != nil {
		return nil, err
	}
	defer smaller.close()
	for _, of := range []*bench{b, smaller} {
		if _, err := of.conn.Exec(ctx, allUsage); err != nil {
			return nil, err
		}
	}
	for _, r := range reads {
		var ours, baseline []float64
		for round := range rounds + 1 { // the first warms up
			of, err := b.readP99(r, events)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			ofFewer, err := smaller.readP99(r, fewer)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if round > 0 {
				ours, baseline = append(ours, of), append(baseline, ofFewer)
			}
		}
		name := fmt.Sprintf("read-%s-p99-%s-vs-%s", r.name, power(events), power(fewer))
		figures = append(figures, within(name, "ms", ours, baseline, 1.3, never))
	}
	return figures, nil
}

func (b *bench) readP99(r read, events int) (float64, error) {
	var took []time.Duration
	for range readsPerRound {
		end := time.Now().UTC().Add(-time.Duration(rand.Int64N(int64(24 * time.Hour))))
		path := r.path(1+rand.IntN(events/eventsPerCustomer), end.AddDate(0, 0, -30), end)
		began := time.Now()
		if err := b.call(http.MethodGet, path, "", http.StatusOK, nil); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return milliseconds(p99(took)), nil
}

// p99 returns the 99th percentile. It sorts took.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[(len(took)*99+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
