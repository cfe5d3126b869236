package billing

//go:generate go test -run TestTheRouteTableIsDocumented -update

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheRouteTableIsDocumented compares the table in docs/billing.md with the rules.
func TestTheRouteTableIsDocumented(t *testing.T) {
	t.Parallel()
	requireTable(t, "../docs/billing.md", "### The route table", routeTable())
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
