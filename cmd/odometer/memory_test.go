package main_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// unreachable is a Temporal address that nothing listens on.
const unreachable = "127.0.0.1:1"

// batch returns the body of a batch of events with these properties.
func batch(events int, properties string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"events":[`)
	for i := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"event_type":"call","customer_id":"c%d","properties":{"p":%q}}`, i%10, properties)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// TestDrillMemoryStaysBoundedWhenNothingCanBeStored sends as many requests as 64 clients can while the table of
// events is locked. The requests have a key, a valid signature, or a forged signature.
func TestDrillMemoryStaysBoundedWhenNothingCanBeStored(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	tenant, key := system.Tenant(t)
	apis := map[string]*proc.Process{"keys": system.API(t), "signatures": system.API(t), "forgeries": system.API(t)}
	_, made := call(t, "POST", apis["keys"].URL+"/v1/hmac-secrets", key, `{"name":"memory","scope":"admin"}`)
	secret := regexp.MustCompile(`hms_\w+`).FindString(made)

	lock, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer lock.Close(t.Context())
	_, err = lock.Exec(t.Context(), `begin; lock table events in access exclusive mode`)
	require.NoError(t, err)

	bodies := map[string][]byte{
		"many events":  batch(1000, strings.Repeat("x", 8200)),
		"one value":    []byte(`{"events":[{"event_type":"` + strings.Repeat("x", 8<<20-100) + `"}]}`),
		"empty events": []byte(`{"events":[` + strings.Repeat("{},", 2_790_000) + `{}]}`),
		"ignored":      []byte(`{"ignored":[` + strings.Repeat("0,", 4_190_000) + `0],"events":[{}]}`),
	}
	// 200: every event was rejected, so none was to be stored. 408: the body arrived too slowly, as on a busy machine.
	flood(t, apis["keys"], bodies, []int{200, 408, 422, 503, 0}, bearer(key))
	flood(t, apis["signatures"], bodies, []int{200, 408, 422, 503, 0}, signed(tenant, secret))
	flood(t, apis["forgeries"], bodies, []int{401, 408, 429, 503, 0}, signed(tenant, "hms_guess"))
}

// requireMemory requires that a process has never needed more than most bytes of RSS.
func requireMemory(t *testing.T, of *proc.Process, most int64, during string) {
	t.Helper()
	_, peak := of.Memory(t)
	t.Logf("%s: peak %d MiB", during, peak>>20)
	require.LessOrEqual(t, peak, most, during)
}

// flood sends each body from 64 clients for two seconds.
func flood(t *testing.T, api *proc.Process, bodies map[string][]byte, expected []int, authorize func(*http.Request, []byte)) {
	t.Helper()
	var statuses sync.Map
	for name, body := range bodies {
		require.LessOrEqual(t, len(body), 8<<20, name)
		var clients sync.WaitGroup
		until := time.Now().Add(2 * time.Second)
		for range 64 {
			clients.Go(func() {
				for time.Now().Before(until) {
					status := post(t, api.URL, body, authorize)
					count, _ := statuses.LoadOrStore(status, new(atomic.Int64))
					count.(*atomic.Int64).Add(1)
				}
			})
		}
		clients.Wait()
		requireMemory(t, api, proc.MostOfAPI, name)
	}
	statuses.Range(func(status, count any) bool {
		t.Logf("%v: %d", status, count.(*atomic.Int64).Load())
		require.Contains(t, expected, status)
		return true
	})
}

// bearer returns a function that adds an API key to a request.
func bearer(key string) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+key) }
}

// signed returns a function that signs a request with an HMAC secret.
func signed(tenant, secret string) func(*http.Request, []byte) {
	return func(r *http.Request, body []byte) {
		timestamp, id := strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(timestamp + ":" + id + ":"))
		mac.Write(body)
		r.Header.Set("Authorization", "HMAC v1:"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		r.Header.Set("X-Timestamp", timestamp)
		r.Header.Set("X-Request-Id", id)
		r.Header.Set("X-Tenant-Id", tenant)
	}
}

// post sends a batch and returns the status. It returns 0 if the server closed the connection while it refused
// the body.
func post(t *testing.T, url string, body []byte, authorize func(*http.Request, []byte)) int {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/events/batch", bytes.NewReader(body))
	if err != nil {
		return -1
	}
	authorize(request, body)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestDrillMemoryStaysBoundedDuringALargeExport exports a million events in one page.
func TestDrillMemoryStaysBoundedDuringALargeExport(t *testing.T) {
	const rows = 1_000_000
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	api := system.API(t)
	status, body := callUntilAnswered(t, "POST", api.URL+"/v1/events", key, event("first"))
	require.Equal(t, http.StatusOK, status, body)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		insert into events (tenant_id, customer_id, ts, id, event_type, value, properties, ingested_at, epoch)
		select e.tenant_id, e.customer_id, e.ts - n * interval '1 millisecond', gen_random_uuid(), e.event_type, n, '{"model":"large"}', e.ingested_at, e.epoch
		from events e, generate_series(1, $1::int) n`, rows-1)
	require.NoError(t, err)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		api.URL+"/v1/usage/export?customer=acme&page_size=1000000", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	n := 0
	for lines.Scan() {
		n++
	}
	require.NoError(t, lines.Err())
	require.Equal(t, rows+1, n) // one event per line, and the last line of the frame
	requireMemory(t, api, proc.MostOfAPI, "a million events in one page")
}
