package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests assert the order of steps, counts, and the times of an injected clock. They do not assert measured
// durations, which depend on the load of the machine. make bench, make attack and make newcomer assert measured
// durations. Within synctest.Test, and in Temporal's test environment, time is simulated.

// clockCalls lists functions that read the machine's clock, compare times with a tolerance, or wait for a time.
var clockCalls = map[string]bool{
	"time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true, "time.AfterFunc": true, "time.Tick": true,
	"time.NewTimer": true, "time.NewTicker": true, "context.WithTimeout": true, "context.WithDeadline": true, "context.WithTimeoutCause": true,
	"require.Eventually": true, "require.Never": true, "assert.Eventually": true, "assert.Never": true, "dbtest.Within": true,
	"require.WithinDuration": true, "require.InDelta": true, "assert.WithinDuration": true, "assert.InDelta": true,
}

// simulated lists the folders with tests in Temporal's test environment.
var simulated = map[string]bool{"workflows": true}

// durationsAllowed lists the lines that may call one of clockCalls: it maps the file and a part of each line to
// the reason.
var durationsAllowed = map[string]string{
	"worker/auto_sync_test.go: took = time.Since(began)":              "make bench measures it; nothing asserts it",
	"worker/holds_test.go: s.fake.Advance(time.Until(hold.Deadline)":  "the fake's clock begins at the real time",
	"api/passwords_test.go: begun = append(begun, time.Since(began))": "called within synctest.Test",
	"api/passwords_test.go: time.Sleep(40 * time.Millisecond)":        "called within synctest.Test",

	// A pause between two polls. Its length does not change the result.
	"providers/stripe/stripe_test.go: time.Sleep(time.Millisecond)":        "between polls of the fake's requests",
	"providers/stripetest/failures_test.go: time.Sleep(time.Millisecond)":  "between polls of the fake's requests",
	"providers/stripe/contract_test.go: dbtest.Within(c, c.timeout":        "Stripe itself may take hours",
	"worker/kill_test.go: case <-time.After(5 * time.Millisecond)":         "between polls of the receiver",
	"cmd/odometer/crash_test.go: case <-time.After(10 * time.Millisecond)": "between tries of an API that restarts",
	"providers/stripe/contract_test.go: <-time.After(c.pause)":             "Stripe limits its callers",

	// A timeout or pause that the test needs on every machine.
	"client/recorder_test.go: ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)":                                                       "the call outlasts it",
	"providers/redact_test.go: hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)":                                                    "the call outlasts it",
	"providers/stripe/contract_test.go: context.WithTimeout(context.Background(), stripe.Timeout)":                                                        "the client's own timeout",
	"client/recorder_test.go: context.WithTimeout(context.Background(), 10*time.Minute)":                                                                  "an example for readers",
	"worker/stripe_failures_test.go: context.WithTimeout(t.Context(), 2*time.Second)":                                                                     "the call may be cut off at any point",
	"worker/neighbours_test.go: case <-time.After(2 * activities.Beat)":                                                                                   "a receiver that is slower than a heartbeat",
	"db/crash_test.go: time.Sleep(30 * time.Millisecond) // network delay: the server receives the last bytes after the client has closed its connection": "a network that is slow",
	"worker/kill_test.go: // a random delay before the kill":                                                                                              "the crash comes at a random time",
	"worker/kill_test.go: deadline := time.After(atMost)":                                                                                                 "the crash comes then at the latest",
}

func TestTestsAssertNoMeasuredDuration(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, path := range testFiles(t) {
		for _, line := range clockCallsIn(t, path) {
			if allowedDuration(path+": "+line, used) {
				continue
			}
			t.Errorf("%s: %s\nAssert an order, a count or a time of an injected clock. What only ends a test that hangs waits for dbtest.Deadline.", path, line)
		}
	}
	for line := range durationsAllowed {
		require.True(t, used[line], "no test needs %q to be allowed", line)
	}
}

// allowedDuration reports whether a line may call one of clockCalls. It records the used entry of durationsAllowed.
func allowedDuration(line string, used map[string]bool) bool {
	for allowed := range durationsAllowed {
		file, text, _ := strings.Cut(allowed, ": ")
		if strings.HasPrefix(line, file+": ") && strings.Contains(line, text) {
			used[allowed] = true
			return true
		}
	}
	return strings.Contains(line, "dbtest.Deadline") || strings.Contains(line, "require.InDelta(") && strings.HasSuffix(line, ", 0)")
}

// shortTimeouts lists calls with timeouts of seconds or minutes, which replace the timeouts of the test helpers.
var shortTimeouts = []struct {
	files   []string // pathspecs of git
	call    *regexp.Regexp
	instead string
}{
	{
		[]string{"dashboard/src/*.ts*"}, regexp.MustCompile(`\bvi\.wait(For|Until)\(|\bexpect\.poll\(`),
		"Use waitFor of @testing-library/react, which has the timeout of src/testing.tsx.",
	},
	{
		[]string{"dashboard/e2e/*.ts"}, regexp.MustCompile(`\bwaitForTimeout\(`),
		"Wait for a text, an element or a response.",
	},
	{
		[]string{"workflows/*_test.go", ":!workflows/environment_test.go"}, regexp.MustCompile(`\.Set(TestTimeout|WorkerOptions)\(`),
		"Keep the timeouts of newEnvironment; setInterceptors adds interceptors.",
	},
}

func TestTestsUseTimeoutsOfTheirHelpers(t *testing.T) {
	t.Parallel()
	for _, short := range shortTimeouts {
		paths := filesLike(t, short.files...)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			for i, line := range lines(t, path) {
				require.False(t, short.call.MatchString(line), "%s:%d: %s\n%s", path, i+1, strings.TrimSpace(line), short.instead)
			}
		}
	}
}

// TestPropertyTestsAreNamedTestProperty checks the names of property tests, because make test-long selects
// property tests by name.
func TestPropertyTestsAreNamedTestProperty(t *testing.T) {
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

// testFiles returns the files of Go tests, except those with simulated time and this file.
func testFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || simulated[path]) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") && path != "dev/lint/durations_test.go" {
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
