package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

// TestRateLimitedBatchIsSentAgain checks that a batch is sent again after a 429. So the
// system can be started again even if the demo tenant's rate limit of the minute is used up.
func TestRateLimitedBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			answer(w, `{"data":[],"has_more":false,"next_page_token":null,"searched_until":"2026-11-01T00:00:00Z"}`)
			return
		}
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer(w, `{"accepted":1,"rejected":0,"duplicates":0,"conflicts":0,"warnings":[],"results":[]}`)
	}))
	t.Cleanup(server.Close)
	api, err := connect(server.URL, "key")
	require.NoError(t, err)
	all, added, err := sendUsage(t.Context(), api, []client.Event{{EventType: "call", CustomerId: "acme", Timestamp: new(time.Now())}})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, []int64{all, added})
	require.Len(t, bodies, 2)
	require.Equal(t, bodies[0], bodies[1])
}

// answer writes a JSON body.
func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

// TestOnlyMissingEventsAreSent checks that sendUsage sends only the events that the API does not have.
// So starting the system again sends no duplicates.
func TestOnlyMissingEventsAreSent(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) // a Monday; nights and weekends have less usage
	events := usage(customers, noon.Add(-12*time.Hour), noon)
	require.Greater(t, len(events), 100)
	for _, there := range []int{0, 1, 57, len(events) - 1, len(events)} {
		had := make(map[string]bool)
		for _, e := range events[:there] {
			had[*e.IdempotencyKey] = true
		}
		var sent []client.Event
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				found := ""
				if had[r.URL.Query().Get("idempotency_key")] {
					found = "{}"
				}
				answer(w, `{"data":[`+found+`],"has_more":false,"next_page_token":null}`)
				return
			}
			var batch client.EventBatch
			_ = json.NewDecoder(r.Body).Decode(&batch)
			sent = append(sent, batch.Events...)
			answer(w, fmt.Sprintf(`{"accepted":%d,"rejected":0,"duplicates":0,"conflicts":0,"warnings":[],"results":[]}`, len(batch.Events)))
		}))
		api, err := connect(server.URL, "key")
		require.NoError(t, err)
		all, added, err := sendUsage(t.Context(), api, events)
		server.Close()
		require.NoError(t, err)
		require.Equal(t, []int64{int64(len(events)), int64(len(events) - there)}, []int64{all, added})
		require.Len(t, sent, len(events)-there)
		for i, e := range sent {
			require.Equal(t, *events[there+i].IdempotencyKey, *e.IdempotencyKey)
		}
	}
}
