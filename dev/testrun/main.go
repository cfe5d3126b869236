// Command testrun runs the Go tests of the given modules, prints the output of failed tests,
// and ends with a one-line summary. Its arguments are the folders of the modules.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// goTest is the common part of all go test commands. More tests run in parallel than there are cores,
// because tests mostly wait for servers. The timeout ends only a package that hangs. The test cache is not
// used, because property tests try other histories in each run. make lint runs go vet.
var goTest = []string{"test", "-json", "-count=1", "-vet=off", "-timeout", "6h", "-p", "5", "-parallel", "6"}

func main() {
	race := flag.Bool("race", false, "run the tests with Go's race detector")
	run := flag.String("run", "", "run only the tests whose names match this regular expression")
	skip := flag.String("skip", "", "do not run the tests whose names match this regular expression")
	one := flag.String("one", "", "run one test, such as db.TestX or db.TestX/Case, and print all of its output")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	s := &summary{began: time.Now(), out: os.Stdout}
	if *one != "" {
		s.verbose = true
		s.runOne(ctx, *one, flag.Args(), *race)
	} else {
		s.runAll(ctx, flag.Args(), *race, selection{*run, *skip})
	}
	if s.print(); s.failed() || ctx.Err() != nil {
		os.Exit(1)
	}
}

// runAll compiles the selected tests of all modules, and then runs them.
func (s *summary) runAll(ctx context.Context, modules []string, race bool, selected selection) {
	var all []suite
	for _, module := range modules {
		suites, err := suitesOf(ctx, module, race, selected)
		if err != nil {
			s.brokenPackages = append(s.brokenPackages, err.Error())
		}
		all = append(all, suites...)
	}
	for _, tests := range all {
		tests.compile(ctx)
	}
	s.compiled = time.Since(s.began)
	s.began = time.Now()
	for _, tests := range all {
		s.run(ctx, tests, "-run", selected.run, "-skip", selected.skip)
	}
}

// testName matches the folder, if there is one, and the name of a test.
var testName = regexp.MustCompile(`^(?:(.*?)\.)?((?:Test|Example|Fuzz)\w*(?:/.*)?)$`)

// runOne runs the test FOLDER.NAME, or the tests of that NAME in any package.
func (s *summary) runOne(ctx context.Context, test string, modules []string, race bool) {
	parts := testName.FindStringSubmatch(test)
	if parts == nil {
		s.brokenPackages = append(s.brokenPackages, fmt.Sprintf("%q names no test: write TEST=db.TestX or TEST=db.TestX/Case", test))
		return
	}
	var anchored []string
	for part := range strings.SplitSeq(parts[2], "/") {
		anchored = append(anchored, "^"+regexp.QuoteMeta(part)+"$")
	}
	run := strings.Join(anchored, "/")
	defer func() {
		if s.passed+s.failureCount()+len(s.skipped) == 0 {
			s.brokenPackages = append(s.brokenPackages, "there is no test "+test)
		}
	}()
	if parts[1] == "" && !strings.HasPrefix(test, ".") {
		s.runAll(ctx, modules, race, selection{run: run})
		return
	}
	tests := suite{module: ".", race: race, packages: []string{"./" + parts[1]}}
	for _, m := range modules {
		if within, err := filepath.Rel(m, parts[1]); err == nil && m != "." && !strings.HasPrefix(within, "..") {
			tests.module, tests.packages = m, []string{"./" + within}
		}
	}
	s.run(ctx, tests, "-run", run)
}

// run runs the tests of a suite and reads the events that go test prints.
func (s *summary) run(ctx context.Context, tests suite, flags ...string) {
	failures := s.failureCount()
	command := exec.CommandContext(ctx, "go", tests.arguments(slices.Concat(goTest, flags)...)...)
	command.Dir, command.Stderr = tests.module, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	events, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err == nil {
		err = errors.Join(s.read(events), command.Wait())
	}
	if err != nil && s.failureCount() == failures {
		s.brokenPackages = append(s.brokenPackages, fmt.Sprintf("go test in %s: %v", tests.module, err))
	}
}
