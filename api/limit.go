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

// limitWindow is how long a window is. It begins with its first request.
const limitWindow = time.Minute

// maxWindows bounds how many are counted at once, some hundred bytes each.
// Beyond, the one that was asked for least recently begins anew.
const maxWindows = 100_000

// allowance is what a limit says to a request.
type allowance struct {
	allowed   bool
	remaining int
	reset     time.Duration // until the window ends
}

// limiter counts the requests of each key in fixed windows.
type limiter interface {
	take(ctx context.Context, key string, limit int) allowance
	// look says what take would, as far as this process knows.
	look(key string, limit int) allowance
}

// newLimiters count in Redis where there is one. What strangers are counted by
// in memory drives out nothing of the tenants'.
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

// windows counts in memory.
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

// take counts a request if its window has room for it.
func (w *windows) take(_ context.Context, key string, limit int) allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	open := w.at(key, now)
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

// follow makes a window what another limiter says of it.
func (w *windows) follow(key string, limit int, a allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open.Add(key, &window{ends: w.now().Add(a.reset), used: limit - a.remaining})
}

// look says what take would, and counts nothing.
func (w *windows) look(key string, limit int) allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if open := w.at(key, now); open != nil {
		return open.allowance(limit, now)
	}
	return allowance{true, limit, limitWindow}
}

func (w *windows) at(key string, now time.Time) *window {
	open, ok := w.open.Get(key)
	if !ok || !now.Before(open.ends) {
		return nil
	}
	return open
}

func (w *window) allowance(limit int, now time.Time) allowance {
	left := max(0, limit-w.used)
	return allowance{left > 0, left, w.ends.Sub(now)}
}

// limited has an operation charged to its tenant's limit of requests with events.
func limited(op huma.Operation) huma.Operation {
	op.Metadata["limited"] = true
	op.Extensions["x-rate-limit"] = "events"
	return op
}

// charge takes a request from a limit, and says in the answer what is left of it.
func (s *server) charge(ctx huma.Context, who Principal) error {
	if ctx.Operation().Metadata["limited"] == true {
		return s.chargeTo(ctx, "events:"+who.Tenant.ID.String(), min(who.Tenant.RequestsPerMinute, s.MaxRequestsPerMinute), "the tenant may send %d requests with events a minute")
	}
	calls := "calls:" + who.Tenant.ID.String()
	// A credential that uses up its own leaves the tenant's other half to others.
	err := s.chargeTo(ctx, calls+":"+string(who.Actor), max(1, s.CallsPerMinute/2), "a credential may make %d calls a minute")
	if err != nil {
		return err
	}
	return s.chargeTo(ctx, calls, s.CallsPerMinute, "the tenant may make %d calls a minute")
}

// chargeTo answers with the limit of which the least is left.
func (s *server) chargeTo(ctx huma.Context, key string, limit int, format string) error {
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

// defaultCalls is what every script and dashboard of a tenant's gets along with.
const defaultCalls = 6_000

// tooMany is a 429 whose Retry-After is the window's end.
func tooMany(a allowance, format string, args ...any) error {
	err := metering.Errorf(metering.CodeRateLimited, format, args...)
	err.RetryAfter = max(a.reset, time.Second)
	err.Message += fmt.Sprintf("; try again in %.0f s", math.Ceil(err.RetryAfter.Seconds()))
	return err
}

// describeLimit documents the headers of operations that are limited.
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
