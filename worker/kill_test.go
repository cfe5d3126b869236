package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// caller calls the API of a real process.
type caller struct {
	url, key string
}

// call sends a request, and returns the status and the answer.
func (c caller) call(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// must sends a request like awaitAnswer, and requires the status.
func (c caller) must(t *testing.T, status int, method, path string, body any) {
	t.Helper()
	got, answer := c.awaitAnswer(t, method, path, body)
	require.Equal(t, status, got, "%s", answer)
}

// awaitAnswer sends a request, and repeats it while the API answers 503, which it may do on a busy machine.
func (c caller) awaitAnswer(t testing.TB, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	dbtest.Eventually(t, func() (err error) {
		status, answer, err = c.call(t.Context(), method, path, body)
		require.NoError(t, err)
		if status == http.StatusServiceUnavailable {
			err = fmt.Errorf("%s", answer)
		}
		return err
	})
	return status, answer
}

// ingest sends an event with a new idempotency key, so that a repeated request is counted once.
func (c caller) ingest(t *testing.T, event map[string]any) {
	t.Helper()
	event["idempotency_key"] = uuid.NewString()
	c.must(t, http.StatusOK, http.MethodPost, "/v1/events", event)
}

// TestDrillWorkerKillsLoseAndDoubleNoUsage kills a worker repeatedly. Meanwhile, the receiver may answer 503,
// or close the connection after it accepted a statement. In the end, the receiver's last totals are correct, and
// no sequence arrived with two bodies.
func TestDrillWorkerKillsLoseAndDoubleNoUsage(t *testing.T) {
	t.Parallel()
	const kills, customers = 20, 6
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	far := newFarEnd(t)
	api := caller{system.API(t).URL, key}
	api.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": "api-calls", "event_type": "api_call", "name": "Calls", "aggregation": "sum"})
	api.must(t, 200, http.MethodPut, "/v1/billing/provider", map[string]any{"type": "webhook", "url": far.url + "/usage", "secret": webhookSecret})
	far.forget()
	worker := system.Worker(t)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithCancel(t.Context())
	var syncs sync.WaitGroup
	defer syncs.Wait()
	defer cancel()
	for i := range kills {
		before := len(far.received())
		switch chance.IntN(3) {
		case 0:
			far.behave(fmt.Sprintf(`{"status":503,"times":%d}`, 1+chance.IntN(customers)))
		case 1:
			far.behave(fmt.Sprintf(`{"drop_answer":true,"times":%d}`, 1+chance.IntN(customers)))
		}
		for c := range customers {
			customer := fmt.Sprintf("customer-%d", c)
			api.ingest(t, map[string]any{"event_type": "api_call", "customer_id": customer, "value": 1})
			syncs.Go(func() {
				_, _, _ = api.call(ctx, http.MethodPost, "/v1/billing/sync", map[string]any{"customer_external_id": customer}) // the outcome does not matter
			})
		}
		arrived(far, before, 12*time.Second)
		<-time.After(time.Duration(chance.IntN(100)) * time.Millisecond) // a random delay before the kill
		worker.Restart(t)
		t.Logf("kill %d: the receiver holds %v", i+1, far.billed())
	}

	far.behave(`{"times":0}`)
	for c := range customers {
		customer := fmt.Sprintf("customer-%d", c)
		dbtest.Eventually(t, func() error { return api.sync(t, customer) })
		require.Equal(t, fmt.Sprint(kills), far.billed()[customer])
	}
	t.Logf("%d deliveries", len(far.received()))
}

// arrived waits until the receiver has more deliveries than before, or until atMost has passed. Callers pass the
// time that Temporal takes to give up a task of a killed worker.
func arrived(far farEnd, before int, atMost time.Duration) {
	deadline := time.After(atMost)
	for len(far.received()) <= before {
		select {
		case <-deadline:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ended requests a sync of the customer, polls until the sync has ended, and returns it. The request itself waits only
// a few seconds.
func (c caller) ended(t testing.TB, customer string) (sync []byte) {
	t.Helper()
	dbtest.Eventually(t, func() error { // Temporal may not answer a busy machine in time
		status, answer, err := c.call(t.Context(), http.MethodPost, "/v1/billing/sync", map[string]any{"customer_external_id": customer})
		if err == nil && status != http.StatusOK && status != http.StatusAccepted {
			err = fmt.Errorf("%d: %s", status, answer)
		}
		sync = answer
		return err
	})
	var run struct {
		StatusURL string `json:"status_url"`
	}
	require.NoError(t, json.Unmarshal(sync, &run))
	dbtest.Eventually(t, func() (err error) {
		var status int
		status, sync, err = c.call(t.Context(), http.MethodGet, run.StatusURL, nil)
		if err == nil && (status != http.StatusOK || !bytes.Contains(sync, []byte(`"finished_at":"`))) {
			err = fmt.Errorf("%d: %s", status, sync)
		}
		return err
	})
	return sync
}

// sync requests a sync of the customer, and returns an error if it has not succeeded.
func (c caller) sync(t *testing.T, customer string) error {
	t.Helper()
	status, answer, err := c.call(t.Context(), http.MethodPost, "/v1/billing/sync", map[string]any{"customer_external_id": customer})
	if err != nil {
		return err
	}
	if status != http.StatusOK || !bytes.Contains(answer, []byte(`"status":"succeeded"`)) {
		return fmt.Errorf("%d: %s", status, answer)
	}
	return nil
}
