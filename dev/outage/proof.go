package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// line compares one customer's usage of one meter with the quantity that Stripe would bill.
type line struct {
	customer, meter string
	usage, billed   metering.Decimal
	calls, most     int // accepted by Stripe: in total, and the most for one idempotency key
}

func (l line) right() bool { return l.billed.Equal(billing.Units(l.usage, 0)) && l.most <= 1 }

// prove prints every line, and returns an error if one is wrong.
func (o *outage) prove(ctx context.Context) error {
	o.sayf("4. Usage by our API, in whole units as Stripe takes it, and what Stripe would bill:\n")
	var lines []line
	for _, c := range o.customers {
		these, err := o.lines(ctx, c)
		if err != nil {
			return err
		}
		lines = append(lines, these...)
	}
	const row = "   %-22s %-12s %12v %10v %13v %15v %12v  %s"
	o.sayf(row, "customer", "meter", "usage", "whole", "Stripe bills", "calls accepted", "per key", "")
	wrong := 0
	for _, l := range lines {
		verdict := "ok"
		if !l.right() {
			wrong++
			verdict = "WRONG"
		}
		o.sayf(row, l.customer, l.meter, l.usage, billing.Units(l.usage, 0), l.billed, l.calls, l.most, verdict)
	}
	if wrong > 0 || len(lines) == 0 {
		return fmt.Errorf("%d of %d lines differ", wrong, len(lines))
	}
	o.sayf("\n   Per key: of one idempotency key at the most.\n\nnothing twice, nothing lost: OK")
	return nil
}

// lines returns the customer's lines, one for each item that Stripe bills.
func (o *outage) lines(ctx context.Context, c client.Customer) ([]line, error) {
	last := o.sync(ctx, c.ExternalId)
	if last.err != nil {
		return nil, last.err
	}
	run, err := o.awaitSync(ctx, last.run.Id)
	if err != nil {
		return nil, err
	}
	if run.Status != "succeeded" {
		return nil, fmt.Errorf("the last sync of %s is %s: %s", c.ExternalId, run.Status, run.Error)
	}
	state, err := o.state(ctx)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, item := range itemsOf(state, *c.BillingProviderId) {
		l := line{customer: c.ExternalId, meter: meterOf(run.Lines, item), billed: item.Quantity}
		if l.usage, err = o.usage(ctx, l, item); err != nil {
			return nil, err
		}
		l.calls, l.most = accepted(state.Requests, *c.BillingProviderId, item)
		lines = append(lines, l)
	}
	return lines, nil
}

// awaitSync waits until a sync ends, because the API answers the request for a sync after 25 seconds at the latest.
func (o *outage) awaitSync(ctx context.Context, id string) (run *client.SyncRun, err error) {
	err = eventually(ctx, o.timeLimit, func() error {
		got, err := o.api.GetBillingSyncWithResponse(ctx, id)
		if err := expect.Status("read sync", got, err, http.StatusOK); err != nil {
			return err
		}
		if run = got.JSON200; run.FinishedAt == nil {
			return fmt.Errorf("sync %s is %s", id, run.Status)
		}
		return nil
	})
	return run, err
}

func (o *outage) state(ctx context.Context) (state stripetest.State, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.StripeURL+"/_state", nil)
	if err != nil {
		return state, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return state, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		return state, fmt.Errorf("read what Stripe would bill: %w", err)
	}
	return state, nil
}

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
func (o *outage) usage(ctx context.Context, l line, item stripetest.ItemState) (metering.Decimal, error) {
	summary, err := o.api.GetUsageSummaryWithResponse(ctx,
		&client.GetUsageSummaryParams{Customer: l.customer, Start: &item.PeriodStart, End: &item.PeriodEnd})
	if err := expect.Status("read usage", summary, err, http.StatusOK); err != nil {
		return metering.Decimal{}, err
	}
	for _, s := range *summary.JSON200 {
		if s.MeterSlug == l.meter {
			return metering.ParseDecimal(s.TotalUsage.String())
		}
	}
	return metering.Decimal{}, errors.New("no meter of ours is reported to " + item.Item)
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
