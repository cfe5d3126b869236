package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

const (
	quotaRate        = 200 // checks or reservations per second
	quotaConnections = 50  // more than are busy at that rate

	checkP99   = 10 // milliseconds
	reserveP99 = 15
)

// limited describes events of customers with a plan that has two hard quotas. The meter of the quotas
// counts the events.
var limited = shape{eventType: "limited", customers: 1000}

// quotas measures the p99 of checks and reservations while single events of the same customers are sent at
// a quarter of the saturation rate. The baseline is a handler that does nothing, during the same load.
func quotas(b *bench) []figure.Figure {
	b.createMeter(tenCustomers.eventType, tenCustomers.eventType)
	rate := b.saturation()
	fmt.Printf("saturated by %.0f single events a second; sent beside checks and reservations: a quarter of that\n", rate)
	b.limitCustomers()
	checks, nothing := b.quotaLatencies("/v1/quotas/check", `{"checks":[{"customer":%q,"meter":"limited","amount":1}]}`, rate/4)
	figures := []figure.Figure{bounded("quota-check-p99-beside-ingest", "ms", checks, nothing, checkP99, never)}
	reserves, nothing := b.quotaLatencies("/v1/quotas/reserve", `{"customer":%q,"amounts":[{"meter":"limited","amount":1}]}`, rate/4)
	return append(figures, bounded("quota-reserve-p99-beside-ingest", "ms", reserves, nothing, reserveP99, never))
}

// limitCustomers assigns a plan with two hard quotas to customers that have sent events.
func (b *bench) limitCustomers() {
	b.Helper()
	b.createMeter(limited.eventType, limited.eventType)
	b.load(1, batchRequest(b.key, limited.events(batchEvents)))
	b.must(http.MethodPost, "/v1/plans", `{"slug":"limited","name":"Limited"}`, http.StatusCreated, nil)
	for _, period := range []string{"day", "month"} {
		body := fmt.Sprintf(`{"plan":"limited","meter":"limited","limit":1000000000,"mode":"hard","period":%q}`, period)
		b.must(http.MethodPut, "/v1/quotas", body, http.StatusOK, nil)
	}
	for i := range limited.customers {
		b.must(http.MethodPut, fmt.Sprintf("/v1/customers/customer-%d/plan", i), `{"plan":"limited"}`, http.StatusOK, nil)
	}
}

// quotaLatencies returns the p99 of requests about random customers in each round, and the p99 of the same
// requests to a handler that does nothing.
func (b *bench) quotaLatencies(path, body string, ingest float64) (took, nothing []float64) {
	b.Helper()
	idle := httptest.NewServer(http.HandlerFunc(doNothing))
	defer idle.Close()
	for round := range rounds + 1 { // the first warms up
		var p99s []float64
		for _, address := range []string{idle.Listener.Addr().String(), b.coalesced} {
			requests := make([][]byte, quotaRate*paceSeconds)
			for i := range requests {
				requests[i] = rawRequest(path, b.key, fmt.Appendf(nil, body, fmt.Sprintf("customer-%d", rand.IntN(limited.customers))))
			}
			times := b.besideIngest(address, requests, ingest)
			p99s = append(p99s, milliseconds(figure.P99(times)))
			fmt.Printf("%s, round %d at %s: half within %.1f ms, 99 of 100 within %.1f ms\n", path, round, address, milliseconds(figure.Median(times)), p99s[len(p99s)-1])
		}
		if round > 0 {
			nothing, took = append(nothing, p99s[0]), append(took, p99s[1])
		}
	}
	return took, nothing
}

// besideIngest sends requests at quotaRate while single events are sent at the rate ingest. It returns the
// duration of each request.
func (b *bench) besideIngest(address string, requests [][]byte, ingest float64) []time.Duration {
	b.Helper()
	events := b.singleRequestsOf(limited, int(ingest*paceSeconds))
	defer withoutCollecting()()
	stored := make(chan error, 1)
	go func() {
		_, err := sendPaced(b.coalesced, pacedConnections, ingest, events)
		stored <- err
	}()
	took, err := sendPaced(address, quotaConnections, quotaRate, requests)
	require.NoError(b, err)
	require.NoError(b, <-stored)
	return took
}
