package api

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
)

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time           { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(by time.Duration) { c.at.Add(int64(by)) }

// redisClient connects to the Redis server of the tests.
func redisClient(t testing.TB) *redis.Client {
	t.Helper()
	url := os.Getenv("TEST_REDIS_URL")
	if url == "" {
		t.Fatal("TEST_REDIS_URL is not set: run make test, or dev/up test go test ./...")
	}
	client, err := OpenRedis(url)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// localWindows returns a limiter in memory with at most this many windows.
func localWindows(t testing.TB, now func() time.Time, most int) *windows {
	t.Helper()
	w, err := newWindows(now, most)
	require.NoError(t, err)
	return w
}

// shared returns the limiters of this number of replicas on one Redis, with a key space of their own.
func shared(t testing.TB, client *redis.Client, replicas int) []*sharedWindows {
	t.Helper()
	secret := make([]byte, 32)
	rand.Read(secret)
	var all []*sharedWindows
	for range replicas {
		w, err := newSharedWindows(client, secret, localWindows(t, time.Now, 10), slog.New(slog.NewTextHandler(t.Output(), nil)))
		require.NoError(t, err)
		all = append(all, w)
	}
	return all
}

// subject is a limiter under test, with a function that advances its time.
type subject struct {
	take    func(key string, limit int) allowance
	advance func(by time.Duration)
	window  time.Duration // length of a window
	exact   bool          // the clock moves only by advance
}

// requireReset checks that the window ends after the duration most. With a real clock, it may end sooner.
func (s subject) requireReset(t *testing.T, most time.Duration, a allowance) {
	t.Helper()
	require.Positive(t, a.reset)
	require.LessOrEqual(t, a.reset, most)
	if s.exact {
		require.Equal(t, most, a.reset)
	}
}

// subjects returns constructors of the limiters in memory and in Redis. In Redis, advance shortens the remaining
// lifetime of the keys.
func subjects(t testing.TB) map[string]func() subject {
	client := redisClient(t)
	return map[string]func() subject{
		"in memory": func() subject {
			c := new(clock)
			w := localWindows(t, c.now, maxWindows)
			take := func(key string, limit int) allowance { return w.take(t.Context(), key, limit) }
			return subject{take, c.advance, limitWindow, true}
		},
		"in Redis": func() subject {
			w := shared(t, client, 1)[0]
			take := func(key string, limit int) allowance {
				a, err := w.ask(t.Context(), key, limit)
				require.NoError(t, err)
				return a
			}
			advance := func(by time.Duration) {
				require.NoError(t, shortenScript.Run(t.Context(), client, nil, w.space+"*", by.Milliseconds()).Err())
			}
			return subject{take, advance, redisWindow, false}
		},
	}
}

// shortenScript shortens the remaining lifetime of the keys. PEXPIRE deletes keys without a remaining lifetime.
var shortenScript = redis.NewScript(`
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  redis.call('PEXPIRE', key, redis.call('PTTL', key) - tonumber(ARGV[2]))
end
return 1
`)

func TestLimiterAllowsExactlyTheLimitPerWindow(t *testing.T) {
	t.Parallel()
	for name, fresh := range subjects(t) {
		t.Run(name, func(t *testing.T) {
			s := fresh()
			for window := range 3 {
				for left := 4; left >= 0; left-- {
					a := s.take("a", 5)
					require.True(t, a.allowed)
					require.Equal(t, left, a.remaining)
					s.requireReset(t, s.window, a)
				}
				s.advance(s.window * 2 / 3) // the window began with its first request
				for range 3 {
					a := s.take("a", 5)
					require.False(t, a.allowed, "window %d", window)
					require.Equal(t, 0, a.remaining)
					s.requireReset(t, s.window/3, a)
				}
				require.True(t, s.take("b", 5).allowed, "another's")
				s.advance(s.window / 3)
			}
			s.advance(60 * s.window)
			require.Equal(t, 4, s.take("a", 5).remaining)
		})
	}
}

func TestChangedLimitAppliesInRunningWindow(t *testing.T) {
	t.Parallel()
	for name, fresh := range subjects(t) {
		t.Run(name, func(t *testing.T) {
			s := fresh()
			for range 5 {
				require.True(t, s.take("a", 5).allowed)
			}
			require.Equal(t, 1, s.take("a", 7).remaining)
			a := s.take("a", 3)
			require.False(t, a.allowed)
			require.Equal(t, 0, a.remaining)
			require.True(t, s.take("a", 7).allowed)
			require.False(t, s.take("a", 7).allowed)
		})
	}
}

// model is the expected state of a window.
type model struct {
	first time.Duration
	used  int
}

// mayHaveEnded reports whether a window with this time left may already have ended, because Redis counts in real time.
func (s subject) mayHaveEnded(left time.Duration) bool {
	return !s.exact && left > 0 && left <= s.window/6
}

// TestPropertyLimitersAgreeWithModel compares the limiters with the model, for requests at random times under random
// limits.
func TestPropertyLimitersAgreeWithModel(t *testing.T) {
	t.Parallel()
	for name, fresh := range subjects(t) {
		t.Run(name, func(t *testing.T) {
			histories.Check(t, func(rt *rapid.T) {
				s, now, known := fresh(), time.Duration(0), make(map[string]*model)
				for range rapid.IntRange(1, 40).Draw(rt, "steps") {
					if rapid.Bool().Draw(rt, "wait") {
						by := time.Duration(rapid.IntRange(1, 70).Draw(rt, "by")) * s.window / 60
						now += by
						s.advance(by)
					}
					key, limit := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"), rapid.IntRange(1, 4).Draw(rt, "limit")
					m := known[key]
					if m != nil {
						if left := m.first + s.window - now; s.mayHaveEnded(left) {
							now += left
							s.advance(left)
						}
					}
					if m == nil || now-m.first >= s.window {
						m = &model{first: now}
						known[key] = m
					}
					allowed := m.used < limit
					if allowed {
						m.used++
					}
					a := s.take(key, limit)
					if a.allowed != allowed || a.remaining != max(0, limit-m.used) {
						rt.Fatalf("at %s: %+v, want allowed %t after %d of %d", now, a, allowed, m.used, limit)
					}
				}
			})
		})
	}
}

// TestConcurrentRequestsGetExactlyTheLimit checks the number of concurrent requests that the limiters allow, in one
// process and in several.
func TestConcurrentRequestsGetExactlyTheLimit(t *testing.T) {
	t.Parallel()
	local := localWindows(t, new(clock).now, maxWindows)
	replicas := shared(t, redisClient(t), 3)
	for name, take := range map[string]func(i int) allowance{
		"in memory": func(int) allowance { return local.take(t.Context(), "a", 1000) },
		"in Redis": func(i int) allowance {
			a, err := replicas[i%3].ask(t.Context(), "a", 1000)
			if err != nil {
				t.Error(err)
			}
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			var allowed atomic.Int64
			var clients sync.WaitGroup
			for i := range 20 {
				clients.Go(func() {
					for range 100 {
						if take(i).allowed {
							allowed.Add(1)
						}
					}
				})
			}
			clients.Wait()
			require.Equal(t, int64(1000), allowed.Load())
		})
	}
}

func TestNumberOfRateLimitWindowsIsBounded(t *testing.T) {
	t.Parallel()
	w := localWindows(t, new(clock).now, 100)
	for i := range 10_000 {
		w.take(t.Context(), fmt.Sprint(i), 1)
	}
	require.Equal(t, 100, w.open.Len())
	require.False(t, w.take(t.Context(), "9999", 1).allowed)
	require.True(t, w.take(t.Context(), "0", 1).allowed)
}

// lines is a log that can be read while it is written.
type lines struct {
	sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(b)
}

// count returns how often the log contains a text.
func (l *lines) count(text string) int {
	l.Lock()
	defer l.Unlock()
	return strings.Count(l.String(), text)
}

// gate is a proxy between a client and Redis. It can forward nothing (silent) or refuse connections (refuse).
type gate struct {
	net.Listener
	target string
	silent atomic.Bool
	held   atomic.Int64 // messages that were not forwarded
	mu     sync.Mutex
	open   []net.Conn
}

// serve connects each client to Redis until the gate is closed.
func (g *gate) serve() {
	for {
		in, err := g.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.target)
		if err != nil {
			in.Close()
			continue
		}
		g.mu.Lock()
		g.open = append(g.open, in, out)
		g.mu.Unlock()
		go g.forward(in, out)
		go g.forward(out, in)
	}
}

