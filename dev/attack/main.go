// Command attack measures what a well-behaved tenant notices of everything that
// strangers and another tenant can think of: processes of its own on loopback,
// ROUNDS rounds of SECONDS seconds alone and as many under attack. It ends with 1
// where the tenant's requests fail or take much longer than alone, or where the
// API needs more memory than it may.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/odometer-metering/odometer/dev/proc"
)

// What is allowed under attack.
const (
	timesAlone = 5
	fastEnough = 50 * time.Millisecond
	mostMemory = 150 << 20
)

func main() {
	attackIfOrdered()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rounds, seconds := number("ROUNDS", 5), number("SECONDS", 60)
	err := proc.Run(ctx, func(t testing.TB) { measure(t, rounds, time.Duration(seconds)*time.Second) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func number(name string, absent int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 1 {
		return absent
	}
	return n
}

func measure(t testing.TB, rounds int, lasts time.Duration) {
	d := newDrill(t)
	var alone, attacked []time.Duration
	for round := range rounds {
		calm := d.watch(lasts)
		end := d.attack(atFullSpeed)
		busy := d.watch(lasts)
		attempts := end()
		alone, attacked = append(alone, calm.p99()), append(attacked, busy.p99())
		fmt.Printf("round %d: p99 alone %s, under attack %s, %d requests, %d failed, %.0f attempts a second\n",
			round+1, shown(calm.p99()), shown(busy.p99()), len(calm.took)+len(busy.took), len(calm.failed)+len(busy.failed), float64(attempts)/lasts.Seconds())
		for _, failure := range slices.Concat(calm.failed, busy.failed, calm.slow, busy.slow) {
			t.Errorf("round %d: %s", round+1, failure)
		}
	}
	_, peak := d.api.Memory(t)
	fmt.Printf("median p99 alone %s, under attack %s; RSS of api at most %d MiB\n", shown(median(alone)), shown(median(attacked)), peak>>20)
	if most := max(timesAlone*median(alone), fastEnough); median(attacked) > most {
		t.Errorf("the median p99 under attack is above %s", shown(most))
	}
	if peak > mostMemory {
		t.Errorf("the RSS of api was above %d MiB", mostMemory>>20)
	}
}

func shown(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
