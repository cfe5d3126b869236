package api

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestTheDocumentsShowThePermissions checks that docs/concepts.md contains the permissions of this package as a
// table.
func TestTheDocumentsShowThePermissions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/concepts.md")
	require.NoError(t, err)
	table := permissionsTable()
	if !strings.Contains(string(text), table) {
		t.Fatalf("the table has to be:\n%s", table)
	}
}

// permissionsTable returns the permissions of roles and scopes as a Markdown table.
func permissionsTable() string {
	roles, scopes := metering.Role("").Values(), metering.Scope("").Values()
	columns := []string{"permission"}
	for _, r := range roles {
		columns = append(columns, string(r))
	}
	for _, s := range scopes {
		columns = append(columns, "`"+string(s)+"`")
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, p := range slices.Sorted(maps.Keys(permissions)) {
		row := []string{"`" + string(p) + "`"}
		for _, r := range roles {
			row = append(row, mark(p.allows(Principal{Role: r})))
		}
		for _, s := range scopes {
			row = append(row, mark(p.allows(Principal{Scope: s})))
		}
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
	}
	return table.String()
}

// mark returns the text of a cell in the table.
func mark(allowed bool) string {
	if allowed {
		return "yes"
	}
	return "–"
}
