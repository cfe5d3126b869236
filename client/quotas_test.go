package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/odometer-metering/odometer/client"
)

// quotaService simulates the quota API with one hard quota for the meter calls. It ignores the customer.
type quotaService struct {
	mu       sync.Mutex
	limit    int64
	used     int64
	resetsAt *time.Time
	held     map[string]int64          // amounts of open reservations, by id
	settled  map[string][]client.Event // events of settled reservations, by id
	stored   []client.Event            // events sent without a reservation
	requests []string                  // last path segment of each request
	failures map[string][]int          // next results (a status, or a constant below), by last path segment

	before func(last string) // called before a request is processed
}

const (
	noAnswer = 0  // the connection breaks before the request is processed
	hang     = -1 // no response until the context ends
	lost     = -2 // the request is processed, then the connection breaks
)

// newQuotaService returns a service with one quota of this limit.
func newQuotaService(limit int64) *quotaService {
	return &quotaService{limit: limit, held: make(map[string]int64), settled: make(map[string][]client.Event), failures: make(map[string][]int)}
}

// Do answers a request of the client. s.failures can replace the answer with a failure.
func (s *quotaService) Do(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	parts := strings.Split(r.URL.Path, "/")
	last := parts[len(parts)-1]
	failure := s.nextFailure(last)
	switch failure {
	case noAnswer:
		return nil, errors.New("the connection broke")
	case hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case http.StatusOK, lost:
	default:
		return answer(failure, client.Problem{Detail: "no", Status: int64(failure)}), nil
	}
	if s.before != nil {
		s.before(last)
	}
	status, of := s.serve(last, parts[len(parts)-2], body)
	if failure == lost {
		return nil, errors.New("the connection broke")
	}
	return answer(status, of), nil
}

// nextFailure records a request and returns its next result in s.failures, or 200 if there is none. last is the last
// segment of the path.
func (s *quotaService) nextFailure(last string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, last)
	next := s.failures[last]
	if len(next) == 0 {
		return http.StatusOK
	}
	s.failures[last] = next[1:]
	return next[0]
}

// answer returns a response with a JSON body.
func answer(status int, of any) *http.Response {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err)
	}
	kind := "application/json"
	if status >= http.StatusBadRequest {
		kind = "application/problem+json"
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(text))}
}

// serve executes an operation, and returns the status and the body of its response.
func (s *quotaService) serve(last, id string, body []byte) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch last {
	case "check":
		return s.check(decoded[client.CheckQuotas](body).Checks[0])
	case "reserve":
		return s.reserve(decoded[client.Reserve](body))
	case "settle":
		return s.settle(id, decoded[client.EventBatch](body).Events)
	case "batch":
		s.stored = append(s.stored, decoded[client.EventBatch](body).Events...)
		return http.StatusOK, client.IngestResult{}
	}
	if _, ok := s.held[id]; !ok {
		return http.StatusNotFound, client.Problem{Detail: "there is no such reservation"}
	}
	if last == "release" {
		delete(s.held, id)
		return http.StatusOK, client.ReleaseReservation{ReservationId: id, Released: true}
	}
	return http.StatusOK, client.Reservation{ReservationId: id, Allowed: true}
}

func decoded[T any](body []byte) (in T) {
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	return in
}

// left returns the units that neither usage nor reservations take, at least 0.
func (s *quotaService) left() int64 {
	left := s.limit - s.used
	for _, amount := range s.held {
		left -= amount
	}
	return max(left, 0)
}

func (s *quotaService) check(c client.QuotaCheck) (int, any) {
	if c.Meter != "calls" {
		return http.StatusUnprocessableEntity, client.Problem{Detail: "there is no such meter", Status: 422}
	}
	allowed := rat(c.Amount).Cmp(big.NewRat(s.left(), 1)) <= 0
	return http.StatusOK, client.QuotaDecisions{Data: []client.QuotaDecision{{
		Allowed: allowed, Exceeded: !allowed, Used: number(s.used), Reserved: "0", Limit: number(s.limit),
		Remaining: number(s.left()), ResetsAt: s.resetsAt, QuotaId: new("quo_5"),
	}}}
}

