package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a file with one fault.
type mutant struct {
	kind   string
	file   string
	line   int
	text   string // of the line, as it was
	source []byte
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d %s: %s", m.file, m.line, m.kind, m.text) }

// swaps are methods that are taken for each other.
var swaps = map[string]string{
	"Add": "Sub", "Sub": "Add", "Before": "After", "After": "Before", "IsNegative": "IsZero", "IsZero": "IsNegative",
}

// rounding are functions and methods whose result is taken as it was before they
// were called: the first argument, or what the method is called on.
var rounding = []string{"RoundMoney", "Units", "Round"}

// mutantsOf makes every fault of the folder's files, tests left out.
func mutantsOf(folder string) (mutants []mutant, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, source, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if m, ok := mutate(set, source, call); ok {
					mutants = append(mutants, m)
				}
			}
			return true
		})
	}
	return mutants, nil
}

// mutate makes the fault that a call can have, if it is one of ours.
func mutate(set *token.FileSet, source []byte, call *ast.CallExpr) (m mutant, ok bool) {
	var name *ast.Ident
	selector, method := call.Fun.(*ast.SelectorExpr)
	switch function := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = function.Sel
	case *ast.Ident:
		name = function
	default:
		return m, false
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	position := set.Position(name.Pos())
	m = mutant{file: position.Filename, line: position.Line, text: lineOf(source, position.Line)}
	if other, swapped := swaps[name.Name]; swapped && method && !ofDuration(selector, call) {
		m.kind = name.Name + " for " + other
		m.source = splice(source, at(name.Pos()), at(name.End()), other)
		return m, true
	}
	if !slices.Contains(rounding, name.Name) || len(call.Args) == 0 {
		return m, false
	}
	kept := call.Args[0]
	if name.Name == "Round" {
		kept = selector.X
	}
	m.kind = "rounding dropped"
	m.source = splice(source, at(call.Pos()), at(call.End()), string(source[at(kept.Pos()):at(kept.End())]))
	return m, true
}

// ofDuration says whether an Add moves an instant: there is no Sub of the same kind.
func ofDuration(selector *ast.SelectorExpr, call *ast.CallExpr) bool {
	if selector.Sel.Name != "Add" && selector.Sel.Name != "Sub" || len(call.Args) != 1 {
		return false
	}
	for _, word := range []string{"time.", "Grace", "grace", "width", "uncountedAfter"} {
		if strings.Contains(identifiers(call.Args[0]), word) {
			return true
		}
	}
	return false
}

// identifiers are an expression's identifiers, joined by points.
func identifiers(e ast.Expr) string {
	var words []string
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			words = append(words, id.Name+".")
		}
		return true
	})
	return strings.Join(words, "")
}

func splice(source []byte, from, until int, with string) []byte {
	return slices.Concat(source[:from], []byte(with), source[until:])
}

func lineOf(source []byte, line int) string {
	return strings.TrimSpace(strings.Split(string(source), "\n")[line-1])
}
