// Bench measures ingest side by side with its baselines, in alternating rounds
// on one machine, and prints the ratios with their spread. It needs a database
// server in TEST_DATABASE_URL: make bench.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// result is a row of .dev/bench.json. Ours and baseline are medians.
type result struct {
	Name     string  `json:"name"`
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio"`
}

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
	return write([]result{batch, single})
}

// compare prints each round's pair and the median of the rounds' ratios, with
// the lowest and the highest.
func compare(name, unit string, ours, baseline []float64, reach float64) result {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / baseline[i]
	}
	r := result{name, median(ours), median(baseline), unit, median(ratios)}
	fmt.Printf("%-30s ours %.0f, baseline %.0f %s; ratio %.2f (%.2f to %.2f in %d rounds), to reach %.2f\n",
		name, r.Ours, r.Baseline, unit, r.Ratio, slices.Min(ratios), slices.Max(ratios), len(ratios), reach)
	return r
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func write(results []result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(".dev", 0o755); err != nil {
		return err
	}
	return os.WriteFile(".dev/bench.json", append(text, '\n'), 0o644)
}
