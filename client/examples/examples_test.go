package examples_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/client/examples"
)

// quotasOf returns Quotas that call a test server with the given handler.
func quotasOf(t *testing.T, answer http.HandlerFunc) *client.Quotas {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := client.NewClientWithResponses(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := client.NewQuotas(c, client.OnErrorDeny, 0, client.QuotasOptions{Timeout: time.Hour, OnFailure: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	return quotas
}

func answer(w http.ResponseWriter, status int, text string, values ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, text, values...)
}

// send sends a request of the customer acme to the handler and returns the response.
func send(handler http.Handler, body string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Customer", "acme")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder.Result()
}

const later = `"2999-01-01T00:00:00Z"`

func TestLimitCalls(t *testing.T) {
	t.Parallel()
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, c := range []struct {
		name       string
		status     int
		body       string
		want       int
		retryAfter bool
	}{
		{"allowed", http.StatusOK, `{"data":[{"allowed":true}]}`, http.StatusNoContent, false},
		{"used up", http.StatusOK, `{"data":[{"allowed":false,"resets_at":` + later + `}]}`, http.StatusTooManyRequests, true},
		{"used up for ever", http.StatusOK, `{"data":[{"allowed":false,"resets_at":null}]}`, http.StatusTooManyRequests, false},
		{"unavailable", http.StatusServiceUnavailable, `{}`, http.StatusServiceUnavailable, false},
		{"wrong", http.StatusUnprocessableEntity, `{}`, http.StatusServiceUnavailable, false},
	} {
		quotas := quotasOf(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, c.status, "%s", c.body) })
		response := send(examples.LimitCalls(quotas, "calls", served), "")
		if response.StatusCode != c.want || c.retryAfter != (response.Header.Get("Retry-After") != "") {
			t.Errorf("%s: %d, Retry-After %q", c.name, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
}

// service grants reservations of at most 100 tokens each, and records the reserved and the settled values.
// A release clears the reserved values.
type service struct {
	reserved []json.Number
	settled  map[string]json.Number // by the path of the request: a client may repeat a settlement
}

// ServeHTTP answers the requests of the examples.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/settle"):
		var batch client.EventBatch
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			panic(err)
		}
		s.settled[r.URL.Path] = *batch.Events[0].Value
		answer(w, http.StatusOK, `{"accepted":1}`)
	case strings.HasSuffix(r.URL.Path, "/release"):
		s.reserved = nil
		answer(w, http.StatusOK, `{"released":true}`)
	default:
		var request client.Reserve
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			panic(err)
		}
		amount := request.Amounts[0].Amount
		if most, err := amount.Int64(); err != nil || most > 100 {
			answer(w, http.StatusOK, `{"allowed":false,"quota_id":"quo_5","remaining":100,"resets_at":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
			return
		}
		s.reserved = append(s.reserved, amount)
		answer(w, http.StatusCreated, `{"allowed":true,"reservation_id":%q}`, *request.Id)
	}
}

func TestProxyModel(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, status, `{"model":"large","usage":{"total_tokens":42}}`)
	}))
	t.Cleanup(model.Close)
	s := &service{settled: make(map[string]json.Number)}
	proxy := examples.ProxyModel(quotasOf(t, s.ServeHTTP), model.URL)

	response := send(proxy, `{"max_tokens":50}`)
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"total_tokens":42`) {
		t.Fatalf("%d %s", response.StatusCode, body)
	}
	if settled := slices.Collect(maps.Values(s.settled)); fmt.Sprint(s.reserved, settled) != "[67] [42]" {
		t.Fatalf("reserved %s, settled %s", s.reserved, settled)
	}
	if response := send(proxy, `{"max_tokens":500}`); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Fatalf("beyond the quota: %d", response.StatusCode)
	}
	if response := send(proxy, `{}`); response.StatusCode != http.StatusBadRequest {
		t.Fatalf("without max_tokens: %d", response.StatusCode)
	}
	status = http.StatusInternalServerError
	if response := send(proxy, `{"max_tokens":50}`); response.StatusCode != http.StatusBadGateway || len(s.reserved) != 0 || len(s.settled) != 1 {
		t.Fatalf("of a model that fails: %d, %s reserved", response.StatusCode, s.reserved)
	}
}
