package main

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a file with one fault.
type mutant struct {
	kind     string
	file     string
	line     int
	function string // "": it is in none
	was      string // the expression
	becomes  string
	source   []byte
}

// key is what a mutant is known by however lines move.
func (m mutant) key() string {
	return strings.Join([]string{filepath.Base(m.file), m.function, m.was, m.becomes}, "\t")
}

func (m mutant) String() string {
	return fmt.Sprintf("%s %s:%d %s: %s => %s", m.kind, m.file, m.line, m.function, m.was, m.becomes)
}

// The kinds of faults.
const (
	ofAddition   = "Add, Sub"
	ofOrder      = "Before, After"
	ofSign       = "IsNegative, IsZero"
	ofRounding   = "rounding"
	ofBoundary   = "boundary"
	ofNegation   = "negation"
	ofArithmetic = "arithmetic"
	ofSteps      = "increment"
	ofLogic      = "logic"
)

// swap is what is taken for something, and the kind of fault that this is.
type swap struct{ kind, other string }

// methods are taken for each other.
var methods = map[string]swap{
	"Add": {ofAddition, "Sub"}, "Sub": {ofAddition, "Add"},
	"Before": {ofOrder, "After"}, "After": {ofOrder, "Before"},
	"IsNegative": {ofSign, "IsZero"}, "IsZero": {ofSign, "IsNegative"},
}

// roundings are functions and methods whose result is taken as it was before
// they were called: the first argument, or what the method is called on.
var roundings = []string{"RoundMoney", "Units", "Round"}

// operators are taken for each other.
var operators = map[token.Token][]swap{
	token.LSS: {{ofBoundary, "<="}, {ofNegation, ">="}}, token.LEQ: {{ofBoundary, "<"}, {ofNegation, ">"}},
	token.GTR: {{ofBoundary, ">="}, {ofNegation, "<="}}, token.GEQ: {{ofBoundary, ">"}, {ofNegation, "<"}},
	token.EQL: {{ofNegation, "!="}}, token.NEQ: {{ofNegation, "=="}},
	token.ADD: {{ofArithmetic, "-"}}, token.SUB: {{ofArithmetic, "+"}},
	token.MUL: {{ofArithmetic, "/"}}, token.QUO: {{ofArithmetic, "*"}}, token.REM: {{ofArithmetic, "*"}},
	token.LAND: {{ofLogic, "||"}}, token.LOR: {{ofLogic, "&&"}},
	token.INC: {{ofSteps, "--"}}, token.DEC: {{ofSteps, "++"}},
}

// mutator makes the faults of one file.
type mutator struct {
	set      *token.FileSet
	info     *types.Info
	source   []byte
	function string // that is looked at
	mutants  []mutant
}

// mutantsOf makes every fault of the folder's files, tests left out, those of
// a kind together.
func mutantsOf(ctx context.Context, folder string) (mutants []mutant, err error) {
	p, err := load(ctx, folder)
	if err != nil {
		return nil, err
	}
	for i, tree := range p.trees {
		m := mutator{set: p.set, info: p.info, source: p.sources[i]}
		for _, declaration := range tree.Decls {
			m.function = ""
			if f, ok := declaration.(*ast.FuncDecl); ok {
				m.function = f.Name.Name
			}
			ast.Inspect(declaration, m.visit)
		}
		mutants = append(mutants, m.mutants...)
	}
	slices.SortStableFunc(mutants, func(a, b mutant) int { return cmp.Compare(a.kind, b.kind) })
	return mutants, nil
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		m.call(n)
	case *ast.BinaryExpr:
		if !m.is(n.X, "string") || n.Op != token.ADD {
			m.operator(n, n.OpPos, n.Op)
		}
	case *ast.IncDecStmt:
		m.operator(n, n.TokPos, n.Tok)
	case *ast.UnaryExpr:
		if n.Op == token.SUB {
			m.add(ofArithmetic, n, n.OpPos, n.X.Pos(), "")
		}
	}
	return true
}

func (m *mutator) operator(n ast.Node, at token.Pos, operator token.Token) {
	for _, s := range operators[operator] {
		m.add(s.kind, n, at, at+token.Pos(len(operator.String())), s.other)
	}
}

// call makes the fault that a call can have.
func (m *mutator) call(n *ast.CallExpr) {
	selector, isMethod := n.Fun.(*ast.SelectorExpr)
	var name string
	switch function := n.Fun.(type) {
	case *ast.SelectorExpr:
		name = function.Sel.Name
	case *ast.Ident:
		name = function.Name
	}
	switch s, swapped := methods[name]; {
	case swapped && isMethod && m.has(selector.X, s.other, n.Args):
		m.add(s.kind, n, selector.Sel.Pos(), selector.Sel.End(), s.other)
	case name == "Add" && isMethod && m.is(n.Args[0], "time.Duration"):
		m.add(s.kind, n, n.Args[0].Pos(), n.Args[0].End(), "-("+m.text(n.Args[0])+")")
	case name == "Round" && isMethod:
		m.add(ofRounding, n, selector.X.End(), n.End(), "")
	case slices.Contains(roundings, name):
		m.add(ofRounding, n, n.Pos(), n.End(), m.text(n.Args[0]))
	}
}

// has says whether what the expression is has a method that takes the arguments
// and that can stand in the place of another.
func (m *mutator) has(x ast.Expr, method string, arguments []ast.Expr) bool {
	object, _, _ := types.LookupFieldOrMethod(m.info.TypeOf(x), true, nil, method)
	function, ok := object.(*types.Func)
	if !ok || function.Signature().Params().Len() != len(arguments) {
		return false
	}
	for i, argument := range arguments {
		if !types.AssignableTo(m.info.TypeOf(argument), function.Signature().Params().At(i).Type()) {
			return false
		}
	}
	return true
}

func (m *mutator) is(x ast.Expr, typ string) bool {
	t := m.info.TypeOf(x)
	return t.String() == typ || t.Underlying().String() == typ
}

// add makes the fault of the node that has something else from one position to
// another.
func (m *mutator) add(kind string, n ast.Node, from, until token.Pos, with string) {
	at := func(p token.Pos) int { return m.set.Position(p).Offset }
	position := m.set.Position(from)
	changed := slices.Concat(m.source[:at(from)], []byte(with), m.source[at(until):])
	grown := len(changed) - len(m.source)
	m.mutants = append(m.mutants, mutant{
		kind: kind, file: position.Filename, line: position.Line, function: m.function,
		was: m.text(n), becomes: oneLine(changed[at(n.Pos()) : at(n.End())+grown]), source: changed,
	})
}

func (m *mutator) text(n ast.Node) string {
	return oneLine(m.source[m.set.Position(n.Pos()).Offset:m.set.Position(n.End()).Offset])
}

// oneLine is the code without the line breaks in it.
func oneLine(code []byte) string { return strings.Join(strings.Fields(string(code)), " ") }
