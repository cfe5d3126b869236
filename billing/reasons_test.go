package billing

//go:generate go test -run TestReasonsAreDocumented -update

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of docs/reasons.md are copies of the tables in this package.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	const page = "../docs/reasons.md"
	requireTable(t, page, "## Why is a meter not reported?", reasonTable(exclusions))
	requireTable(t, page, "## Why is an invoice held, or how did it become final?", reasonTable(holdReasons))
	requireTable(t, page, "## Why do invoices differ from a closed period?", reasonTable(reconciliationReasons))
	requireTable(t, page, "## Why is usage not billed?", reasonTable(unratedReasons))
}

func reasonTable[C ~string](all table[C]) string {
	text := "| code | message | next step |\n|---|---|---|\n"
	for _, row := range all {
		text += fmt.Sprintf("| `%s` | %s | %s |\n", row.code, placeholder.ReplaceAllString(row.Message, "`$0`"), row.NextStep)
	}
	return text
}

var placeholder = regexp.MustCompile(`\{\w+\}`)

// Each constant of a type of codes has one row in the type's table, and each row has a message and a next step.
func TestEveryReasonCodeHasMessageAndNextStep(t *testing.T) {
	t.Parallel()
	requireTexts(t, exclusions, "ExclusionCode", "exclusions.go")
	requireTexts(t, holdReasons, "HoldCode", "hold_reasons.go")
	requireTexts(t, reconciliationReasons, "ReconciliationReason", "reconciliations.go")
	requireTexts(t, unratedReasons, "UnratedReason", "unrated.go")
}

func requireTexts[C ~string](t *testing.T, all table[C], name, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var declared []string
	for _, constant := range regexp.MustCompile(name+`\s+= "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, constant[1])
	}
	var written []string
	for _, row := range all {
		written = append(written, string(row.code))
		require.NotEmpty(t, row.Message, row.code)
		require.False(t, strings.HasSuffix(row.Message, "."), "a message is a clause: %s", row.code)
		require.True(t, strings.HasSuffix(row.NextStep, "."), "a next step is a sentence: %s", row.code)
		if strings.HasPrefix(row.NextStep, "Nothing") {
			require.True(t, strings.HasPrefix(row.NextStep, "Nothing: ") && !strings.Contains(row.NextStep, "If "), "no action is ever necessary: %s", row.code)
		}
	}
	require.NotEmpty(t, declared)
	require.ElementsMatch(t, declared, written)
}
