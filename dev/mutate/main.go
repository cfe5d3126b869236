// Mutate puts faults into the rules of billing, one at a time, and says which
// of them its tests notice: those that a tool for arithmetic operators cannot
// see, because here arithmetic and comparison are methods.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leastKilled is the share of each kind of fault that has to be noticed, in percent.
const leastKilled = 90

func main() {
	folder := flag.String("folder", "billing", "whose rules are mutated")
	only := flag.String("only", "", "one kind of fault")
	timeout := flag.Duration("timeout", 3*time.Minute, "how long the tests may take with one fault")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *folder, *only, *timeout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, folder, only string, timeout time.Duration) error {
	mutants, err := mutantsOf(folder)
	if err != nil {
		return err
	}
	if err := test(ctx, folder, "", timeout); err != nil {
		return fmt.Errorf("the tests fail without a fault: %w", err)
	}
	var table tally
	for _, m := range mutants {
		if only != "" && m.kind != only {
			continue
		}
		noticed, err := try(ctx, folder, m, timeout)
		if err != nil {
			return err
		}
		table.add(m, noticed)
		fmt.Printf("%-8s %s\n", map[bool]string{true: "noticed", false: "SURVIVED"}[noticed], m)
	}
	return table.print()
}

// try says whether the tests notice the fault. The tree stays as it is: the
// compiler is given another file in its place.
func try(ctx context.Context, folder string, m mutant, timeout time.Duration) (noticed bool, err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	path, err := filepath.Abs(m.file)
	if err != nil {
		return false, err
	}
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, m.source, 0o600); err != nil {
		return false, err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return false, err
	}
	err = test(ctx, folder, overlay, timeout)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil, nil
}

// test runs the folder's tests until the first failure. A run that takes too
// long has noticed as well: the fault has made something endless.
func test(ctx context.Context, folder, overlay string, timeout time.Duration) error {
	arguments := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout", timeout.String()}
	if overlay != "" {
		arguments = append(arguments, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(arguments, "./"+folder+"/...")...)
	command.Env = append(os.Environ(), "LIVES=400")
	output, err := command.CombinedOutput()
	if err != nil && strings.Contains(string(output), "[build failed]") {
		return fmt.Errorf("a fault does not compile:\n%s", output)
	}
	return err
}

// tally is what came of the mutants, by kind.
type tally struct {
	kinds     []string
	made      map[string]int
	killed    map[string]int
	survivors []mutant
}

func (t *tally) add(m mutant, noticed bool) {
	if !slices.Contains(t.kinds, m.kind) {
		t.kinds = append(t.kinds, m.kind)
	}
	if t.made == nil {
		t.made, t.killed = make(map[string]int), make(map[string]int)
	}
	t.made[m.kind]++
	if noticed {
		t.killed[m.kind]++
		return
	}
	t.survivors = append(t.survivors, m)
}

func (t *tally) print() error {
	fmt.Printf("\n| fault | made | noticed | |\n|---|---|---|---|\n")
	var short []string
	for _, kind := range t.kinds {
		percent := 100 * t.killed[kind] / t.made[kind]
		fmt.Printf("| %s | %d | %d | %d %% |\n", kind, t.made[kind], t.killed[kind], percent)
		if percent < leastKilled {
			short = append(short, kind)
		}
	}
	for _, m := range t.survivors {
		fmt.Printf("\nsurvived: %s\n", m)
	}
	if len(short) > 0 {
		return fmt.Errorf("of these kinds fewer than %d %% were noticed: %s", leastKilled, strings.Join(short, ", "))
	}
	return nil
}
