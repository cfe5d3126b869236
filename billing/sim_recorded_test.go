package billing_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/lives"
)

//go:generate go test -run TestRecordedLives -update

var update = flag.Bool("update", false, "choose lives, and write them to testdata/lives")

const recordings = "testdata/lives"

// simulatedOnly are the kinds of steps that are left out of recorded lives: no
// API ends a connection, or drops the events of one customer alone.
var simulatedOnly = []string{"no connection", "retention", "a new counter"}

// countersOnly are the kinds of steps that do not happen at a receiver.
var countersOnly = []string{
	"a saved error", "a silent drop", "counts lag", "a link", "an unlink", "another subscription", "an item is removed", "an item is added", "a final invoice",
}

// TestRecordedLives holds the files of recorded lives, which activities' tests
// live with real parts, to what is lived today. Every two kinds of steps happen
// in one of them.
func TestRecordedLives(t *testing.T) {
	t.Parallel()
	if *update {
		chooseLives(t)
	}
	recorded, err := lives.Read(recordings)
	require.NoError(t, err)
	var together coverage
	for _, former := range recorded {
		l := record(former.Seed)
		require.Empty(t, l.failure)
		text, err := l.recorded(former.Seed).Encode()
		require.NoError(t, err)
		file, err := os.ReadFile(recordingOf(former.Seed))
		require.NoError(t, err)
		require.Equal(t, string(file), string(text), "seed %d lives another life today: make generate", former.Seed)
		together.add(l.pairs())
	}
	possible := slices.Collect(func(yield func(int) bool) {
		for i, k := range kinds {
			if !slices.Contains(simulatedOnly, k.name) && !slices.Contains(countersOnly, k.name) && !yield(i) {
				return
			}
		}
	})
	for i, a := range possible {
		for _, b := range possible[:i] {
			require.NotZero(t, together[[2]int{a, b}], "%q and %q happen together in no life that is recorded: make generate", kinds[a].name, kinds[b].name)
		}
	}
}

func recordingOf(seed uint64) string {
	return filepath.Join(recordings, fmt.Sprintf("statements-%d.json", seed))
}

// record lives the life of a seed, without what only a simulator can do.
func record(seed uint64) *life {
	steps := slices.DeleteFunc(script(seed), func(s step) bool { return slices.Contains(simulatedOnly, kinds[s.kind].name) })
	return live(seed, steps, circumstances{tape: &tape{passes: make(map[*pass]int)}})
}

// pairs are the kinds of steps that happened, two at a time.
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

// chooseLives writes down lives in which all happens, and every two kinds of
// steps in one, that happens in any of some: always the one that adds most.
func chooseLives(t *testing.T) {
	former, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	require.NoError(t, err)
	for _, path := range former {
		require.NoError(t, os.Remove(path))
	}
	features := make(map[uint64]map[string]bool)
	for seed := uint64(1); seed <= 3000; seed++ {
		if begin(seed).connection.Statements {
			features[seed] = record(seed).features(seed)
		}
	}
	known := make(map[string]bool)
	for {
		best, most := uint64(0), 0
		for _, seed := range slices.Sorted(maps.Keys(features)) {
			maps.DeleteFunc(features[seed], func(f string, _ bool) bool { return known[f] })
			if n := len(features[seed]); n > most {
				best, most = seed, n
			}
		}
		if most == 0 {
			return
		}
		maps.Copy(known, features[best])
		text, err := record(best).recorded(best).Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(recordingOf(best), text, 0o600))
	}
}

// features are what is to happen in one of the recorded lives.
func (l *life) features(seed uint64) map[string]bool {
	recorded := l.recorded(seed)
	features := map[string]bool{fmt.Sprint(recorded.Timezone, recorded.BillingStartsAt != nil): true}
	for pair := range l.pairs() {
		features[fmt.Sprint(pair)] = true
	}
	for _, a := range recorded.Actions {
		features[fmt.Sprint(a.Do, a.Fate, a.Busy, a.OutOfSync)] = true
	}
	for _, r := range recorded.Reports {
		features[fmt.Sprint(r.State, min(r.Attempts, 4))] = true
		for _, line := range r.Lines {
			elsewhere := line.Closed == nil && !line.Quantity.Equal(line.Usage)
			features[fmt.Sprint(line.Currency, line.Closed != nil, elsewhere, line.Amount.IsNegative(), r.State)] = true
		}
	}
	return features
}
