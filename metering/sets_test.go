package metering_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestValuesReturnsAllConstantsOfType checks in the source that each method Values returns all constants of its
// type, in the order of their declaration.
func TestValuesReturnsAllConstantsOfType(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	constants, sets := map[string][]string{}, map[string][]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			readConstants(declaration, constants)
			readSet(declaration, sets)
		}
	}
	require.NotEmpty(t, sets)
	sets["MessageKind"] = append(sets["MessageKind"], "MessageWebhookTest") // endpoints do not subscribe to it
	for name, values := range sets {
		require.Equal(t, constants[name], values, name)
	}
}

// readConstants adds typed constants, such as const Sum Aggregation = "sum", by type.
func readConstants(declaration ast.Decl, constants map[string][]string) {
	general, ok := declaration.(*ast.GenDecl)
	if !ok || general.Tok != token.CONST {
		return
	}
	for _, spec := range general.Specs {
		value := spec.(*ast.ValueSpec)
		if of, ok := value.Type.(*ast.Ident); ok {
			constants[of.Name] = append(constants[of.Name], value.Names[0].Name)
		}
	}
}

// readSet adds the constants that a method Values returns, by type.
func readSet(declaration ast.Decl, sets map[string][]string) {
	method, ok := declaration.(*ast.FuncDecl)
	if !ok || method.Recv == nil || method.Name.Name != "Values" {
		return
	}
	of := method.Recv.List[0].Type.(*ast.Ident).Name
	returned := method.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.CompositeLit)
	for _, value := range returned.Elts {
		sets[of] = append(sets[of], value.(*ast.Ident).Name)
	}
}
