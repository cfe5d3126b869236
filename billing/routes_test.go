package billing

//go:generate go test -run TestTheRouteTableIsDocumented -update

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheRouteTableIsDocumented compares the table in docs/billing.md with the rules. With -update, it writes the table.
func TestTheRouteTableIsDocumented(t *testing.T) {
	t.Parallel()
	const file, heading, next = "../docs/billing.md", "### The route table\n", "\n## "
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), heading)
	require.True(t, found)
	_, rest, found := strings.Cut(after, next)
	require.True(t, found)
	want := before + heading + "\n" + routeTable() + next + rest
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "go test ./billing -run TestTheRouteTable -update writes the table")
}

func routeTable() string {
	table := "| condition | route | code shown |\n|---|---|---|\n"
	for _, r := range rules {
		code := ""
		if r.code != "" {
			code = "`" + string(r.code) + "`"
		}
		table += fmt.Sprintf("| %s | `%s` | %s |\n", strings.TrimSuffix(r.when, "."), r.route, code)
	}
	return table
}
