package billing_test

import (
	"slices"
	"testing"
)

// apart lists pairs of kinds of steps that never or rarely happen together: each of some with each of others. why
// is the reason.
type apart struct {
	some, others []string
	why          string
}

var restores = []string{"a backup", "a restore"}

// otherwise lists the step that changes between quantities and amounts.
var otherwise = []string{"another way of billing"}

// ours lists the kinds of steps of customers with standalone invoices.
var ours = namesOf(owning)

var (
	seconds  = namesOf(streaming)
	ofSecond = seconds[1:] // of a second subscription that runs
)

// neverInOneLife lists pairs of kinds of steps that no life contains.
var neverInOneLife = []apart{
	{seconds, slices.Concat(restores, otherwise, ours, []string{"a line is edited", "the receiver moves"}), "with two subscriptions usage is billed in quantities, and no receiver moves"},
	{restores, otherwise, "they are lived by others: what is not billed in amounts is restored by its totals"},
	{otherwise, []string{"a new receiver", "a new counter", "another mode", "the receiver moves"}, "who is billed in both ways stays with one counter"},
	{ours, slices.Concat(otherwise, []string{"a silent drop", "an item is added", "an item is removed"}), "with invoices of ours all is charged as amounts"},
}

// seldomInOneLife lists pairs of kinds of steps that few lives contain.
var seldomInOneLife = []apart{
	{[]string{"a missed invoice is read"}, []string{"the receiver moves"}, "one is of a counter, the other of a receiver"},
	{seconds, append([]string{"a link"}, leavingSteps...), "most lives with two subscriptions stay where they are"},
	{ours, slices.Concat(leavingSteps, []string{"a link", "another subscription", "a final invoice"}), "most lives with invoices of ours stay where they are, without a subscription"},
	{[]string{"a line is edited"}, slices.Concat(restores, leavingSteps), "most who are charged amounts stay where they are"},
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
	dying      = []string{"a worker dies after a call", "a worker dies after planning", "a worker dies after recording", "a worker dies before a call"}
	occasional = []string{
		"a correction", "late usage", "an earlier month's usage", "an answer is lost", "a refusal", "an old report comes again", "a closing", "a meter is counted",
		"another grace", "an item is removed",
	}
	connectedTo = []string{"a link", "a new counter", "a new receiver", "an item is removed", "an unlink", "another mode", "another subscription", "no connection"}
)

// neverAtOnce lists pairs of kinds of steps: a kind in others cannot directly follow a kind in some.
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
	{[]string{"a restore"}, []string{"a restore"}, "there is no backup since"},
	{slices.Concat(removed, receiving), ofUnsubscribed, "there is no counter"},
	{ofUnsubscribed, []string{"the receiver moves"}, "they happen at a counter"},
	{[]string{"an unlink"}, ofOurs, "the customer is linked to nobody"},
	{ofOurs, []string{"a link"}, "the customer is linked"},
	{[]string{"a subscription begins"}, []string{"a subscription begins", "a month is billed"}, "it has one"},
	{slices.Concat(removed, receiving, []string{"an unlink"}), seconds, "there is no subscription that it would be beside"},
	{[]string{"a new counter"}, ofSecond, "there is no second one yet"},
	{[]string{"a second subscription begins"}, []string{"a second subscription begins", "a link"}, "there are both"},
	{ofSecond[1:], []string{"a second subscription begins"}, "there is one"},
	{[]string{"a second subscription ends"}, ofSecond, "it has ended"},
	{[]string{"a subscription ends", "a month is billed"}, []string{"a subscription ends", "another subscription"}, "it has none"},
	{[]string{"a new counter"}, []string{"a subscription ends", "an invoice of ours is read"}, "it has none yet"},
	{[]string{"a subscription begins", "a subscription ends"}, []string{"a restore"}, "no life goes back over them"},
}

var (
	ofOurs         = []string{"a month is billed", "a subscription begins", "a subscription ends"}
	ofUnsubscribed = append(ofOurs, "an invoice of ours is read")
)

