package api

import (
	"slices"
	"sync"
	"time"
)

// A body may arrive undisturbed for undisturbedTime, and a second more for each fastBytes
// that have arrived, even if its budget is full.
const (
	undisturbedTime = 500 * time.Millisecond
	fastBytes       = 4 << 20
)

// bodyPoll is the time between attempts to find room.
const bodyPoll = 50 * time.Millisecond

// prefixBudget is the memory of bodies whose sender is not verified, for one purpose.
// An address prefix has a bound in it. A body that finds no room ends the oldest one
// that is slow: of its own prefix if that has reached its bound, of all if the budget
// is full.
type prefixBudget struct {
	purpose string
	most    int64 // of one prefix

	mu       sync.Mutex
	free     int64
	accounts map[*body]*account
	arriving []*account // the oldest first
	prefixes map[string]*prefixAccount
}

// account is what a budget has of one body.
type account struct {
	body  *body
	began time.Time
	bytes int64
	waits bool // for room
}

type prefixAccount struct {
	bytes    int64
	arriving []*account
}

func newPrefixBudget(purpose string, all, most int64) *prefixBudget {
	return &prefixBudget{purpose: purpose, most: most, free: all, accounts: make(map[*body]*account), prefixes: make(map[string]*prefixAccount)}
}

func (g *prefixBudget) name() string { return g.purpose }

func (g *prefixBudget) fits(n int64) bool { return n <= g.most }

// take waits for room, because bodies that do not arrive are slow soon. The wait is
// not the sender's fault: meanwhile its body is not slow.
func (g *prefixBudget) take(b *body, n int64) bool {
	began := time.Now()
	defer g.wait(b)(began)
	for !g.tryTake(b, n) {
		if b.hasEnded() || time.Since(began) > bodyWait {
			return false
		}
		time.Sleep(bodyPoll)
	}
	return true
}

// wait stops the clock of a body until the returned function is called.
func (g *prefixBudget) wait(b *body) func(began time.Time) {
	set := func(waits bool, waited time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if a := g.accounts[b]; a != nil {
			a.waits, a.began = waits, a.began.Add(waited)
		}
	}
	set(true, 0)
	return func(began time.Time) { set(false, time.Since(began)) }
}

func (g *prefixBudget) tryTake(b *body, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.hasEnded() {
		return false
	}
	prefix := g.prefixes[b.prefix]
	for prefix != nil && prefix.bytes+n > g.most {
		if !g.endSlow(prefix.arriving, b) {
			return false
		}
	}
	for n > g.free {
		if !g.endSlow(g.arriving, b) {
			return false
		}
	}
	g.accountOf(b).bytes += n
	g.prefixes[b.prefix].bytes += n
	g.free -= n
	return true
}

// accountOf opens an account for a body that begins to arrive.
func (g *prefixBudget) accountOf(b *body) *account {
	if a := g.accounts[b]; a != nil {
		return a
	}
	a := &account{body: b, began: time.Now()}
	g.accounts[b], g.arriving = a, append(g.arriving, a)
	prefix := g.prefixes[b.prefix]
	if prefix == nil {
		prefix = new(prefixAccount)
		g.prefixes[b.prefix] = prefix
	}
	prefix.arriving = append(prefix.arriving, a)
	return a
}

// endSlow ends the oldest slow body except the one that needs room, and reports
// whether there was one.
func (g *prefixBudget) endSlow(arriving []*account, except *body) bool {
	for _, a := range arriving {
		isSlow := time.Since(a.began) >= undisturbedTime+time.Duration(a.bytes)*time.Second/fastBytes
		if isSlow && !a.waits && a.body != except {
			a.body.end()
			g.close(a)
			return true
		}
	}
	return false
}

// stopArriving takes a body from those that can be ended.
func (g *prefixBudget) stopArriving(a *account) {
	is := func(other *account) bool { return other == a }
	g.arriving = slices.DeleteFunc(g.arriving, is)
	prefix := g.prefixes[a.body.prefix]
	prefix.arriving = slices.DeleteFunc(prefix.arriving, is)
}

func (g *prefixBudget) close(a *account) {
	g.stopArriving(a)
	delete(g.accounts, a.body)
	g.free += a.bytes
	prefix := g.prefixes[a.body.prefix]
	if prefix.bytes -= a.bytes; prefix.bytes == 0 {
		delete(g.prefixes, a.body.prefix)
	}
}

func (g *prefixBudget) arrived(b *body) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.accounts[b]; a != nil {
		g.stopArriving(a)
	}
}

// give returns what was paid for a body, unless the body was ended.
func (g *prefixBudget) give(b *body) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.accounts[b]; a != nil {
		g.close(a)
	}
}
