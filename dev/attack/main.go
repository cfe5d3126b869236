// Command attack measures the effect of attacks on a well-behaved tenant, over loopback. First it runs each
// attack alone for EACH seconds, or only the attacks with names that contain ATTACK. Then it runs ROUNDS
// rounds: SECONDS seconds without attacks, and SECONDS seconds with all attacks except madeAlone.
//
// The exit status is 1 if the tenant's requests fail or take much longer than without attacks, or if a
// process needs more memory than allowed.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
)

// The p99 under attack may be timesAlone times the p99 without attacks, or fastEnough if that is more.
const (
	timesAlone = 5
	fastEnough = 50 * time.Millisecond
)

func main() {
	attackIfOrdered()
	proc.Main("attack", func(t testing.TB) {
		each, rounds, seconds := proc.Number(t, "EACH", 10), proc.Number(t, "ROUNDS", 5), proc.Number(t, "SECONDS", 60)
		d := newDrill(t)
		d.measureEach(time.Duration(each) * time.Second)
		d.measureAll(rounds, time.Duration(seconds)*time.Second)
		d.requireMemory()
	})
}

// measureEach runs the attacks one after the other.
func (d *drill) measureEach(lasts time.Duration) {
	alone := d.watch(lasts)
	fmt.Printf("%-50s %s\n", "alone", alone)
	for _, kind := range attacks {
		if !strings.Contains(kind.name, os.Getenv("ATTACK")) {
			continue
		}
		end := d.attack(kind.name, atFullSpeed)
		saw := d.watch(lasts)
		attempts := end()
		api, _ := d.api.Memory(d)
		worker, _ := d.worker.Memory(d)
		fmt.Printf("%-50s %s, %.0f attempts a second; RSS of api %d MiB, of worker %d MiB\n",
			kind.name, saw, float64(attempts)/lasts.Seconds(), api>>20, worker>>20)
		d.requireAnswers(kind.name, saw)
		d.requireFast(kind.name, alone.p99(), saw.p99())
	}
}

// measureAll runs all attacks except madeAlone together.
func (d *drill) measureAll(rounds int, lasts time.Duration) {
	var alone, attacked []time.Duration
	for round := range rounds {
		calm := d.watch(lasts)
		end := d.attack("", atFullSpeed)
		busy := d.watch(lasts)
		attempts := end()
		alone, attacked = append(alone, calm.p99()), append(attacked, busy.p99())
		fmt.Printf("round %d: alone %s; under all attacks %s, %.0f attempts a second\n", round+1, calm, busy, float64(attempts)/lasts.Seconds())
		d.requireAnswers(fmt.Sprintf("round %d", round+1), calm, busy)
	}
	fmt.Printf("median p99 alone %s, under all attacks %s\n", shown(figure.Median(alone)), shown(figure.Median(attacked)))
	d.requireFast("all at once", figure.Median(alone), figure.Median(attacked))
}

// requireAnswers reports every failed or slow request as a failure.
func (d *drill) requireAnswers(under string, all ...*seen) {
	for _, s := range all {
		for _, failure := range slices.Concat(s.failed, s.slow) {
			d.Errorf("%s: %s", under, failure)
		}
	}
}

// requireFast fails if the p99 under attack is much higher than without attacks.
func (d *drill) requireFast(under string, alone, attacked time.Duration) {
	if most := max(timesAlone*alone, fastEnough); attacked > most {
		d.Errorf("%s: the p99 is above %s", under, shown(most))
	}
}

// shown rounds a duration for the output.
func shown(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