func (s *quotaService) reserve(in client.Reserve) (int, any) {
	amount, err := in.Amounts[0].Amount.Int64()
	if err != nil {
		panic(err)
	}
	if _, again := s.held[*in.Id]; !again && amount > s.left() {
		return http.StatusOK, client.RefusedReservation{QuotaId: "quo_5", Remaining: number(s.left()), ResetsAt: s.resetsAt}
	}
	s.held[*in.Id] = amount
	return http.StatusCreated, client.Reservation{ReservationId: *in.Id, Allowed: true}
}

func (s *quotaService) settle(id string, events []client.Event) (int, any) {
	if former, ok := s.settled[id]; ok {
		if *former[0].IdempotencyKey != *events[0].IdempotencyKey {
			return http.StatusConflict, client.Problem{Detail: "settled with other events"}
		}
		return http.StatusOK, client.IngestResult{}
	}
	if _, ok := s.held[id]; !ok {
		return http.StatusNotFound, client.Problem{Detail: "there is no such reservation"}
	}
	delete(s.held, id)
	s.settled[id], s.used = events, s.used+int64(len(events))
	return http.StatusOK, client.IngestResult{Accepted: int64(len(events))}
}

// count returns the number of requests with this last segment of the path.
func (s *quotaService) count(last string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.requests {
		if each == last {
			n++
		}
	}
	return n
}

func number(n int64) json.Number { return json.Number(fmt.Sprint(n)) }

func rat(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		panic(n)
	}
	return r
}

