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

// recordingKind selects the steps of recorded lives by their first connection: a receiver of statements, or a
// provider that counts quantities. leftOut names the steps that the real components cannot perform for one
// customer alone, that the fake provider does not support, or that lives of the other kind cover. cannot
// names the steps that cannot happen.
type recordingKind struct {
	name            string
	leftOut, cannot []string
	pairs           bool // whether each pair of kinds must happen in one life, instead of each kind
}

// apartOnes names the kinds of steps that happen only in some lives, chosen by the seed. They are not recorded.
var apartOnes = namesOf(restoring, charging, owning, streaming)

// receivers is the kind of recorded lives that begin at a receiver of statements.
var receivers = recordingKind{
	name: "statements", pairs: true,
	leftOut: slices.Concat(apartOnes, []string{"no connection", "retention", "a new counter", "the receiver moves", "another mode"}),
	cannot: []string{
		"a saved error", "a silent drop", "counts lag", "a link", "an unlink", "another subscription", "an item is removed", "an item is added", "a final invoice",
		"a missed invoice is read",
	},
}

// counters is the kind of recorded lives that begin at a provider that counts quantities.
var counters = recordingKind{
	name: "quantities",
	leftOut: slices.Concat(apartOnes, []string{
		"no connection", "retention", "counts lag", "an item is removed", "an item is added", "an old report comes again",
		"a worker goes on", "another worker goes on", "the receiver moves", "another mode", "a missed invoice is read",
	}),
}

// kindOf returns the kind of the life of a seed.
func kindOf(seed uint64) recordingKind {
	if begin(seed).connection.Statements {
		return receivers
	}
	return counters
}

// TestRecordedLives checks that the simulator still produces the recorded lives. The tests of package
// activities replay these lives with the real components.
func TestRecordedLives(t *testing.T) {
	t.Parallel()
	if *update {
		chooseLives(t)
	}
	recorded, err := lives.Load(recordings)
	require.NoError(t, err)
	happened := map[string]coverage{receivers.name: make(coverage), counters.name: make(coverage)}
	for _, former := range recorded {
		l := record(former.Seed)
		require.Empty(t, l.failure)
		text, err := l.recorded(former.Seed).Encode()
		require.NoError(t, err)
		file, err := os.ReadFile(recordingOf(former.Seed))
		require.NoError(t, err)
		require.Equal(t, string(file), string(text), "seed %d lives another life today: make generate", former.Seed)
		for pair := range l.pairs() {
			happened[kindOf(former.Seed).name][pair] = 1
		}
	}
	receivers.require(t, happened[receivers.name])
	counters.require(t, happened[counters.name])
}

// require checks that every kind of step that can happen did happen, or every pair of kinds if k.pairs is
// set.
func (k recordingKind) require(t *testing.T, happened coverage) {
	t.Helper()
	var possible []int
	for i, kind := range kinds {
		if !slices.Contains(k.leftOut, kind.name) && !slices.Contains(k.cannot, kind.name) {
			possible = append(possible, i)
		}
	}
	for i, a := range possible {
		for _, b := range possible[:i+1] {
			if k.pairs || a == b {
				require.Contains(t, happened, [2]int{a, b}, "%q and %q happen together in no life of %s: make generate", kinds[a].name, kinds[b].name, k.name)
			}
		}
	}
}

// recordingOf returns the file with the recorded life of a seed.
func recordingOf(seed uint64) string {
	return filepath.Join(recordings, fmt.Sprintf("%s-%d.json", kindOf(seed).name, seed))
}

// record simulates the life of a seed and records it on a tape. It skips the steps in leftOut of the life's
// recordingKind.
func record(seed uint64) *life {
	leftOut := kindOf(seed).leftOut
	steps := slices.DeleteFunc(byChance(seed), func(s step) bool { return slices.Contains(leftOut, kinds[s.kind].name) })
	return live(seed, steps, circumstances{tape: newTape(), monthly: true})
}

