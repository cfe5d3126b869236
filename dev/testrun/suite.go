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

// suite is a set of a module's packages whose tests are compiled alike.
type suite struct {
	module   string // its folder
	race     bool
	packages []string
}

// slowest are the packages that are started before all others, the last of them first.
var slowest = []string{"/api", "/activities", "/cmd/odometer", "/db", "/worker"}

// sequential are packages without concurrency: there the race detector finds nothing and
// takes five times as long.
var sequential = []string{"", "/billing", "/metering"}

// suitesOf returns the suites of a module.
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
	slices.SortStableFunc(raced.packages, func(a, b string) int {
		return cmp.Compare(slices.Index(slowest, folderOf(b)), slices.Index(slowest, folderOf(a)))
	})
	return slices.DeleteFunc([]suite{plain, raced}, func(s suite) bool { return len(s.packages) == 0 }), nil
}

func folderOf(path string) string { return strings.TrimPrefix(path, modulePath) }

// words returns the words of a go command about the suite.
func (s suite) words(words ...string) []string {
	if s.race {
		words = append(slices.Clone(words), "-race")
	}
	return slices.Concat(words, s.packages)
}

// compile compiles the tests and all that they import. What does not compile is reported
// when the tests run.
func (s suite) compile(ctx context.Context) {
	command := exec.CommandContext(ctx, "go", s.words("list", "-export", "-test", "-deps")...)
	command.Dir = s.module
	_ = command.Run()
}
