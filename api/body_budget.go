package api

import (
	"slices"
	"sync"
	"time"
)

// A body is slow undisturbedTime after its start, plus one second for each fastBytes that are reserved for the body. A
// slow body can be ended if another body needs its memory.
const (
	undisturbedTime = 500 * time.Millisecond
	fastBytes       = 4 << 20
)

// bodyPoll is the time between two attempts to reserve memory.
const bodyPoll = 50 * time.Millisecond

// prefixBudget is the memory for the bodies of unauthenticated senders, for one purpose. Each address prefix
// has a limit. If a body needs more memory than is free, the oldest slow body is ended. This is a body of the
// same prefix if the prefix has reached its limit, or of any prefix if the whole budget is used up.
type prefixBudget struct {
	purpose string
	most    int64 // bytes per address prefix

	mu       sync.Mutex
	free     int64
	accounts map[*body]*account
	arriving []*account       // oldest first
	prefixes map[string]int64 // reserved bytes by prefix
}

// account is the memory of a budget that is reserved for one body.
type account struct {
	body  *body
	began time.Time
	bytes int64
	waits bool // for free memory
}

func newPrefixBudget(purpose string, all, most int64) *prefixBudget {
	return &prefixBudget{purpose: purpose, most: most, free: all, accounts: make(map[*body]*account), prefixes: make(map[string]int64)}
}

func (g *prefixBudget) name() string { return g.purpose }

func (g *prefixBudget) fits(n int64) bool { return n <= g.most }

// take retries tryTake until memory is free, because other bodies can end or become slow. A body waits for at
// most bodyWait in total. Waiting does not make a body slow.
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

// setWaiting records whether a body waits for memory. It adds waited to the start of the body, so that the
// wait does not make the body slow.
func (g *prefixBudget) setWaiting(b *body, waits bool, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.accounts[b]; a != nil {
		a.waits, a.began = waits, a.began.Add(waited)
	}
}

// tryTake reserves memory for a body. It ends slow bodies until enough memory is free, and returns false if that does
// not suffice.
func (g *prefixBudget) tryTake(b *body, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.hasEnded() {
		return false
	}
	hasSamePrefix := func(a *account) bool { return a.body.prefix == b.prefix }
	hasAnyPrefix := func(*account) bool { return true }
	for g.prefixes[b.prefix]+n > g.most {
		if !g.endSlow(b, hasSamePrefix) {
			return false
		}
	}
	for n > g.free {
		if !g.endSlow(b, hasAnyPrefix) {
			return false
		}
	}
	g.accountOf(b).bytes += n
	g.prefixes[b.prefix] += n
	g.free -= n
	return true
}

// accountOf returns the account of a body. It creates the account if the body has none.
func (g *prefixBudget) accountOf(b *body) *account {
	if a := g.accounts[b]; a != nil {
		return a
	}
	a := &account{body: b, began: time.Now()}
	g.accounts[b], g.arriving = a, append(g.arriving, a)
	return a
}

// endSlow ends the oldest slow body for which mayEnd returns true, except for the body that needs memory. It
// reports whether it has ended a body.
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

// stopArriving removes a body from the candidates of endSlow.
func (g *prefixBudget) stopArriving(a *account) {
	g.arriving = slices.DeleteFunc(g.arriving, func(other *account) bool { return other == a })
}

// close releases the memory of an account and deletes the account.
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

// give releases the memory of a body, unless endSlow has already released it.
func (g *prefixBudget) give(b *body) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.accounts[b]; a != nil {
		g.close(a)
	}
}
