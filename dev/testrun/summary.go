package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// test is the name of a test, or of a package if Name is empty.
type test struct{ Package, Name string }

// String returns the test in the form that make test-one accepts.
func (t test) String() string {
	return strings.TrimPrefix(folderOf(t.Package), "/") + "." + t.Name
}

// timed is a test with its duration.
type timed struct {
	test

	seconds float64
}

// summary collects the results of the tests.
type summary struct {
	began    time.Time     // when the tests began
	compiled time.Duration // duration of compilation
	out      io.Writer
	verbose  bool

	packages, passed int
	failures         []test
	skipped          []test
	brokenPackages   []string // without a failed test, each with the reason
	durations        []timed  // of tests, without subtests
	output           map[test][]string
}

// failed reports whether a test or a package has failed.
func (s *summary) failed() bool { return s.failureCount() > 0 }

// failureCount returns the number of failures. A test and its failed subtests count once.
func (s *summary) failureCount() int { return len(s.deepest()) + len(s.brokenPackages) }

// read reads the events of go test until the end.
func (s *summary) read(events io.Reader) error {
	s.output = make(map[test][]string)
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			s.add(e)
		} else {
			fmt.Fprintf(s.out, "%s", line) // not JSON: a message of the go command
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add adds an event of go test.
func (s *summary) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.bufferOutput(t, e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(t, e)
		}
	}
}

// bufferOutput keeps a line of output until the result of its test is known.
func (s *summary) bufferOutput(t test, line string) {
	if s.verbose && t.Name != "" {
		fmt.Fprint(s.out, line)
		return
	}
	if !strings.HasPrefix(line, "=== ") {
		s.output[t] = append(s.output[t], line)
	}
}

// endTest records the result of a test, and prints the output of a failed one.
func (s *summary) endTest(t test, e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped = append(s.skipped, t)
	case "fail":
		s.fail(t)
	}
	delete(s.output, t)
	if !strings.Contains(t.Name, "/") {
		s.durations = append(s.durations, timed{t, e.Elapsed})
	}
}

// fail records a failed test and prints its output.
func (s *summary) fail(t test) {
	s.failures = append(s.failures, t)
	fmt.Fprintf(s.out, "FAIL: %s\n", t)
	for _, line := range s.output[t] {
		fmt.Fprint(s.out, line)
	}
}

// endPackage records the result of a package. Packages without tests do not count.
func (s *summary) endPackage(e event) {
	own := test{e.Package, ""}
	lines := s.output[own]
	delete(s.output, own)
	if e.Action == "skip" || slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "[no test files]") }) {
		return
	}
	s.packages++
	if e.Action == "fail" {
		s.failPackage(e)
	}
	for _, line := range lines {
		if line != "PASS\n" && line != "FAIL\n" {
			fmt.Fprint(s.out, line)
		}
	}
}

// failPackage records the failure of a package. It also fails the tests that were running when the package
// ended, such as after a panic.
func (s *summary) failPackage(e event) {
	ofPackage := func(t test) bool { return t.Package == e.Package }
	unfinished := slices.SortedFunc(maps.Keys(s.output), func(a, b test) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range slices.DeleteFunc(unfinished, func(t test) bool { return !ofPackage(t) }) {
		s.fail(t)
		delete(s.output, t)
	}
	switch {
	case e.FailedBuild != "":
		s.brokenPackages = append(s.brokenPackages, e.Package+" does not compile")
	case !slices.ContainsFunc(s.failures, ofPackage):
		s.brokenPackages = append(s.brokenPackages, e.Package+" failed outside of a test")
	}
}

// print prints the skipped tests, the broken packages and the summary line.
func (s *summary) print() {
	for _, t := range s.skipped {
		fmt.Fprintln(s.out, "skipped:", t)
	}
	for _, why := range s.brokenPackages {
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
		s.packages, s.passed, s.failureCount(), len(s.skipped), time.Since(s.began).Seconds(), s.compiled.Seconds(),
		strings.Join(slowest, ", "), repeat)
}

// deepest returns the failed tests without a failed subtest.
func (s *summary) deepest() []test {
	return slices.DeleteFunc(slices.Clone(s.failures), func(t test) bool {
		return slices.ContainsFunc(s.failures, func(part test) bool {
			return part.Package == t.Package && strings.HasPrefix(part.Name, t.Name+"/")
		})
	})
}
