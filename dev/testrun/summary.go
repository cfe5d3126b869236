package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
//
//nolint:tagliatelle // the names are go's
type event struct {
	Action     string  `json:"Action"`
	Package    string  `json:"Package"`
	Test       string  `json:"Test"`
	Output     string  `json:"Output"`
	Elapsed    float64 `json:"Elapsed"`    // seconds
	ImportPath string  `json:"ImportPath"` // of a package that does not compile

	FailedBuild string `json:"FailedBuild"` // why the tests of a package cannot run
}

// test is the name of a test or of a package.
type test struct{ Package, Name string }

// String returns the test as make test-one takes it.
func (t test) String() string {
	return strings.TrimPrefix(folderOf(t.Package), "/") + "." + t.Name
}

type timed struct {
	test

	seconds float64
}

// summary is what became of the tests.
type summary struct {
	began    time.Time     // of the tests
	compiled time.Duration // how long compiling them took
	out      io.Writer
	verbose  bool

	packages, passed int
	failures         []test
	skipped          []test
	broken           []string // packages that do not compile, or end without a failed test, and why
	durations        []timed  // of tests that are not part of another
	output           map[test][]string
}

func (s *summary) failed() bool { return len(s.failures)+len(s.broken) > 0 }

func (s *summary) read(events io.Reader) {
	s.output = make(map[test][]string)
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(s.out, lines.Text()) // go's own words
			continue
		}
		s.add(e)
	}
}

func (s *summary) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.keep(t, e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "build-fail":
		s.broken = append(s.broken, e.ImportPath+" does not compile")
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(t, e)
		}
	}
}

// keep keeps a line of output until it is known whether its test fails.
func (s *summary) keep(t test, line string) {
	if s.verbose && t.Name != "" {
		fmt.Fprint(s.out, line)
		return
	}
	if !strings.HasPrefix(line, "=== ") {
		s.output[t] = append(s.output[t], line)
	}
}

func (s *summary) endTest(t test, e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped = append(s.skipped, t)
	case "fail":
		s.failures = append(s.failures, t)
		s.show(t)
	}
	delete(s.output, t)
	if !strings.Contains(t.Name, "/") {
		s.durations = append(s.durations, timed{t, e.Elapsed})
	}
}

func (s *summary) endPackage(e event) {
	own := test{e.Package, ""}
	if e.Action == "skip" || slices.ContainsFunc(s.output[own], func(line string) bool { return strings.Contains(line, "[no test files]") }) {
		return
	}
	s.packages++
	if e.Action == "fail" && e.FailedBuild == "" && !slices.ContainsFunc(s.failures, func(t test) bool { return t.Package == e.Package }) {
		s.broken = append(s.broken, e.Package+" ended before its tests did")
		for t := range s.output { // those that had not ended
			if t.Package == e.Package && t.Name != "" {
				s.show(t)
			}
		}
	}
	s.show(own)
	delete(s.output, own)
}

// show prints the kept output of a test, or the last line of a package that has passed.
func (s *summary) show(t test) {
	lines := s.output[t]
	if t.Name == "" {
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "PASS\n" || line == "FAIL\n" })
	}
	if t.Name != "" {
		fmt.Fprintf(s.out, "FAIL: %s\n", t)
	}
	for _, line := range lines {
		fmt.Fprint(s.out, line)
	}
}

// print prints the line that sums everything up.
func (s *summary) print() {
	for _, t := range s.skipped {
		fmt.Fprintln(s.out, "skipped:", t)
	}
	for _, why := range s.broken {
		fmt.Fprintln(s.out, "FAIL:", why)
	}
	slices.SortFunc(s.durations, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	var slowest []string
	for _, d := range s.durations[:min(10, len(s.durations))] {
		slowest = append(slowest, fmt.Sprintf("%s %.1f s", d.test, d.seconds))
	}
	repeat := "make test-one TEST=…"
	if deepest := s.deepest(); len(deepest) > 0 {
		repeat = "make test-one TEST='" + deepest[0].String() + "'"
	}
	fmt.Fprintf(s.out, "%d packages: %d passed, %d failed, %d skipped in %.0f s (compiled in %.0f s); slowest: %s; repeat one alone: %s\n",
		s.packages, s.passed, len(s.failures)+len(s.broken), len(s.skipped), time.Since(s.began).Seconds(), s.compiled.Seconds(),
		strings.Join(slowest, ", "), repeat)
}

// deepest returns the failures that are no failure of a part of theirs.
func (s *summary) deepest() []test {
	return slices.DeleteFunc(slices.Clone(s.failures), func(t test) bool {
		return slices.ContainsFunc(s.failures, func(part test) bool {
			return part.Package == t.Package && strings.HasPrefix(part.Name, t.Name+"/")
		})
	})
}
