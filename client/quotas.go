package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// OnError is the decision about usage while the service does not answer.
type OnError string

const (
	// OnErrorAllow allows the usage.
	OnErrorAllow OnError = "allow"
	// OnErrorDeny does not allow the usage.
	OnErrorDeny OnError = "deny"
)

// Quotas checks and reserves usage before it happens. It is safe for concurrent use.
type Quotas struct {
	client  *ClientWithResponses
	onError OnError
	options QuotasOptions
	cache   *quotaCache
}

// QuotasOptions configures a Quotas. Zero values select the defaults.
type QuotasOptions struct {
	// Timeout is the maximum time that Check and Reserve wait for the service, including retries of
	// Reserve: 2 s by default.
	Timeout time.Duration
	// OnFailure is called with the error of each request that the service did not answer. If it is nil, the
	// error is logged.
	OnFailure func(error)
}

const (
	defaultTimeout = 2 * time.Second
	endTimeout     = 10 * time.Second // of each request that extends, settles or releases a reservation
)

// NewQuotas creates a Quotas that sends its requests through client. onError decides while the service does
// not answer. maxStaleness is the maximum age of an answer that Check reuses; with 0, each check sends a
// request.
func NewQuotas(client *ClientWithResponses, onError OnError, maxStaleness time.Duration, options QuotasOptions) (*Quotas, error) {
	if onError != OnErrorAllow && onError != OnErrorDeny {
		return nil, fmt.Errorf("onError must be OnErrorAllow or OnErrorDeny, not %q", onError)
	}
	if maxStaleness < 0 {
		return nil, fmt.Errorf("maxStaleness must be zero or more, not %s", maxStaleness)
	}
	if options.Timeout <= 0 {
		options.Timeout = defaultTimeout
	}
	if options.OnFailure == nil {
		options.OnFailure = func(err error) { slog.Warn("quota request failed", "error", err) }
	}
	cache := &quotaCache{maxStaleness: maxStaleness, entries: make(map[string]*cachedQuota)}
	return &Quotas{client: client, onError: onError, options: options, cache: cache}, nil
}

// CheckResult is the result of a check.
type CheckResult struct {
	QuotaDecision

	// Failure is the error because of which OnError decided, or nil if the service or the cache decided.
	Failure error
}

// Check reports whether a customer may use an amount. It returns an error only if the service
// refuses the request for its content, such as an unknown meter.
//
// The cache counts the amounts that this Quotas has allowed since the answer as used. It allows an amount
// only if every quota has at least that much left. It denies an amount only if the service has denied the
// same or a smaller amount. Otherwise Check asks the service.
func (q *Quotas) Check(ctx context.Context, check QuotaCheck) (CheckResult, error) {
	cached := q.cache.newCheck(check)
	if decision, ok := cached.decide(); ok {
		return CheckResult{QuotaDecision: decision}, nil
	}
	decision, err := q.sendCheck(ctx, check)
	if isRefused(err) {
		cached.storeAnswer(nil, false)
		return CheckResult{}, err
	}
	if err != nil {
		q.options.OnFailure(err)
		allowed := q.onError == OnErrorAllow
		cached.storeAnswer(nil, allowed)
		return CheckResult{QuotaDecision: QuotaDecision{Allowed: allowed}, Failure: err}, nil
	}
	cached.storeAnswer(decision, decision.Allowed)
	return CheckResult{QuotaDecision: *decision}, nil
}

// sendCheck sends one check to the service, without the cache.
func (q *Quotas) sendCheck(ctx context.Context, check QuotaCheck) (*QuotaDecision, error) {
	ctx, cancel := context.WithTimeout(ctx, q.options.Timeout)
	defer cancel()
	answer, err := q.client.CheckQuotasWithResponse(ctx, CheckQuotas{Checks: []QuotaCheck{check}})
	if err != nil {
		return nil, noAnswerError(check, err)
	}
	if answer.JSON200 == nil || len(answer.JSON200.Data) != 1 {
		return nil, problemError(answer.HTTPResponse, answer.ApplicationproblemJSONDefault)
	}
	return &answer.JSON200.Data[0], nil
}

// ProblemError is an error answer of the service.
type ProblemError struct {
	Status     int
	Detail     string
	RetryAfter time.Duration
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("the service answered %d: %s", e.Status, e.Detail)
}

// problemError returns the error of an answer that is not a success.
func problemError(response *http.Response, problem *Problem) error {
	e := &ProblemError{Status: response.StatusCode, Detail: http.StatusText(response.StatusCode), RetryAfter: retryAfter(response)}
	if problem != nil {
		e.Detail = problem.Detail
	}
	return e
}

// encodingError reports a request that cannot be encoded as JSON, so it was not sent.
type encodingError struct{ error }

func (e encodingError) Unwrap() error { return e.error }

// noAnswerError returns the error of a request without an answer.
func noAnswerError(body any, failure error) error {
	if _, err := json.Marshal(body); err != nil {
		return encodingError{fmt.Errorf("the request is no JSON: %w", err)}
	}
	return fmt.Errorf("the service did not answer: %w", failure)
}

