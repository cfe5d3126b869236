package main_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
)

// call sends a request. Status 0 means that no complete answer arrived.
func call(t *testing.T, method, url, key, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return -1, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// callUntilAnswered repeats a request while the API answers 503, which it may do on a busy machine.
func callUntilAnswered(t *testing.T, method, url, key, body string) (status int, answer string) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		if status, answer = call(t, method, url, key, body); status == http.StatusServiceUnavailable {
			return errors.New(answer)
		}
		return nil
	})
	return status, answer
}

// replicas are the APIs of a system, which a test kills while it sends requests.
type replicas struct {
	*testing.T

	apis []*proc.Process
	key  string
}

// send repeats a request, each time to a random replica, until it is answered with a status below 500.
func (r *replicas) send(method, path, body string) (status int, answer string) {
	r.Helper()
	dbtest.Eventually(r, func() error {
		status, answer = call(r.T, method, r.apis[rand.IntN(len(r.apis))].URL+path, r.key, body)
		if status <= 0 || status >= http.StatusInternalServerError {
			return fmt.Errorf("%d %s", status, answer)
		}
		return nil
	})
	return status, answer
}

// must sends a request and requires success.
func (r *replicas) must(method, path, body string) (answer string) {
	r.Helper()
	status, answer := r.send(method, path, body)
	require.Less(r, status, http.StatusMultipleChoices, answer)
	return answer
}

// newReceiver starts a receiver of webhooks, which runs until the test ends. The receiver verifies signatures
// with the returned secret.
func newReceiver(t *testing.T) (server *httptest.Server, secret string) {
	t.Helper()
	secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	server = httptest.NewServer(receiver.New(secret))
	t.Cleanup(server.Close)
	return server, secret
}

// load sends events with keys from 16 clients, and returns the accepted keys and the sent keys. A client stops
// when the channel is closed or a request gets no answer.
func load(t *testing.T, url, key string, until <-chan struct{}) (accepted, sent map[string]bool) {
	accepted, sent = make(map[string]bool), make(map[string]bool)
	var mu sync.Mutex
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-until:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", c, i)
				status, _ := call(t, "POST", url+"/v1/events", key, event(id))
				mu.Lock()
				sent[id] = true
				if status == http.StatusOK {
					accepted[id] = true
				}
				mu.Unlock()
				if status == 0 {
					return
				}
			}
		})
	}
	clients.Wait()
	return accepted, sent
}

// event returns the JSON of an event with an idempotency key.
func event(id string) string {
	return fmt.Sprintf(`{"event_type":"call","customer_id":"acme","value":1,"idempotency_key":%q}`, id)
}

// stored returns the keys of the events in the database.
func stored(t *testing.T, url string) map[string]bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select idempotency_key from events`)
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	set := make(map[string]bool, len(keys))
	for _, k := range keys {
		require.False(t, set[k], "stored twice: %s", k)
		set[k] = true
	}
	return set
}

func TestAcceptedEventsSurviveStopOfAPI(t *testing.T) {
	accepted, kept := requireAcceptedSurvive(t, (*proc.Process).Stop)
	require.Len(t, kept, len(accepted), "an event was stored whose client was not told")
}

func TestDrillAcceptedEventsSurviveKillOfAPI(t *testing.T) {
	requireAcceptedSurvive(t, (*proc.Process).Kill)
}

// requireAcceptedSurvive ends an API under load. It requires that no accepted event is lost and no repeat counts
// twice.
func requireAcceptedSurvive(t *testing.T, end func(*proc.Process, testing.TB)) (accepted, kept map[string]bool) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	api := system.API(t)
	status, body := call(t, "POST", api.URL+"/v1/meters", key, `{"slug":"calls","event_type":"call"}`)
	require.Equal(t, http.StatusCreated, status, body)

	over, loaded := make(chan struct{}), make(chan struct{})
	var sent map[string]bool
	go func() {
		defer close(loaded)
		accepted, sent = load(t, api.URL, key, over)
	}()
	dbtest.Eventually(t, func() error {
		if n := len(stored(t, url)); n < 500 {
			return fmt.Errorf("%d events are stored", n)
		}
		return nil
	})
	end(api, t)
	close(over)
	<-loaded
	require.NotEmpty(t, accepted)
	kept = stored(t, url)
	for id := range accepted {
		require.True(t, kept[id], "accepted and lost: %s", id)
	}

	api.Start(t)
	for id := range sent { // clients repeat requests with an unknown outcome
		if !accepted[id] {
			status, body := callUntilAnswered(t, "POST", api.URL+"/v1/events", key, event(id))
			require.Equal(t, http.StatusOK, status, body)
		}
	}
	_, total := callUntilAnswered(t, "GET", api.URL+"/v1/usage/total?customer=acme", key, "")
	require.JSONEq(t, fmt.Sprintf(`{"total":%d}`, len(sent)), total)
	return accepted, kept
}

func TestTheAPIWorksWithoutTemporal(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	api := system.API(t)
	status, body := callUntilAnswered(t, "GET", api.URL+"/readyz", "", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ok","database":"ok","clock":"ok","temporal":"unavailable","bodies":"ok"}`, body)
	status, body = callUntilAnswered(t, "POST", api.URL+"/v1/events", key, event("a"))
	require.Equal(t, http.StatusOK, status, body)
	status, _ = call(t, "GET", api.URL+"/metrics", "", "")
	require.Equal(t, http.StatusNotFound, status, "clients see no metrics")
	_, metrics := call(t, "GET", api.MetricsURL, "", "")
	require.Contains(t, metrics, `odometer_events_total{outcome="stored"} 1`)
	require.NotContains(t, api.Log(t), "acme")
	require.NotContains(t, api.Log(t), key)
}
