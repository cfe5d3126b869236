package api_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/lint"
)

func TestTheCommittedDocumentsAreCurrent(t *testing.T) {
	t.Parallel()
	v31, v30, err := documents()
	require.NoError(t, err)
	for name, current := range map[string][]byte{"openapi.json": v31, "openapi-3.0.json": v30} {
		committed, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(current), string(committed), "%s is stale: run make generate", name)
	}
}

// aVerb matches a summary that begins with a verb of this list.
var aVerb = regexp.MustCompile(`^(Accept|Archive|Ask|Assign|Begin|Calculate|Cancel|Change|Check|Compare|Create|Delete|Disable|Dismiss|End|Erase|Estimate|Export|Extend|Finish|Get|Invite|List|Make|Pause|Preview|Rebill|Receive|Redeliver|Release|Remove|Reserve|Resolve|Resume|Retry|Revoke|Rotate|Run|Save|Send|Set|Settle|Sign|Sync|Unarchive|Update|Waive|Withdraw|Write),? [^.]+$`)

func TestEverySummaryDescribesItsOperation(t *testing.T) {
	t.Parallel()
	v31, _, err := documents()
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]struct {
			Summary, Description string
		}
	}
	require.NoError(t, json.Unmarshal(v31, &document))
	require.NotEmpty(t, document.Paths)
	first := map[string]string{}
	for path, item := range document.Paths {
		for method, operation := range item {
			place := method + " " + path
			require.Regexp(t, aVerb, operation.Summary, place)
			require.NotEmpty(t, operation.Description, place)
			require.Empty(t, first[operation.Summary], "%s has its summary too", place)
			first[operation.Summary] = place
			for _, text := range []string{operation.Summary, operation.Description} {
				require.Empty(t, lint.In(text, lint.Anywhere), "%s: %s", place, text)
				require.NotContains(t, lint.Parts(text), "told", place)
			}
		}
	}
}

// TestOpenAPIDocumentHasElementsThatGeneratorsRequire checks the elements that client generators and linters require.
// If a document has these elements, the recommended rules of redocly report no problem.
func TestOpenAPIDocumentHasElementsThatGeneratorsRequire(t *testing.T) {
	t.Parallel()
	v31, _, err := documents()
	require.NoError(t, err)
	type operations map[string]map[string]struct {
		Security  *[]map[string][]string     `json:"security"`
		Responses map[string]json.RawMessage `json:"responses"`
	}
	var document struct {
		Info     struct{ License struct{ Name, URL string } }
		Servers  []struct{ URL string }
		Paths    operations
		Webhooks operations
	}
	require.NoError(t, json.Unmarshal(v31, &document))
	require.Equal(t, "Apache-2.0", document.Info.License.Name)
	require.NotEmpty(t, document.Info.License.URL)
	require.NotEmpty(t, document.Servers)
	for _, items := range []operations{document.Paths, document.Webhooks} {
		require.NotEmpty(t, items)
		for path, item := range items {
			for method, operation := range item {
				require.NotNil(t, operation.Security, "%s %s does not say which credentials it asks for, or that it asks for none", method, path)
				require.Regexp(t, `(^| )4`, strings.Join(slices.Sorted(maps.Keys(operation.Responses)), " "), "%s %s does not say how it refuses", method, path)
			}
		}
	}
}

// TestNoSchemaNameIsConstructorNameOfAnotherSchema checks that no schema name is New followed by the name of another
// schema. In Go, openapi-generator uses this name for the constructor of the other schema.
func TestNoSchemaNameIsConstructorNameOfAnotherSchema(t *testing.T) {
	t.Parallel()
	v31, _, err := documents()
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, json.Unmarshal(v31, &document))
	require.NotEmpty(t, document.Components.Schemas)
	for name := range document.Components.Schemas {
		require.NotContains(t, document.Components.Schemas, "New"+name)
	}
}
