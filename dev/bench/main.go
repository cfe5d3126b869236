// Bench measures ingest against its baselines, in alternating rounds on one machine, and prints the ratios with
// their spread. It also measures the latency of single events, and the effect of 100 times as many events.
// Further measurements are breakdowns, revenue and bills of many customers, and the cost of quotas and alerts.
//
// Arguments select measurements: batches, properties, tenants, single, latency, growth, breakdown, revenue,
// quotas, alerts and notifications. large, which must be selected, is growth with LARGE_EVENTS events.
// Bench needs a database server in TEST_DATABASE_URL: make bench, make bench-large.
package main

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
)

const rounds = 5

// never is the previous value of a figure that was not measured before.
const never = 0

// measurements lists the measurements. Each has its own database.
var measurements = []struct {
	name    string
	measure func(*bench) []figure.Figure
	byHand  bool // runs only if an argument selects it
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
}

func main() {
	only := os.Args[1:]
	proc.Main("bench", func(t testing.TB) {
		for _, m := range measurements {
			if !slices.Contains(only, m.name) && (len(only) > 0 || m.byHand) {
				continue
			}
			var figures []figure.Figure
			require.NoError(t, proc.Run(t.Context(), func(t testing.TB) { figures = m.measure(open(t)) }), m.name)
			require.NoError(t, figure.Keep(".dev/bench.json", figures...))
		}
	})
}

// batches compares batches of several shapes with COPY.
func batches(b *bench) (figures []figure.Figure) {
	for _, s := range []shape{tenCustomers, thousandCustomers, keysInOrder, hotCustomer, eightMeters} {
		figures = append(figures, b.batchAgainstCopy(s)...)
	}
	return figures
}

// thousandTenants compares batches of 1,000 tenants with COPY.
func thousandTenants(b *bench) []figure.Figure { return []figure.Figure{b.tenantsAgainstCopy()} }

// single compares requests with one event each with a server that uses one transaction per request.
func single(b *bench) []figure.Figure {
	b.createMeter(tenCustomers.eventType, tenCustomers.eventType)
	b.startUncoalesced()
	b.orientation()
	return []figure.Figure{
		b.singleAgainstUncoalesced("ingest-single-vs-uncoalesced", singleConnections, 6.6),
		b.singleAgainstUncoalesced("ingest-single-256-connections-vs-uncoalesced", manyConnections, never),
	}
}

// compare returns the figure of rounds, and prints it with the required minimum of its ratio and the previous ratio.
func compare(name, unit string, ours, baseline []float64, reach, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, to reach %.2f%s\n", f, reach, formerly("%.2f", former))
	return f
}

// within returns the figure of rounds, and prints it with the allowed maximum of its ratio and the previous ratio.
func within(name, unit string, ours, baseline []float64, most, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, at most %.2g allowed%s\n", f, most, formerly("%.2g", former))
	return f
}

// bounded returns the figure of rounds, and prints it with the allowed maximum of our value and the previous value.
func bounded(name, unit string, ours, baseline []float64, most, former float64) figure.Figure {
	f := figure.Compare(name, unit, ours, baseline)
	fmt.Printf("%s, at most %.0f %s%s\n", f, most, unit, formerly("%.0f", former))
	return f
}

// formerly returns the previous value for the output.
func formerly(format string, former float64) string {
	if former == never {
		return ", not measured before"
	}
	return fmt.Sprintf(", formerly "+format, former)
}
