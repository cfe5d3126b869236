// Bench measures ingest side by side with its baselines, in alternating rounds
// on one machine, and prints the ratios with their spread; and how long the
// revenue of many customers takes. "batches", "single" or "revenue" measures that alone. It
// needs a database server in TEST_DATABASE_URL: make bench.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

const rounds = 5

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	bench, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer bench.close()
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]figure.Figure, error)
	}{{"batches", bench.batches}, {"single", bench.single}, {"revenue", bench.revenue}} {
		if len(only) > 0 && !slices.Contains(only, part.name) {
			continue
		}
		figures, err := part.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := figure.Keep(".dev/bench.json", figures...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) batches(ctx context.Context) ([]figure.Figure, error) {
	var figures []figure.Figure
	for _, s := range []shape{tenCustomers, thousandCustomers, hotCustomer, eightMeters} {
		batch, err := b.batchAgainstCopy(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.figure, err)
		}
		figures = append(figures, batch...)
	}
	return figures, nil
}

func (b *bench) single(ctx context.Context) ([]figure.Figure, error) {
	f, err := b.singleAgainstUncoalesced(ctx)
	return []figure.Figure{f}, err
}

// compare prints each figure with what it is to reach, and what it was once.
func compare(name, unit string, ours, baseline []float64, reach, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, to reach %.2f, formerly %.2f\n", f, reach, former)
	return f
}

// compareBytes prints each figure with its bound, and what it was when bytes were counted first.
func compareBytes(name string, ours, baseline []float64, most, former float64) figure.Figure {
	f := figure.Compare(name, "bytes", ours, baseline)
	fmt.Printf("%s, at most %.0f, formerly %.0f\n", f, most, former)
	return f
}
