package api

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
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

// flight is one statement: its keys, and its result once done is closed.
type flight[K comparable, V any] struct {
	keys  map[K]bool
	done  chan struct{}
	found map[K]V
	err   error
}

// find waits for the statement and returns the value of the key, or the zero value if the key is not found.
func (c *coalescer[K, V]) find(ctx context.Context, key K) (found V, err error) {
	all, err := c.findAll(ctx, key)
	return all[key], err
}

// findAll waits for the statement and returns the values of the keys that are found. The result can have values of
// other keys, and other requests read it too.
func (c *coalescer[K, V]) findAll(ctx context.Context, keys ...K) (map[K]V, error) {
	f := c.board(ctx, keys...)
	select {
	case <-f.done:
		return f.found, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// board adds the keys to the next statement and returns its flight. A caller that needs no result ignores the flight.
func (c *coalescer[K, V]) board(ctx context.Context, keys ...K) *flight[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &flight[K, V]{keys: make(map[K]bool), done: make(chan struct{})}
	}
	for _, key := range keys {
		c.next.keys[key] = true
	}
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

// answer runs the statement of a flight and stores its result. A panic becomes the error of the flight.
func (c *coalescer[K, V]) answer(ctx context.Context, f *flight[K, V]) {
	defer close(f.done)
	defer func() { // the requests wait in other goroutines, which cannot recover
		if failure := recover(); failure != nil {
			f.err = fmt.Errorf("panic: %v\n%s", failure, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	keys := make([]K, 0, len(f.keys))
	for key := range f.keys {
		keys = append(keys, key)
	}
	f.found, f.err = c.run(ctx, keys)
}

// readCredentials returns a function that calls read. If read fails, the function returns CodeUnavailable.
func readCredentials[K comparable, V any](read func(ctx context.Context, keys []K) (map[K]V, error)) func(context.Context, []K) (map[K]V, error) {
	return func(ctx context.Context, keys []K) (map[K]V, error) {
		found, err := read(ctx, keys)
		if err != nil {
			return nil, metering.Errorf(metering.CodeUnavailable, "credentials cannot be checked now; try again").Because(err)
		}
		return found, nil
	}
}
