package api_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryFieldAndParameterIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	type described struct {
		Name        string `json:"name"`
		Ref         string `json:"$ref"`
		Description string `json:"description"`
	}
	var document struct {
		Paths      map[string]map[string]struct{ Parameters []described }
		Components struct {
			Schemas map[string]struct{ Properties map[string]described }
		}
	}
	require.NoError(t, json.Unmarshal(text, &document))
	for name, schema := range document.Components.Schemas {
		for field, property := range schema.Properties {
			require.NotEmpty(t, property.Description+property.Ref, "%s.%s: give it a doc tag, or a line in api/field_docs.go", name, field)
		}
	}
	for path, operations := range document.Paths {
		for method, operation := range operations {
			for _, p := range operation.Parameters {
				require.NotEmpty(t, p.Description, "%s of %s %s: give it a doc tag, or a line in api/field_docs.go", p.Name, method, path)
			}
		}
	}
}
