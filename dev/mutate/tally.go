package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// leastNoticed is the minimum share of noticed faults of each kind, in percent.
const leastNoticed = 90

// count is the result for one kind of fault. Mutants accepted as equivalent do not count as tried.
type count struct{ tried, noticed, accepted int }

// percent returns the share of noticed faults.
func (c count) percent() int {
	if c.tried == 0 {
		return 100
	}
	return 100 * c.noticed / c.tried
}

// tally contains the results of the mutants, by kind.
type tally struct {
	kinds      []string
	counts     map[string]count
	unaccepted int // survived without a reason
	unfounded  int // noticed in spite of a reason
}

func newTally() *tally { return &tally{counts: make(map[string]count)} }

// add adds the result of a mutant and prints it.
func (t *tally) add(m mutant, noticed bool, why reason) {
	if !slices.Contains(t.kinds, m.kind) {
		t.kinds = append(t.kinds, m.kind)
	}
	n, came := t.counts[m.kind], "noticed"
	if !why.equivalent() {
		n.tried++
	}
	switch {
	case noticed && why != "":
		came = "UNFOUNDED"
		t.unfounded++
	case noticed:
		n.noticed++
	case why != "":
		came = "accepted"
		n.accepted++
	default:
		came = "SURVIVED"
		t.unaccepted++
	}
	t.counts[m.kind] = n
	fmt.Printf("%-9s %s\n", came, m)
}

// print prints the table. It returns an error if too few faults of a kind were noticed. It also returns an
// error if a mutant survived without a reason, or if a mutant with a reason was noticed.
func (t *tally) print() error {
	fmt.Printf("\n| fault | tried | noticed | accepted | %% |\n|---|---|---|---|---|\n")
	var short []string
	var all count
	for _, kind := range t.kinds {
		n := t.counts[kind]
		fmt.Printf("| %s | %d | %d | %d | %d |\n", kind, n.tried, n.noticed, n.accepted, n.percent())
		all = count{all.tried + n.tried, all.noticed + n.noticed, all.accepted + n.accepted}
		if n.percent() < leastNoticed {
			short = append(short, kind)
		}
	}
	fmt.Printf("| all | %d | %d | %d | %d |\n", all.tried, all.noticed, all.accepted, all.percent())
	var wrong []error
	if len(short) > 0 {
		wrong = append(wrong, fmt.Errorf("of these kinds fewer than %d %% were noticed: %s", leastNoticed, strings.Join(short, ", ")))
	}
	if t.unaccepted > 0 {
		wrong = append(wrong, fmt.Errorf("%d survived that are not accepted", t.unaccepted))
	}
	if t.unfounded > 0 {
		wrong = append(wrong, fmt.Errorf("%d are noticed that are accepted", t.unfounded))
	}
	return errors.Join(wrong...)
}
