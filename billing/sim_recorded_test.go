package billing_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test -run TestRecordedLives -update

var update = flag.Bool("update", false, "write the lives that activities' tests live too to testdata/lives")

// simulatedOnly are the kinds of steps that are left out of recorded lives: no
// API ends a connection, or drops the events of one life alone.
var simulatedOnly = []string{"no connection", "retention", "a new counter"}

const recordedLives = 24

// TestRecordedLives holds the files of recorded lives to what is lived today.
func TestRecordedLives(t *testing.T) {
	t.Parallel()
	happened := make(map[string]bool)
	for n, seed := 0, uint64(1); n < recordedLives; seed++ {
		if !begin(seed).connection.Statements {
			continue
		}
		n++
		steps := slices.DeleteFunc(script(seed), func(s step) bool { return slices.Contains(simulatedOnly, kinds[s.kind].name) })
		l := live(seed, steps, circumstances{tape: &tape{passes: make(map[*pass]int)}})
		require.Empty(t, l.failure)
		for kind, is := range l.happened {
			happened[kinds[kind].name] = happened[kinds[kind].name] || is
		}
		text, err := l.recorded(seed).Encode()
		require.NoError(t, err)
		path := filepath.Join("testdata/lives", fmt.Sprintf("statements-%d.json", seed))
		if *update {
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(file), string(text), "the life of seed %d is another one: make generate", seed)
	}
	t.Log(happened)
}
