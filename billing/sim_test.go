package billing_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// number returns the value of an environment variable, or otherwise if the variable is not set.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	text, set := os.LookupEnv(variable)
	if !set {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestPropertyLives checks the invariants of billing in LIVES simulated lives with consecutive seeds, from SEED
// on. Without SEED, runs of fewer than 1000 lives start at a seed that changes daily.
//
// The test also checks coverage. Runs of 1000 or more lives check that each kind of step, and each pair of kinds
// that one life can contain, occurs in one life of 1000. From 20,000 lives on, the minimum is one life of 500. For
// rare pairs it is one life of 100,000. Runs of 20,000 or more lives also check which kinds directly follow each
// other, see requireOrders.
func TestPropertyLives(t *testing.T) {
	t.Parallel()
	defer debug.SetGCPercent(debug.SetGCPercent(3200)) // fewer collections: no life is retained after its end
	lives, allowed := number(t, "LIVES", 10*uint64(histories.Count())), number(t, "FAILURES", 1)
	first := number(t, "SEED", 1)
	if _, chosen := os.LookupEnv("SEED"); !chosen && lives < 1000 {
		first = uint64(clock.Now().Unix()) / (24 * 60 * 60) * 1000
	}
	workers := runtime.GOMAXPROCS(0)
	found := make([]covered, workers)
	var living sync.WaitGroup
	var lived, failed atomic.Uint64 // lived counts the lives begun: the workers share it, because some lives take far longer
	for w := range found {
		living.Go(func() {
			for n := lived.Add(1); n <= lives && failed.Load() < allowed; n = lived.Add(1) {
				seed := first + n - 1
				if failure := found[w].liveOne(seed); failure != "" {
					failed.Add(1)
					t.Error(failure)
				}
			}
		})
	}
	living.Wait()
	if t.Failed() {
		return
	}
	var all covered
	for _, c := range found {
		all.pairs.add(c.pairs)
		all.followed.add(c.followed)
	}
	all.require(t, lives)
	all.requireOrders(t, lives)
}

// covered counts pairs of kinds of steps in lives: pairs that occurred in one life, and pairs of which the second
// kind directly followed the first.
type covered struct{ pairs, followed coverage }

// require checks that each pair of kinds of steps occurred in enough of the lives.
func (c covered) require(t *testing.T, lives uint64) {
	t.Helper()
	least := lives / 500
	if lives < 20_000 {
		least = lives / 1000
	}
	for a := range kinds {
		for b := range a + 1 {
			least := least
			if isListed(seldomInOneLife, kinds[a].name, kinds[b].name) || isListed(seldomInOneLife, kinds[b].name, kinds[a].name) {
				least = lives / 100_000
			}
			if n := c.pairs[[2]int{a, b}]; n < int(least) && inOneLife(kinds[a].name, kinds[b].name) {
				t.Errorf("%q and %q happened in %d of %d lives", kinds[a].name, kinds[b].name, n, lives)
			}
		}
	}
}

// coverage maps each pair of kinds of steps to the number of lives in which the pair occurred.
type coverage map[[2]int]int

// add adds the numbers of lives in o.
func (c *coverage) add(o coverage) {
	if *c == nil {
		*c = make(coverage)
	}
	for pair, n := range o {
		(*c)[pair] += n
	}
}

// pairs returns each pair of kinds of steps that occurred in the life, and each kind paired with itself.
func (l *life) pairs() coverage {
	happened := make(coverage)
	for a, is := range l.happened {
		for b := range a + 1 {
			if is && l.happened[b] {
				happened[[2]int{a, b}] = 1
			}
		}
	}
	return happened
}

// liveOne runs the life of a seed. If the seed is a multiple of 16, it runs the life again with other times of
// syncs, and with a neighbour for whom every call fails: the result must be the same. It returns a description of
// the failure, or "".
func (c *covered) liveOne(seed uint64) (failure string) {
	l := live(seed, script(seed), circumstances{})
	if l.failure != "" {
		return report(seed, circumstances{})
	}
	c.pairs.add(l.pairs())
	c.followed.add(l.followed)
	if seed%16 != 0 {
		return ""
	}
	if failure := otherTimes(seed, script(seed), circumstances{}); failure != "" {
		return fmt.Sprintf("SEED=%d LIVES=1: %s", seed, failure)
	}
	if beside := live(seed, script(seed), circumstances{neighbour: true}); beside.all() != l.all() {
		return fmt.Sprintf("SEED=%d LIVES=1: beside a customer for whom every call fails it comes to\n%s\ninstead of\n%s", seed, beside.all(), l.all())
	}
	return ""
}

// report describes a failed life. Except in short mode, it first removes the steps without which the life still
// fails.
func report(seed uint64, in circumstances) string {
	steps := script(seed)
	whole := live(seed, steps, in).failure
	if testing.Short() {
		return fmt.Sprintf("SEED=%d LIVES=1: %s", seed, whole)
	}
	for i := 0; i < len(steps); {
		fewer := slices.Delete(slices.Clone(steps), i, i+1)
		if live(seed, fewer, in).failure != "" {
			steps, i = fewer, 0
			continue
		}
		i++
	}
	var text strings.Builder
	fmt.Fprintf(&text, "SEED=%d LIVES=1: %s\nThis is left of it: %s\n", seed, whole, live(seed, steps, in).failure)
	for _, s := range steps {
		fmt.Fprintf(&text, "  %s (%d)\n", kinds[s.kind].name, s.seed)
	}
	return text.String()
}

// reportIndependentKinds lists the kinds of steps with an effect that does not depend on earlier reports.
var reportIndependentKinds = []string{
	"usage", "a correction", "older usage", "an earlier month's usage", "days pass", "a closing", "a sync", "counts lag", "a price", "a customer's own price", "a usage scale",
	"a worker dies after planning", "a worker dies before a call", "a worker dies after a call", "a worker dies after recording",
	"an answer is lost", "a server error", "a refusal", "a silent drop", "a final invoice",
}

// otherTimes runs the steps of reportIndependentKinds of a life three times: with its syncs, without syncs, and with a
// sync after each step. Its periods must close with the same content and reach the same final totals. It returns a description of
// the failure, or "".
func otherTimes(seed uint64, steps []step, in circumstances) string {
	steps = slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !slices.Contains(reportIndependentKinds, kinds[s.kind].name) })
	in.known = true
	usual, lazy, eager := live(seed, steps, in), in, in
	lazy.lazy, eager.eager = true, true
	for _, other := range []*life{live(seed, steps, lazy), live(seed, steps, eager)} {
		if usual.failure+other.failure != "" {
			return usual.failure + other.failure
		}
		if n := min(len(usual.ends), len(other.ends)); !slices.Equal(usual.ends[:n], other.ends[:n]) {
			return fmt.Sprintf("with other times of its syncs its periods close to\n%s\ninstead of\n%s", strings.Join(other.ends, "\n"), strings.Join(usual.ends, "\n"))
		}
		if usual.outcome() != other.outcome() {
			return fmt.Sprintf("with other times of its syncs it comes to\n%s\ninstead of\n%s", other.outcome(), usual.outcome())
		}
	}
	return ""
}

// outcome returns the final usage and billed amounts of each closed period that began before the steps ended. The
// amounts include late usage. It returns "" if the life began at a counter.
func (l *life) outcome() string {
	if !l.farSides[0].receiver {
		return "" // a counter decides itself until when it accepts quantities
	}
	var text strings.Builder
	for _, p := range l.periods {
		if p.ClosedAt == nil || p.Start.After(l.until) {
			continue
		}
		for _, line := range p.Closed {
			usage := line.Usage
			for _, value := range l.lateValues(line.MeterID, p) {
				usage = usage.Add(value)
			}
			own, late := make(map[string]metering.Decimal), make(map[string]metering.Decimal)
			for _, f := range l.farSides {
				f.amounts(l.name, line.MeterID, p.Place(), own, late)
			}
			for currency, amount := range late {
				own[currency] = own[currency].Add(amount)
			}
			fmt.Fprintln(&text, p.Start, p.End, line.MeterID, usage, line.PriceVersion, own)
		}
	}
	return text.String()
}

// all returns the closed periods as they closed, and each stored report with its state, as text.
func (l *life) all() string {
	text := strings.Join(l.ends, "\n")
	for _, r := range l.reports {
		text += "\n" + r.closed + string(r.state)
	}
	return text
}
