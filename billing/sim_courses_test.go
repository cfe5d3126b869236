package billing_test

import (
	"math/rand/v2"
	"slices"
)

// course is a sequence of kinds of steps. It leads to a situation that random steps rarely reach. No time passes
// between the steps of one inner slice.
type course struct {
	of    func(seed uint64) bool // reports whether the life of a seed may contain the course
	steps [][]string
}

// courses lists the sequences. Each leads to a situation that one random life in 100,000 reached.
var courses = []course{
	// A period is over, and all items move to the second subscription. The first subscription ends with draft
	// invoices, and the unbilled usage of the period is rolled forward to the second one. The second one ends too,
	// and the first one is read again.
	{twofold, [][]string{
		{"an answer is lost"}, {"an answer is lost"}, {"a sync"}, {"usage", "usage", "usage", "a border passes"}, {"a second subscription begins", "an item moves", "an item moves", "a sync"}, {"another subscription", "an item moves"},
		{"a deadline passes", "a closing", "a sync"}, {"a second subscription ends"},
	}},
	// A subscription runs between two others. Its only reports were made for the subscription before it, and sent at
	// the instant at which it began.
	{twofold, [][]string{
		{"a second subscription begins"}, {"an item is added beside another"}, {"a silent drop", "a second subscription is swapped"}, {"a second subscription is swapped"},
	}},
	// As in the previous course, a report was sent at the instant of a swap, and is on the invoice of the next
	// subscription. That subscription continues, while the period and the meters belong to the first one again.
	{twofold, [][]string{
		{"an item moves", "an item moves", "a second subscription begins", "an item moves", "an item moves", "an item moves", "a sync"},
		{"usage"}, {"a silent drop", "a second subscription is swapped"}, {"an item moves", "a sync"}, {"usage", "a sync"},
	}},
	// As in the second course, a subscription runs between two others. Another subscription, which does not bill the
	// meter, continues beside it.
	{twofold, [][]string{
		{"a second subscription begins"}, {"another subscription"}, {"an item moves", "an item moves", "a sync"},
		{"a silent drop", "a second subscription is swapped"}, {"a second subscription is swapped"}, {"usage", "a sync"},
	}},
	// A person edits an item, and a restored ledger lacks the report that had set it.
	{own, [][]string{{"a backup"}, {"a month is billed"}, {"a line is edited"}, {"a restore"}, {"a sync"}, {"an invoice of ours is read"}}},
	// A standalone invoice is final before its period closes in a restored ledger.
	{own, [][]string{{"a backup"}, {"a month is billed"}, {"a restore"}, {"a sync"}, {"an unlink"}, {"an invoice of ours is read"}, {"a closing"}}},
	// A standalone draft remains while the connection is replaced.
	{leaving, [][]string{{"a backup"}, {"a month is billed", "a new counter"}, {"a month is billed"}, {"a month is billed", "a new receiver"}, {"a month is billed"}}},
	// A standalone draft remains while the other mode is billed. Billing then continues with it.
	{leaving, [][]string{
		{"another mode"}, {"another mode"}, {"a month is billed", "another mode"}, {"a sync"}, {"a month is billed", "another mode"}, {"a sync"}, {"a month is billed"},
	}},
	// A period has two invoices. One is read, and the connection is replaced before the other is read.
	{several, [][]string{
		{"a silent drop"}, {"another subscription"}, {"an answer is lost"}, {"a sync"}, {"an unlink"}, {"a deadline passes"}, {"a closing"}, {"a sync"},
		{"a missed invoice is read"}, {"a new counter"},
	}},
	// Each mode has a report with an unknown outcome when an invoice of the first mode is final.
	{several, [][]string{
		{"a new counter"}, {"another mode"}, {"a silent drop"}, {"a saved error"}, {"a border passes"}, {"another mode"}, {"a saved error"}, {"another mode"},
	}},
}

// leaving reports whether the life of a seed has standalone invoices and may leave its first connection.
func leaving(seed uint64) bool { return own(seed) && !stays(seed) }

// several reports whether the life of a seed may have several connections, with one subscription at a time.
func several(seed uint64) bool { return !twofold(seed) && !own(seed) }

// led returns the steps. In one life of three, it inserts the steps of a course into the first half.
func led(steps []step, seed uint64) []step {
	rng := rand.New(rand.NewPCG(seed, 5))
	if rng.IntN(3) > 0 {
		return steps
	}
	fit := slices.DeleteFunc(slices.Clone(courses), func(c course) bool { return !c.of(seed) })
	var course []step
	for _, together := range fit[rng.IntN(len(fit))].steps {
		for n, name := range together {
			kind := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
			course = append(course, step{kind: kind, seed: rng.Uint64(), soon: n > 0})
		}
	}
	return slices.Insert(steps, rng.IntN(len(steps)/2), course...)
}
