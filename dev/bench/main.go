// Bench measures ingest side by side with its baselines, in alternating rounds
// on one machine, and prints the ratios with their spread. It needs a database
// server in TEST_DATABASE_URL: make bench.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

const rounds = 5

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bench, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer bench.close()
	batch, err := bench.batchAgainstCopy(ctx)
	if err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	single, err := bench.singleAgainstUncoalesced(ctx)
	if err != nil {
		return fmt.Errorf("single events: %w", err)
	}
	return figure.Keep(".dev/bench.json", batch, single)
}

// compare prints each figure with what it is to reach.
func compare(name, unit string, ours, baseline []float64, reach float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, to reach %.2f\n", f, reach)
	return f
}
