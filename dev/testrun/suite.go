package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

const modulePath = "github.com/odometer-metering/odometer"

// suite is a set of packages of a module. Their tests are compiled with the same flags.
type suite struct {
	module   string // folder of the module
	race     bool
	packages []string
}

// slowest lists the packages to start first, in reverse order.
var slowest = []string{"/api", "/activities", "/cmd/odometer", "/db", "/worker"}

// sequential are packages without concurrency. The race detector would make them five times as slow and
// find nothing.
var sequential = []string{"", "/billing", "/dev/lint", "/metering"}

// suitesOf returns the suites of a module, with the packages that have selected tests. Other packages are not
// compiled and linked. If race is true, all packages except the sequential ones run with the race detector.
func suitesOf(ctx context.Context, module string, race bool, tests selection) ([]suite, error) {
	const testFiles = `{{.ImportPath}}{{$dir := .Dir}}{{range .TestGoFiles}}|{{$dir}}/{{.}}{{end}}{{range .XTestGoFiles}}|{{$dir}}/{{.}}{{end}}`
	command := exec.CommandContext(ctx, "go", "list", "-f", testFiles, "./...")
	command.Dir, command.Stderr = module, os.Stderr
	list, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", module, err)
	}
	plain, raced := suite{module: module}, suite{module: module, race: true}
	for line := range strings.Lines(string(list)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		path := fields[0]
		selected, err := tests.inFiles(fields[1:])
		if err != nil {
			return nil, err
		}
		if !selected {
			continue
		}
		if race && !slices.Contains(sequential, folderOf(path)) {
			raced.packages = append(raced.packages, path)
		} else {
			plain.packages = append(plain.packages, path)
		}
	}
	for _, s := range []suite{plain, raced} {
		slices.SortStableFunc(s.packages, func(a, b string) int {
			return cmp.Compare(slices.Index(slowest, folderOf(b)), slices.Index(slowest, folderOf(a)))
		})
	}
	return slices.DeleteFunc([]suite{plain, raced}, func(s suite) bool { return len(s.packages) == 0 }), nil
}

// selection selects tests by their names, as the flags -run and -skip of go test do. An empty expression in run selects
// every test; in skip, it skips none.
type selection struct{ run, skip string }

// testFunction matches the declarations of tests, examples and fuzz tests.
var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)

// inFiles reports whether a file has a selected test. It ignores the names of subtests.
func (s selection) inFiles(paths []string) (bool, error) {
	run, _, _ := strings.Cut(s.run, "/")
	selected, err := regexp.Compile(run)
	if err != nil {
		return false, fmt.Errorf("-run: %w", err)
	}
	skipped, err := regexp.Compile(s.skip)
	if err != nil {
		return false, fmt.Errorf("-skip: %w", err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			return false, fmt.Errorf("find tests: %w", err)
		}
		for _, function := range testFunction.FindAllSubmatch(source, -1) {
			if name := function[1]; string(name) != "TestMain" && selected.Match(name) && (s.skip == "" || !skipped.Match(name)) {
				return true, nil
			}
		}
	}
	return false, nil
}

// folderOf returns the folder of a package in the repository, with a slash in front. The root is "".
func folderOf(path string) string { return strings.TrimPrefix(path, modulePath) }

// arguments returns the arguments of a go command for the suite.
func (s suite) arguments(command ...string) []string {
	if s.race {
		command = append(slices.Clone(command), "-race")
	}
	return slices.Concat(command, s.packages)
}

// compile compiles the tests and all that they import. Compile errors are reported when the
// tests run.
func (s suite) compile(ctx context.Context) {
	command := exec.CommandContext(ctx, "go", s.arguments("list", "-export", "-test", "-deps")...)
	command.Dir = s.module
	_ = command.Run()
}
