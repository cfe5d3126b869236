package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/proc"
)

const (
	alertsOfCustomer = 100

	crossingRate      = 10 // per second
	crossingsPerRound = 100
	notifiedP99       = 3_000 // milliseconds

	crossingCustomers = 10_000
	evaluatedWithin   = 60_000 // milliseconds
)

// The customers of watched have alerts. The customers of unwatched send events of the same type and have no
// alerts.
var (
	watched   = shape{eventType: "watched", customers: 10, name: "watched-%d"}
	unwatched = shape{eventType: "watched", customers: 10, name: "unwatched-%d"}
)

// alerts compares the ingest for customers with 100 alerts each with the ingest for customers without
// alerts.
func alerts(b *bench) []figure.Figure {
	b.createMeter(watched.eventType, watched.eventType)
	b.load(1, batchRequest(b.key, watched.events(batchEvents))) // creates the customers
	for customer := range watched.customers {
		for n := range alertsOfCustomer {
			body := fmt.Sprintf(`{"name":"alert %d","type":"usage","customer":"watched-%d","meter":"watched","thresholds":[%d]}`, n, customer, 1_000_000_000+n)
			b.must(http.MethodPost, "/v1/alerts", body, http.StatusCreated, nil)
		}
	}
	var with, without []float64
	for round := range rounds + 1 { // the first warms up
		few, many := b.batchRate(unwatched), b.batchRate(watched)
		if round > 0 {
			with, without = append(with, many), append(without, few)
		}
	}
	return []figure.Figure{compare("ingest-100-alerts-vs-none", "events/s", with, without, 0.9, never)}
}

// notifications measures the time from the answer to an event that reaches a threshold until the webhook
// receives the message. It also measures the evaluation of 10,000 customers that reach a threshold at the
// same time.
func notifications(b *bench) []figure.Figure {
	n := b.newNotified()
	return []figure.Figure{n.delays(), n.evaluations()}
}

// notified is a tenant with a webhook. For each message that the webhook receives, receive sends an arrival to
// the channel arrived.
type notified struct {
	*bench

	webhook string // id of the webhook
	arrived chan arrival
}

// arrival is the receipt of a message. The customer is empty for a test message.
type arrival struct {
	customer string
	at       time.Time
}

// newNotified starts a worker, and creates a webhook for alert messages.
func (b *bench) newNotified() *notified {
	b.Helper()
	n := &notified{bench: b, arrived: make(chan arrival, crossingCustomers*rounds)}
	receiver := proc.Serve(b, http.HandlerFunc(n.receive))
	b.startWorker()
	var created struct{ ID string }
	body := fmt.Sprintf(`{"url":%q,"event_types":["alert.triggered"]}`, receiver)
	b.must(http.MethodPost, "/v1/webhooks", body, http.StatusCreated, &created)
	n.webhook = created.ID
	return n
}

// receive is the handler of the webhook.
func (n *notified) receive(_ http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var message struct {
		Data struct {
			CustomerExternalID string `json:"customer_external_id"`
		} `json:"data"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && json.Unmarshal(body, &message) == nil {
		n.arrived <- arrival{message.Data.CustomerExternalID, at}
	}
}

// delays compares the delay of alert messages with the delay of test messages, which need no evaluation of
// alerts.
func (n *notified) delays() figure.Figure {
	n.Helper()
	n.watch("crossing")
	var crossed, tested []float64
	for round := range rounds + 1 { // the first warms up
		delays := n.cross(fmt.Sprintf("round-%d-%%d", round))
		delay := n.test()
		if round > 0 {
			crossed, tested = append(crossed, milliseconds(figure.P99(delays))), append(tested, milliseconds(delay))
		}
	}
	return bounded("alert-webhook-p99", "ms", crossed, tested, notifiedP99, never)
}

// watch creates a meter and an alert for all customers. The first event of a customer reaches the
// threshold.
func (n *notified) watch(slug string) {
	n.Helper()
	n.createMeter(slug, slug)
	body := fmt.Sprintf(`{"name":%q,"type":"usage","all":true,"meter":%q,"thresholds":[1]}`, slug, slug)
	n.must(http.MethodPost, "/v1/alerts", body, http.StatusCreated, nil)
}

// cross sends one event for each of crossingsPerRound customers. It returns the time from the answer to each
// event until the notification arrives.
func (n *notified) cross(customers string) (delays []time.Duration) {
	n.Helper()
	answered := make(map[string]time.Time)
	ticker := time.NewTicker(time.Second / crossingRate)
	defer ticker.Stop()
	for i := range crossingsPerRound {
		<-ticker.C
		customer := fmt.Sprintf(customers, i)
		body := fmt.Sprintf(`{"customer_id":%q,"event_type":"crossing","value":1.5}`, customer)
		n.must(http.MethodPost, "/v1/events", body, http.StatusOK, nil)
		answered[customer] = time.Now()
	}
	for range crossingsPerRound {
		message := n.next()
		delays = append(delays, message.at.Sub(answered[message.customer]))
	}
	return delays
}

// test returns the time from the answer to a test request until its message arrived.
func (n *notified) test() time.Duration {
	n.Helper()
	n.must(http.MethodPost, "/v1/webhooks/"+url.PathEscape(n.webhook)+"/test", "", http.StatusAccepted, nil)
	answered := time.Now()
	return n.next().at.Sub(answered)
}

// next waits for the next message, for at most a minute.
func (n *notified) next() (message arrival) {
	n.Helper()
	select {
	case message = <-n.arrived:
	case <-time.After(time.Minute):
		n.Fatal("no message arrived within a minute")
	}
	return message
}

// evaluations measures the time from the first event of 10,000 customers until the alert has fired for all of
// them. The baseline is the duration of COPY for the same events.
func (n *notified) evaluations() figure.Figure {
	n.Helper()
	var fired, copied []float64
	for round := range rounds {
		wave := shape{eventType: fmt.Sprintf("wave-%d", round), customers: crossingCustomers, name: "wave-%d"}
		n.watch(wave.eventType)
		var batches [][]event
		var requests [][]byte
		for batch := range slices.Chunk(wave.events(crossingCustomers), batchEvents) {
			batches, requests = append(batches, batch), append(requests, batchRequest(n.key, batch))
		}
		copied = append(copied, milliseconds(n.copy(n.copyRows(batches))))
		start := time.Now()
		n.load(batchConnections, requests...)
		n.untilFired(wave.eventType)
		fired = append(fired, milliseconds(time.Since(start)))
		fmt.Printf("round %d: %d customers have fired after %.0f ms\n", round+1, crossingCustomers, fired[round])
	}
	return bounded("alerts-of-10k-customers", "ms", fired, copied, evaluatedWithin, never)
}

// untilFired waits until the alert has fired for each customer, for at most five minutes.
func (n *notified) untilFired(alert string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 5*time.Minute)
	defer cancel()
	for range time.Tick(100 * time.Millisecond) {
		var firings int
		err := n.pool.QueryRow(ctx, `select count(*) from alert_firings f join alerts a using (tenant_id) where a.name = $1 and f.alert_id = a.id`, alert).Scan(&firings)
		require.NoError(n, err)
		if firings == crossingCustomers {
			return
		}
	}
}
