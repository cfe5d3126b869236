// Mutate puts faults into the rules of billing, one at a time, and says which
// of them its tests notice.
//
// All faults are made here. Gremlins, the usual tool, sees neither arithmetic
// nor comparisons that are methods, as all of money and of time are. Of what it
// sees it takes the conditions of a switch's cases for unreached and leaves
// them out, and for each fault it builds the tests again and runs them all, the
// simulated lives included. Here all faults are in one program.
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
	lives := flag.Int("lives", 2000, "how many lives are lived with a fault that the other tests do not notice; 0: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *folder, *only, *lives); err != nil {
		log.Fatal(err)
	}
}

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

// try puts the mutants into effect, those that are equivalent left out, and says
// what came of them.
func try(ctx context.Context, tests tests, mutants []mutant, reasons map[string]reason) error {
	table := newTally()
	for _, m := range mutants {
		why := reasons[m.key()]
		if why.equivalent() {
			table.add(m, equivalent, why)
			continue
		}
		noticed, err := tests.notice(ctx, m.number)
		if err != nil {
			return err
		}
		came := survived
		if noticed {
			came = killed
		}
		table.add(m, came, why)
	}
	return table.print()
}