// isRefused reports whether the same request would fail again.
func isRefused(err error) bool {
	if _, ok := errors.AsType[encodingError](err); ok {
		return true
	}
	problem, ok := errors.AsType[*ProblemError](err)
	return ok && (refusesContent(problem.Status) || problem.Status == http.StatusConflict)
}

// quotaCache holds answers to checks.
type quotaCache struct {
	maxStaleness time.Duration

	mu      sync.Mutex
	entries map[string]*cachedQuota
}

// maxCached is the maximum number of entries in the cache, one per customer, meter and group.
const maxCached = 10_000

// cachedQuota is the latest answer about a customer, a meter and a group. Its amounts are replaced, never
// modified.
type cachedQuota struct {
	allowed *big.Rat // the total of allowed amounts since the entry was created
	pending int      // requests without an answer
	answer  *QuotaDecision
	amount  *big.Rat  // of the check that the answer is about
	sentAt  time.Time // when the request for the answer was sent
	before  *big.Rat  // the value of allowed at sentAt
}

// cachedCheck is a check of an amount against its cache entry.
type cachedCheck struct {
	cache  *quotaCache
	entry  *cachedQuota // nil: the cache is not used
	amount *big.Rat
	sentAt time.Time
	before *big.Rat
}

// newCheck returns the check with its cache entry, and creates the entry if it is missing. The entry is nil if the
// cache is disabled or full, or if the amount is invalid.
func (c *quotaCache) newCheck(check QuotaCheck) *cachedCheck {
	amount, ok := parseAmount(check.Amount)
	if c.maxStaleness == 0 || !ok {
		return &cachedCheck{}
	}
	check.Amount = "0"
	key, err := json.Marshal(check)
	if err != nil {
		return &cachedCheck{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &cachedCheck{cache: c, entry: c.entry(string(key)), amount: amount}
}

// entry returns the entry of a key, or creates it. It returns nil if the cache is full.
func (c *quotaCache) entry(key string) *cachedQuota {
	if e := c.entries[key]; e != nil {
		return e
	}
	if len(c.entries) >= maxCached {
		c.removeStale()
	}
	if len(c.entries) >= maxCached {
		return nil
	}
	e := &cachedQuota{allowed: new(big.Rat)}
	c.entries[key] = e
	return e
}

// removeStale removes the entries that are too old to decide and have no request in progress.
func (c *quotaCache) removeStale() {
	for key, e := range c.entries {
		if e.pending == 0 && time.Since(e.sentAt) >= c.maxStaleness {
			delete(c.entries, key)
		}
	}
}

// decide returns the decision from the cache, and counts an allowed amount as used. If the cache has no decision,
// decide records a request in progress: the caller must ask the service and call storeAnswer.
func (c *cachedCheck) decide() (QuotaDecision, bool) {
	if c.entry == nil {
		return QuotaDecision{}, false
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	e, now := c.entry, time.Now()
	if decision, ok := e.decide(c.amount, now, c.cache.maxStaleness); ok {
		if decision.Allowed {
			e.allowed = new(big.Rat).Add(e.allowed, c.amount)
		}
		return decision, true
	}
	e.pending++
	c.sentAt, c.before = now, e.allowed
	return QuotaDecision{}, false
}

// decide returns the decision that the answer implies for an amount. ok is false if the answer is too old or implies no
// decision. It changes nothing.
func (e *cachedQuota) decide(amount *big.Rat, now time.Time, maxStaleness time.Duration) (decision QuotaDecision, ok bool) {
	if e.answer == nil || now.Sub(e.sentAt) >= maxStaleness || e.answer.ResetsAt != nil && !now.Before(*e.answer.ResetsAt) {
		return decision, false
	}
	decision = *e.answer
	if !decision.Allowed {
		return decision, amount.Cmp(e.amount) >= 0
	}
	decision.Exceeded = false
	if decision.Remaining == "" {
		return decision, true
	}
	remaining, ok := parseAmount(decision.Remaining)
	used, ok2 := parseAmount(decision.Used)
	if !ok || !ok2 {
		return decision, false
	}
	since := new(big.Rat).Sub(e.allowed, e.before)
	remaining.Sub(remaining, since)
	decision.Remaining, decision.Used = formatAmount(remaining), formatAmount(used.Add(used, since))
	return decision, amount.Cmp(remaining) <= 0
}

// storeAnswer ends the check's request. If allowed is true, it counts the amount as used. It stores the answer, unless
// the answer is nil or the cache has the answer to a later request.
func (c *cachedCheck) storeAnswer(answer *QuotaDecision, allowed bool) {
	if c.entry == nil {
		return
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	e := c.entry
	e.pending--
	if allowed {
		e.allowed = new(big.Rat).Add(e.allowed, c.amount)
	}
	if answer != nil && !c.sentAt.Before(e.sentAt) {
		e.answer, e.amount, e.sentAt, e.before = answer, c.amount, c.sentAt, c.before
	}
}

var plainAmount = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?$`)

// parseAmount parses an amount in plain digits. It returns false for any other notation.
func parseAmount(n json.Number) (*big.Rat, bool) {
	if !plainAmount.MatchString(string(n)) {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

func formatAmount(amount *big.Rat) json.Number {
	digits, _ := amount.FloatPrec() // exact: the amount is a sum of decimals
	return json.Number(amount.FloatString(digits))
}
