package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var column = regexp.MustCompile(`^([a-z]+_)*(id|at)$`)

// TestFunctionsThatReturnSQLPartsGetQualifiedColumns checks that functions that return a part of a
// statement are called with qualified columns. In a subquery, a bare column may be the subquery's own:
// `b.tenant_id = tenant_id` is true for every tenant.
func TestFunctionsThatReturnSQLPartsGetQualifiedColumns(t *testing.T) {
	t.Parallel()
	fileSet := token.NewFileSet()
	var files []*ast.File
	parts := map[string]bool{}
	for _, path := range sourceFiles(t) {
		file, err := parser.ParseFile(fileSet, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
		for _, declared := range file.Decls {
			if f, is := declared.(*ast.FuncDecl); is && returnsPart(f) {
				parts[f.Name.Name] = true
			}
		}
	}
	require.True(t, parts["isPaused"])
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			called, is := call.Fun.(*ast.Ident)
			if other, of := call.Fun.(*ast.SelectorExpr); of {
				called, is = other.Sel, true
			}
			if !is || !parts[called.Name] {
				return true
			}
			for _, arg := range call.Args {
				if text, is := arg.(*ast.BasicLit); is && text.Kind == token.STRING {
					given, err := strconv.Unquote(text.Value)
					require.NoError(t, err)
					require.NotRegexp(t, column, given, "%s: %s is given a column without its table", fileSet.Position(arg.Pos()), called.Name)
				}
			}
			return true
		})
	}
}

// returnsPart reports whether a function returns only a string, and contains a string literal with
// "select".
func returnsPart(f *ast.FuncDecl) (queries bool) {
	results := f.Type.Results
	if results == nil || len(results.List) != 1 {
		return false
	}
	if name, is := results.List[0].Type.(*ast.Ident); !is || name.Name != "string" {
		return false
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if text, is := n.(*ast.BasicLit); is && strings.Contains(text.Value, "select") {
			queries = true
		}
		return true
	})
	return queries
}
