package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
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
func revenue(ctx context.Context, b *bench) ([]figure.Figure, error) {
	if err := b.fillRevenue(ctx); err != nil {
		return nil, err
	}
	var ours, allowed []float64
	for range rounds {
		took, err := b.timeRevenue()
		if err != nil {
			return nil, err
		}
		ours, allowed = append(ours, took.Seconds()), append(allowed, revenueSeconds)
	}
	f := figure.Compare("revenue-100k-customers-seconds", "s", ours, allowed)
	fmt.Printf("%s, of which at most 1 is allowed\n", f)
	export, err := b.exportStatements(ctx)
	return []figure.Figure{f, export}, err
}

// exportStatements measures the export of the previous month's bills, per customer. The baseline reads the
// bills one at a time.
func (b *bench) exportStatements(ctx context.Context) (figure.Figure, error) {
	const exported, read = 1000, 200
	var periods []int64
	if err := b.conn.QueryRow(ctx, `
		select array_agg(id) from (
		  select id from billing_periods where ends_at = date_trunc('month', now(), 'UTC') order by customer_id limit $1) p`, read).Scan(&periods); err != nil {
		return figure.Figure{}, err
	}
	month := time.Now().UTC().AddDate(0, 0, -time.Now().UTC().Day()).Format("2006-01")
	var ours, baseline []float64
	for round := range rounds + 1 { // the first warms up
		began := time.Now()
		lines, err := b.exportedLines(fmt.Sprintf("/v1/billing/statements/export?month=%s&page_size=%d", month, exported))
		if err != nil {
			return figure.Figure{}, fmt.Errorf("export: %w", err)
		}
		took := time.Since(began)
		if want := 1 + exported*9/10*revenueMeters; lines != want { // a tenth of the customers has other billing periods
			return figure.Figure{}, fmt.Errorf("the export has %d lines, and not %d", lines, want)
		}
		began = time.Now()
		for _, id := range periods {
			if err := b.call(http.MethodGet, fmt.Sprintf("/v1/billing/statements/per_%d", id), "", http.StatusOK, nil); err != nil {
				return figure.Figure{}, fmt.Errorf("statement: %w", err)
			}
		}
		if round > 0 {
			ours = append(ours, milliseconds(took)/exported)
			baseline = append(baseline, milliseconds(time.Since(began))/float64(len(periods)))
		}
	}
	return within("statements-export-per-customer", "ms", ours, baseline, 1, never), nil
}

// exportedLines returns the number of lines of a CSV file.
func (b *bench) exportedLines(path string) (lines int, err error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+b.coalesced+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+b.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the API answered %s: %.1000s", response.Status, text)
	}
	return bytes.Count(text, []byte("\n")), err
}

func (b *bench) fillRevenue(ctx context.Context) error {
	for i := range revenueMeters {
		slug := fmt.Sprintf("revenue-%d", i)
		if err := b.createMeter(slug, slug); err != nil {
			return err
		}
		terms := `{"base_price":1.5,"included_units":10,"overage_rate":0.125}`
		if err := b.call(http.MethodPut, "/v1/meters/"+slug+"/pricing", terms, http.StatusOK, nil); err != nil {
			return fmt.Errorf("set price: %w", err)
		}
	}
	start := time.Now()
	if _, err := b.pool.Exec(ctx, revenueRows); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	fmt.Printf("filled %d customers with %d meters in %.0f s\n", revenueCustomers, revenueMeters, time.Since(start).Seconds())
	return nil
}

func (b *bench) timeRevenue() (time.Duration, error) {
	var answer struct {
		Data []struct {
			Customers int64
			Estimated json.Number
		}
	}
	start := time.Now()
	if err := b.call(http.MethodGet, "/v1/billing/revenue", "", http.StatusOK, &answer); err != nil {
		return 0, fmt.Errorf("revenue: %w", err)
	}
	took := time.Since(start)
	var counted int64
	for _, month := range answer.Data {
		if month.Estimated != "0" {
			counted += month.Customers
		}
	}
	if counted < revenueCustomers {
		return 0, fmt.Errorf("only %d customers are in the estimate: %+v", counted, answer.Data)
	}
	return took, nil
}
