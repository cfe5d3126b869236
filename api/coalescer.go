package api

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// coalescer asks the database for many requests at once. A request that
// arrives while a statement is under way shares the next one, so that every
// statement begins after the requests it answers, and a revocation holds from
// the moment it is stored.
type coalescer[K comparable, V any] struct {
	run     func(ctx context.Context, keys []K) (map[K]V, error)
	timeout time.Duration

	mu     sync.Mutex
	flying bool
	next   *flight[K, V]
}

type flight[K comparable, V any] struct {
	keys  map[K]bool
	done  chan struct{}
	found map[K]V
	err   error
}

// find returns what the key leads to, or the zero value.
func (c *coalescer[K, V]) find(ctx context.Context, key K) (found V, err error) {
	f := c.board(ctx, key)
	select {
	case <-f.done:
		return f.found[key], f.err
	case <-ctx.Done():
		return found, ctx.Err()
	}
}

// board has the key in the next statement, whether or not somebody waits for it.
func (c *coalescer[K, V]) board(ctx context.Context, key K) *flight[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &flight[K, V]{keys: make(map[K]bool), done: make(chan struct{})}
	}
	c.next.keys[key] = true
	if !c.flying {
		c.flying = true
		go c.fly(context.WithoutCancel(ctx)) // it serves others than the request that began it
	}
	return c.next
}

// fly runs statements until nobody waits for one. Before each it lets the requests that
// can go on do so, and share it: under load that makes fewer and larger statements,
// and costs no time when there is none.
func (c *coalescer[K, V]) fly(ctx context.Context) {
	for {
		runtime.Gosched()
		c.mu.Lock()
		f := c.next
		c.next = nil
		c.flying = f != nil
		c.mu.Unlock()
		if f == nil {
			return
		}
		c.answer(ctx, f)
	}
}

func (c *coalescer[K, V]) answer(ctx context.Context, f *flight[K, V]) {
	defer close(f.done)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	keys := make([]K, 0, len(f.keys))
	for key := range f.keys {
		keys = append(keys, key)
	}
	found, err := c.run(ctx, keys)
	if err != nil {
		f.err = metering.Errorf(metering.CodeUnavailable, "credentials cannot be checked now; try again").Because(err)
		return
	}
	f.found = found
}
