package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/client"
)

// service simulates the Events API. Each request that passes the checks of most and refused runs the next
// step of script. The last step is repeated. A step can write the response itself.
type service struct {
	mu     sync.Mutex
	script []func(http.ResponseWriter) (handled bool)
	seen   map[string]int // number of times that each idempotency key was received
	sizes  []int
	most   int // maximum number of events in a request; 0: no limit

	refused string // customer id of refused events; "": none
	refusal int    // response status for a request with a refused event
}

// take is a step that accepts the batch.
func take(http.ResponseWriter) bool { return false }

// fail returns a step that responds with an error.
func fail(status int) func(http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"about:blank","title":"no","status":%d,"detail":"no","code":"no","request_id":"1","errors":[]}`, status)
		return true
	}
}

// cut is a step that closes the connection without a response.
func cut(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }

// ServeHTTP answers a batch of events according to the script.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch client.EventBatch
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		fail(http.StatusBadRequest)(w)
		return
	}
	if s.most > 0 && len(batch.Events) > s.most {
		fail(http.StatusRequestEntityTooLarge)(w)
		return
	}
	if slices.ContainsFunc(batch.Events, func(e client.Event) bool { return s.refused != "" && e.CustomerId == s.refused }) {
		fail(s.refusal)(w)
		return
	}
	for _, e := range batch.Events {
		s.seen[*e.IdempotencyKey]++
	}
	s.sizes = append(s.sizes, len(batch.Events))
	step := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	if step(w) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"accepted":%d,"rejected":0,"duplicates":0,"warnings":[],"errors":[]}`, len(batch.Events))
}

