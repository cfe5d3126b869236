package main

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is the time that the fake of Stripe and our processes live in. It runs
// as fast as any other, and is put ahead.
type clock struct {
	path string // where the processes read by how much

	mu    sync.Mutex
	ahead time.Duration
}

func newClock(t testing.TB) *clock {
	c := &clock{path: filepath.Join(t.TempDir(), "ahead")}
	require.NoError(t, os.WriteFile(c.path, []byte("0s"), 0o600))
	return c
}

// Now is its time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead).UTC()
}

// to puts it ahead to an instant.
func (c *clock) to(t testing.TB, at time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := time.Until(at)
	require.GreaterOrEqual(t, ahead, c.ahead, "time never goes back")
	next := c.path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(ahead.String()), 0o600))
	require.NoError(t, os.Rename(next, c.path), "so that nobody reads a half of it")
	c.ahead = ahead
}
