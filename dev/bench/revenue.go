package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
)

//go:embed revenue.sql
var revenueRows string

const (
	revenueCustomers = 100_000
	revenueMeters    = 3
	revenueSeconds   = 10 // maximum
)

// revenue compares the duration of a request for the revenue of 100,000 customers with its maximum. It also
// measures the export of their bills.
func revenue(b *bench) []figure.Figure {
	b.fillRevenue()
	var ours, allowed []float64
	for range rounds {
		ours, allowed = append(ours, b.timeRevenue().Seconds()), append(allowed, revenueSeconds)
	}
	f := figure.Compare("revenue-100k-customers-seconds", "s", ours, allowed)
	fmt.Printf("%s, of which at most 1 is allowed\n", f)
	return []figure.Figure{f, b.exportStatements()}
}

// exportStatements measures the export of the previous month's bills, per customer. The baseline reads the
// bills one at a time.
func (b *bench) exportStatements() figure.Figure {
	b.Helper()
	const exported, read = 1000, 200
	var periods []int64
	require.NoError(b, b.conn.QueryRow(b.Context(), `
		select array_agg(id) from (
		  select id from billing_periods where ends_at = date_trunc('month', now(), 'UTC') order by customer_id limit $1) p`, read).Scan(&periods))
	month := time.Now().UTC().AddDate(0, 0, -time.Now().UTC().Day()).Format("2006-01")
	var ours, baseline []float64
	for round := range rounds + 1 { // the first warms up
		began := time.Now()
		lines := b.exportedLines(fmt.Sprintf("/v1/billing/statements/export?month=%s&page_size=%d", month, exported))
		took := time.Since(began)
		require.Equal(b, 1+exported*9/10*revenueMeters, lines, "lines of the export") // a tenth of the customers has other billing periods
		began = time.Now()
		for _, id := range periods {
			b.must(http.MethodGet, fmt.Sprintf("/v1/billing/statements/per_%d", id), "", http.StatusOK, nil)
		}
		if round > 0 {
			ours = append(ours, milliseconds(took)/exported)
			baseline = append(baseline, milliseconds(time.Since(began))/float64(len(periods)))
		}
	}
	return within("statements-export-per-customer", "ms", ours, baseline, 1, never)
}

// exportedLines returns the number of lines of a CSV file.
func (b *bench) exportedLines(path string) int {
	b.Helper()
	status, text, err := proc.Call(b.Context(), http.MethodGet, b.api.URL+path, b.key, "")
	require.NoError(b, err)
	require.Equal(b, http.StatusOK, status, "%.1000s", text)
	return bytes.Count(text, []byte("\n"))
}

// fillRevenue creates three meters with prices, and the customers and their usage.
func (b *bench) fillRevenue() {
	b.Helper()
	for i := range revenueMeters {
		slug := fmt.Sprintf("revenue-%d", i)
		b.createMeter(slug, slug)
		terms := `{"base_price":1.5,"included_units":10,"overage_rate":0.125}`
		b.must(http.MethodPut, "/v1/meters/"+slug+"/pricing", terms, http.StatusOK, nil)
	}
	start := time.Now()
	b.exec(revenueRows)
	fmt.Printf("filled %d customers with %d meters in %.0f s\n", revenueCustomers, revenueMeters, time.Since(start).Seconds())
}

// timeRevenue measures one request, and checks that the estimate includes all customers.
func (b *bench) timeRevenue() time.Duration {
	b.Helper()
	var answer struct {
		Data []struct {
			Customers int64
			Estimated json.Number
		}
	}
	start := time.Now()
	b.must(http.MethodGet, "/v1/billing/revenue", "", http.StatusOK, &answer)
	took := time.Since(start)
	var counted int64
	for _, month := range answer.Data {
		if month.Estimated != "0" {
			counted += month.Customers
		}
	}
	require.GreaterOrEqual(b, counted, int64(revenueCustomers), "customers in the estimate: %+v", answer.Data)
	return took
}
