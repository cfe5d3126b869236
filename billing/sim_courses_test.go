package billing_test

import (
	"math/rand/v2"
	"slices"
)

// course is what leads where chance seldom does: kinds of steps, one after the
// other. Between those that stand together no time passes.
type course struct {
	of    func(seed uint64) bool // whose lives it may happen in
	steps [][]string
}

// courses lead to what each was found by one life of a hundred thousand.
var courses = []course{
	// A period is over, and all items go to the second subscription. The first one ends,
	// with drafts, and what the period lacks is carried onto the second one; then that ends as
	// well, and the first one is read again.
	{twofold, [][]string{
		{"an answer is lost"}, {"an answer is lost"}, {"a sync"}, {"usage", "usage", "usage", "a border passes"}, {"a second subscription begins", "an item moves", "an item moves", "a sync"}, {"another subscription", "an item moves"},
		{"a deadline passes", "a closing", "a sync"}, {"a second subscription ends"},
	}},
	// A subscription runs between two others, and was reported nothing but what went out at
	// the instant at which it began, for the one before it.
	{twofold, [][]string{
		{"a second subscription begins"}, {"an item is added beside another"}, {"a silent drop", "a second subscription is swapped"}, {"a second subscription is swapped"},
	}},
	// What went out at that instant is on the next one's invoice, which goes on while the
	// period is the first subscription's again, as the meters are.
	{twofold, [][]string{
		{"an item moves", "an item moves", "a second subscription begins", "an item moves", "an item moves", "an item moves", "a sync"},
		{"usage"}, {"a silent drop", "a second subscription is swapped"}, {"an item moves", "a sync"}, {"usage", "a sync"},
	}},
	// One that does not bill the meter goes on beside the one between.
	{twofold, [][]string{
		{"a second subscription begins"}, {"another subscription"}, {"an item moves", "an item moves", "a sync"},
		{"a silent drop", "a second subscription is swapped"}, {"a second subscription is swapped"}, {"usage", "a sync"},
	}},
	// A line is edited that a restored ledger does not know to have set.
	{own, [][]string{{"a backup"}, {"a month is billed"}, {"a line is edited"}, {"a restore"}, {"a sync"}, {"an invoice of ours is read"}}},
	// An invoice of ours is final before its period closes in a ledger that was restored.
	{own, [][]string{{"a backup"}, {"a month is billed"}, {"a restore"}, {"a sync"}, {"an unlink"}, {"an invoice of ours is read"}, {"a closing"}}},
	// A draft of ours stands while the connection is replaced, or while another mode is
	// billed, and is gone on with.
	{leaving, [][]string{{"a backup"}, {"a month is billed", "a new counter"}, {"a month is billed"}, {"a month is billed", "a new receiver"}, {"a month is billed"}}},
	{leaving, [][]string{
		{"another mode"}, {"another mode"}, {"a month is billed", "another mode"}, {"a sync"}, {"a month is billed", "another mode"}, {"a sync"}, {"a month is billed"},
	}},
	// Of a period's invoices one is read, and the connection replaced before the other is.
	{several, [][]string{
		{"a silent drop"}, {"another subscription"}, {"an answer is lost"}, {"a sync"}, {"an unlink"}, {"a deadline passes"}, {"a closing"}, {"a sync"},
		{"a missed invoice is read"}, {"a new counter"},
	}},
	// A report is in doubt in one mode, and another one in the other, when an invoice of the first is final.
	{several, [][]string{
		{"a new counter"}, {"another mode"}, {"a silent drop"}, {"a saved error"}, {"a border passes"}, {"another mode"}, {"a saved error"}, {"another mode"},
	}},
}

// leaving says whether the life of a seed is one with invoices of ours that may leave
// its connection.
func leaving(seed uint64) bool { return own(seed) && !stays(seed) }

// several says whether the life of a seed may be at several connections, with one
// subscription at a time.
func several(seed uint64) bool { return !twofold(seed) && !own(seed) }

// led are the steps, and, in one life of three, those of a course among them.
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