// seldomAtOnce lists pairs of kinds of steps: a kind in others can directly follow a kind in some, and does so in
// few lives.
var seldomAtOnce = []apart{
	{[]string{"an old report comes again"}, []string{"a link"}, "only where the customer was there before, a short time ago"},
	{[]string{"a link"}, []string{"an old report comes again"}, "only where the customer was there before, a short time ago"},
	{[]string{"an item is added"}, []string{"retention"}, "both wait for what seldom is"},
	{[]string{"retention"}, []string{"an item is added"}, "both wait for what seldom is"},
	{[]string{"a worker dies before a call"}, []string{"a silent drop"}, "what is on its way is sent first"},
	{[]string{"a line is edited", "an invoice of ours is read"}, []string{"a new receiver", "a new counter", "another mode"}, "few lives with invoices of ours leave their connection"},
	{[]string{"another mode"}, []string{"a line is edited"}, "few lives with invoices of ours leave their connection"},
	{[]string{"a link"}, []string{"a subscription ends", "an invoice of ours is read"}, "few lives with invoices of ours leave their connection"},
	{[]string{"a meter is counted", "a final invoice"}, []string{"an invoice of ours is read"}, "few invoices of ours are there for long unread"},
	{[]string{"a sync without a meter", "a subscription ends"}, []string{"a draft of ours is made final by hand"}, "drafts are seldom there for long"},
	{[]string{"a subscription ends"}, []string{"an answer is lost", "a saved error", "a new counter"}, "what is left is not sent before its month is over"},
	{[]string{"an invoice of ours is read"}, []string{"a refusal"}, "it was read by a sync, which has left little to send"},
	{[]string{"an invoice of ours is voided"}, []string{"the receiver moves"}, "few lives with invoices of ours leave their connection"},
	{seconds, slices.Concat(leavingSteps, dying, []string{"a link"}), "most lives with two subscriptions stay where they are, and a sync has left little to send"},
	{slices.Concat(leavingSteps, dying, []string{"a link"}), seconds, "most lives with two subscriptions stay where they are"},
	{seconds, occasional, "few lives have two subscriptions"},
	{occasional, seconds, "few lives have two subscriptions"},
	{[]string{"a restore"}, slices.Concat(connectedTo, []string{"the receiver moves"}), "what was lost is known again only where time passes over a border in between"},
	{[]string{"another mode"}, []string{"a missed invoice is read", "an old report comes again", "an item is added"}, "only where the mode was there before, a short time ago"},
	{[]string{"a refusal", "a silent drop"}, []string{"a link"}, "only of who takes usage of a subscription that has ended"},
	{[]string{"a server error", "a worker dies after a call"}, []string{"a silent drop"}, "what is on its way is sent first"},
	{[]string{"a missed invoice is read"}, []string{"a worker dies before a call", "a worker dies after a call", "a worker dies after recording"}, "it was read by a sync, which has left little to send"},
	{[]string{"a restore"}, []string{"a line is edited"}, "few drafts are older than a backup"},
	{[]string{"a border passes"}, []string{"a border passes"}, "the next period is not known yet"},
	{[]string{"a border passes", "a deadline passes"}, []string{"an old report comes again"}, "what was sent days ago is remembered no longer"},
	{[]string{"a missed invoice is read"}, []string{"an invoice of ours is read"}, "all were read"},
	{[]string{"an answer is lost"}, []string{"a link", "an invoice of ours is read"}, "the call was of who is linked"},
	{[]string{"a restore"}, []string{"a subscription begins", "a subscription ends", "an invoice of ours is voided"}, "what was lost is known again only where time passes over a border in between"},
	{[]string{"a line is edited"}, []string{"the receiver moves", "another mode", "an invoice of ours is read"}, "drafts are of a present counter, and not final"},
	{began, []string{"a line is edited"}, "only of drafts of a former connection"},
	{receiving, []string{"a line is edited"}, "only of drafts of a former connection"},
	{[]string{"another mode"}, []string{"a subscription ends"}, "only where the mode was there before"},
	{[]string{"another subscription"}, []string{"an invoice of ours is read"}, "only of a time before it"},
	{[]string{"a month is billed", "a closing"}, []string{"a closing"}, "all that was due is closed"},
	{
		[]string{"a meter is counted", "the receiver moves", "no connection", "another subscription", "a final invoice", "a missed invoice is read"},
		[]string{"a draft of ours is made final by hand"}, "drafts are seldom there for long",
	},
	{
		[]string{"a draft of ours is made final by hand"},
		[]string{"a closing", "a meter is counted", "the receiver moves", "a new counter", "another mode", "a link", "another subscription", "a final invoice"},
		"drafts are seldom there for long",
	},
	{
		[]string{"a subscription ends"},
		slices.Concat(dying, []string{"an earlier month's usage", "a server error", "a refusal", "another mode", "an unlink"}), "what is left is not sent before its month is over",
	},
	{
		[]string{"an invoice of ours is read"},
		slices.Concat(dying, []string{"an answer is lost", "a server error", "a meter is counted", "no connection", "a link"}), "it was read by a sync, which has left little to send",
	},
}

// matches reports whether one is in some, and other is in others.
func (a apart) matches(one, other string) bool {
	return slices.Contains(a.some, one) && slices.Contains(a.others, other)
}

// inOneLife reports whether both kinds of steps can happen in one life.
func inOneLife(one, other string) bool {
	return !slices.ContainsFunc(neverInOneLife, func(a apart) bool { return a.matches(one, other) || a.matches(other, one) })
}

// canFollow reports whether a step of the kind next can directly follow a step of the first kind.
func canFollow(former, next string) bool {
	return inOneLife(former, next) && !isListed(neverAtOnce, former, next)
}

// isListed reports whether the list contains the pair of kinds, in this order.
func isListed(all []apart, former, next string) bool {
	return slices.ContainsFunc(all, func(a apart) bool { return a.matches(former, next) })
}

// leastLives is the number of lives from which requireOrders requires each pair of kinds. For pairs with a kind
// that few lives contain (see ofFewLives), that number is manyLives.
const (
	leastLives = 20_000
	manyLives  = 200_000
)

// ofFewLives reports whether the kind needs standalone invoices or a second subscription. Each of these occurs in one
// life of eight.
func ofFewLives(kind string) bool {
	return slices.Contains(ours, kind) || slices.Contains(seconds, kind)
}

// requireOrders checks that each kind of step directly followed each kind in at least one life, unless the pair
// is impossible or rare. It also checks that no impossible pair occurred. It checks nothing for fewer than
// leastLives lives.
func (c covered) requireOrders(t *testing.T, lives uint64) {
	t.Helper()
	if lives < leastLives {
		return
	}
	for a, former := range kinds {
		for b, next := range kinds {
			n := c.followed[[2]int{a, b}]
			few := isListed(seldomAtOnce, former.name, next.name) || lives < manyLives && (ofFewLives(former.name) || ofFewLives(next.name))
			switch can := canFollow(former.name, next.name); {
			case can && n == 0 && !few:
				t.Errorf("%q happened at once after %q in %d of %d lives", next.name, former.name, n, lives)
			case !can && n > 0:
				t.Errorf("%q happened at once after %q, which is said to be impossible", next.name, former.name)
			}
		}
	}
}