// quotasOf returns Quotas that call the service directly, without a network, so that the clock of a
// synctest bubble can advance.
func quotasOf(t testing.TB, s *quotaService, onError client.OnError, maxStaleness time.Duration) *client.Quotas {
	t.Helper()
	c, err := client.NewClientWithResponses("http://odometer", client.WithHTTPClient(s))
	if err != nil {
		t.Fatal(err)
	}
	q, err := client.NewQuotas(c, onError, maxStaleness, client.QuotasOptions{OnFailure: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// calls returns the check of an amount of the meter "calls".
func calls(amount json.Number) client.QuotaCheck {
	return client.QuotaCheck{Customer: "acme", Meter: "calls", Amount: amount}
}

// check sends a check through q, and requires that it returns no error.
func check(t testing.TB, q *client.Quotas, amount json.Number) client.CheckResult {
	t.Helper()
	result, err := q.Check(t.Context(), calls(amount))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestNewQuotasRequiresOnErrorAndMaxStaleness(t *testing.T) {
	t.Parallel()
	if _, err := client.NewQuotas(nil, "", 0, client.QuotasOptions{}); err == nil || !strings.Contains(err.Error(), "onError must be") {
		t.Fatalf("without onError: %v", err)
	}
	if _, err := client.NewQuotas(nil, client.OnErrorDeny, -1, client.QuotasOptions{}); err == nil || !strings.Contains(err.Error(), "maxStaleness must be") {
		t.Fatalf("with a negative maxStaleness: %v", err)
	}
}

func TestCheckDecidesFromServiceOrCachedAnswer(t *testing.T) {
	t.Parallel()

	t.Run("SendsEachCheckWithoutACache", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(2)
		q := quotasOf(t, s, client.OnErrorDeny, 0)
		for range 3 {
			if !check(t, q, "2").Allowed {
				t.Fatal("not allowed")
			}
		}
		if check(t, q, "3").Allowed || s.count("check") != 4 {
			t.Fatalf("beyond the limit, or %d requests", s.count("check"))
		}
	})

	t.Run("SubtractsAllowedAmountsFromACachedAnswer", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		q := quotasOf(t, s, client.OnErrorDeny, time.Hour)
		for _, want := range []json.Number{"10", "7.5", "5", "2.5"} {
			if got := check(t, q, "2.5"); !got.Allowed || got.Remaining != want {
				t.Fatalf("%+v, not %s left", got, want)
			}
		}
		if s.count("check") != 1 {
			t.Fatalf("%d requests", s.count("check"))
		}
		check(t, q, "2.5") // exceeds the cached remaining amount, so the service decides
		if s.count("check") != 2 {
			t.Fatalf("%d requests", s.count("check"))
		}
	})

	t.Run("RepeatsADenialOfTheSameOrALargerAmount", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(10)
		q := quotasOf(t, s, client.OnErrorDeny, time.Hour)
		for _, amount := range []json.Number{"11", "11", "12"} {
			if check(t, q, amount).Allowed {
				t.Fatal("allowed")
			}
		}
		if s.count("check") != 1 || !check(t, q, "10").Allowed || s.count("check") != 2 {
			t.Fatalf("%d requests", s.count("check"))
		}
	})

	t.Run("UsesAnAnswerUntilItsAgeIsMaxStaleness", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			q := quotasOf(t, s, client.OnErrorDeny, 5*time.Second)
			check(t, q, "1")
			time.Sleep(5*time.Second - 1)
			check(t, q, "1")
			if s.count("check") != 1 {
				t.Fatalf("%d requests within the bound", s.count("check"))
			}
			s.used = 10
			time.Sleep(time.Nanosecond)
			if check(t, q, "1").Allowed {
				t.Fatal("allowed by an answer that is too old")
			}
		})
	})

	t.Run("UsesAnAnswerUntilThePeriodEnds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(1)
			s.used, s.resetsAt = 1, new(time.Now().Add(time.Minute))
			q := quotasOf(t, s, client.OnErrorDeny, time.Hour)
			if check(t, q, "1").Allowed {
				t.Fatal("allowed")
			}
			s.used = 0
			time.Sleep(time.Minute)
			if !check(t, q, "1").Allowed {
				t.Fatal("not allowed in the next period")
			}
		})
	})

	t.Run("AllowsAtMostTheRemainingAmountOfACachedAnswer", func(t *testing.T) {
		t.Parallel()
		s := newQuotaService(100)
		q := quotasOf(t, s, client.OnErrorDeny, time.Hour)
		check(t, q, "1")
		s.used = 100 // used by other clients; only the cached answer still allows calls
		var allowed atomic.Int64
		allowed.Add(1)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 50 {
					if check(t, q, "1").Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		group.Wait()
		if allowed.Load() != 100 {
			t.Fatalf("%d were allowed, not 100", allowed.Load())
		}
	})

	t.Run("SubtractsAmountsOfConcurrentChecks", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newQuotaService(10)
			q := quotasOf(t, s, client.OnErrorDeny, time.Hour)
			var group sync.WaitGroup
			s.before = func(string) { time.Sleep(time.Second) }
			for range 4 { // all requests are sent before the first response
				group.Go(func() { check(t, q, "2") })
			}
			group.Wait()
			if got := check(t, q, "2"); got.Remaining != "2" || s.count("check") != 4 {
				t.Fatalf("%s left after %d requests, not 2 after 4", got.Remaining, s.count("check"))
			}
		})
	})

	for _, onError := range []client.OnError{client.OnErrorAllow, client.OnErrorDeny} {
		t.Run("DecidesWithoutAnAnswer/"+string(onError), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newQuotaService(10)
				s.failures["check"] = []int{noAnswer, hang, http.StatusServiceUnavailable, http.StatusUnauthorized}
				q := quotasOf(t, s, onError, time.Hour)
				for range 4 {
					if got := check(t, q, "1"); got.Allowed != (onError == client.OnErrorAllow) || got.Failure == nil {
						t.Fatalf("%+v", got)
					}
				}
				if got := check(t, q, "1"); !got.Allowed || got.Failure != nil {
					t.Fatalf("the service has answered, and the check gave %+v", got)
				}
			})
		})
	}

	t.Run("ReturnsAnErrorForAnUnknownMeterOrAnInvalidAmount", func(t *testing.T) {
		t.Parallel()
		q := quotasOf(t, newQuotaService(10), client.OnErrorAllow, time.Hour)
		_, err := q.Check(t.Context(), client.QuotaCheck{Customer: "acme", Meter: "cals", Amount: "1"})
		if problem, ok := errors.AsType[*client.ProblemError](err); !ok || problem.Status != http.StatusUnprocessableEntity {
			t.Fatalf("an unknown meter gave %v", err)
		}
		if _, err := q.Check(t.Context(), calls("many")); err == nil || !strings.Contains(err.Error(), "no JSON") {
			t.Fatalf("no number gave %v", err)
		}
	})
}

// usage returns a request to reserve 5 calls.
func usage() client.Reserve {
	return client.Reserve{Customer: "acme", Amounts: []client.QuotaAmount{{Meter: "calls", Amount: "5"}}}
}

// recordCall is work that records one event.
func recordCall(_ context.Context, r *client.HeldReservation) error {
	return r.Record(client.Event{EventType: "call"})
}
