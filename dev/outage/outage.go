package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// outage is one run of the demonstration.
type outage struct {
	proc.Drill
	config
	api       *client.ClientWithResponses
	temporal  temporal.Client
	worker    worker
	customers []client.Customer // those with an id at Stripe
	sent      int               // the number of events
	timeLimit time.Duration     // the maximum time to wait for any condition
}

// newOutage returns a run of the demonstration against the system of the configuration.
func newOutage(d proc.Drill, c config, t temporal.Client, w worker) *outage {
	return &outage{Drill: d, config: c, api: proc.Dial(d, c.BaseURL, c.AdminKey), temporal: t, worker: w, timeLimit: dbtest.Deadline}
}

// run runs the three failures and then compares the bills.
func (o *outage) run() {
	o.Helper()
	o.Cleanup(func() { o.behave(stripetest.Behaviour{}) }) // the fake must not keep failing after this run
	o.findCustomers()
	o.goDown()
	o.loseAnswers()
	o.hang()
	require.NoError(o, o.prove())
}

// findCustomers reads the tenant's customers that have an id at Stripe.
func (o *outage) findCustomers() {
	o.Helper()
	listed, err := o.api.ListCustomersWithResponse(o.Context(), &client.ListCustomersParams{PageSize: new(int64(1000))})
	require.NoError(o, expect.Status("list customers", listed, err, http.StatusOK))
	o.customers = slices.DeleteFunc(listed.JSON200.Data, func(c client.Customer) bool { return c.BillingProviderId == nil })
	require.Greater(o, len(o.customers), 1, "the tenant has fewer than two customers at Stripe; make up fills it")
}

// goDown makes Stripe return 503 to all requests.
func (o *outage) goDown() {
	o.Helper()
	o.Printf("1. Stripe answers 503 to everything.")
	const always = 1_000_000
	o.behave(stripetest.Behaviour{Status: http.StatusServiceUnavailable, Times: always})
	o.sendUsage()
	answers := o.syncAll()
	begun, err := o.api.TriggerAutoSyncWithResponse(o.Context())
	require.NoError(o, expect.Status("begin Auto-Sync", begun, err, http.StatusAccepted))
	o.Printf("   Syncs of %d customers are asked for, and Auto-Sync begins. This waits, in Temporal:\n", len(o.customers))
	o.showWaiting()
	o.showAnswers(answers)
}

// loseAnswers makes Stripe accept requests again, but lose some of its answers.
func (o *outage) loseAnswers() {
	o.Helper()
	o.Printf("2. Stripe is back. It takes the next meter events, but its answers to the first 4 are lost.")
	o.behave(stripetest.Behaviour{DropAnswer: true, Times: 4, Path: "/v1/billing/meter_events"})
	o.Printf("   An operator need not wait for the next attempt: %d runs were sent the update retry-now.", o.retryNow())
	o.settle()
}

// hang makes Stripe accept usage records without answering. The worker is killed while it waits.
func (o *outage) hang() {
	o.Helper()
	const calls = 2
	o.Printf("3. Stripe hangs: it takes the next %d usage records and keeps the connections open.", calls)
	before := o.records()
	o.behave(stripetest.Behaviour{Mode: stripetest.Hang, Done: true, Times: calls, Path: "/v1/subscription_items"})
	o.sendUsage()
	answers := o.syncAll()
	dbtest.Within(o, o.timeLimit, func() error {
		if now := o.records(); now < before+calls {
			return fmt.Errorf("%d usage records were taken", now-before)
		}
		return nil
	})
	o.worker.Kill(o)
	o.Printf("   The worker, which waits for the answers, is killed (kill -9), and another is started.")
	o.worker.Start(o)
	o.showAnswers(answers)
	o.behave(stripetest.Behaviour{})
	o.settle()
}

// records returns the number of usage records that Stripe has accepted.
func (o *outage) records() (taken int) {
	o.Helper()
	for _, r := range o.state().Requests {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/usage_records") && r.Status == http.StatusOK && !r.Replayed {
			taken++
		}
	}
	return taken
}

// sendUsage sends events of every customer to Odometer. Some values are fractions, although Stripe accepts only whole
// units.
func (o *outage) sendUsage() {
	o.Helper()
	values := []struct {
		kind  string
		value json.Number
	}{{"api_request", "17.25"}, {"completion", "1234.5"}, {"completion", "0.3"}, {"image", "1"}}
	var events []client.Event
	for _, c := range o.customers {
		for _, v := range values {
			o.sent++
			key := fmt.Sprintf("outage/%d/%d", time.Now().UnixNano(), o.sent)
			events = append(events, client.Event{CustomerId: c.ExternalId, EventType: v.kind, Value: &v.value, IdempotencyKey: &key})
		}
	}
	answer, err := o.api.IngestEventsWithResponse(o.Context(), client.EventBatch{Events: events})
	require.NoError(o, expect.Status("send usage", answer, err, http.StatusOK))
	require.Zero(o, answer.JSON200.Rejected, "rejected events")
	o.Printf("   %d new events are accepted.", answer.JSON200.Accepted)
}

// answer is the API's answer to one request for a sync.
type answer struct {
	customer string
	status   int
	run      *client.SyncRun
	took     time.Duration
	err      error
}

// syncAll requests a sync of every customer at once. It returns without waiting for the answers.
func (o *outage) syncAll() <-chan answer {
	answers := make(chan answer, len(o.customers))
	var asking sync.WaitGroup
	for _, c := range o.customers {
		asking.Go(func() { answers <- o.sync(c.ExternalId) })
	}
	go func() {
		asking.Wait()
		close(answers)
	}()
	return answers
}

// sync requests a sync of a customer. An error is part of the answer and does not end the drill, because goroutines
// call sync.
func (o *outage) sync(customer string) answer {
	began := time.Now()
	got, err := o.api.SyncBillingWithResponse(o.Context(), client.SyncBilling{CustomerExternalId: customer})
	if err := expect.Status("sync "+customer, got, err, http.StatusOK, http.StatusAccepted); err != nil {
		return answer{err: err}
	}
	shown := got.JSON200
	if shown == nil {
		shown = got.JSON202
	}
	return answer{customer: customer, status: got.StatusCode(), run: shown, took: time.Since(began)}
}

// showAnswers waits for the answers and prints them.
func (o *outage) showAnswers(answers <-chan answer) {
	o.Helper()
	o.Printf("   The API's answers to those who asked for a sync:\n")
	for a := range answers {
		require.NoError(o, a.err)
		o.Printf("      %-24s %d %s, after %s", a.customer, a.status, a.run.Status, a.took.Round(time.Second/10))
	}
	o.Printf("")
}

// behave sets the behaviour of the fake of Stripe for its next calls.
func (o *outage) behave(b stripetest.Behaviour) {
	o.Helper()
	body, err := json.Marshal(b)
	require.NoError(o, err)
	status, text, err := proc.Call(context.WithoutCancel(o.Context()), http.MethodPost, o.StripeURL+"/behave", "", string(body))
	require.NoError(o, err)
	require.Equal(o, http.StatusNoContent, status, string(text))
}
