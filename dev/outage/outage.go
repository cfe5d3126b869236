package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// outage is one run of the demonstration.
type outage struct {
	config
	api       *client.ClientWithResponses
	temporal  temporal.Client
	worker    worker
	out       io.Writer
	customers []client.Customer // those with an id at Stripe
	sent      int               // the number of events
	timeLimit time.Duration     // the maximum time to wait for any condition
}

func newOutage(c config, t temporal.Client, w worker, out io.Writer) (*outage, error) {
	api, err := client.NewClientWithResponses(c.BaseURL, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+c.AdminKey)
		return nil
	}))
	return &outage{config: c, api: api, temporal: t, worker: w, out: out, timeLimit: 3 * time.Minute}, err
}

func (o *outage) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{o.findCustomers, o.goDown, o.loseAnswers, o.hang, o.prove} {
		if err := step(ctx); err != nil {
			// The fake must not keep failing after this run.
			return errors.Join(err, o.behave(context.WithoutCancel(ctx), stripetest.Behaviour{}))
		}
	}
	return nil
}

func (o *outage) sayf(format string, args ...any) { fmt.Fprintf(o.out, format+"\n", args...) }

func (o *outage) findCustomers(ctx context.Context) error {
	size := int64(1000)
	listed, err := o.api.ListCustomersWithResponse(ctx, &client.ListCustomersParams{PageSize: &size})
	if err := expect.Status("list customers", listed, err, http.StatusOK); err != nil {
		return err
	}
	o.customers = slices.DeleteFunc(listed.JSON200.Data, func(c client.Customer) bool { return c.BillingProviderId == nil })
	if len(o.customers) < 2 {
		return errors.New("the tenant has fewer than two customers at Stripe; make up fills it")
	}
	return nil
}

// goDown makes Stripe return 503 to all requests.
func (o *outage) goDown(ctx context.Context) error {
	o.sayf("1. Stripe answers 503 to everything.")
	const always = 1_000_000
	if err := o.behave(ctx, stripetest.Behaviour{Status: http.StatusServiceUnavailable, Times: always}); err != nil {
		return err
	}
	if err := o.sendUsage(ctx); err != nil {
		return err
	}
	answers := o.syncAll(ctx)
	begun, err := o.api.TriggerAutoSyncWithResponse(ctx)
	if err := expect.Status("begin Auto-Sync", begun, err, http.StatusAccepted); err != nil {
		return err
	}
	o.sayf("   Syncs of %d customers are asked for, and Auto-Sync begins. This waits, in Temporal:\n", len(o.customers))
	if err := o.showWaiting(ctx); err != nil {
		return err
	}
	return o.showAnswers(answers)
}

// loseAnswers makes Stripe accept requests again, but lose some of its answers.
func (o *outage) loseAnswers(ctx context.Context) error {
	o.sayf("2. Stripe is back. It takes the next meter events, but its answers to the first 4 are lost.")
	err := o.behave(ctx, stripetest.Behaviour{DropAnswer: true, Times: 4, Path: "/v1/billing/meter_events"})
	if err != nil {
		return err
	}
	tried, err := o.retryNow(ctx)
	if err != nil {
		return err
	}
	o.sayf("   An operator need not wait for the next attempt: %d runs were sent the update retry-now.", tried)
	return o.settle(ctx)
}

// hang makes Stripe accept usage records without answering. The worker is killed while it waits.
func (o *outage) hang(ctx context.Context) error {
	const calls = 2
	o.sayf("3. Stripe hangs: it takes the next %d usage records and keeps the connections open.", calls)
	before, err := o.records(ctx)
	if err != nil {
		return err
	}
	err = o.behave(ctx, stripetest.Behaviour{Mode: stripetest.Hang, Done: true, Times: calls, Path: "/v1/subscription_items"})
	if err != nil {
		return err
	}
	if err := o.sendUsage(ctx); err != nil {
		return err
	}
	answers := o.syncAll(ctx)
	err = eventually(ctx, o.timeLimit, func() error {
		now, err := o.records(ctx)
		if err == nil && now < before+calls {
			err = fmt.Errorf("%d usage records were taken", now-before)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := o.worker.Kill(ctx); err != nil {
		return err
	}
	o.sayf("   The worker, which waits for the answers, is killed (kill -9), and another is started.")
	if err := o.worker.Start(ctx); err != nil {
		return err
	}
	if err := o.showAnswers(answers); err != nil {
		return err
	}
	if err := o.behave(ctx, stripetest.Behaviour{}); err != nil {
		return err
	}
	return o.settle(ctx)
}

// records returns the number of usage records that Stripe has accepted.
func (o *outage) records(ctx context.Context) (taken int, err error) {
	state, err := o.state(ctx)
	for _, r := range state.Requests {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/usage_records") && r.Status == http.StatusOK && !r.Replayed {
			taken++
		}
	}
	return taken, err
}

// sendUsage sends events of every customer to Odometer. Some values are fractions, although Stripe accepts only whole
// units.
func (o *outage) sendUsage(ctx context.Context) error {
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
	answer, err := o.api.IngestEventsWithResponse(ctx, client.EventBatch{Events: events})
	if err := expect.Status("send usage", answer, err, http.StatusOK); err != nil {
		return err
	}
	if answer.JSON200.Rejected > 0 {
		return fmt.Errorf("send usage: %d events were rejected", answer.JSON200.Rejected)
	}
	o.sayf("   %d new events are accepted.", answer.JSON200.Accepted)
	return nil
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
func (o *outage) syncAll(ctx context.Context) <-chan answer {
	answers := make(chan answer, len(o.customers))
	var asking sync.WaitGroup
	for _, c := range o.customers {
		asking.Go(func() { answers <- o.sync(ctx, c.ExternalId) })
	}
	go func() {
		asking.Wait()
		close(answers)
	}()
	return answers
}

func (o *outage) sync(ctx context.Context, customer string) answer {
	began := time.Now()
	got, err := o.api.SyncBillingWithResponse(ctx, client.SyncBilling{CustomerExternalId: customer})
	if err := expect.Status("sync "+customer, got, err, http.StatusOK, http.StatusAccepted); err != nil {
		return answer{err: err}
	}
	shown := got.JSON200
	if shown == nil {
		shown = got.JSON202
	}
	return answer{customer: customer, status: got.StatusCode(), run: shown, took: time.Since(began)}
}

func (o *outage) showAnswers(answers <-chan answer) error {
	o.sayf("   The API's answers to those who asked for a sync:\n")
	for a := range answers {
		if a.err != nil {
			return a.err
		}
		o.sayf("      %-24s %d %s, after %s", a.customer, a.status, a.run.Status, a.took.Round(time.Second/10))
	}
	o.sayf("")
	return nil
}

// behave sets the behaviour of the fake of Stripe for its next calls.
func (o *outage) behave(ctx context.Context, b stripetest.Behaviour) error {
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.StripeURL+"/behave", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the fake of Stripe answered %s", answer.Status)
	}
	return nil
}

// eventually repeats try until it succeeds. After atMost it returns the last error.
func eventually(ctx context.Context, atMost time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", atMost, err)
		case <-time.After(time.Second / 4):
		}
	}
}
