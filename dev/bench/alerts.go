package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/dev/bench/figure"
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
func alerts(_ context.Context, b *bench) ([]figure.Figure, error) {
	if err := b.createMeter(watched.eventType, watched.eventType); err != nil {
		return nil, err
	}
	if _, err := load(b.coalesced, 1, [][]byte{batchRequest(b.key, watched.events(batchEvents))}); err != nil {
		return nil, fmt.Errorf("create customers: %w", err)
	}
	for customer := range watched.customers {
		for n := range alertsOfCustomer {
			body := fmt.Sprintf(`{"name":"alert %d","type":"usage","customer":"watched-%d","meter":"watched","thresholds":[%d]}`, n, customer, 1_000_000_000+n)
			if err := b.call(http.MethodPost, "/v1/alerts", body, http.StatusCreated, nil); err != nil {
				return nil, fmt.Errorf("create alert: %w", err)
			}
		}
	}
	var with, without []float64
	for round := range rounds + 1 { // the first warms up
		few, err := b.batchRate(unwatched)
		if err != nil {
			return nil, err
		}
		many, err := b.batchRate(watched)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			with, without = append(with, many), append(without, few)
		}
	}
	return []figure.Figure{compare("ingest-100-alerts-vs-none", "events/s", with, without, 0.9, never)}, nil
}

// notifications measures the time from the answer to an event that reaches a threshold until the webhook
// receives the message. It also measures the evaluation of 10,000 customers that reach a threshold at the
// same time.
func notifications(ctx context.Context, b *bench) ([]figure.Figure, error) {
	n, err := b.newNotified(ctx)
	if err != nil {
		return nil, err
	}
	defer n.receiver.Close()
	delays, err := n.delays()
	if err != nil {
		return nil, err
	}
	evaluated, err := n.evaluations(ctx)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{delays, evaluated}, nil
}

// notified is a tenant with a webhook. For each message that the webhook receives, receiver sends an arrival to
// the channel arrived.
type notified struct {
	*bench

	receiver *httptest.Server
	webhook  string // id of the webhook
	arrived  chan arrival
}

// arrival is the receipt of a message. The customer is empty for a test message.
type arrival struct {
	customer string
	at       time.Time
}

func (b *bench) newNotified(ctx context.Context) (*notified, error) {
	n := &notified{bench: b, arrived: make(chan arrival, crossingCustomers*rounds)}
	n.receiver = httptest.NewServer(http.HandlerFunc(n.receive))
	if err := b.startWorker(ctx); err != nil {
		return nil, err
	}
	var created struct{ ID string }
	body := fmt.Sprintf(`{"url":%q,"event_types":["alert.triggered"]}`, n.receiver.URL)
	if err := b.call(http.MethodPost, "/v1/webhooks", body, http.StatusCreated, &created); err != nil {
		return nil, fmt.Errorf("create webhook: %w", err)
	}
	n.webhook = created.ID
	return n, nil
}

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
func (n *notified) delays() (figure.Figure, error) {
	if err := n.watch("crossing"); err != nil {
		return figure.Figure{}, err
	}
	var crossed, tested []float64
	for round := range rounds + 1 { // the first warms up
		delays, err := n.cross(fmt.Sprintf("round-%d-%%d", round))
		if err != nil {
			return figure.Figure{}, err
		}
		delay, err := n.test()
		if err != nil {
			return figure.Figure{}, err
		}
		if round > 0 {
			crossed, tested = append(crossed, milliseconds(p99(delays))), append(tested, milliseconds(delay))
		}
	}
	return bounded("alert-webhook-p99", "ms", crossed, tested, notifiedP99, never), nil
}

// watch creates a meter and an alert for all customers. The first event of a customer reaches the
// threshold.
func (n *notified) watch(slug string) error {
	if err := n.createMeter(slug, slug); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"name":%q,"type":"usage","all":true,"meter":%q,"thresholds":[1]}`, slug, slug)
	if err := n.call(http.MethodPost, "/v1/alerts", body, http.StatusCreated, nil); err != nil {
		return fmt.Errorf("create alert: %w", err)
	}
	return nil
}

// cross sends one event for each of crossingsPerRound customers. It returns the time from the answer to each
// event until the notification arrives.
func (n *notified) cross(customers string) ([]time.Duration, error) {
	answered := make(map[string]time.Time)
	ticker := time.NewTicker(time.Second / crossingRate)
	defer ticker.Stop()
	for i := range crossingsPerRound {
		<-ticker.C
		customer := fmt.Sprintf(customers, i)
		body := fmt.Sprintf(`{"customer_id":%q,"event_type":"crossing","value":1.5}`, customer)
		if err := n.call(http.MethodPost, "/v1/events", body, http.StatusOK, nil); err != nil {
			return nil, fmt.Errorf("send event: %w", err)
		}
		answered[customer] = time.Now()
	}
	var delays []time.Duration
	for range crossingsPerRound {
		message, err := n.next()
		if err != nil {
			return nil, err
		}
		delays = append(delays, message.at.Sub(answered[message.customer]))
	}
	return delays, nil
}

// test returns the time from the answer to a test request until its message arrived.
func (n *notified) test() (time.Duration, error) {
	if err := n.call(http.MethodPost, "/v1/webhooks/"+url.PathEscape(n.webhook)+"/test", "", http.StatusAccepted, nil); err != nil {
		return 0, fmt.Errorf("send test message: %w", err)
	}
	answered := time.Now()
	message, err := n.next()
	return message.at.Sub(answered), err
}

func (n *notified) next() (arrival, error) {
	select {
	case message := <-n.arrived:
		return message, nil
	case <-time.After(time.Minute):
		return arrival{}, errors.New("no message arrived within a minute")
	}
}

// evaluations measures the time from the first event of 10,000 customers until the alert has fired for all of
// them. The baseline is the duration of COPY for the same events.
func (n *notified) evaluations(ctx context.Context) (figure.Figure, error) {
	var fired, copied []float64
	for round := range rounds {
		wave := shape{eventType: fmt.Sprintf("wave-%d", round), customers: crossingCustomers, name: "wave-%d"}
		if err := n.watch(wave.eventType); err != nil {
			return figure.Figure{}, err
		}
		var batches [][]event
		var requests [][]byte
		for batch := range slices.Chunk(wave.events(crossingCustomers), batchEvents) {
			batches, requests = append(batches, batch), append(requests, batchRequest(n.key, batch))
		}
		took, err := n.copy(ctx, n.copyRows(batches))
		if err != nil {
			return figure.Figure{}, fmt.Errorf("copy: %w", err)
		}
		copied = append(copied, milliseconds(took))
		start := time.Now()
		if _, err := load(n.coalesced, batchConnections, requests); err != nil {
			return figure.Figure{}, err
		}
		if err := n.untilFired(ctx, wave.eventType); err != nil {
			return figure.Figure{}, err
		}
		fired = append(fired, milliseconds(time.Since(start)))
		fmt.Printf("round %d: %d customers have fired after %.0f ms\n", round+1, crossingCustomers, fired[round])
	}
	return bounded("alerts-of-10k-customers", "ms", fired, copied, evaluatedWithin, never), nil
}

// untilFired waits until the alert has fired for each customer, for at most five minutes.
func (n *notified) untilFired(ctx context.Context, alert string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for range time.Tick(100 * time.Millisecond) {
		var firings int
		err := n.pool.QueryRow(ctx, `select count(*) from alert_firings f join alerts a using (tenant_id) where a.name = $1 and f.alert_id = a.id`, alert).Scan(&firings)
		if err != nil || firings == crossingCustomers {
			return err
		}
	}
	return nil
}
