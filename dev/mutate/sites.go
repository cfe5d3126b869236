package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// site is a part of a source file that the mutator rewrites.
type site struct {
	from, until int
	typ         string // of the expression; "": a statement
	faults      []fault
	instead     string // replacement of a site without faults
}

// fault is the code at a site while a mutant is active.
type fault struct {
	mutant int
	code   string
}

// choice returns the file that selects the active mutant by the environment variable MUTANT.
func choice(pkg string) string {
	return "package " + pkg + `

import (
	"os"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv("MUTANT"))
`
}

// rewritten returns the source with all faults at its sites, which may be nested.
func rewritten(source []byte, sites []site) string {
	slices.SortFunc(sites, func(a, b site) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.until, a.until)) })
	var render func(from, until int) string
	next := 0
	render = func(from, until int) string {
		var text strings.Builder
		for next < len(sites) && sites[next].from < until {
			s := sites[next]
			next++
			text.Write(source[from:s.from])
			text.WriteString(s.with(render(s.from, s.until)))
			from = s.until
		}
		text.Write(source[from:until])
		return text.String()
	}
	return render(0, len(source))
}

// with returns the code that replaces a site. That code runs a fault if the fault's mutant is active, and
// otherwise the given code.
func (s site) with(otherwise string) string {
	if s.instead != "" {
		return s.instead
	}
	result := "return "
	if s.typ == "" {
		result = ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "func() %s { switch mutant {", s.typ)
	for _, f := range s.faults {
		fmt.Fprintf(&text, "case %d: %s%s;", f.mutant, result, f.code)
	}
	fmt.Fprintf(&text, "default: %s%s } }()", result, otherwise)
	return text.String()
}
