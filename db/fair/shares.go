// Package fair divides limited resources among tenants, so that one tenant cannot use up a resource that others need.
package fair

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Shares divides the units of a limited resource, such as connections or bytes, among keys. A key may take units if
// it then holds at most as many units as were free before. So the first key that takes single units gets half of
// them, and the next key gets half of the rest. Waiting callers are served in turn, one caller per key. Keys of a lower
// rank are served first.
type Shares[K comparable] struct {
	rank  func(K) int
	mu    sync.Mutex
	free  int64
	held  map[K]int64
	lines map[K][]chan struct{} // waiting callers by key, in order of arrival
	turns []K                   // keys with waiting callers, by rank, then the least recently served first
}

// NewShares returns Shares of a number of units, in which all keys have the same rank.
func NewShares[K comparable](all int64) *Shares[K] {
	return NewRankedShares(all, func(K) int { return 0 })
}

// NewRankedShares returns Shares in which keys of a lower rank are served first.
func NewRankedShares[K comparable](all int64, rank func(K) int) *Shares[K] {
	return &Shares[K]{rank: rank, free: all, held: make(map[K]int64), lines: make(map[K][]chan struct{})}
}

// Fits reports whether Take(key, n) would succeed.
func (s *Shares[K]) Fits(key K, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fits(key, n)
}

// Take takes n units for the key and returns true. If the key would exceed its share, Take takes no unit and returns
// false.
func (s *Shares[K]) Take(key K, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(key, n)
}

// fits reports whether the key may take n units. It compares with the units that are free before the key takes
// n, so that a key can also take the last unit.
func (s *Shares[K]) fits(key K, n int64) bool { return s.held[key]+n <= s.free }

func (s *Shares[K]) take(key K, n int64) bool {
	if !s.fits(key, n) {
		return false
	}
	s.free -= n
	s.held[key] += n
	return true
}

// Wait waits for the key's turn, and then takes one unit. It returns ctx's error if ctx ends first.
func (s *Shares[K]) Wait(ctx context.Context, key K) error {
	if turn := s.join(key); turn != nil {
		return s.await(ctx, key, turn)
	}
	return nil
}

// WaitFor is Wait for at most a duration.
func (s *Shares[K]) WaitFor(ctx context.Context, key K, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.Wait(ctx, key)
}

// Yield gives back one unit of the key, so that waiting keys can take it. Then it waits for the key's turn, ahead of
// other callers of the key, and takes one unit again. If ctx ends first, Yield returns ctx's error, and the key
// holds one unit less.
func (s *Shares[K]) Yield(ctx context.Context, key K) error {
	return s.await(ctx, key, s.rejoin(key))
}

// await waits for a turn in the key's line, or leaves the line when ctx ends.
func (s *Shares[K]) await(ctx context.Context, key K, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		s.stopWaiting(key, turn)
		return ctx.Err()
	}
}

// rejoin inserts the caller at the front of the key's line, and gives back one unit of the key.
func (s *Shares[K]) rejoin(key K) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, line := make(chan struct{}), s.lines[key]
	if len(line) == 0 {
		s.queue(key)
	}
	s.lines[key] = slices.Insert(line, 0, turn)
	s.give(key, 1)
	return turn
}

// join takes a unit and returns nil if no caller of the key waits and the key's share allows it. Otherwise it
// appends the caller to the key's line, and returns a channel that is closed when the caller's turn comes.
func (s *Shares[K]) join(key K) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[key]
	if len(line) == 0 {
		if s.take(key, 1) {
			return nil
		}
		s.queue(key)
	}
	turn := make(chan struct{})
	s.lines[key] = append(line, turn)
	return turn
}

// stopWaiting removes the caller from the key's line. If the caller's turn has just come, it gives back the unit.
func (s *Shares[K]) stopWaiting(key K, turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := slices.Index(s.lines[key], turn)
	if place < 0 {
		s.give(key, 1)
		return
	}
	if s.lines[key] = slices.Delete(s.lines[key], place, place+1); len(s.lines[key]) == 0 {
		delete(s.lines, key)
		s.turns = slices.DeleteFunc(s.turns, func(k K) bool { return k == key })
	}
}

// Give gives back n units.
func (s *Shares[K]) Give(key K, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(key, n)
}

func (s *Shares[K]) give(key K, n int64) {
	s.free += n
	if s.held[key] -= n; s.held[key] == 0 {
		delete(s.held, key)
	}
	for i := 0; i < len(s.turns) && s.free > 0; {
		key := s.turns[i]
		if !s.take(key, 1) {
			i++
			continue
		}
		s.turns = slices.Delete(s.turns, i, i+1)
		s.letIn(key)
	}
}

// letIn ends the wait of the first caller in a key's line. A unit was already taken for that caller. If more callers
// of the key wait, the key is queued again, behind the other keys of its rank.
func (s *Shares[K]) letIn(key K) {
	line := s.lines[key]
	close(line[0])
	if len(line) == 1 {
		delete(s.lines, key)
		return
	}
	s.lines[key] = line[1:]
	s.queue(key)
}

// queue appends a key to the turns of its rank.
func (s *Shares[K]) queue(key K) {
	rank := s.rank(key)
	place := slices.IndexFunc(s.turns, func(other K) bool { return s.rank(other) > rank })
	if place < 0 {
		place = len(s.turns)
	}
	s.turns = slices.Insert(s.turns, place, key)
}
