package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Regular expressions for the names of tests. The tests that match none of them take about two seconds of processor
// time.
const (
	slow      = "^(TestProperty.*|TestTermsStringAbbreviatesLongLists)$" // without the simulated lives, about eight seconds
	simulated = "^(TestPropertyLives|TestEveryAmountHasItsWorking|TestRecordedLives)$"
	recorded  = "^TestRecordedLives$"
	noticing  = "^(TestPropertyLives|TestEveryAmountHasItsWorking)$"
)

// tests is the test program of a folder, which contains all faults.
type tests struct {
	folder string
	lives  int
	dir    string // contains the program
}

// build compiles the test program. It leaves the tree unchanged and passes the rewritten files to the
// compiler as an overlay.
func build(ctx context.Context, folder string, files map[string]string, lives int) (t tests, err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return t, err
	}
	t = tests{folder, lives, dir}
	replaced := make(map[string]string)
	for file, source := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return t, err
		}
		replaced[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replaced[path], []byte(source), 0o600); err != nil {
			return t, err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return t, err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return t, err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", t.program(), "./"+folder)
	if output, err := command.CombinedOutput(); err != nil {
		return t, fmt.Errorf("the faults do not compile: %w\n%s", err, output)
	}
	return t, nil
}

func (t tests) program() string { return filepath.Join(t.dir, "tests") }

// notice reports whether the tests notice a mutant. Mutant 0 is the code without a fault. Lives are replayed or
// simulated only if the other tests notice nothing.
func (t tests) notice(ctx context.Context, mutant int) (noticed bool, err error) {
	if noticed, err := t.noticeQuickly(ctx, mutant); err != nil || noticed || t.lives == 0 {
		return noticed, err
	}
	if noticed, err := t.run(ctx, mutant, 20, "-test.run", recorded); err != nil || noticed {
		return noticed, err
	}
	return t.run(ctx, mutant, 10+t.lives/20, "-test.run", noticing)
}

// noticeQuickly reports whether a test without simulated lives notices the mutant. The slow tests run last.
func (t tests) noticeQuickly(ctx context.Context, mutant int) (noticed bool, err error) {
	if noticed, err := t.run(ctx, mutant, 10, "-test.skip", slow+"|"+simulated); err != nil || noticed {
		return noticed, err
	}
	return t.run(ctx, mutant, 40, "-test.run", slow, "-test.skip", simulated)
}

// run reports whether the tests fail. They also fail if they exceed the limit of processor time or memory, because the
// fault can cause an endless loop. The limit is several times what the tests take, also on a busy machine.
func (t tests) run(ctx context.Context, mutant, seconds int, arguments ...string) (failed bool, err error) {
	bounded := fmt.Sprintf(`ulimit -v 4000000; ulimit -t %d; exec "$0" -test.failfast -test.short "$@"`, seconds)
	command := exec.CommandContext(ctx, "sh", append([]string{"-c", bounded, t.program()}, arguments...)...)
	command.Dir = t.folder
	command.Env = append(os.Environ(), "LIVES="+strconv.Itoa(t.lives), "MUTANT="+strconv.Itoa(mutant))
	err = command.Run()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return true, nil
	}
	return false, err
}
