package odometer_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests assert order, counts and times of an injected clock. A duration that is measured
// depends on what else the machine does: a promise about one is a figure of make bench or
// make attack. Within synctest.Test, and in Temporal's test environment, time is simulated.

// clockCalls read the machine's clock, compare times with a tolerance, or wait for a time.
var clockCalls = map[string]bool{
	"time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true, "time.AfterFunc": true, "time.Tick": true,
	"time.NewTimer": true, "time.NewTicker": true, "context.WithTimeout": true, "context.WithDeadline": true,
	"require.WithinDuration": true, "require.InDelta": true, "assert.WithinDuration": true, "assert.InDelta": true,
}

// simulated are the folders whose tests have Temporal's test environment.
var simulated = map[string]bool{"workflows": true}

// durationsAllowed are the lines that may call one of clockCalls.
var durationsAllowed = map[string]string{
	"took = time.Since(began)":                         "make bench measures it; nothing asserts it",
	"// the database keeps microseconds":               "a rounding",
	"left <= time.Since(m.began)+100*time.Millisecond": "Redis has no other clock: near the window's end the test advances past it",
	"s.fake.Advance(time.Until(hold.Deadline)":         "the fake's clock begins at the real time",
	"begun = append(begun, time.Since(began))":         "called within synctest.Test",
	"time.Sleep(40 * time.Millisecond)":                "the same",

	// A pause between two polls, whose result does not depend on its length.
	"time.Sleep(time.Millisecond)":             "of the fake's requests",
	"case <-time.After(5 * time.Millisecond)":  "of the receiver's messages",
	"case <-time.After(10 * time.Millisecond)": "of an API that is being restarted",
	"<-time.After(c.pause)":                    "of Stripe itself, which limits its callers",

	// A time that passes in what is tested, however slow the machine is.
	"context.WithTimeout(t.Context(), 50*time.Millisecond)":           "the call outlasts it",
	"context.WithTimeout(context.Background(), stripe.Timeout)":       "the client's own timeout",
	"context.WithTimeout(context.Background(), 10*time.Second)":       "an example for readers",
	"context.WithTimeout(t.Context(), 2*time.Second) // by then it w": "the call may be cut off at any point",
	"case <-time.After(2 * activities.Beat)":                          "a receiver that is slower than a heartbeat",
	"time.Sleep(30 * time.Millisecond) // on its way":                 "a network that is slow",
	"// the moment of the crash":                                      "any moment",
	"deadline := time.After(atMost)":                                  "the crash comes then at the latest",
}

func TestTestsAssertNoMeasuredDuration(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, path := range testFiles(t) {
		for _, line := range clockCallsIn(t, path) {
			if reason, allowed := allowedDuration(line); allowed {
				used[reason] = true
				continue
			}
			t.Errorf("%s: %s\nAssert an order, a count or a time of an injected clock. What only ends a test that hangs waits for dbtest.Deadline.", path, line)
		}
	}
	for line := range durationsAllowed {
		require.True(t, used[line], "no test needs %q to be allowed", line)
	}
}

func allowedDuration(line string) (allowed string, is bool) {
	for allowed := range durationsAllowed {
		if strings.Contains(line, allowed) {
			return allowed, true
		}
	}
	return "", strings.Contains(line, "dbtest.Deadline") || strings.HasSuffix(line, ", 0)")
}

// TestPropertiesAreNamedSo: make test-long selects property tests by their name.
func TestPropertiesAreNamedSo(t *testing.T) {
	t.Parallel()
	for _, path := range testFiles(t) {
		for _, function := range strings.Split(strings.Join(lines(t, path), "\n"), "\nfunc ") {
			name, body, _ := strings.Cut(function, "(")
			if strings.Contains(body, "rapid.Check(") {
				t.Errorf("%s: %s: call histories.Check instead", path, name)
			}
			if strings.Contains(body, "histories.Check(") && !strings.HasPrefix(name, "TestProperty") {
				t.Errorf("%s: %s: a test of random histories is named TestProperty…", path, name)
			}
		}
	}
}

func testFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || simulated[path]) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") && path != "durations_test.go" {
			paths = append(paths, path)
		}
		return nil
	})
	require.NoError(t, err)
	return paths
}

// clockCallsIn returns the lines of a file that call one of clockCalls outside of simulated time.
func clockCallsIn(t *testing.T, path string) (found []string) {
	t.Helper()
	files, all := token.NewFileSet(), lines(t, path)
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := function.X.(*ast.Ident)
		if !ok {
			return true
		}
		name := from.Name + "." + function.Sel.Name
		if clockCalls[name] {
			found = append(found, strings.TrimSpace(all[files.Position(call.Pos()).Line-1]))
		}
		return name != "synctest.Test"
	})
	return found
}
