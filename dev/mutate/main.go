// Mutate inserts faults into the rules of package billing, one at a time, and reports which of them the
// tests notice.
//
// It replaces Gremlins, the usual tool. Gremlins does not mutate method calls for arithmetic and comparisons,
// which decimals and times use. It skips the conditions of switch cases, because it treats them as unreached.
// For each fault, Gremlins rebuilds and runs all tests, including the simulated lives. Mutate compiles all
// faults into one program.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

func main() {
	folder := flag.String("folder", "billing", "whose rules are mutated")
	only := flag.String("only", "", "a regular expression: the faults to make, as they are printed")
	lives := flag.Int("lives", 2000, "how many lives are lived with a fault that the quick tests do not notice; 0: none, recorded ones neither")
	known := flag.String("faults", "", "a regular expression: the known faults to put back instead, by their names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *known != "" {
		chosen, err := regexp.Compile(*known)
		if err == nil {
			err = tryFaults(ctx, *folder, chosen, *lives)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(ctx, *folder, *only, *lives); err != nil {
		log.Fatal(err)
	}
}

// run creates all mutants, compiles them into one program, and tries the mutants that match the regular expression in
// only.
func run(ctx context.Context, folder, only string, lives int) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	mutants, files, err := mutantsOf(ctx, folder)
	if err != nil {
		return err
	}
	reasons, err := readReasons(mutants)
	if err != nil {
		return err
	}
	tests, err := build(ctx, folder, files, lives)
	defer os.RemoveAll(tests.dir)
	if err != nil {
		return err
	}
	switch noticed, err := tests.notice(ctx, 0); {
	case err != nil:
		return err
	case noticed:
		return errors.New("the tests fail without a fault too")
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !chosen.MatchString(m.String()) })
	return try(ctx, tests, mutants, reasons)
}

// try activates the mutants one at a time, runs the tests and prints the results.
func try(ctx context.Context, tests tests, mutants []mutant, reasons map[string]reason) error {
	table := newTally()
	for _, m := range mutants {
		why := reasons[m.key()]
		notice := tests.notice
		if why.equivalent() {
			notice = tests.noticeQuickly
		}
		noticed, err := notice(ctx, m.number)
		if err != nil {
			return err
		}
		table.add(m, noticed, why)
	}
	return table.print()
}
