package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

// stripeKey is the key of the walk's own account at the fake of Stripe.
const stripeKey = "sk_test_newcomer"

// newcomer does the steps of a new user on the first day. It creates and prices a meter, sends an event
// with a new key and sees the usage. Then it connects Stripe, links the customer, syncs, opens the
// explanation of the bill, and finds the run in the Temporal UI. The mark is part of all names.
func (w walk) newcomer(ctx context.Context, mark string) error {
	customer, stripeCustomer, price := "first-"+mark, "cus_"+mark, "price_"+mark
	if err := w.subscribe(ctx, stripeCustomer, price); err != nil {
		return err
	}
	begin := []act{w.to("/overview"), see("These steps lead to the first bill"), w.judged("overview-empty")}
	priced := press("Set the price")
	if w.inUse {
		begin = []act{w.to("/overview"), see("Needs attention")}
		priced = func(ctx context.Context) error {
			return do(ctx, press("Set the price"), w.changeBills("/v1/meters/calls-"+mark+"/pricing"))
		}
	}
	if err := do(ctx, begin...); err != nil {
		return err
	}
	err := do(ctx,
		press("Meters"), press("Create a meter"), fill("Name", "Calls "+mark), fill("Slug", "calls-"+mark), fill("Event type", "call_"+mark), press("Create the meter"), see("Details"),
		press("Prices"), see("Set the first price"), fill("Overage rate", "0.02"), priced, see("charged now"),
		press("Developers"), press("Create an API key"), fill("Name", "my application"), press("Create the key"), see("It is shown only once"),
		w.send(fmt.Sprintf(`{"customer_id":%q,"event_type":"call_%s","value":1250,"idempotency_key":%q}`, customer, mark, mark)), kept,
		press("Customers"), press(customer), press("calls-"+mark), see("1,250"), settled, w.judged("newcomer-usage"),
		press("Billing"), press("Provider"), see("Provider"), w.connectStripe(mark), w.judged("newcomer-provider"),
		press("Customers"), press(customer), press("Details"), fill("At the provider", stripeCustomer), press("Save the customer"), see(stripeCustomer),
	)
	if err != nil {
		return err
	}
	err = do(ctx,
		press("Bill"), press("Sync now"), see("succeeded"), press("This sync"), see("Sync of "+customer), see("Reported"), w.judged("newcomer-sync"),
		press(customer), press("Bill"), press("calls-"+mark), see("The charge at the provider's own price"), settled, w.judged("newcomer-bill"), press("Details"), see("Runs in Temporal"),
	)
	if err != nil {
		return err
	}
	runs, err := chromedp.Run(ctx, chromedp.Evaluate[string](`[...document.querySelectorAll("a")].find((a) => a.innerText === "Runs in Temporal").href`))
	if err != nil {
		return fmt.Errorf("find the runs: %w", err)
	}
	return w.followToTemporal(ctx, runs)
}

// connectStripe fills in and submits the provider form.
func (w walk) connectStripe(mark string) act {
	return func(ctx context.Context) error {
		return do(ctx, choose("Provider", "Stripe"), fill("Secret key", stripeKey), fill("Signing secret of the endpoint", "whsec_newcomer"),
			fill("Prices of meters", "calls-"+mark+" price_"+mark), press("Connect Stripe"), see("acct_newcomer"))
	}
}

// followToTemporal opens the link in a new browser and finds the run of the sync.
func (w walk) followToTemporal(ctx context.Context, runs string) error {
	ctx, cancel := browser.Open(context.WithoutCancel(ctx))
	defer cancel()
	ctx, late := context.WithTimeout(ctx, 2*stepTimeout)
	defer late()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(runs)); err != nil {
		return fmt.Errorf("open the Temporal UI: %w", err)
	}
	if err := do(ctx, see("sync-customer/"), press("sync-customer/"), see("Back to Workflows"), see("Completed")); err != nil {
		return fmt.Errorf("find the run: %w", err)
	}
	return w.picture(ctx, "newcomer-temporal")
}

// use sends an event of the customer with a new API key.
func (w walk) use(customer, eventType, value string) act {
	event := fmt.Sprintf(`{"customer_id":%q,"event_type":%q,"value":%s}`, customer, eventType, value)
	return func(ctx context.Context) error {
		return do(ctx, w.to("/developers/api-keys"), press("Create an API key"), fill("Name", "used once"), press("Create the key"), see("It is shown only once"),
			w.send(event), kept, miss("It is shown only once"))
	}
}

// send sends an event with the key that is shown, as the user's application does.
func (w walk) send(event string) act {
	return func(ctx context.Context) error {
		key, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("[data-secret]").innerText`))
		if err != nil {
			return fmt.Errorf("read the key: %w", err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/events", strings.NewReader(event))
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		return answered(request, nil)
	}
}

// subscribe creates the customer, a price and a subscription at the fake, which has no user interface for
// that.
func (w walk) subscribe(ctx context.Context, customer, price string) error {
	return w.seed(ctx, fmt.Sprintf(`{"account":{"id":"acct_newcomer","key":%q,"webhook_secret":"whsec_newcomer"},
		"prices":[{"id":%q,"unit_amount_decimal":"2"}],"customers":[{"id":%q}],
		"subscriptions":[{"id":"sub_%s","customer":%q,"items":[{"id":"si_%s","price":%q}]}]}`, stripeKey, price, customer, customer, customer, customer, price))
}

func (w walk) seed(ctx context.Context, body string) error {
	return w.fake(ctx, http.MethodPost, "/_seed", body, nil)
}

// fake calls an endpoint that only the fake has, not Stripe.
func (w walk) fake(ctx context.Context, method, path, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, w.stripe+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	return answered(request, into)
}

func answered(request *http.Request, into any) error {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s", request.Method, request.URL.Path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// mark returns a text that distinguishes the walks of a newcomer on the same system.
func mark() string { return time.Now().UTC().Format("0102150405") }
