package billing

//go:generate go test -run TestReasonsAreDocumented -update

import (
	"flag"
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
	const file = "../docs/reasons.md"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	want := string(text)
	for heading, rows := range map[string]string{
		"Why is a meter not reported?":                        rowsOf(exclusions),
		"Why is an invoice held, or how did it become final?": rowsOf(holdReasons),
		"Why do invoices differ from a closed period?":        rowsOf(reconciliationReasons),
		"Why is usage not billed?":                            rowsOf(unratedReasons),
	} {
		before, section, found := strings.Cut(want, "## "+heading+"\n")
		require.True(t, found, heading)
		section, after, more := strings.Cut(section, "\n## ")
		prose, _, _ := strings.Cut(section, "\n| code |")
		want = before + "## " + heading + "\n" + strings.TrimSuffix(prose, "\n") + "\n\n| code | message | next step |\n|---|---|---|\n" + rows
		if more {
			want += "\n## " + after
		}
	}
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "go test ./billing -run TestReasons -update writes the tables")
}

func rowsOf[C ~string](all table[C]) (rows string) {
	for _, row := range all {
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", row.code, placeholder.ReplaceAllString(row.Message, "`$0`"), row.NextStep)
	}
	return rows
}

var placeholder = regexp.MustCompile(`\{\w+\}`)

// Each constant of a type of codes has one row in the type's table, and each row has a message and a next step.
func TestEveryCodeHasAText(t *testing.T) {
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
