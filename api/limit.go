package api

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/odometer-metering/odometer/metering"
)

// limitWindow is the length of a rate-limit window. A window begins with its first request.
const limitWindow = time.Minute

// maxWindows is the maximum number of windows in memory, some hundred bytes each. Beyond that, the least recently
// used window is dropped, so its count restarts at 0.
const maxWindows = 100_000

// allowance is the result of counting one request against a limit.
type allowance struct {
	allowed   bool
	remaining int
	reset     time.Duration // until the window ends
}

// limiter counts the requests of each key in fixed windows.
type limiter interface {
	take(ctx context.Context, key string, limit int) allowance
	// peek returns the result that take would have, as far as this process knows. It counts no request.
	peek(key string, limit int) allowance
}

// newLimiters returns the limiters of tenants and of unauthenticated requests. Both count in Redis if Redis is
// configured. In memory, each limiter has its own windows, so unauthenticated requests never evict the windows of
// tenants.
func newLimiters(deps Deps) (tenants, strangers limiter, err error) {
	local, err := newWindows(deps.Now, maxWindows)
	if err != nil {
		return nil, nil, err
	}
	apart, err := newWindows(deps.Now, maxWindows)
	if err != nil || deps.Redis == nil {
		return local, apart, err
	}
	shared, err := newSharedWindows(deps.Redis, deps.Secret, local, deps.Log)
	if err != nil {
		return nil, nil, err
	}
	return shared, shared.beside(apart), nil
}

// windows is a limiter that counts in the memory of this process.
type windows struct {
	now  func() time.Time
	mu   sync.Mutex
	open *simplelru.LRU[string, *window]
}

type window struct {
	ends time.Time
	used int
}

func newWindows(now func() time.Time, most int) (*windows, error) {
	open, err := simplelru.NewLRU[string, *window](most, nil)
	return &windows{now: now, open: open}, err
}

// take counts a request if its window is not full.
func (w *windows) take(_ context.Context, key string, limit int) allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	open := w.openWindow(key, now)
	if open == nil {
		open = &window{ends: now.Add(limitWindow)}
		w.open.Add(key, open)
	}
	a := open.allowance(limit, now)
	if a.allowed {
		open.used++
		a.remaining--
	}
	return a
}

// follow sets the state of a window to the result that another limiter has returned.
func (w *windows) follow(key string, limit int, a allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open.Add(key, &window{ends: w.now().Add(a.reset), used: limit - a.remaining})
}

// peek returns the result that take would have, without counting a request.
func (w *windows) peek(key string, limit int) allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if open := w.openWindow(key, now); open != nil {
		return open.allowance(limit, now)
	}
	return allowance{true, limit, limitWindow}
}

// openWindow returns the window of a key, or nil if the key has none or its window has ended.
func (w *windows) openWindow(key string, now time.Time) *window {
	open, ok := w.open.Get(key)
	if !ok || !now.Before(open.ends) {
		return nil
	}
	return open
}

// allowance returns the result of the next request in the window, without counting it.
func (w *window) allowance(limit int, now time.Time) allowance {
	left := max(0, limit-w.used)
	return allowance{left > 0, left, w.ends.Sub(now)}
}

// limited marks an operation that accepts events. Its body can have maxEventsBody bytes, and its requests count
// against the tenant's limit of requests with events.
func limited(op huma.Operation) huma.Operation {
	op.Metadata["limited"] = true
	op.Extensions["x-rate-limit"] = "events"
	return withBodyUpTo(op, maxEventsBody)
}

// countRequest counts a request against its rate limits and sets the headers X-RateLimit-Limit and
// X-RateLimit-Remaining. A request with events counts against one limit of the tenant. Other calls count against
// a limit of the credential and a limit of the tenant.
func (s *server) countRequest(ctx huma.Context, who Principal) error {
	if ctx.Operation().Metadata["limited"] == true {
		return s.countAgainst(ctx, "events:"+who.Tenant.ID.String(), min(who.Tenant.RequestsPerMinute, s.MaxRequestsPerMinute), "the tenant may send %d requests with events a minute")
	}
	calls := "calls:" + who.Tenant.ID.String()
	// A single credential gets at most half of the tenant's calls, so it cannot use up the tenant's limit
	// alone.
	err := s.countAgainst(ctx, calls+":"+string(who.Actor), max(1, s.CallsPerMinute/2), "a credential may make %d calls a minute")
	if err != nil {
		return err
	}
	return s.countAgainst(ctx, calls, s.CallsPerMinute, "the tenant may make %d calls a minute")
}

// countAgainst counts a request against one limit, and returns an error if the limit is reached. The headers show the
// limit with the fewest requests left.
func (s *server) countAgainst(ctx huma.Context, key string, limit int, format string) error {
	a := s.minutes.take(ctx.Context(), key, limit)
	x := exchangeOf(ctx.Context())
	if x.limit == 0 || a.remaining < x.remaining {
		x.limit, x.remaining = limit, a.remaining
		ctx.SetHeader("X-RateLimit-Limit", strconv.Itoa(limit))
		ctx.SetHeader("X-RateLimit-Remaining", strconv.Itoa(a.remaining))
	}
	if a.allowed {
		return nil
	}
	return tooMany(a, format, limit)
}

// defaultCalls is the default number of calls per minute. It suffices for a tenant's scripts and dashboards.
const defaultCalls = 6_000

// tooMany returns a 429 error. Retry-After is the time until the window ends, at least one second.
func tooMany(a allowance, format string, args ...any) error {
	err := metering.Errorf(metering.CodeRateLimited, format, args...)
	err.RetryAfter = max(a.reset, time.Second)
	err.Message += fmt.Sprintf("; try again in %.0f s", math.Ceil(err.RetryAfter.Seconds()))
	return err
}

// describeLimit documents the rate-limit headers and the status 429 of a limited operation.
func describeLimit(op *huma.Operation) {
	number := func(doc string) *huma.Param {
		return &huma.Param{Description: doc, Schema: &huma.Schema{Type: huma.TypeInteger}}
	}
	headers := map[string]*huma.Param{
		"X-RateLimit-Limit":     number("Requests per minute of the limit with the fewest requests left: the tenant's, or the credential's"),
		"X-RateLimit-Remaining": number("Requests left in this minute of the limit in X-RateLimit-Limit"),
	}
	for _, response := range op.Responses {
		response.Headers = headers
	}
	op.Responses["429"] = &huma.Response{
		Description: "The limit of requests per minute is reached", Content: op.Responses["default"].Content,
		Headers: map[string]*huma.Param{
			"X-RateLimit-Limit": headers["X-RateLimit-Limit"], "X-RateLimit-Remaining": headers["X-RateLimit-Remaining"],
			"Retry-After": number("Seconds until the limit is reset"),
		},
	}
}
