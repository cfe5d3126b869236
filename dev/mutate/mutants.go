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
	"strconv"
	"strings"
)

// mutant is one fault in the code.
type mutant struct {
	number   int // from 1
	kind     string
	file     string
	line     int
	function string // "": outside a function
	was      string // the expression
	becomes  string
}

// key identifies a mutant independently of line numbers.
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
	ofInstants   = "boundary of instants"
)

// swap is a replacement, and the kind of fault that it makes.
type swap struct{ kind, other string }

// methods maps the name of each mutated method to its replacement.
var methods = map[string]swap{
	"Add": {ofAddition, "Sub"}, "Sub": {ofAddition, "Add"},
	"Before": {ofOrder, "After"}, "After": {ofOrder, "Before"},
	"IsNegative": {ofSign, "IsZero"}, "IsZero": {ofSign, "IsNegative"},
}

// roundings are functions and methods that round. A mutant replaces the call by its first argument or, for the
// method Round, by the receiver.
var roundings = []string{"RoundMoney", "Units", "Round"}

// operators maps each mutated operator to its replacements.
var operators = map[token.Token][]swap{
	token.LSS: {{ofBoundary, "<="}, {ofNegation, ">="}}, token.LEQ: {{ofBoundary, "<"}, {ofNegation, ">"}},
	token.GTR: {{ofBoundary, ">="}, {ofNegation, "<="}}, token.GEQ: {{ofBoundary, ">"}, {ofNegation, "<"}},
	token.EQL: {{ofNegation, "!="}}, token.NEQ: {{ofNegation, "=="}},
	token.ADD: {{ofArithmetic, "-"}}, token.SUB: {{ofArithmetic, "+"}},
	token.MUL: {{ofArithmetic, "/"}}, token.QUO: {{ofArithmetic, "*"}}, token.REM: {{ofArithmetic, "*"}},
	token.LAND: {{ofLogic, "||"}}, token.LOR: {{ofLogic, "&&"}},
	token.INC: {{ofSteps, "--"}}, token.DEC: {{ofSteps, "++"}},
}

// mutator creates the mutants of a folder.
type mutator struct {
	loaded
	source   []byte   // of the current file
	imports  []string // of the current file, and packages for the types of its faults
	sites    []site   // in the current file
	function string   // the current function
	mutants  []mutant
}

// mutantsOf returns all mutants of the folder's files, except tests, sorted by kind. It also returns the
// rewritten files, which contain all faults. No fault is active unless the environment variable MUTANT selects
// it.
func mutantsOf(ctx context.Context, folder string) (mutants []mutant, files map[string]string, err error) {
	l, err := load(ctx, folder)
	if err != nil {
		return nil, nil, err
	}
	m := mutator{loaded: l}
	files = map[string]string{filepath.Join(folder, "mutant.go"): choice(l.trees[0].Name.Name)}
	for i, tree := range l.trees {
		m.source, m.sites, m.imports = l.sources[i], nil, nil
		for _, spec := range tree.Imports {
			m.imports = append(m.imports, spec.Path.Value)
		}
		for _, declaration := range tree.Decls {
			m.function = ""
			if f, ok := declaration.(*ast.FuncDecl); ok {
				m.function = f.Name.Name
			}
			before := len(m.sites)
			ast.Inspect(declaration, m.visit)
			if g, ok := declaration.(*ast.GenDecl); ok && g.Tok == token.CONST && len(m.sites) > before {
				m.sites = append(m.sites, site{from: m.at(g.TokPos), until: m.at(g.TokPos) + len("const"), instead: "var"})
			}
		}
		for _, path := range m.imports[len(tree.Imports):] {
			m.sites = append(m.sites, site{from: m.at(tree.Name.End()), until: m.at(tree.Name.End()), instead: "\nimport " + path})
		}
		files[m.set.Position(tree.Package).Filename] = rewritten(m.source, m.sites)
	}
	slices.SortStableFunc(m.mutants, func(a, b mutant) int { return cmp.Compare(a.kind, b.kind) })
	return m.mutants, files, nil
}

// visit adds the mutants of a node.
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

// operator adds the mutants of an operator.
func (m *mutator) operator(n ast.Node, at token.Pos, operator token.Token) {
	for _, s := range operators[operator] {
		m.add(s.kind, n, at, at+token.Pos(len(operator.String())), s.other)
	}
}

// call adds the mutants of a call.
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
		if s.kind == ofOrder {
			m.add(ofInstants, n, n.Pos(), n.End(), "!"+m.text(selector.X)+"."+s.other+"("+m.text(n.Args[0])+")")
		}
	case name == "Add" && isMethod && m.is(n.Args[0], "time.Duration"):
		m.add(s.kind, n, n.Args[0].Pos(), n.Args[0].End(), "-("+m.text(n.Args[0])+")")
	case name == "Round" && isMethod:
		m.add(ofRounding, n, selector.X.End(), n.End(), "")
	case slices.Contains(roundings, name):
		m.add(ofRounding, n, n.Pos(), n.End(), m.text(n.Args[0]))
	}
}

// has reports whether the type of x has a method that accepts the arguments, so that it can replace another
// method.
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

// is reports whether an expression has the type, or a type with that underlying type.
func (m *mutator) is(x ast.Expr, typ string) bool {
	t := m.info.TypeOf(x)
	return types.Default(t).String() == typ || t.Underlying().String() == typ
}

// add adds a mutant of the node. In the mutant, the code replacement replaces the source between the
// positions from and until.
func (m *mutator) add(kind string, n ast.Node, from, until token.Pos, replacement string) {
	position := m.set.Position(from)
	mutated := string(m.source[m.at(n.Pos()):m.at(from)]) + replacement + string(m.source[m.at(until):m.at(n.End())])
	made := mutant{len(m.mutants) + 1, kind, position.Filename, position.Line, m.function, m.text(n), oneLine(mutated)}
	m.mutants = append(m.mutants, made)
	s := site{from: m.at(n.Pos()), until: m.at(n.End()), typ: m.typeOf(n)}
	i := slices.IndexFunc(m.sites, func(o site) bool { return o.from == s.from && o.until == s.until })
	if i < 0 {
		i, m.sites = len(m.sites), append(m.sites, s)
	}
	m.sites[i].faults = append(m.sites[i].faults, fault{made.number, mutated})
}

// typeOf returns the type of an expression as its file names it, or "" for a statement.
func (m *mutator) typeOf(n ast.Node) string {
	x, ok := n.(ast.Expr)
	if !ok {
		return ""
	}
	return types.TypeString(types.Default(m.info.TypeOf(x)), func(p *types.Package) string {
		if p == m.types {
			return ""
		}
		if path := strconv.Quote(p.Path()); !slices.Contains(m.imports, path) {
			m.imports = append(m.imports, path)
		}
		return p.Name()
	})
}

// at returns the offset of a position in its file.
func (m *mutator) at(p token.Pos) int { return m.set.Position(p).Offset }

// text returns the source of a node on one line.
func (m *mutator) text(n ast.Node) string {
	return oneLine(string(m.source[m.at(n.Pos()):m.at(n.End())]))
}

// oneLine returns the code with one space in place of each run of white space.
func oneLine(code string) string { return strings.Join(strings.Fields(code), " ") }
