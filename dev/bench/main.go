// Bench measures ingest against its baselines, in alternating rounds on one machine, and prints the ratios with
// their spread. It also measures the latency of single events, and the effect of 100 times as many events.
// Further measurements are breakdowns, revenue and bills of many customers, and the cost of quotas and alerts.
//
// Arguments select measurements: batches, properties, tenants, single, latency, growth, breakdown, revenue,
// quotas, alerts and notifications. large, which must be selected, is growth with LARGE_EVENTS events.
// Bench needs a database server in TEST_DATABASE_URL: make bench, make bench-large.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

const rounds = 5

// never is the previous value of a figure that was not measured before.
const never = 0

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	folder, err := os.MkdirTemp("", "odometer-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary, err := build(ctx, folder)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *bench) ([]figure.Figure, error)
		byHand  bool
	}{
		{"batches", batches, false},
		{"properties", properties, false},
		{"tenants", thousandTenants, false},
		{"single", single, false},
		{"latency", latency, false},
		{"growth", growth, false},
		{"large", large, true},
		{"breakdown", breakdown, false},
		{"revenue", revenue, false},
		{"quotas", quotas, false},
		{"alerts", alerts, false},
		{"notifications", notifications, false},
	} {
		if !slices.Contains(only, part.name) && (len(only) > 0 || part.byHand) {
			continue
		}
		figures, err := inItsOwn(ctx, binary, part.measure)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := figure.Keep(".dev/bench.json", figures...); err != nil {
			return err
		}
	}
	return nil
}

// inItsOwn runs a measurement in a new database.
func inItsOwn(ctx context.Context, binary string, measure func(context.Context, *bench) ([]figure.Figure, error)) ([]figure.Figure, error) {
	b, err := open(ctx, binary)
	if err != nil {
		return nil, err
	}
	defer b.close()
	return measure(ctx, b)
}

func batches(ctx context.Context, b *bench) ([]figure.Figure, error) {
	var figures []figure.Figure
	for _, s := range []shape{tenCustomers, thousandCustomers, keysInOrder, hotCustomer, eightMeters} {
		batch, err := b.batchAgainstCopy(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.figure, err)
		}
		figures = append(figures, batch...)
	}
	return figures, nil
}

func thousandTenants(ctx context.Context, b *bench) ([]figure.Figure, error) {
	f, err := b.tenantsAgainstCopy(ctx)
	return []figure.Figure{f}, err
}

func single(ctx context.Context, b *bench) ([]figure.Figure, error) {
	if err := b.createMeter(tenCustomers.eventType, tenCustomers.eventType); err != nil {
		return nil, err
	}
	if err := b.withoutCoalescing(ctx); err != nil {
		return nil, err
	}
	if err := b.orientation(ctx); err != nil {
		return nil, err
	}
	few, err := b.singleAgainstUncoalesced("ingest-single-vs-uncoalesced", singleConnections, 6.6)
	if err != nil {
		return nil, err
	}
	many, err := b.singleAgainstUncoalesced("ingest-single-256-connections-vs-uncoalesced", manyConnections, never)
	return []figure.Figure{few, many}, err
}

// compare prints a figure with the required minimum of its ratio, and the previous ratio.
func compare(name, unit string, ours, baseline []float64, reach, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, to reach %.2f%s\n", f, reach, formerly("%.2f", former))
	return f
}

// within prints a figure with the allowed maximum of its ratio, and the previous ratio.
func within(name, unit string, ours, baseline []float64, most, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, at most %.2g allowed%s\n", f, most, formerly("%.2g", former))
	return f
}

// bounded prints a figure with its allowed maximum, and the previous value.
func bounded(name, unit string, ours, baseline []float64, most, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, at most %.0f %s%s\n", f, most, unit, formerly("%.0f", former))
	return f
}

func formerly(format string, former float64) string {
	if former == never {
		return ", not measured before"
	}
	return fmt.Sprintf(", formerly "+format, former)
}
