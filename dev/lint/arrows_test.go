package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the prefix of import paths in this repository.
const module = "github.com/odometer-metering/odometer/"

// arrows maps each folder to the folders of this repository that its code may import. An entry also covers the
// subfolders of its folder that are not listed. "*" allows all. A Go file in a folder that is not listed fails
// the test.
var arrows = map[string][]string{
	"metering":   {},
	"billing":    {"metering"},
	"migrations": {},
	"client":     {},
	"dashboard":  {},
	"db/audit":   {"metering"},
	"db/fair":    {},
	"db/seal":    {"metering"},
	"db/pg":      {"metering", "migrations", "db/audit", "db/fair"},
	"db/outbox":  {"billing", "metering"},
	"db/access":  {"billing", "metering", "db/audit", "db/outbox", "db/pg", "db/seal"},
	"db/catalog": {"billing", "metering", "db/access", "db/audit", "db/outbox", "db/pg"},
	"db/usage":   {"billing", "metering", "db/audit", "db/catalog", "db/fair", "db/pg"},
	"db/ledger":  {"billing", "metering", "db/access", "db/audit", "db/catalog", "db/outbox", "db/pg", "db/usage"},
	"db/limits":  {"billing", "metering", "db/audit", "db/catalog", "db/ledger", "db/outbox", "db/pg", "db/usage"},
	"db":         {"billing", "metering", "migrations"},
	"providers":  {"billing", "metering"},
	"activities": {"billing", "metering", "db", "providers"},
	"workflows":  {"billing", "metering", "activities"},
	"worker":     {"metering", "workflows", "activities", "db", "providers"},
	"api":        {"billing", "metering", "db", "providers", "workflows", "dashboard"},
	"cmd":        {"*"},
	"dev":        {"*"},
}

// exclusive maps a library to the only folder that may import it. Tests may import it anywhere.
var exclusive = map[string]string{
	"github.com/stripe/stripe-go": "providers/stripe",
}

func TestPackagesImportInOneDirection(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "testdata" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		checkFile(t, path)
		return nil
	})
	require.NoError(t, err)
}

// checkFile checks the imports of a file.
func checkFile(t *testing.T, path string) {
	t.Helper()
	folder := listedFolder(filepath.ToSlash(filepath.Dir(path)))
	if folder == "." {
		require.True(t, strings.HasSuffix(path, "_test.go"), "%s: code belongs in a folder", path)
		return
	}
	allowed, known := arrows[folder]
	require.True(t, known, "%s: the folder %s is not in the layout", path, folder)
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		checkExclusive(t, path, name)
		ours, ok := strings.CutPrefix(name, module)
		if !ok || mayImportAll(path, allowed) {
			continue
		}
		to := listedFolder(ours)
		top, _, _ := strings.Cut(ours, "/")
		require.True(t, to == folder || top == folder || slices.Contains(allowed, to) || slices.Contains(allowed, top), "%s imports %s, which no arrow allows", path, ours)
	}
}

// listedFolder returns the folder in arrows that contains path, or the top folder of path.
func listedFolder(path string) string {
	for at := path; at != "."; at = filepath.Dir(at) {
		if _, listed := arrows[at]; listed {
			return at
		}
	}
	top, _, _ := strings.Cut(path, "/")
	return top
}

// mayImportAll reports whether a file may import every folder. Tests may, and so may db/dbtest, which creates
// databases and data for tests.
func mayImportAll(path string, allowed []string) bool {
	path = filepath.ToSlash(path)
	return slices.Contains(allowed, "*") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "db/dbtest/")
}

// checkExclusive checks an import against the folders in exclusive.
func checkExclusive(t *testing.T, path, name string) {
	t.Helper()
	for library, owner := range exclusive {
		if strings.HasPrefix(name, library) {
			require.True(t, strings.HasPrefix(filepath.ToSlash(path), owner+"/") || strings.HasSuffix(path, "_test.go"),
				"%s imports %s, which is %s's", path, name, owner)
		}
	}
}

// withoutNames lists the folders that must not name a provider. Their code uses stored or passed properties of
// the provider instead. Field tags may name a provider, because they are documentation.
var withoutNames = []string{"api", "billing", "db", "workflows"}

func TestAPIBillingDBAndWorkflowsNameNoProvider(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("providers/*/provider.go")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, folder := range withoutNames {
		for _, path := range glob(t, folder+"/*.go", folder+"/*/*.go") {
			if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "db/dbtest/") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			for _, provider := range folders {
				name := filepath.Base(filepath.Dir(provider))
				ast.Inspect(file, func(n ast.Node) bool {
					if field, is := n.(*ast.Field); is {
						field.Tag = nil
					}
					require.False(t, names(n, name), "%s names the provider %s", path, name)
					return true
				})
			}
		}
	}
}

// names reports whether a node is or contains the name of a provider. For the provider "webhook", it finds only
// the constant metering.Webhook and its value in strings. Tenants also have webhooks that are unrelated to
// billing.
func names(n ast.Node, provider string) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		of, is := n.X.(*ast.Ident)
		return is && of.Name == "metering" && strings.EqualFold(n.Sel.Name, provider)
	case *ast.Ident:
		return provider != "webhook" && strings.Contains(strings.ToLower(n.Name), provider)
	case *ast.BasicLit:
		if provider != "webhook" {
			return strings.Contains(strings.ToLower(n.Value), provider)
		}
		return n.Value == `"webhook"` || strings.Contains(n.Value, `'webhook'`)
	}
	return false
}

// rollups lists the files that may name tables of counted usage, each with the tables that it names. All code
// that reads usage calls the first file. The comments describe why the other files name the tables.
var rollups = map[string][]string{
	"db/usage/usage_statement.go": {"usage_hourly", "usage_monthly", "usage_added", "usage_unfolded"}, // reads usage
	"db/usage/usage_sql.go":       {"usage_monthly", "usage_unfolded", "usage_daily"},                 // counts events, and finds customers and groups with usage
	"db/usage/rollups.go":         {"usage_hourly", "usage_monthly", "usage_added"},                   // stores usage of ingest and backfills
	"db/usage/folds.go":           {"usage_hourly", "usage_monthly", "usage_added", "usage_unfolded"}, // moves added usage to the rollups
	"db/usage/tallies.go":         {"usage_added"},                                                    // lists the columns of usage_added
	"db/usage/chunks.go":          {"usage_hourly"},                                                   // creates chunks before they are needed
	"db/pg/migrate.go":            {"usage_daily"},                                                    // creates the kind of view that the TimescaleDB edition allows
	"db/maintenance.go":           {"usage_daily"},                                                    // refreshes usage_daily
	"db/pg/grants.go":             {"usage_hourly", "usage_monthly", "usage_added"},                   // grants deletes from these tables
}

func TestUsageTablesAreNamedOnlyInListedFiles(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		require.NoError(t, err)
		var named []string
		for _, table := range []string{"usage_hourly", "usage_monthly", "usage_months", "usage_added", "usage_unfolded", "usage_daily"} {
			if strings.Contains(string(code), table) {
				named = append(named, table)
			}
		}
		require.Equal(t, rollups[filepath.ToSlash(path)], named, "%s: only the listed files may name tables of usage", path)
		return nil
	})
	require.NoError(t, err)
	for path := range rollups {
		require.FileExists(t, path, "take it off the list")
	}
}
