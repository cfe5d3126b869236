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

// simulated are the tests that live lives: the others take no time.
const simulated = "^(TestLives|TestKnownFaultsAreMet)$"

// tests are those of a folder.
type tests struct {
	folder string
	lives  int
	dir    string // for what is built
}

func newTests(folder string, lives int) (t tests, err error) {
	dir, err := os.MkdirTemp("", "mutate")
	return tests{folder, lives, dir}, err
}

// notice says whether the tests notice the fault.
func (t tests) notice(ctx context.Context, m mutant) (noticed bool, err error) {
	binary := filepath.Join(t.dir, "tests")
	if err := t.build(ctx, m, binary); err != nil {
		return false, err
	}
	for _, arguments := range [][]string{
		{"-test.skip", simulated, "-test.timeout", "10s"},
		{"-test.run", "^TestLives$", "-test.timeout", "1m"},
	} {
		if failed, err := t.run(ctx, binary, arguments); err != nil || failed {
			return failed, err
		}
	}
	return false, nil
}

// build makes the tests' binary. The tree stays as it is: the compiler is given
// another file in its place.
func (t tests) build(ctx context.Context, m mutant, binary string) error {
	replaced := make(map[string]string)
	if m.file != "" {
		path, err := filepath.Abs(m.file)
		if err != nil {
			return err
		}
		replaced[path] = filepath.Join(t.dir, "mutant.go")
		if err := os.WriteFile(replaced[path], m.source, 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	file := filepath.Join(t.dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", file, "-o", binary, "./"+t.folder)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not compile: %w\n%s", m, err, output)
	}
	return nil
}

// run says whether the tests fail. Those that end only because their time or
// memory is over do: the fault has made something endless.
func (t tests) run(ctx context.Context, binary string, arguments []string) (failed bool, err error) {
	bounded := []string{"-c", `ulimit -v 4000000; exec "$0" "$@"`, binary, "-test.failfast", "-test.short"}
	command := exec.CommandContext(ctx, "sh", append(bounded, arguments...)...)
	command.Dir = t.folder
	command.Env = append(os.Environ(), "LIVES="+strconv.Itoa(t.lives))
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
