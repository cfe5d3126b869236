package odometer_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the folders that an entity of ours runs through.
var rooms = []string{"metering", "db", "activities", "workflows", "api"}

// aliases are names of files for nouns that have another name already.
var aliases = map[string]string{
	"pricing": "prices", "endpoints": "webhooks", "maintain": "maintenance", "upkeep": "maintenance",
	"audit_usage": "discrepancies", "differences": "discrepancies", "doubt": "commit_recovery",
	"auto_syncs": "auto_sync", "audit_logs": "audit_log",
}

// TestTheSameNounHasTheSameFileNameInEveryRoom: nouns are plural; auto_sync and
// audit_log, of which a tenant has one, and what cannot be counted are singular.
// A file in workflows and activities that is one workflow's has the workflow's
// name: rotate_api_key.
func TestTheSameNounHasTheSameFileNameInEveryRoom(t *testing.T) {
	t.Parallel()
	names := map[string]string{} // by the singular, as it was first seen
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
