package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

//go:embed breakdown.sql
var breakdownRows string

//go:embed breakdown_reads.sql
var breakdownReads string

// breakdown measures the first pages of breakdowns. The baseline is plain SQL that computes the same rows
// from the same rollups.
func breakdown(b *bench) (figures []figure.Figure) {
	b.fillBreakdown()
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	today := now.Truncate(24 * time.Hour)
	plain := strings.Split(breakdownReads, ";\n")
	for i, q := range []struct {
		name, query string
		start, end  time.Time
		total       string
		most        float64 // milliseconds
	}{
		{"breakdown-100k-customers", "meter=calls&by=customer", month, month.AddDate(0, 1, 0), "499625000", 300},
		{"breakdown-customers-models-days", "meter=tokens&by=customer,model&granularity=day", today.AddDate(0, 0, -30), today, "449662500", 1000},
		{"breakdown-customers-models-days-by-value", "meter=tokens&by=customer,model&granularity=day&order=value", today.AddDate(0, 0, -30), today, "449662500", 1000},
	} {
		path := breakdownPath + "?" + q.query + "&start=" + q.start.Format(time.RFC3339) + "&end=" + q.end.Format(time.RFC3339)
		var ours, baseline []float64
		for round := range rounds + 1 { // the first warms up
			took := b.timeBreakdown(path, q.total)
			began := time.Now()
			b.exec(plain[i], q.start, q.end)
			if round > 0 {
				ours, baseline = append(ours, milliseconds(took)), append(baseline, milliseconds(time.Since(began)))
			}
		}
		figures = append(figures, bounded(q.name, "ms", ours, baseline, q.most, never))
	}
	return figures
}

const breakdownPath = "/v1/usage/breakdown"

// fillBreakdown creates two meters and their usage. The first events register the groups.
func (b *bench) fillBreakdown() {
	b.Helper()
	b.createMeter("calls", "call")
	b.createMeter("tokens", "tokens", "model")
	events := []string{`{"event_type":"call","customer_id":"first","value":0}`}
	for n := range 10 {
		events = append(events, fmt.Sprintf(`{"event_type":"tokens","customer_id":"first","value":0,"properties":{"model":"model-%d"}}`, n))
	}
	for _, e := range events {
		b.must(http.MethodPost, "/v1/events", e, http.StatusOK, nil)
	}
	began := time.Now()
	b.exec(breakdownRows)
	fmt.Printf("filled the usage of 100,000 customers in %.0f s\n", time.Since(began).Seconds())
}

// timeBreakdown measures the first page, and checks its number of rows and the total of all pages.
func (b *bench) timeBreakdown(path, total string) time.Duration {
	b.Helper()
	var page struct {
		Data  []json.RawMessage
		Total json.Number
	}
	began := time.Now()
	b.must(http.MethodGet, path, "", http.StatusOK, &page)
	took := time.Since(began)
	require.Len(b, page.Data, 50, path)
	require.Equal(b, total, page.Total.String(), path)
	return took
}
