package lint_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms lists the folders of the code's layers. The code of one entity, such as a plan, is in several of these
// folders.
var rooms = []string{"metering", "db", "db/access", "db/catalog", "db/usage", "db/ledger", "db/limits", "activities", "workflows", "api"}

// aliases maps rejected file names to the name to use for files about the same noun.
var aliases = map[string]string{
	"pricing": "prices", "endpoints": "webhooks", "maintain": "maintenance", "upkeep": "maintenance",
	"audit_usage": "discrepancies", "differences": "discrepancies", "doubt": "commit_recovery",
	"auto_syncs": "auto_sync", "audit_logs": "audit_log",
}

// TestSameNounHasSameFileNameInEveryFolder checks that files about the same noun have the same name in all
// folders of rooms. By convention, nouns are plural. Uncountable nouns are singular, and so are auto_sync and
// audit_log, because a tenant has only one of each. In workflows and activities, a file of a single workflow
// has the workflow's name, such as rotate_credential.
func TestSameNounHasSameFileNameInEveryFolder(t *testing.T) {
	t.Parallel()
	names := map[string]string{} // the first file name of each noun, by its singular
	for _, room := range rooms {
		entries, err := os.ReadDir(room)
		require.NoError(t, err)
		for _, entry := range entries {
			noun, code := strings.CutSuffix(entry.Name(), ".go")
			if !code || noun == "doc" || strings.HasSuffix(noun, "_test") {
				continue
			}
			if use, is := aliases[noun]; is {
				t.Errorf("%s/%s.go: the noun's files are %s.go", room, noun, use)
			}
			one := singular(noun)
			if first, seen := names[one]; seen && first != noun {
				t.Errorf("%s/%s.go: another room has %s.go", room, noun, first)
				continue
			}
			names[one] = noun
		}
	}
}

// singular returns the singular of a noun.
func singular(noun string) string {
	if stem, is := strings.CutSuffix(noun, "ies"); is {
		return stem + "y"
	}
	if strings.HasSuffix(noun, "ss") {
		return noun
	}
	return strings.TrimSuffix(noun, "s")
}

func TestSingular(t *testing.T) {
	t.Parallel()
	for noun, want := range map[string]string{"prices": "price", "discrepancies": "discrepancy", "api_keys": "api_key", "access": "access", "usage": "usage"} {
		require.Equal(t, want, singular(noun))
	}
}
