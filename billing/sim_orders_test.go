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

var (
	receiving = []string{"a new receiver", "the receiver moves"}
	removed   = []string{"no connection"}
	began     = []string{"a new counter", "a new receiver"}
	ofCounter = []string{
		"a final invoice", "a link", "a missed invoice is read", "a saved error", "a silent drop", "an item is added", "an item is removed", "an unlink", "another mode",
		"another subscription", "counts lag",
	}
	ofSubscriber = []string{"an item is added", "an item is removed", "another subscription", "a silent drop", "an unlink"}
	ofConnected  = slices.Concat(ofCounter, dying, []string{
		"a backup", "a restore", "a refusal", "a server error", "a sync", "a sync without a meter", "a worker goes on", "another worker goes on",
		"an answer is lost", "an old report comes again", "another way of billing", "no connection", "the receiver moves",
	})
	dying       = []string{"a worker dies after a call", "a worker dies after planning", "a worker dies after recording", "a worker dies before a call"}
	connectedTo = []string{"a link", "a new counter", "a new receiver", "an item is removed", "an unlink", "another mode", "another subscription", "no connection"}
)

// neverAtOnce are kinds of steps that cannot happen at once after others.
var neverAtOnce = []apart{
	{removed, ofConnected, "there is no connection"},
	{receiving, ofCounter, "a receiver has no items, subscriptions, invoices or modes"},
	{ofCounter, []string{"the receiver moves"}, "they happen at a counter"},
	{[]string{"a new counter"}, []string{"the receiver moves"}, "it is none"},
	{began, []string{"an old report comes again"}, "it was reported nothing"},
	{[]string{"a new counter"}, []string{"a final invoice", "a missed invoice is read", "an item is added"}, "it has made no invoice, and has an item for each meter"},
	{[]string{"an unlink"}, ofSubscriber, "the customer has no subscription"},
	{[]string{"a link", "an item is added", "an item is removed"}, []string{"a link"}, "the customer is linked, and subscribed"},
	{[]string{"a missed invoice is read"}, []string{"a missed invoice is read"}, "all were read"},
	{[]string{"a meter is made"}, []string{"a closing"}, "the meter is waited for"},
	{[]string{"a closing"}, []string{"a meter is counted"}, "no meter was waited for"},
	{connectedTo, []string{"a restore"}, "no life goes back over them"},
	{[]string{"a restore"}, []string{"a restore", "the receiver moves"}, "there is no backup since, and what was lost is not known again"},
}

// seldomAtOnce are kinds of steps that can happen at once after others, which few
// lives show.
var seldomAtOnce = []apart{
	{[]string{"a restore"}, connectedTo, "what was lost is known again only where time passes over a border in between"},
	{[]string{"another mode"}, []string{"a missed invoice is read", "an old report comes again"}, "only where the mode was there before, a short time ago"},
	{[]string{"a refusal", "a silent drop"}, []string{"a link"}, "only of who takes usage of a subscription that has ended"},
	{[]string{"a server error", "a worker dies after a call"}, []string{"a silent drop"}, "what is on its way is sent first"},
	{[]string{"a missed invoice is read"}, []string{"a worker dies before a call"}, "it was read by a sync, which has left little to send"},
	{[]string{"a border passes"}, []string{"a border passes"}, "the next period is not known yet"},
	{[]string{"a border passes"}, []string{"an old report comes again"}, "what was sent days ago is remembered no longer"},
}

func (a apart) are(one, other string) bool {
	return slices.Contains(a.some, one) && slices.Contains(a.others, other)
}

func inOneLife(one, other string) bool {
	return !slices.ContainsFunc(neverInOneLife, func(a apart) bool { return a.are(one, other) || a.are(other, one) })
}

func canFollow(former, next string) bool {
	return inOneLife(former, next) && !is(neverAtOnce, former, next)
}

func is(all []apart, former, next string) bool {
	return slices.ContainsFunc(all, func(a apart) bool { return a.are(former, next) })
}

// leastLives is how few lives are enough to hold which kinds follow which.
const leastLives = 20_000

// requireOrders holds that every kind of step happened at once after every other
// in one of so many lives at least, or cannot.
func (c covered) requireOrders(t *testing.T, lives uint64) {
	t.Helper()
	if lives < leastLives {
		return
	}
	for a, former := range kinds {
		for b, next := range kinds {
			n := c.followed[[2]int{a, b}]
			switch can := canFollow(former.name, next.name); {
			case can && n == 0 && !is(seldomAtOnce, former.name, next.name):
				t.Errorf("%q happened at once after %q in %d of %d lives", next.name, former.name, n, lives)
			case !can && n > 0:
				t.Errorf("%q happened at once after %q, which is said to be impossible", next.name, former.name)
			}
		}
	}
}
