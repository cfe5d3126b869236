package stripetest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// records is the path of the usage records of an item.
const records = "/v1/subscription_items/si_/usage_records"

func TestSimulatedFailuresMatchStripesErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		behaviour  stripetest.Behaviour
		status     int
		kind, code string
		retryAfter string
	}{
		"a revoked key":  {stripetest.Behaviour{Status: 401}, 401, "invalid_request_error", "", ""},
		"a permission":   {stripetest.Behaviour{Status: 403}, 403, "invalid_request_error", "", ""},
		"a key in use":   {stripetest.Behaviour{Status: 409}, 409, "invalid_request_error", "idempotency_key_in_use", ""},
		"too many calls": {stripetest.Behaviour{Status: 429, RetryAfter: 17}, 429, "invalid_request_error", "rate_limit", "17"},
		"a lock":         {stripetest.Behaviour{Mode: stripetest.LockTimeout, RetryAfter: 2}, 429, "invalid_request_error", "lock_timeout", "2"},
		"an error":       {stripetest.Behaviour{Status: 500}, 500, "api_error", "", ""},
		"an outage":      {stripetest.Behaviour{Status: 503, RetryAfter: 60}, 503, "api_error", "", "60"},
	} {
		b := setup(t)
		c.behaviour.Times = 1
		b.Behave(c.behaviour)
		got := b.event("sum", "5", noon, "a")
		problem, _ := got.body["error"].(map[string]any)
		require.Equal(t, c.status, got.status, name)
		require.Equal(t, c.kind, problem["type"], name)
		require.Equal(t, c.code, fmt.Sprint(orDefault(problem["code"], "")), name)
		require.Equal(t, c.retryAfter, got.header.Get("Retry-After"), name)
		require.NotEmpty(t, got.header.Get("Request-Id"), name)
		b.requireQuantity("0", "si_sum")
		require.Equal(t, 200, b.event("sum", "5", noon, "a").status, "once, and no more")
		b.requireQuantity("5", "si_sum")
	}
}

// orDefault returns the value, or standard for nil.
func orDefault(value, standard any) any {
	if value == nil {
		return standard
	}
	return value
}

// try makes a call that may get no response.
func (b bundle) try(ctx context.Context, path, form, idempotencyKey string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+path, strings.NewReader(form))
	require.NoError(b.t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Idempotency-Key", idempotencyKey)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func TestRetryAfterLostResponseCountsUsageOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		behaviour stripetest.Behaviour
		quantity  string // after the call without a response
	}{
		"the answer is lost":      {stripetest.Behaviour{DropAnswer: true}, "2"},
		"it hangs":                {stripetest.Behaviour{Mode: stripetest.Hang}, "0"},
		"it hangs after the work": {stripetest.Behaviour{Mode: stripetest.Hang, Done: true}, "2"},
	} {
		b := setup(t)
		c.behaviour.Times = 1
		b.Behave(c.behaviour)
		form := fmt.Sprintf("action=increment&quantity=2&timestamp=%d", noon.Unix())
		ctx, cancel := context.WithCancel(t.Context())
		before := len(b.State().Requests)
		go func() {
			for ctx.Err() == nil && len(b.State().Requests) == before {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, err := b.try(ctx, records, form, "k")
		cancel()
		require.Error(t, err, name)
		b.requireQuantity(c.quantity, "si_")

		again := b.call("POST", records, form, "k")
		require.Equal(t, 200, again.status, name)
		require.Equal(t, c.quantity == "2", again.header.Get("Idempotent-Replayed") == "true", name)
		b.requireQuantity("2", "si_")
	}
}

func TestSavedFailureIsRepeatedForOneDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Behave(stripetest.Behaviour{Status: 500, Mode: stripetest.Saved, Times: 1})
	form := fmt.Sprintf("action=increment&quantity=2&timestamp=%d", noon.Unix())
	require.Empty(t, b.call("POST", records, form, "k").header.Get("Idempotent-Replayed"))
	b.Advance(24*time.Hour - time.Second)
	again := b.call("POST", records, form, "k")
	require.Equal(t, 500, again.status)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	b.requireQuantity("0", "si_")
	b.Advance(time.Second)
	require.Equal(t, 200, b.call("POST", records, form, "k").status)
	b.requireQuantity("2", "si_")
}

