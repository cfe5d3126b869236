package main

import (
	"fmt"
	"slices"
	"strings"
)

// leastKilled is the share of each kind of fault that has to be noticed, in percent.
const leastKilled = 90

// outcome is what came of a fault.
type outcome string

const (
	killed     outcome = "noticed"
	survived   outcome = "SURVIVED"
	equivalent outcome = "equivalent" // it is none
)

// tally is what came of the mutants, by kind.
type tally struct {
	kinds     []string
	count     map[string]map[outcome]int
	survivors []string
}

func newTally() *tally { return &tally{count: make(map[string]map[outcome]int)} }

func (t *tally) add(m mutant, came outcome, why reason) {
	if !slices.Contains(t.kinds, m.kind) {
		t.kinds = append(t.kinds, m.kind)
		t.count[m.kind] = make(map[outcome]int)
	}
	t.count[m.kind][came]++
	fmt.Printf("%-10s %s\n", came, m)
	if came == survived {
		t.survivors = append(t.survivors, strings.TrimSpace(m.String()+"\n  "+string(why)))
	}
}

// print prints the table. It fails where of a kind too few were noticed.
func (t *tally) print() error {
	fmt.Printf("\n| fault | made | equivalent | noticed | |\n|---|---|---|---|---|\n")
	var short []string
	for _, kind := range t.kinds {
		n := t.count[kind]
		faults := n[killed] + n[survived]
		percent := 100
		if faults > 0 {
			percent = 100 * n[killed] / faults
		}
		fmt.Printf("| %s | %d | %d | %d | %d %% |\n", kind, faults+n[equivalent], n[equivalent], n[killed], percent)
		if percent < leastKilled {
			short = append(short, kind)
		}
	}
	for _, text := range t.survivors {
		fmt.Printf("\nsurvived: %s\n", text)
	}
	if len(short) > 0 {
		return fmt.Errorf("of these kinds fewer than %d %% were noticed: %s", leastKilled, strings.Join(short, ", "))
	}
	return nil
}
