package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// site is where a file is another one with faults.
type site struct {
	from, until int
	typ         string // of the expression; "": it is a statement
	faults      []fault
	instead     string // where it has no faults: what is there
}

// fault is what stands at a site while a mutant is in effect.
type fault struct {
	mutant int
	code   string
}

// choice is the file that says which mutant is in effect: the one that the
// environment names.
func choice(pkg string) string {
	return "package " + pkg + `

import (
	"os"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv("MUTANT"))
`
}

// rewritten is the source with all faults at its sites, which may lie in each other.
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

// with is the code of a site that has another one as long as none of its mutants
// is in effect.
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
