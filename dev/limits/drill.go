package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/client/examples"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
)

const (
	customer = "acme"
	meter    = "calls"
	limit    = "10" // calls in an hour
	warning  = "80" // percent of the limit
)

// drill is an API and a worker with a test clock, and a server that checks quotas.
type drill struct {
	proc.Drill
	clock  *proc.Clock
	api    *client.ClientWithResponses
	quotas *client.Quotas
	server http.Handler
	alert  string // ID of the alert on the quota
	hooks  string // the URL of the webhook
}

// newDrill starts the processes and creates the server, which asks the API before it serves a call.
func newDrill(t testing.TB, out io.Writer) *drill {
	t.Helper()
	d := &drill{Drill: proc.Drill{TB: t, Out: out}, clock: proc.NewClock(t)}
	system := proc.Fresh(t, proc.Config{Clock: d.clock})
	_, key := system.Tenant(t)
	d.api = proc.Dial(t, system.API(t).URL, key)
	system.Worker(t)
	var err error
	options := client.QuotasOptions{Timeout: dbtest.Deadline, OnFailure: func(err error) { t.Logf("%v", err) }}
	d.quotas, err = client.NewQuotas(d.api, client.OnErrorDeny, 0, options)
	require.NoError(t, err)
	d.server = examples.LimitCalls(d.quotas, meter, http.HandlerFunc(d.serve))
	return d
}

// serve handles one call to the server. It stores the event before it answers.
func (d *drill) serve(w http.ResponseWriter, r *http.Request) {
	answer, err := d.api.IngestEventWithResponse(r.Context(), d.call())
	if err := expect.Status("ingest event", answer, err, http.StatusOK); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// call returns the event of one call.
func (d *drill) call() client.Event {
	return client.Event{EventType: "call", CustomerId: customer, Timestamp: new(d.clock.Now())}
}

// run sends calls until the quota of the hour is used up, and one call in the next hour.
func (d *drill) run() {
	d.Helper()
	d.setQuota()
	d.createAlert()
	next := d.beginHour().Add(time.Hour)
	d.Printf("%s may make %s calls in an hour. An alert sends a message to a webhook at %s %% and at 100 %%.\n", customer, limit, warning)
	d.show("time", "step", "used", "left", "result")

	d.request("calls 1 to 7", 7, "served", "7", "3")
	d.request("call 8", 1, "served", "8", "2")
	d.awaitWarning(warning, "8", "2")
	d.reserve("reserve 3 calls", 3, "refused", "8", "2")
	d.reserve("reserve and settle 2 calls", 2, "settled", "10", "0")
	d.awaitWarning("100", "10", "0")
	d.request("call 11", 1, "429", "10", "0")
	d.reserve("reserve 1 call", 1, "refused", "10", "0")
	d.clock.To(d, next.Add(time.Minute))
	d.request("a call in the next hour", 1, "served", "1", "9")
	d.requireWarnings(warning, "100")
	d.Printf("\n%s is warned at 80 %%, stopped at 100 %%, and served again in the next hour: OK", customer)
}

// setQuota creates the meter, the customer and the quota.
func (d *drill) setQuota() {
	d.Helper()
	made, err := d.api.CreateMeterWithResponse(d.Context(), nil, client.CreateMeter{Slug: meter, EventType: "call", Aggregation: new(client.CreateMeterAggregationCount)})
	require.NoError(d, expect.Status("create meter", made, err, http.StatusCreated))
	added, err := d.api.CreateCustomerWithResponse(d.Context(), nil, client.CreateCustomer{ExternalId: customer})
	require.NoError(d, expect.Status("create customer", added, err, http.StatusCreated))
	most := json.Number(limit)
	set, err := d.api.SetQuotaWithResponse(d.Context(), client.SetQuota{
		Customer: new(customer), Meter: meter, Limit: &most, Mode: client.SetQuotaModeHard, Period: client.SetQuotaPeriodHour,
	})
	require.NoError(d, expect.Status("set quota", set, err, http.StatusOK))
}

// beginHour advances the clock to the start of an hour and returns it. The start is at least ten minutes ahead, because
// an instant that has passed meanwhile fails the drill.
func (d *drill) beginHour() time.Time {
	d.Helper()
	hour := d.clock.Now().Add(10 * time.Minute).Truncate(time.Hour).Add(time.Hour)
	d.clock.To(d, hour)
	return hour
}

// request sends calls to the server, checks the result of the last call and the usage of the quota, and prints them.
func (d *drill) request(step string, calls int, want, used, left string) {
	d.Helper()
	var response *http.Response
	for range calls {
		r := httptest.NewRequestWithContext(d.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("X-Customer", customer)
		recorder := httptest.NewRecorder()
		d.server.ServeHTTP(recorder, r)
		response = recorder.Result()
	}
	result, after := "served", response.Header.Get("Retry-After")
	level := d.level()
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(after)
		require.NoError(d, err)
		require.Positive(d, seconds)
		result = "429"
	case response.StatusCode != http.StatusOK:
		result = response.Status
	}
	d.require(step, want, result, used, left, level)
	if after != "" {
		result += ", Retry-After: " + after
	}
	d.show(d.clock.Now().Format("15:04"), step, level.Used, level.Remaining, result)
}

// reserve reserves calls and, unless the quota refuses, settles the reservation with the same number of events. It
// checks and prints the result.
func (d *drill) reserve(step string, calls int, want, used, left string) {
	d.Helper()
	amount := client.QuotaAmount{Meter: meter, Amount: json.Number(strconv.Itoa(calls))}
	err := d.quotas.Reserve(d.Context(), client.Reserve{Customer: customer, Amounts: []client.QuotaAmount{amount}},
		func(_ context.Context, r *client.HeldReservation) (err error) {
			for range calls {
				err = errors.Join(err, r.Record(d.call()))
			}
			return err
		})
	result := "settled"
	if _, exceeded := errors.AsType[*client.QuotaExceededError](err); exceeded {
		result, err = "refused", nil
	}
	require.NoError(d, err)
	level := d.level()
	d.require(step, want, result, used, left, level)
	d.show(d.clock.Now().Format("15:04"), step, level.Used, level.Remaining, result)
}

// level returns the used and the remaining calls of the quota.
func (d *drill) level() client.QuotaDecision {
	d.Helper()
	check, err := d.quotas.Check(d.Context(), client.QuotaCheck{Customer: customer, Meter: meter, Amount: "0"})
	require.NoError(d, err)
	require.NoError(d, check.Failure)
	return check.QuotaDecision
}

// require checks the result of a step, and the used and the remaining calls after it.
func (d *drill) require(step, want, result, used, left string, level client.QuotaDecision) {
	d.Helper()
	require.Equal(d, []string{want, used, left}, []string{result, string(level.Used), string(level.Remaining)}, step)
}

// show prints a row of the output.
func (d *drill) show(at, step, used, left, result any) {
	d.Printf("%-7v%-28v%6v%6v   %v", at, step, used, left, result)
}
