package api

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// coalescer combines the keys of concurrent requests into one database statement. A request that arrives while
// a statement runs waits for the next statement. Therefore, every statement begins after all of its requests
// have arrived, and a stored revocation applies to every later request.
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

// find waits for the statement and returns the value of the key, or the zero value if the key is not found.
func (c *coalescer[K, V]) find(ctx context.Context, key K) (found V, err error) {
	f := c.board(ctx, key)
	select {
	case <-f.done:
		return f.found[key], f.err
	case <-ctx.Done():
		return found, ctx.Err()
	}
}

// board adds the key to the next statement and returns its flight. A caller that needs no result ignores the flight.
func (c *coalescer[K, V]) board(ctx context.Context, key K) *flight[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &flight[K, V]{keys: make(map[K]bool), done: make(chan struct{})}
	}
	c.next.keys[key] = true
	if !c.flying {
		c.flying = true
		go c.fly(context.WithoutCancel(ctx)) // fly also serves later requests, so it must outlast this request
	}
	return c.next
}

// fly runs statements until no request waits. Before each statement, it lets runnable goroutines add their
// keys. Under load, statements become fewer and larger. Without load, this costs no time.
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
