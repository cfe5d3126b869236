package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const modulePath = "github.com/odometer-metering/odometer"

// suite is a set of packages of a module. Their tests are compiled with the same flags.
type suite struct {
	module   string // its folder
	race     bool
	packages []string
}

// slowest lists the packages to start first, in reverse order.
var slowest = []string{"/api", "/activities", "/cmd/odometer", "/db", "/worker"}

// sequential are packages without concurrency. The race detector would make them five times as slow and
// find nothing.
var sequential = []string{"", "/billing", "/dev/lint", "/metering"}

// suitesOf returns the suites of a module. If race is true, all packages except the sequential ones run with the race
// detector.
func suitesOf(ctx context.Context, module string, race bool) ([]suite, error) {
	command := exec.CommandContext(ctx, "go", "list", "./...")
	command.Dir, command.Stderr = module, os.Stderr
	list, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", module, err)
	}
	plain, raced := suite{module: module}, suite{module: module, race: true}
	for path := range strings.FieldsSeq(string(list)) {
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
