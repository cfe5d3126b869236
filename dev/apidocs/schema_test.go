package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// TestStatementsMatchTheirSchema checks that the published schema is current. It also validates the
// statements in client/testdata against this schema.
func TestStatementsMatchTheirSchema(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../api/openapi.json")
	require.NoError(t, err)
	current, err := messageSchema(document, "usage.statement")
	require.NoError(t, err)
	published, err := os.ReadFile("../../docs/api/" + statementSchema)
	require.NoError(t, err)
	require.Equal(t, current, string(published), "%s is not current: run make generate", statementSchema)

	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(published))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource(statementSchema, decoded))
	schema, err := compiler.Compile(statementSchema)
	require.NoError(t, err)
	validate := func(text string) error {
		statement, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		return schema.Validate(statement)
	}
	statements, err := os.ReadFile("../../client/testdata/statements.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, statements)
	for statement := range strings.Lines(string(statements)) {
		require.NoError(t, validate(statement))
	}
	first, _, _ := strings.Cut(string(statements), "\n")
	for old, wrong := range map[string]string{
		`"usage.statement"`:          `"ping"`,
		`"adjustments":`:             `"other":`,
		`"name":"usage"`:             `"name":1`,
		`"unit":"units",`:            ``,
		`"start":"2026-02-01T00:00:`: `"start":"2026-02-01T00:61:`,
	} {
		require.Contains(t, first, old)
		require.Error(t, validate(strings.ReplaceAll(first, old, wrong)), wrong)
	}
}
