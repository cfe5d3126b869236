package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// changesNothing maps each audit action that records no changed fields to the reason.
var changesNothing = map[string]string{
	"sync.request":      "it requests a run, and the ledger has the changes of the run",
	"webhook.redeliver": "a message is sent again unchanged, and the resource of the entry names the message",
}

// TestEveryAuditedChangeHasStateBeforeOrAfter parses the calls that write the audit log. Each call that records a
// change must pass a state before or after it.
func TestEveryAuditedChangeHasStateBeforeOrAfter(t *testing.T) {
	t.Parallel()
	asked, told := map[string]bool{}, 0
	for _, name := range sourceFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is {
				return true
			}
			name, _ := call.Fun.(*ast.SelectorExpr)
			if name == nil {
				return true
			}
			args := call.Args
			switch name.Sel.Name {
			case "RecordAction":
				asked[strings.Trim(args[4].(*ast.BasicLit).Value, `"`)] = true
			case "RecordChange", "RecordDecision":
				told++
				before, after := args[len(args)-2], args[len(args)-1]
				require.False(t, isNil(before) && isNil(after), "%v passes neither a state before nor a state after the change", args[len(args)-3])
			}
			return true
		})
	}
	require.Greater(t, told, 30, "the calls were found")
	for action := range asked {
		require.Contains(t, changesNothing, action, "add the action to changesNothing, with the reason why it records no fields")
	}
	require.Len(t, changesNothing, len(asked), "remove from changesNothing the actions that record fields, or that no longer exist")
}

// sourceFiles returns the Go files of db and of the packages inside it, except those of tests.
func sourceFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	nested, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	return slices.DeleteFunc(append(files, nested...), func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

func isNil(e ast.Expr) bool {
	name, is := e.(*ast.Ident)
	return is && name.Name == "nil"
}
