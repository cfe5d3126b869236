package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestDrillMemoryStaysBoundedWhenAnswersAreNotRead sends 250 requests and reads only 64 bytes of each answer. The
// answers are small pages of large items, with texts that JSON escapes.
func TestDrillMemoryStaysBoundedWhenAnswersAreNotRead(t *testing.T) {
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: unreachable})
	tenant, key := system.Tenant(t)
	api := system.API(t)
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		insert into customers (tenant_id, external_id, metadata, created_at)
		select t.id, n, jsonb_build_object('p', repeat('<', 16000)), now()
		from tenants t, generate_series(1, 250) n
		where 'ten_' || t.id = $1`, tenant)
	require.NoError(t, err)
	address, err := url.Parse(api.URL)
	require.NoError(t, err)
	var clients sync.WaitGroup
	var begun sync.WaitGroup
	read := make(chan struct{})
	for range 250 {
		begun.Add(1)
		clients.Go(func() {
			began := sync.OnceFunc(begun.Done)
			defer began()
			conn, err := net.Dial("tcp", address.Host)
			if err != nil {
				return
			}
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			fmt.Fprintf(conn, "GET /v1/customers?page_size=200 HTTP/1.1\r\nHost: odometer\r\nAuthorization: Bearer %s\r\n\r\n", key)
			_, _ = io.ReadFull(conn, make([]byte, 64))
			began()
			<-read
		})
	}
	begun.Wait()
	requireMemory(t, api, proc.MostOfAPI, "250 answers of which 64 bytes were read")
	status, body := call(t, "GET", api.URL+"/v1/usage/summary?customer=1", key, "")
	require.Equal(t, http.StatusOK, status, body)
	close(read)
	clients.Wait()
	require.Len(t, everyPage(t, api.URL+"/v1/customers?page_size=200", key), 250)
}

// everyPage reads a list to its end, and returns the external IDs of its items.
func everyPage(t *testing.T, address, key string) (ids []string) {
	t.Helper()
	for page := address; ; {
		status, body := callUntilAnswered(t, "GET", page, key, "")
		require.Equal(t, http.StatusOK, status, body)
		var read struct {
			Data []struct {
				ExternalID string `json:"external_id"`
			} `json:"data"`
			NextPageToken string `json:"next_page_token"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &read))
		for _, item := range read.Data {
			ids = append(ids, item.ExternalID)
		}
		if read.NextPageToken == "" {
			return ids
		}
		page = address + "&page_token=" + read.NextPageToken
	}
}

// TestDrillMemoryStaysBoundedWithLargeGroups creates meters with 10,000 large groups, waits until the earlier
// events are counted, and then reads groups.
func TestDrillMemoryStaysBoundedWithLargeGroups(t *testing.T) {
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: os.Getenv("TEST_TEMPORAL_ADDRESS")})
	tenant, key := system.Tenant(t)
	api, worker := system.API(t), system.Worker(t)
	status, body := call(t, "POST", api.URL+"/v1/events", key, `{"event_type":"large","customer_id":"acme","value":1}`)
	require.Equal(t, http.StatusOK, status, body)
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		insert into events (tenant_id, customer_id, ts, id, event_type, value, properties, ingested_at, epoch)
		select e.tenant_id, e.customer_id, e.ts - n * interval '1 microsecond', gen_random_uuid(), e.event_type, n,
		  jsonb_build_object('large', repeat('x', 15000) || n, 'small', repeat('x', 1000) || n), e.ingested_at, e.epoch
		from events e, generate_series(1, 10000) n
		where 'ten_' || e.tenant_id = $1`, tenant)
	require.NoError(t, err)
	for slug, property := range map[string]string{"a": "large", "b": "large", "c": "large", "d": "large", "e": "small"} {
		status, body := call(t, "POST", api.URL+"/v1/meters", key, fmt.Sprintf(`{"slug":%q,"event_type":"large","aggregation":"count","group_by":[%q]}`, slug, property))
		require.Equal(t, http.StatusCreated, status, body)
	}
	awaitBackfills(t, conn)
	requireMemory(t, worker, proc.MostOfWorker, "five backfills of 10,000 groups")
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for _, query := range []string{"page_size=50", "page_size=10000", "page_size=10000&group_by=small"} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/v1/usage?customer=acme&meter=e&"+query, nil)
				if err != nil {
					continue
				}
				request.Header.Set("Authorization", "Bearer "+key)
				if response, err := http.DefaultClient.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
		})
	}
	clients.Wait()
	requireMemory(t, api, proc.MostOfAPI, "reads of 10,000 groups of 1 KB")
	for _, slug := range []string{"a", "e"} {
		status, body := callUntilAnswered(t, "GET", api.URL+"/v1/usage/total?customer=acme&meter="+slug, key, "")
		require.Equal(t, http.StatusOK, status, body)
		require.JSONEq(t, `{"total":10001}`, body)
	}
}

// TestDrillMemoryStaysBoundedWithManyMetersAndProperties sends 24 batches concurrently. Each event has a new
// group in each of twenty meters.
func TestDrillMemoryStaysBoundedWithManyMetersAndProperties(t *testing.T) {
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	api := system.API(t)
	for n := range 20 {
		status, body := call(t, "POST", api.URL+"/v1/meters", key,
			fmt.Sprintf(`{"slug":"m%d","event_type":"call","aggregation":"sum","group_by":["a","b","c","d","p%d"]}`, n, n))
		require.Equal(t, http.StatusCreated, status, body)
	}
	var clients sync.WaitGroup
	var stored, busy atomic.Int64
	for client := range 24 {
		clients.Go(func() {
			switch post(t, api.URL, manyGroups(client), bearer(key)) {
			case http.StatusOK:
				stored.Add(1)
			case http.StatusServiceUnavailable:
				busy.Add(1)
			}
		})
	}
	clients.Wait()
	require.EqualValues(t, 24, stored.Load()+busy.Load())
	require.Positive(t, stored.Load())
	t.Logf("%d of 24 batches are stored", stored.Load())
	requireMemory(t, api, proc.MostOfAPI, "24 batches at once of 20 meters and 5 properties")
}

// manyGroups returns a batch of 1,000 events. No two events of all batches have the same properties.
func manyGroups(batch int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"events":[`)
	for i := range 1000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"event_type":"call","customer_id":"acme","value":1,"properties":{"a":"%d-%d-%s","b":2,"c":3,"d":4}}`, batch, i, strings.Repeat("x", 150))
	}
	b.WriteString("]}")
	return b.Bytes()
}
