package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// crossing is a threshold of an alert that a customer reaches.
type crossing struct{ customer, threshold string }

// crossings receives the messages of an alert.
type crossings struct {
	mu         sync.Mutex
	messages   map[crossing][]string // the ids of the messages, without repeats
	deliveries int
}

func (c *crossings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var message client.MessageOfAlertTriggered
	if err != nil || json.Unmarshal(body, &message) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries++
	of, id := crossing{message.Data.CustomerExternalId, message.Data.Threshold.String()}, r.Header.Get("webhook-id")
	if !slices.Contains(c.messages[of], id) {
		c.messages[of] = append(c.messages[of], id)
	}
	w.WriteHeader(http.StatusNoContent)
}

// await waits until messages of the given number of crossings were received.
func (c *crossings) await(t *testing.T, crossings int) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.messages) < crossings {
			return fmt.Errorf("%d of %d crossings", len(c.messages), crossings)
		}
		return nil
	})
}

// TestDrillEachCrossingIsNotifiedOnce sends usage of 500 customers while the APIs and workers are killed in
// turn. Each customer reaches two thresholds. Each threshold fires once for each customer, and its message has
// the same id in every delivery.
func TestDrillEachCrossingIsNotifiedOnce(t *testing.T) {
	const customers, batch, kills = 500, 50, 12
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t), Env: []string{"CALLS_PER_MINUTE=100000000"}})
	_, key := system.Tenant(t)
	r := &replicas{T: t, key: key, apis: []*proc.Process{system.API(t), system.API(t)}}
	killed := append(slices.Clone(r.apis), system.Worker(t), system.Worker(t))
	received := &crossings{messages: make(map[crossing][]string)}
	receiver := httptest.NewServer(received)
	t.Cleanup(receiver.Close)
	r.must("POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"sum"}`)
	r.must("POST", "/v1/webhooks", fmt.Sprintf(`{"url":%q,"event_types":["alert.triggered"]}`, receiver.URL))
	var alert client.Alert
	require.NoError(t, json.Unmarshal([]byte(r.must("POST", "/v1/alerts", `{"name":"calls","type":"usage","all":true,"meter":"calls","thresholds":[10,20]}`)), &alert))

	var sending sync.WaitGroup
	sending.Go(func() {
		for from := 0; from < customers; from += batch {
			received.await(t, 2*(from-batch)) // so that kills interrupt evaluations as well as deliveries
			for round := range 4 {
				var events []string
				for n := from; n < from+batch; n++ {
					events = append(events, fmt.Sprintf(`{"event_type":"call","customer_id":"c%d","value":5,"idempotency_key":"%d-%d"}`, n, n, round))
				}
				r.must("POST", "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
			}
		}
	})
	for n := range kills {
		received.await(t, 2*customers*(n+1)/(kills+1))
		killed[n%len(killed)].Restart(t)
	}
	sending.Wait()
	received.await(t, 2*customers)

	fired := make(map[crossing]int)
	for _, f := range listFirings(r, alert.Id) {
		fired[crossing{f.CustomerExternalId, f.Threshold.String()}]++
	}
	require.Len(t, fired, 2*customers)
	received.mu.Lock()
	defer received.mu.Unlock()
	for of, messages := range received.messages {
		require.Len(t, messages, 1, "%v", of)
		require.Equal(t, 1, fired[of], "%v", of)
	}
	t.Logf("%d deliveries of %d messages", received.deliveries, len(received.messages))
}

// listFirings returns all firings of an alert.
func listFirings(r *replicas, alert string) (all []client.Firing) {
	r.Helper()
	for query := "?page_size=200"; ; {
		var page client.ListFiring
		require.NoError(r, json.Unmarshal([]byte(r.must("GET", "/v1/alerts/"+alert+"/firings"+query, "")), &page))
		all = append(all, page.Data...)
		if page.NextPageToken == nil {
			return all
		}
		query = "?page_size=200&page_token=" + *page.NextPageToken
	}
}
