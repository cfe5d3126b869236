package main

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
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
func growth(b *bench) []figure.Figure { return b.grown(10_000_000) }

// large is growth with LARGE_EVENTS events. Bench runs it only if an argument selects it.
func large(b *bench) []figure.Figure {
	events := proc.Number(b, "LARGE_EVENTS", 0)
	require.GreaterOrEqual(b, events, eventsPerCustomer, "LARGE_EVENTS is not set to how many events: run make bench-large")
	var disk syscall.Statfs_t
	require.NoError(b, syscall.Statfs(os.TempDir(), &disk))
	need, free := int64(events)*bytesPerFilled, int64(disk.Bavail)*disk.Bsize
	fmt.Printf("%d events need %.0f GB; %s has %.0f GB free\n", events, float64(need)/1e9, os.TempDir(), float64(free)/1e9)
	require.GreaterOrEqual(b, free, need, "that is too little: make room, set TMPDIR, or LARGE_EVENTS to fewer")
	return b.grown(events)
}

// grown compares ingest with a database of 10^6 events, and reads with a database of 10^5 events. A larger
// database has more customers. Each customer has the same number of events in all databases, so answers have
// the same size.
func (b *bench) grown(events int) []figure.Figure {
	b.Helper()
	b.grow(events)
	return append(b.ingestAgainst(events, 1_000_000), b.readsAgainst(events, 100_000)...)
}

// power returns a number of events in the notation of figure names, such as 1e7.
func power(events int) string {
	return strings.Replace(strconv.FormatFloat(float64(events), 'e', -1, 64), "e+0", "e", 1)
}

// grow creates a meter with a price. With SQL, it creates past events of the meter for the customers filled-1,
// filled-2 and so on.
func (b *bench) grow(events int) {
	b.Helper()
	b.createMeter("completions", thousandCustomers.eventType, thousandCustomers.groupBy...)
	b.must(http.MethodPut, "/v1/meters/completions/pricing", `{"base_price":1.5,"included_units":10,"overage_rate":0.125}`, http.StatusOK, nil)
	first := shape{eventType: thousandCustomers.eventType, customers: 1}.events(100) // events of all models, to register their groups
	b.load(1, batchRequest(b.key, first))
	began := time.Now()
	prepare, rest, _ := strings.Cut(growthRows, "-- step\n")
	step, finish, _ := strings.Cut(rest, "-- end\n")
	b.exec(fmt.Sprintf(prepare, events/eventsPerCustomer))
	for back := eventsPerCustomer/10 - 1; back >= 0; back-- { // in order of time, ten events for each customer per step
		b.exec(step, back)
	}
	for statement := range strings.SplitSeq(finish, ";\n") {
		b.exec(statement) // one at a time, because vacuum cannot run in a transaction
	}
	var bytes int64
	require.NoError(b, b.conn.QueryRow(b.Context(), `select pg_database_size(current_database())`).Scan(&bytes))
	fmt.Printf("filled %d events in %.1f minutes; the database has %.2f GB\n", events, time.Since(began).Minutes(), float64(bytes)/1e9)
	b.checkFilled()
}

// checkFilled checks the total usage of one customer.
func (b *bench) checkFilled() {
	b.Helper()
	var answer struct{ Total float64 }
	end := time.Now().UTC()
	b.must(http.MethodGet, readTotal.path(1, end.AddDate(0, 0, -90), end), "", http.StatusOK, &answer)
	require.InDelta(b, 1.5*eventsPerCustomer, answer.Total, 0, "usage of filled-1")
}

// ingestAgainst compares the ingest rate with that of a smaller database, for time-ordered and for random keys.
// Random keys change pages of the key index that have not changed since the last checkpoint. The first change
// of such a page writes the whole page to the WAL. So random keys are measured after a warm-up of a fiftieth of
// all events.
func (b *bench) ingestAgainst(events, fewer int) []figure.Figure {
	b.Helper()
	smaller := b.smaller(fewer)
	defer smaller.close()
	name := fmt.Sprintf("ingest-at-%s-vs-%s", power(events), power(fewer))
	ordered := thousandCustomers
	ordered.ordered = true
	inOrder, inOrderFewer := alternatingRates(b, smaller, ordered, 1)
	atRandom, atRandomFewer := alternatingRates(b, smaller, thousandCustomers, max(1, events/50/batchEvents/batchesPerRound))
	return []figure.Figure{
		compare(name, "events/s", atRandom, atRandomFewer, 0.9, 42.0/47),
		compare(name+ordered.suffix(), "events/s", inOrder, inOrderFewer, 0.9, never),
	}
}

// alternatingRates alternates rounds of batches between both databases. It returns the rates of the rounds that
// follow the first warmUps rounds.
func alternatingRates(ours, other *bench, s shape, warmUps int) (rates, others []float64) {
	for round := range warmUps + rounds {
		of, ofOther := ours.batchRate(s), other.batchRate(s)
		if round == 0 && warmUps > 1 {
			fmt.Printf("right after a checkpoint: %.0f events/s, and %.0f where there are fewer\n", of, ofOther)
		}
		if round >= warmUps {
			rates, others = append(rates, of), append(others, ofOther)
		}
	}
	return rates, others
}

// batchRate returns the events per second that a round of batches stores.
func (b *bench) batchRate(s shape) float64 {
	b.Helper()
	var requests [][]byte
	for range batchesPerRound {
		requests = append(requests, batchRequest(b.key, s.events(batchEvents)))
	}
	return batchesPerRound * batchEvents / b.load(batchConnections, requests...).Seconds()
}

// smaller opens another database with fewer events.
func (b *bench) smaller(events int) *bench {
	b.Helper()
	smaller := open(b)
	smaller.grow(events)
	return smaller
}

// read is a read request about a customer's usage.
type read struct {
	name, route string
	query       url.Values
	span        bool // the request has a time range; otherwise it is about the current period
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

// path returns the path of the request about a filled customer.
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
func (b *bench) readsAgainst(events, fewer int) (figures []figure.Figure) {
	b.Helper()
	smaller := b.smaller(fewer)
	defer smaller.close()
	b.exec(allUsage)
	smaller.exec(allUsage)
	for _, r := range reads {
		var ours, baseline []float64
		for round := range rounds + 1 { // the first warms up
			of, ofFewer := b.readP99(r, events), smaller.readP99(r, fewer)
			if round > 0 {
				ours, baseline = append(ours, of), append(baseline, ofFewer)
			}
		}
		name := fmt.Sprintf("read-%s-p99-%s-vs-%s", r.name, power(events), power(fewer))
		figures = append(figures, within(name, "ms", ours, baseline, 1.3, never))
	}
	return figures
}

// readP99 sends a round of reads and returns their p99 in milliseconds.
func (b *bench) readP99(r read, events int) float64 {
	b.Helper()
	var took []time.Duration
	for range readsPerRound {
		end := time.Now().UTC().Add(-time.Duration(rand.Int64N(int64(24 * time.Hour))))
		path := r.path(1+rand.IntN(events/eventsPerCustomer), end.AddDate(0, 0, -30), end)
		began := time.Now()
		b.must(http.MethodGet, path, "", http.StatusOK, nil)
		took = append(took, time.Since(began))
	}
	return milliseconds(figure.P99(took))
}

// milliseconds returns a duration as a number of milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