// recordable reports whether the real components can replay the life to its end. A life may fail because the
// steps that read some final invoices are skipped. At a provider that counts quantities, the life must not
// change the customer's currency, or send a quantity that the provider may refuse because of its timestamp.
func (l *life) recordable() bool {
	if l.failure != "" {
		return false
	}
	return l.farSides[0].receiver || !l.tape.aged && !slices.ContainsFunc(l.farSides, func(f *farSide) bool {
		all := f.contracts["cus_1"]
		return slices.ContainsFunc(all, func(c *contract) bool { return c.currency != all[0].currency })
	})
}

// chosenFrom is the number of seeds from which the recorded lives are chosen. withDimensions is the number of
// further seeds for lives with prices by dimension.
const chosenFrom, withDimensions = 2000, 200

// recordsDimensions reports whether the recorded life of a seed has prices by dimension. Of the recorded
// lives, only those that begin at a receiver of statements have such prices.
func recordsDimensions(seed uint64) bool {
	return seed > chosenFrom && seed <= chosenFrom+withDimensions && begin(seed).connection.Statements
}

// chooseLives replaces the recorded lives. It repeatedly records the life with the most features that no
// recorded life has, until every feature is recorded.
func chooseLives(t *testing.T) {
	former, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	require.NoError(t, err)
	for _, path := range former {
		require.NoError(t, os.Remove(path))
	}
	features := make(map[uint64]map[string]bool)
	for seed := uint64(1); seed <= chosenFrom+withDimensions; seed++ {
		if l := record(seed); (seed <= chosenFrom || l.dimensions) && l.recordable() {
			features[seed] = l.features(seed)
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

// features returns the features of a life. Each feature must occur in one of the recorded lives.
func (l *life) features(seed uint64) map[string]bool {
	if l.dimensions {
		return l.dimensionFeatures()
	}
	recorded := l.recorded(seed)
	kind := kindOf(seed)
	features := map[string]bool{fmt.Sprint(recorded.Timezone, recorded.BillingStartsAt != nil): true}
	for pair := range l.pairs() {
		if kind.pairs || pair[0] == pair[1] {
			features[fmt.Sprint(kind.name, pair)] = true
		}
	}
	for settled := range l.tape.settled {
		features[fmt.Sprint(kind.name, settled)] = true
	}
	for _, a := range recorded.Actions {
		features[fmt.Sprint(kind.name, a.Do, a.Method, a.Fate, a.Busy, a.OutOfSync, a.Currency, a.Trial)] = true
	}
	for _, b := range l.bookings {
		features[fmt.Sprint(kind.name, b.Currency, b.Billed, l.onTrial(*l.period(b.Period)))] = true
	}
	for _, r := range recorded.Reports {
		features[fmt.Sprint(kind.name, r.Kind, r.State, min(r.Attempts, 4))] = true
		for _, line := range r.Lines {
			elsewhere := line.Closed == nil && !line.Quantity.Equal(line.Usage)
			features[fmt.Sprint(kind.name, r.Kind, line.Currency, line.Closed != nil, elsewhere, line.Amount.IsNegative(), r.State)] = true
		}
	}
	return features
}

// dimensionFeatures returns the kinds of closed lines by dimension that the life has. Each kind is
// in one of the recorded lives.
func (l *life) dimensionFeatures() map[string]bool {
	features := make(map[string]bool)
	for _, p := range l.periods {
		for _, line := range p.Closed {
			if line.Terms.Dimensions != nil && line.Events > 0 {
				units, _ := line.Terms.UnratedUsage(line.Dimensions)
				features[fmt.Sprint("by dimension, unrated:", !units.IsZero(), " late:", len(l.late(line.MeterID, p)) > 0)] = true
				features[fmt.Sprint("by dimension, default:", line.Terms.Dimensions.Default != nil, " by:", line.Terms.Dimensions.By)] = true
			}
		}
	}
	return features
}