// forward forwards messages, except while the gate is silent.
func (g *gate) forward(from, to net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			to.Close()
			return
		}
		if g.silent.Load() {
			g.held.Add(1)
			continue
		}
		_, _ = to.Write(buffer[:n])
	}
}

// refuse closes all connections and accepts no new ones.
func (g *gate) refuse() {
	g.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range g.open {
		conn.Close()
	}
}

// newGate returns a gate in front of Redis, and a client that connects through it.
func newGate(t *testing.T) (*gate, *redis.Client) {
	t.Helper()
	target := redisClient(t).Options().Addr
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{Listener: listener, target: target}
	go g.serve()
	t.Cleanup(g.refuse)
	client, err := OpenRedis("redis://" + listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return g, client
}

// TestWithoutRedisEachReplicaCountsAlone checks that each replica counts alone while Redis is slow or unavailable.
// At most one request waits for Redis, and the log reports the failure once.
func TestWithoutRedisEachReplicaCountsAlone(t *testing.T) {
	t.Parallel()
	for name, shut := range map[string]func(*gate){
		"slow": func(g *gate) { g.silent.Store(true) },
		"gone": (*gate).refuse,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, client := newGate(t)
			log, c := new(lines), new(clock)
			secret := []byte(rand.Text() + rand.Text())
			w, err := newSharedWindows(client, secret, localWindows(t, c.now, 10), slog.New(slog.NewTextHandler(log, nil)))
			require.NoError(t, err)
			require.Equal(t, 8, w.take(t.Context(), "a", 9).remaining)
			w.timeout = 250 * time.Millisecond
			shut(g)
			for range 8 { // one request was counted before
				require.True(t, w.take(t.Context(), "a", 9).allowed)
			}
			require.False(t, w.take(t.Context(), "a", 9).allowed)
			require.Equal(t, 1, log.count("Redis does not respond"))
			if name == "gone" {
				return
			}
			require.LessOrEqual(t, g.held.Load(), int64(1), "one waits, the others do not")
			g.silent.Store(false)
			w.timeout = redisTimeout
			c.advance(redisRetry)
			w.take(t.Context(), "b", 1)
			require.Equal(t, 1, log.count("Redis responds again"))
			require.Equal(t, 1, log.count("Redis does not respond"))
			require.True(t, w.take(t.Context(), "a", 9).allowed, "Redis has counted one of nine")
		})
	}
}

func TestRedisURLSetsTimeouts(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{"": redisTimeout, "?read_timeout=2s": 2 * time.Second} {
		client, err := OpenRedis("redis://127.0.0.1:1" + query)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{want, want, want}, []time.Duration{client.Options().ReadTimeout, client.Options().DialTimeout, client.Options().PoolTimeout})
		require.NoError(t, client.Close())
	}
	for url, problem := range map[string]string{
		"http://:secret@127.0.0.1":             "must be a redis:// or rediss:// URL",
		"redis://127.0.0.1:1?read_timeout=0":   "must have a read_timeout above 0, such as 500ms",
		"redis://127.0.0.1:1?read_timeout=-1s": "must have a read_timeout above 0, such as 500ms",
	} {
		_, err := OpenRedis(url)
		require.EqualError(t, err, problem)
	}
}
