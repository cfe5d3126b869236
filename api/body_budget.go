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

// prefixBudget is the memory of bodies of unverified senders, for one purpose.
// An address prefix has a bound in it. A body that finds no room ends the oldest one
// that is slow: of its own prefix if that has reached its bound, of all if the budget
// is full.
type prefixBudget struct {
	purpose string
	most    int64 // of one prefix

	mu       sync.Mutex
	free     int64
	accounts map[*body]*account
	arriving []*account       // the oldest first
	prefixes map[string]int64 // bytes of each
}

// account is the part of a budget that one body holds.
type account struct {
	body  *body
	began time.Time
	bytes int64
	waits bool // for room
}

func newPrefixBudget(purpose string, all, most int64) *prefixBudget {
	return &prefixBudget{purpose: purpose, most: most, free: all, accounts: make(map[*body]*account), prefixes: make(map[string]int64)}
}

func (g *prefixBudget) name() string { return g.purpose }

func (g *prefixBudget) fits(n int64) bool { return n <= g.most }

// take waits for room, because bodies that do not arrive are slow soon. A body waits for
// bodyWait in all. The wait is not the sender's fault: meanwhile its body is not slow.
func (g *prefixBudget) take(b *body, n int64) bool {
	began := time.Now()
	g.setWaiting(b, true, 0)
	defer func() {
		waited := time.Since(began)
		b.waited += waited
		g.setWaiting(b, false, waited)
	}()
	for !g.tryTake(b, n) {
		if b.hasEnded() || b.waited+time.Since(began) > bodyWait {
			return false
		}
		time.Sleep(bodyPoll)
	}
	return true
}

// setWaiting notes whether a body waits for room, and moves its beginning by the time that
// it has waited.
func (g *prefixBudget) setWaiting(b *body, waits bool, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.accounts[b]; a != nil {
		a.waits, a.began = waits, a.began.Add(waited)
	}
}

func (g *prefixBudget) tryTake(b *body, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.hasEnded() {
		return false
	}
	ofPrefix := func(a *account) bool { return a.body.prefix == b.prefix }
	ofAll := func(*account) bool { return true }
	for g.prefixes[b.prefix]+n > g.most {
		if !g.endSlow(b, ofPrefix) {
			return false
		}
	}
	for n > g.free {
		if !g.endSlow(b, ofAll) {
			return false
		}
	}
	g.accountOf(b).bytes += n
	g.prefixes[b.prefix] += n
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
	return a
}

// endSlow ends the oldest slow body of those that may be ended, except the one that needs
// room, and reports whether there was one.
func (g *prefixBudget) endSlow(needs *body, mayEnd func(*account) bool) bool {
	for _, a := range g.arriving {
		isSlow := time.Since(a.began) >= undisturbedTime+time.Duration(a.bytes)*time.Second/fastBytes
		if isSlow && !a.waits && a.body != needs && mayEnd(a) {
			a.body.end()
			g.close(a)
			return true
		}
	}
	return false
}

// stopArriving takes a body from those that can be ended.
func (g *prefixBudget) stopArriving(a *account) {
	g.arriving = slices.DeleteFunc(g.arriving, func(other *account) bool { return other == a })
}

func (g *prefixBudget) close(a *account) {
	g.stopArriving(a)
	delete(g.accounts, a.body)
	g.free += a.bytes
	if g.prefixes[a.body.prefix] -= a.bytes; g.prefixes[a.body.prefix] == 0 {
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
