package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rules take the time as a parameter, so that tests can apply them on any day. Code in the folders of
// withoutClocks may read a clock only in the lines that clocksAllowed lists. make test-dates runs the tests in
// the folders of testedOnDates on other days.
var (
	withoutClocks = []string{"metering", "billing", "db", "activities", "workflows"}
	testedOnDates = []string{"metering", "billing", "db", "activities", "api"}
)

// clocksAllowed lists the lines that may read a clock: it maps a part of each line to the reason. No rule
// depends on the clock that such a line reads.
var clocksAllowed = map[string]string{
	"began := time.Now()":                             "a measured duration, on which no rule depends",
	"time.Since(began)":                               "a measured duration, on which no rule depends",
	"time.Now().UnixNano()":                           "a name or a seed that is not used twice",
	"select epoch, erasures, idempotency_conflicts, ": "compared with when the server's own process started",

	// These columns contain the time of a change, for users. Rules only check whether a column is null.
	"revoked_at = coalesce(revoked_at, now())":       "API keys, HMAC secrets",
	"set ended_at = now()":                           "sessions",
	"set removed_at = now()":                         "members",
	"set withdrawn_at = now()":                       "versions of prices",
	"returning last_id - $2, mac, clock_timestamp()": "entries of the audit log",
	"updated_at = now(), updated_by":                 "the issuer of sign-ins",
	"select clock_timestamp()":                       "what processes compare their clocks with",
	"select d.message_id, e.host, clock_timestamp()": "how much of a budget is spent that all workers share",
	"retired_at = now()":                             "when a meter version was replaced, which no total depends on",
	"completed_at = now()":                           "a meter whose past is counted",
	"case when past.found then null else now() end,": "a meter without earlier events, which is complete at once",
	"timestamptz not null default now()":             "a column of a migration: none that a rule reads",
}

var (
	goClock  = regexp.MustCompile(`\btime\.(Now|Since|Until)\b`)
	sqlClock = regexp.MustCompile(`(?i)\b(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\(\)|` +
		`\b(current_(timestamp|date|time)|localtimestamp)\b|(^|[^/])\blocaltime\b|'(now|today|yesterday|tomorrow)'`)
)

func TestRulesTakeTheTimeAsAParameter(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	check := func(path, line string) {
		for allowed := range clocksAllowed {
			if strings.Contains(line, allowed) {
				used[allowed] = true
				return
			}
		}
		t.Errorf("%s reads a clock: %s\nPass the time as a parameter; a test takes it from dev/clock.", path, strings.TrimSpace(line))
	}
	for _, folder := range withoutClocks {
		for _, path := range glob(t, folder+"/*.go", folder+"/*/*.go") {
			for _, line := range clocksIn(t, path) {
				check(path, line)
			}
		}
	}
	for _, path := range glob(t, "migrations/*.sql") {
		for _, line := range lines(t, path) {
			code, _, _ := strings.Cut(line, "--")
			if sqlClock.MatchString(code) {
				check(path, code)
			}
		}
	}
	for allowed := range clocksAllowed {
		require.True(t, used[allowed], "nothing needs %q to be allowed any longer", allowed)
	}
}

// clocksIn returns the lines of a Go file that name a function for the process's clock, or for the database's
// clock in a string.
func clocksIn(t *testing.T, path string) (found []string) {
	t.Helper()
	files, all := token.NewFileSet(), lines(t, path)
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			if name, ok := node.X.(*ast.Ident); ok && goClock.MatchString(name.Name+"."+node.Sel.Name) {
				found = append(found, all[files.Position(node.Pos()).Line-1])
			}
		case *ast.BasicLit:
			first := files.Position(node.Pos()).Line - 1
			for i, line := range strings.Split(node.Value, "\n") {
				if node.Kind == token.STRING && sqlClock.MatchString(line) {
					found = append(found, all[first+i])
				}
			}
		}
		return true
	})
	return found
}

func TestTestDatesScriptCoversEachFolderOfRules(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("dev/test-dates")
	require.NoError(t, err)
	for _, folder := range testedOnDates {
		require.Contains(t, string(script), " "+folder)
	}
}

// monthsFromNow matches a call of AddDate on the present with a number of months.
var monthsFromNow = regexp.MustCompile(`\b[nN]ow(\(\))?(\.UTC\(\))?\.AddDate\([^,]+, [^0]`)

// TestMonthsAreNotCountedFromToday finds tests and code that add months to the present. On the last days of a month,
// the result is in the wrong month: 31 March minus a month is 3 March.
func TestMonthsAreNotCountedFromToday(t *testing.T) {
	t.Parallel()
	for _, path := range filesLike(t, "*.go") {
		for i, line := range lines(t, path) {
			require.False(t, monthsFromNow.MatchString(line), "%s:%d counts months from the present: %s\nUse clock.Month, or a number of days.",
				path, i+1, strings.TrimSpace(line))
		}
	}
}

// glob returns the files that match the patterns, sorted.
func glob(t *testing.T, patterns ...string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	return paths
}

// lines returns the lines of a file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(string(text), "\n")
}
