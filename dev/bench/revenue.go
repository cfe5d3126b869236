package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

//go:embed revenue.sql
var revenueRows string

const (
	revenueCustomers = 100_000
	revenueMeters    = 3
	revenueSeconds   = 10 // at most
)

// revenue measures how long the revenue of 100,000 customers takes over HTTP,
// beside what it may take.
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
	return []figure.Figure{f}, nil
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