// serve starts the service and returns a client of it.
func serve(t testing.TB, s *service) *client.ClientWithResponses {
	t.Helper()
	s.seen = make(map[string]int)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.NewClientWithResponses(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record records n events.
func record(t testing.TB, r *client.Recorder, n int) {
	t.Helper()
	for range n {
		if err := r.Record(client.Event{EventType: "call", CustomerId: "acme"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecorder(t *testing.T) {
	t.Parallel()

	t.Run("RepeatsABatchWithTheSameKeysUntilItIsAnswered", func(t *testing.T) {
		t.Parallel()
		s := &service{script: []func(http.ResponseWriter) bool{cut, fail(http.StatusServiceUnavailable), fail(http.StatusTooManyRequests), take}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{Every: time.Hour})
		record(t, r, 10)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.seen) != 10 {
			t.Fatalf("%d keys for 10 events", len(s.seen))
		}
		for key, times := range s.seen {
			if times != 4 {
				t.Fatalf("key %s came %d times, not 4", key, times)
			}
		}
	})

	t.Run("MakesKeysThatContainTheTime", func(t *testing.T) {
		t.Parallel()
		s := &service{script: []func(http.ResponseWriter) bool{take}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{})
		before := time.Now().Truncate(time.Millisecond)
		record(t, r, 1)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for key := range s.seen {
			id, err := uuid.Parse(key)
			if err != nil {
				t.Fatal(err)
			}
			made := time.Unix(id.Time().UnixTime())
			if id.Version() != 7 || made.Before(before) || made.After(time.Now()) {
				t.Fatalf("key %s is of version %d, made at %s", key, id.Version(), made)
			}
		}
	})

	t.Run("SendsEveryEventThatGoroutinesRecord", func(t *testing.T) {
		t.Parallel()
		s := &service{script: []func(http.ResponseWriter) bool{take}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{Every: time.Millisecond, Batch: 100})
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { record(t, r, 500) })
		}
		group.Wait()
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.seen) != 4000 {
			t.Fatalf("%d events arrived, not 4000", len(s.seen))
		}
	})

	t.Run("HalvesABatchThatIsTooLarge", func(t *testing.T) {
		t.Parallel()
		s := &service{script: []func(http.ResponseWriter) bool{take}, most: 3}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{})
		record(t, r, 10)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.seen) != 10 {
			t.Fatalf("%d events arrived, not 10", len(s.seen))
		}
	})

	t.Run("RepeatsABatchThatIsRefusedWith401Or403Or404", func(t *testing.T) {
		t.Parallel()
		var rejected, failures int
		s := &service{script: []func(http.ResponseWriter) bool{
			fail(http.StatusUnauthorized), fail(http.StatusForbidden), fail(http.StatusNotFound), take,
		}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{
			Every: time.Hour, OnRejected: func(client.Event, error) { rejected++ }, OnRetry: func(error) { failures++ },
		})
		record(t, r, 10)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rejected != 0 || failures != 3 {
			t.Fatalf("%d events were rejected, and %d failures were reported, not 3", rejected, failures)
		}
		for key, times := range s.seen {
			if times != 4 {
				t.Fatalf("key %s came %d times, not 4", key, times)
			}
		}
	})

	t.Run("CloseReturnsWhyEventsAreNotSent", func(t *testing.T) {
		t.Parallel()
		for status, want := range map[int]string{http.StatusUnauthorized: "401 Unauthorized: no", http.StatusTooManyRequests: "429 Too Many Requests: no"} {
			reported := make(chan error, 1)
			s := &service{script: []func(http.ResponseWriter) bool{fail(status)}}
			r := client.NewRecorder(serve(t, s), client.RecorderOptions{OnRetry: func(err error) {
				select {
				case reported <- err:
				default:
				}
			}})
			record(t, r, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-reported; cancel() }()
			err := r.Close(ctx)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 events are not sent") || !strings.Contains(err.Error(), want) {
				t.Fatalf("close gave %v, not %s", err, want)
			}
		}
	})

	t.Run("DropsOnlyTheEventThatIsRefused", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge} {
			var rejected []string
			s := &service{script: []func(http.ResponseWriter) bool{take}, refused: "bad", refusal: status}
			r := client.NewRecorder(serve(t, s), client.RecorderOptions{OnRejected: func(e client.Event, _ error) { rejected = append(rejected, e.CustomerId) }})
			record(t, r, 3)
			if err := r.Record(client.Event{EventType: "call", CustomerId: "bad"}); err != nil {
				t.Fatal(err)
			}
			record(t, r, 4)
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(rejected, []string{"bad"}) || len(s.seen) != 7 {
				t.Fatalf("after %d, %q were rejected, and %d events arrived, not 7", status, rejected, len(s.seen))
			}
		}
	})

	t.Run("DropsAnEventThatCannotBeEncoded", func(t *testing.T) {
		t.Parallel()
		var rejected []string
		s := &service{script: []func(http.ResponseWriter) bool{take}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{OnRejected: func(e client.Event, _ error) { rejected = append(rejected, e.CustomerId) }})
		noNumber := json.Number("many")
		if err := r.Record(client.Event{EventType: "call", CustomerId: "bad", Value: &noNumber}); err != nil {
			t.Fatal(err)
		}
		record(t, r, 2)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rejected, []string{"bad"}) || len(s.seen) != 2 {
			t.Fatalf("%q were rejected, and %d events arrived, not 2", rejected, len(s.seen))
		}
	})

	t.Run("CallsOnRejectedForEachRefusedEvent", func(t *testing.T) {
		t.Parallel()
		var refused int
		s := &service{script: []func(http.ResponseWriter) bool{fail(http.StatusUnprocessableEntity)}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{OnRejected: func(client.Event, error) { refused++ }})
		record(t, r, 7)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if refused != 7 {
			t.Fatalf("%d events were refused, not 7", refused)
		}
	})

	t.Run("RefusesEventsWhenTheBufferIsFullOrTheRecorderIsClosed", func(t *testing.T) {
		t.Parallel()
		s := &service{script: []func(http.ResponseWriter) bool{fail(http.StatusServiceUnavailable)}}
		r := client.NewRecorder(serve(t, s), client.RecorderOptions{Buffer: 5})
		record(t, r, 5)
		if err := r.Record(client.Event{}); !errors.Is(err, client.ErrBufferFull) {
			t.Fatalf("a sixth event gave %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := r.Close(ctx); err == nil || !errors.Is(r.Record(client.Event{}), client.ErrClosed) {
			t.Fatalf("close gave %v", err)
		}
	})
}

func ExampleRecorder() {
	server := httptest.NewServer(&service{seen: make(map[string]int), script: []func(http.ResponseWriter) bool{take}})
	defer server.Close()

	odometer, err := client.NewClientWithResponses(server.URL, client.WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer svc_ink_…")
			return nil
		}))
	if err != nil {
		panic(err)
	}
	usage := client.NewRecorder(odometer, client.RecorderOptions{})
	for range 3 {
		value := json.Number("123456789012345678.123456789012") // every digit is kept
		if err := usage.Record(client.Event{EventType: "api_request", CustomerId: "acme", Value: &value}); err != nil {
			panic(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	fmt.Println(usage.Close(ctx))
	// Output: <nil>
}
