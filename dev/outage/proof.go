package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// line compares one customer's usage of one meter with the quantity that Stripe would bill.
type line struct {
	customer, meter string
	usage, billed   metering.Decimal
	calls, most     int // accepted by Stripe: in total, and the most for one idempotency key
}

// right reports whether Stripe bills the usage in whole units, and has accepted no idempotency key twice.
func (l line) right() bool { return l.billed.Equal(billing.Units(l.usage, 0)) && l.most <= 1 }

// prove prints every line, and returns an error if one is wrong.
func (o *outage) prove() error {
	o.Helper()
	o.Printf("4. Usage by our API, in whole units as Stripe takes it, and what Stripe would bill:\n")
	var lines []line
	for _, c := range o.customers {
		lines = append(lines, o.lines(c)...)
	}
	const row = "   %-22s %-12s %12v %10v %13v %15v %12v  %s"
	o.Printf(row, "customer", "meter", "usage", "whole", "Stripe bills", "calls accepted", "per key", "")
	wrong := 0
	for _, l := range lines {
		verdict := "ok"
		if !l.right() {
			wrong++
			verdict = "WRONG"
		}
		o.Printf(row, l.customer, l.meter, l.usage, billing.Units(l.usage, 0), l.billed, l.calls, l.most, verdict)
	}
	if wrong > 0 || len(lines) == 0 {
		return fmt.Errorf("%d of %d lines differ", wrong, len(lines))
	}
	o.Printf("\n   Per key: of one idempotency key at the most.\n\nnothing twice, nothing lost: OK")
	return nil
}

// lines returns the customer's lines, one for each item that Stripe bills.
func (o *outage) lines(c client.Customer) (lines []line) {
	o.Helper()
	last := o.sync(c.ExternalId)
	require.NoError(o, last.err)
	run := o.awaitSync(last.run.Id)
	require.EqualValues(o, "succeeded", run.Status, "the last sync of %s: %s", c.ExternalId, run.Error)
	state := o.state()
	for _, item := range itemsOf(state, *c.BillingProviderId) {
		l := line{customer: c.ExternalId, meter: meterOf(run.Lines, item), billed: item.Quantity}
		l.usage = o.usage(l, item)
		l.calls, l.most = accepted(state.Requests, *c.BillingProviderId, item)
		lines = append(lines, l)
	}
	return lines
}

// awaitSync waits until a sync ends. The answer to the request does not suffice: it arrives after at most 25 seconds.
func (o *outage) awaitSync(id string) (run *client.SyncRun) {
	o.Helper()
	dbtest.Within(o, o.timeLimit, func() error {
		got, err := o.api.GetBillingSyncWithResponse(o.Context(), id)
		if err := expect.Status("read sync", got, err, http.StatusOK); err != nil {
			return err
		}
		if run = got.JSON200; run.FinishedAt == nil {
			return fmt.Errorf("sync %s is %s", id, run.Status)
		}
		return nil
	})
	return run
}

// state returns the state of the fake of Stripe.
func (o *outage) state() (state stripetest.State) {
	o.Helper()
	_, text, err := proc.Call(o.Context(), http.MethodGet, o.StripeURL+"/_state", "", "")
	require.NoError(o, err)
	require.NoError(o, json.Unmarshal(text, &state), string(text))
	return state
}

// itemsOf returns the subscription items of a customer at Stripe.
func itemsOf(state stripetest.State, customer string) (items []stripetest.ItemState) {
	for _, a := range state.Accounts {
		for _, c := range a.Customers {
			if c.ID == customer {
				items = append(items, c.Items...)
			}
		}
	}
	return items
}

// meterOf returns the slug of the meter that is reported to the item.
func meterOf(lines []client.SyncLine, item stripetest.ItemState) string {
	for _, e := range lines {
		if e.Target != nil && (*e.Target == item.Item || *e.Target == item.Meter) {
			return e.MeterSlug
		}
	}
	return ""
}

// usage returns the usage in Odometer of the period that the item bills.
func (o *outage) usage(l line, item stripetest.ItemState) metering.Decimal {
	o.Helper()
	summary, err := o.api.GetUsageSummaryWithResponse(o.Context(),
		&client.GetUsageSummaryParams{Customer: l.customer, Start: &item.PeriodStart, End: &item.PeriodEnd})
	require.NoError(o, expect.Status("read usage", summary, err, http.StatusOK))
	for _, s := range *summary.JSON200 {
		if s.MeterSlug == l.meter {
			return metering.MustDecimal(s.TotalUsage.String())
		}
	}
	o.Fatalf("no meter of ours is reported to %s", item.Item)
	return metering.Decimal{}
}

// accepted counts the successful calls that reported an item's usage to Stripe. maxPerKey is the largest number
// of calls with the same idempotency key. Replayed answers are not counted. The meters of the demo have the id
// "mtr_" followed by the event name.
func accepted(requests []stripetest.Request, customer string, item stripetest.ItemState) (calls, maxPerKey int) {
	of := map[string]int{}
	for _, r := range requests {
		form, err := url.ParseQuery(r.Form)
		if err != nil || r.Method != http.MethodPost || r.Status != http.StatusOK || r.Replayed {
			continue
		}
		record := r.Path == "/v1/subscription_items/"+item.Item+"/usage_records"
		event := item.Meter != "" && form.Get("event_name") == strings.TrimPrefix(item.Meter, "mtr_") &&
			form.Get("payload[stripe_customer_id]") == customer
		if record || event {
			calls++
			of[r.IdempotencyKey]++
			maxPerKey = max(maxPerKey, of[r.IdempotencyKey])
		}
	}
	return calls, maxPerKey
}
