package billing

//go:generate go test -run TestTheDecisionTablesAreDocumented -update

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheDecisionTablesAreDocumented compares the tables in docs/billing.md with the rules.
func TestTheDecisionTablesAreDocumented(t *testing.T) {
	t.Parallel()
	requireTable(t, "../docs/billing.md", "### The route table", routeTable())
	requireTable(t, "../docs/billing.md", "## The phases of a closed line", phaseTable())
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

func phaseTable() string {
	table := "| condition | phase |\n|---|---|\n"
	for _, r := range phases {
		table += fmt.Sprintf("| %s | `%s` |\n", strings.TrimSuffix(r.when, "."), r.phase)
	}
	return table
}
