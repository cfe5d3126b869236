package proc

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clock is a test clock that can be set ahead. The processes of a System, a worker in the test's process
// and the fake of Stripe share it. Between two calls of To it runs at normal speed.
type Clock struct {
	path string // the file from which processes read the difference from time.Now

	mu    sync.Mutex
	ahead time.Duration
}

// NewClock returns a clock that shows the real time.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	c := &Clock{path: filepath.Join(t.TempDir(), "ahead")}
	require.NoError(t, os.WriteFile(c.path, []byte("0s"), 0o600))
	return c
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead).UTC()
}

// To sets the clock ahead to an instant. The test fails if the clock is already later.
func (c *Clock) To(t testing.TB, at time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := time.Until(at)
	require.GreaterOrEqual(t, ahead, c.ahead, "time never goes back")
	c.set(t, ahead)
}

// Correct makes the clock show the real time again, as NTP corrects a wrong clock.
func (c *Clock) Correct(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(t, 0)
}

// set writes the difference to the file that the processes read.
func (c *Clock) set(t testing.TB, ahead time.Duration) {
	t.Helper()
	next := c.path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(ahead.String()), 0o600))
	require.NoError(t, os.Rename(next, c.path), "so that no process reads half of it")
	c.ahead = ahead
}
