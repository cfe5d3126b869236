package api

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// redisRetry is the time between attempts to reach Redis during an outage.
const redisRetry = time.Second

// redisWindow is the length of a window in Redis. It is a variable because tests use longer windows, so that no window
// ends too soon on a busy machine: Redis counts in real time.
var redisWindow = limitWindow

// OpenRedis returns a Redis client. The timeout is read_timeout in the URL, or redisTimeout by default. The client
// connects on first use.
func OpenRedis(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("must be a redis:// or rediss:// URL") // the cause can contain the password
	}
	if options.ReadTimeout < 0 {
		return nil, errors.New("must have a read_timeout above 0, such as 500ms")
	}
	options.ReadTimeout = cmp.Or(options.ReadTimeout, redisTimeout)
	options.DialTimeout, options.PoolTimeout = options.ReadTimeout, options.ReadTimeout
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1 // a retry could count a request twice
	logging.Disable()       // this package logs each outage once
	return redis.NewClient(options), nil
}

// takeScript implements windows.take as a Redis script. It uses only the clock of Redis, which all replicas share.
var takeScript = redis.NewScript(`
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
local allowed = 0
if used < tonumber(ARGV[1]) then
  allowed = 1
  used = redis.call('INCR', KEYS[1])
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  left = tonumber(ARGV[2])
  redis.call('PEXPIRE', KEYS[1], left)
end
return {allowed, used, left}
`)

// sharedWindows is a limiter that counts in Redis for all replicas. During an outage of Redis, each replica counts
// in its memory and continues from the last responses of Redis.
type sharedWindows struct {
	redis   *redis.Client
	timeout time.Duration
	space   string // prefix of every key, because services with different secrets can share one Redis
	local   *windows
	log     *slog.Logger
	outage  *outage
}

// outage is the state of an outage of Redis.
type outage struct {
	mu      sync.Mutex
	down    bool
	retryAt time.Time
}

func newSharedWindows(client *redis.Client, secret []byte, local *windows, log *slog.Logger) (*sharedWindows, error) {
	space, err := derive(secret, "redis-keys")
	if err != nil {
		return nil, err
	}
	return &sharedWindows{
		redis: client, timeout: client.Options().ReadTimeout, space: "odometer:" + hex.EncodeToString(space[:8]) + ":", local: local, log: log, outage: new(outage),
	}, nil
}

// beside returns a limiter that counts in the same Redis, but in other local windows during an outage.
func (w *sharedWindows) beside(local *windows) *sharedWindows {
	other := *w
	other.local = local
	return &other
}

// take counts a request in Redis. If Redis does not respond, it counts the request in the local windows.
func (w *sharedWindows) take(ctx context.Context, key string, limit int) allowance {
	due, isRetry := w.due()
	if !due {
		return w.local.take(ctx, key, limit)
	}
	a, err := w.ask(ctx, key, limit)
	if ctx.Err() != nil {
		return w.local.take(ctx, key, limit) // the HTTP client has disconnected, which does not indicate an outage
	}
	w.recordOutage(isRetry, err)
	if err != nil {
		return w.local.take(ctx, key, limit)
	}
	w.local.follow(key, limit, a)
	return a
}

// peek returns the result that take would have, from the local windows. These contain the last responses of Redis
// to this replica.
func (w *sharedWindows) peek(key string, limit int) allowance { return w.local.peek(key, limit) }

// due reports whether take calls Redis: always, except during an outage, when it calls Redis once per redisRetry.
// isRetry reports whether the call is a retry during an outage.
func (w *sharedWindows) due() (due, isRetry bool) {
	w.outage.mu.Lock()
	defer w.outage.mu.Unlock()
	now := w.local.now()
	if !w.outage.down {
		return true, false
	}
	if now.Before(w.outage.retryAt) {
		return false, false
	}
	w.outage.retryAt = now.Add(redisRetry)
	return true, true
}

// recordOutage records and logs the start or end of an outage. A request without an error ends an outage only if it is
// a retry, because a response to an earlier request can predate the outage.
func (w *sharedWindows) recordOutage(isRetry bool, err error) {
	w.outage.mu.Lock()
	defer w.outage.mu.Unlock()
	switch {
	case err != nil && !w.outage.down:
		w.outage.down, w.outage.retryAt = true, w.local.now().Add(redisRetry)
		w.log.Warn("Redis does not respond: rate limits apply per replica", "error", err)
	case err == nil && isRetry:
		w.outage.down = false
		w.log.Info("Redis responds again: replicas share rate limits")
	}
}

// ask counts a request in Redis.
func (w *sharedWindows) ask(ctx context.Context, key string, limit int) (allowance, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	answer, err := takeScript.Run(ctx, w.redis, []string{w.space + key}, limit, redisWindow.Milliseconds()).Int64Slice()
	if err != nil {
		return allowance{}, fmt.Errorf("count request: %w", err)
	}
	if len(answer) != 3 {
		return allowance{}, fmt.Errorf("count request: Redis returned %d numbers instead of 3", len(answer))
	}
	allowed, used, left := answer[0] == 1, int(answer[1]), time.Duration(answer[2])*time.Millisecond
	return allowance{allowed, max(0, limit-used), left}, nil
}