func TestMeterOfCustomerAcceptsOneCallAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused := make(chan struct{})
	b.Behave(stripetest.Behaviour{Until: refused, Times: 3, Path: "/v1/billing/meter_events"})
	answers := make(chan reply, 2)
	var calls sync.WaitGroup
	for n := range 2 {
		calls.Go(func() { answers <- b.event("sum", "5", noon, fmt.Sprint(n)) })
	}
	var another reply
	calls.Go(func() { another = b.event("hour", "5", noon, "another") })
	first := <-answers
	close(refused)
	calls.Wait()
	require.Equal(t, 429, first.status)
	require.Contains(t, first.message(), "another API request or Stripe process is currently accessing it")
	require.Equal(t, 200, (<-answers).status)
	require.Equal(t, 200, another.status, "another meter")
	b.requireQuantity("5", "si_sum")
}

func TestMeterEventCanBeRejectedAfterResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 1})
	require.Equal(t, 200, b.event("sum", "5", noon, "a").status)
	b.requireQuantity("0", "si_sum")
	require.Equal(t, []stripetest.Rejection{{Identifier: "a", Meter: "sum", Customer: "cus_1"}}, b.State().Accounts[0].Rejected)
	require.Equal(t, 400, b.event("sum", "5", noon, "a").status, "its identifier is taken nevertheless")
}

func TestIdempotencyKeyHasAtMost255Characters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 200, b.call("POST", records, "quantity=1&timestamp=now", strings.Repeat("k", 255)).status)
	require.Equal(t, 400, b.call("POST", records, "quantity=1&timestamp=now", strings.Repeat("k", 256)).status)
}

func TestResponseIsSavedForIdempotencyKeyForOneDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	form := fmt.Sprintf("action=increment&quantity=2&timestamp=%d", noon.Unix())
	first := b.call("POST", records, form, "k")
	again := b.call("POST", records, form, "k")
	require.Equal(t, first.body, again.body)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	b.requireQuantity("2", "si_")

	other := b.call("POST", records, strings.Replace(form, "quantity=2", "quantity=3", 1), "k")
	require.Equal(t, 400, other.status)
	require.Equal(t, "idempotency_error", other.body["error"].(map[string]any)["type"])
	b.Advance(24 * time.Hour)
	require.Equal(t, 200, b.call("POST", records, form, "k").status)
	b.requireQuantity("4", "si_")
}

// TestOnlyResponseOfStartedCallIsSaved checks that a response is saved for the idempotency key only if the fake has
// processed the call, or if the behaviour says that the error is saved.
func TestOnlyResponseOfStartedCallIsSaved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		behaviour stripetest.Behaviour
		saved     bool
		quantity  string
	}{
		"503":             {stripetest.Behaviour{Status: 503}, false, "2"},
		"429":             {stripetest.Behaviour{Status: 429}, false, "2"},
		"401":             {stripetest.Behaviour{Status: 401}, false, "2"},
		"lock timeout":    {stripetest.Behaviour{Mode: stripetest.LockTimeout, DelayMS: 1}, false, "2"},
		"saved":           {stripetest.Behaviour{Status: 500, Mode: stripetest.Saved}, true, "0"},
		"done, then 500":  {stripetest.Behaviour{Status: 500, Done: true}, true, "2"},
		"done and saved":  {stripetest.Behaviour{Status: 502, Mode: stripetest.Saved, Done: true}, true, "2"},
		"late, then 503":  {stripetest.Behaviour{Status: 503, DelayMS: 1}, false, "2"},
		"reject, usage":   {stripetest.Behaviour{Mode: stripetest.RejectLater}, true, "2"},
		"another's path":  {stripetest.Behaviour{Status: 503, Path: "/v1/billing"}, true, "2"},
		"slow but normal": {stripetest.Behaviour{DelayMS: 1}, true, "2"},
	} {
		b := setup(t)
		c.behaviour.Times = 1
		b.Behave(c.behaviour)
		form := fmt.Sprintf("action=increment&quantity=2&timestamp=%d", noon.Unix())
		b.call("POST", records, form, "k")
		again := b.call("POST", records, form, "k")
		require.Equal(t, c.saved, again.header.Get("Idempotent-Replayed") == "true", name)
		b.requireQuantity(c.quantity, "si_")
	}
}

func TestConcurrentCallsWithSameIdempotencyKeyConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused := make(chan struct{})
	b.Behave(stripetest.Behaviour{Until: refused, Times: 2})
	form := fmt.Sprintf("action=increment&quantity=2&timestamp=%d", noon.Unix())
	statuses := make(chan int, 2)
	for range 2 {
		go func() { statuses <- b.call("POST", records, form, "k").status }()
	}
	require.Equal(t, 409, <-statuses)
	close(refused)
	require.Equal(t, 200, <-statuses)
	b.requireQuantity("2", "si_")
}
