package billing_test

import (
	"slices"
	"testing"
)

// apart are kinds of steps that never happen in one life, and why.
type apart struct {
	some, others []string
	why          string
}

var restores = []string{"a backup", "a restore"}

var charges = []string{"a line is edited", "another way of billing"}

var neverInOneLife = []apart{
	{restores, charges, "they are lived by others: what is not billed in amounts is restored by its totals"},
	{charges, []string{"a new receiver", "a new counter", "another mode", "the receiver moves"}, "who is charged amounts stays with one counter, so that all is in money"},
}

// neverAtOnce are kinds of steps that cannot happen at once after others; others
// are all where they are none.
var neverAtOnce = []apart{}

func (a apart) are(one, other string) bool {
	return slices.Contains(a.some, one) && slices.Contains(a.others, other)
}

func inOneLife(one, other string) bool {
	return !slices.ContainsFunc(neverInOneLife, func(a apart) bool { return a.are(one, other) || a.are(other, one) })
}

func canFollow(former, next string) bool {
	return inOneLife(former, next) && !slices.ContainsFunc(neverAtOnce, func(a apart) bool { return a.are(former, next) })
}

// leastLives is how few lives are enough to hold which kinds follow which.
const leastLives = 20_000

// requireOrders holds that every kind of step happened at once after every other
// in some of so many lives, or cannot.
func (c covered) requireOrders(t *testing.T, lives uint64) {
	t.Helper()
	if lives < leastLives {
		return
	}
	for a, former := range kinds {
		for b, next := range kinds {
			n := c.followed[[2]int{a, b}]
			switch can := canFollow(former.name, next.name); {
			case can && n < int(lives/leastLives):
				t.Errorf("%q happened at once after %q in %d of %d lives", next.name, former.name, n, lives)
			case !can && n > 0:
				t.Errorf("%q happened at once after %q, which is said to be impossible", next.name, former.name)
			}
		}
	}
}
