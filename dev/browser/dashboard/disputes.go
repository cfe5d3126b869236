package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// disputes does the steps of an operator for a customer with a different price at Stripe. It opens the held
// invoice from the overview and releases it. After the invoice is void, it decides on the unbilled usage. It
// uses the Stripe account that newcomer has connected. The mark distinguishes its customer and meter from those
// of earlier walks.
func (w walk) disputes(ctx context.Context, mark string) error {
	customer := "old-price-" + mark
	err := do(ctx,
		w.to("/meters"), press("Create a meter"), fill("Name", "Seats "+mark), fill("Slug", "seats-"+mark), fill("Event type", "seat_"+mark), press("Create the meter"), see("Details"),
		press("Prices"), see("Set the first price"), fill("Overage rate", "0.02"), press("Set the price"),
		w.changeBills("/v1/meters/seats-"+mark+"/pricing"), see("charged now"),
		w.to("/settings/tenant"), fill("Grace, in hours", "0"), press("Hold invoices"), see("Draft invoices with usage are held"), press("Save the settings"), miss("Draft invoices with usage are held"),
	)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	end := time.Now().Add(50 * time.Minute).Truncate(time.Second) // later than the steps before it, on a busy machine
	err = do(ctx,
		w.subscribeAtOldPrice(customer, mark, end),
		w.use(customer, "seat_"+mark, "200"),
		w.to("/customers"), press(customer), see("Invoices"), press("Details"), fill("Name", "Woodgrove Bank"), fill("At the provider", "cus_"+customer), press("Save the customer"), see("cus_"+customer),
		press("Bill"), press("Sync now"), see("1 of 1 report answered."),
	)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	bill, err := w.at(ctx)
	if err != nil {
		return err
	}
	if err := w.judgeScreen(ctx, screen{"bill-stripe", bill, "tfoot td"}); err != nil { // during the period
		return err
	}
	invoice, err := w.draft(ctx, customer, end)
	if err != nil {
		return fmt.Errorf("a draft: %w", err)
	}
	if err := w.released(ctx, invoice); err != nil {
		return fmt.Errorf("the held invoice %s: %w", invoice, err)
	}
	if err := w.decided(ctx, mark, invoice); err != nil {
		return fmt.Errorf("reconciliation: %w", err)
	}
	return nil
}

// released opens the held invoice from the overview and releases it.
func (w walk) released(ctx context.Context, invoice string) error {
	err := do(ctx, w.reread("/billing/holds", "disagrees"), w.to("/overview"), see(invoice), press("Woodgrove Bank"), see("Held invoices"), see("Finding"))
	if err != nil {
		return err
	}
	hold, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"overview-needs", "/overview", `main a[href*="hold="]`},
		{"holds-held", "/billing/holds", "tbody tr"},
		{"hold", hold, "main dl"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx, w.to(hold), press("Release"), see("collects it unchanged"), fill("Reason", "the old price holds until the end of the year"), w.judged("hold-release"), press("Release"), miss("collects it unchanged"),
		w.reread(hold, "until the end of the year by"), see("released"), w.judged("hold-released"))
}

// decided voids the invoice and closes the period by Auto-Sync. Then it applies each kind of decision to the
// meter's line on the reconciliation screen.
func (w walk) decided(ctx context.Context, mark, invoice string) error {
	err := do(ctx,
		w.reread("/billing/holds?state=released", invoice), w.voided(invoice),
		w.to("/billing/auto-sync"), press("Sync automatically"), fill("Schedule", "daily"), press("Save Auto-Sync"), see("the next run"),
		press("Run now"), see("in addition to the schedule"), press("Run now"), miss("in addition to the schedule"),
		w.reread("/billing/reconciliation?state=waived", "seats-"+mark), press("seats-"+mark), see(invoice), see("void"),
	)
	if err != nil {
		return err
	}
	line, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"auto-sync-run", "/billing/auto-sync", "main dl"},
		{"reconciliation-lines", "/billing/reconciliation", "tbody tr"},
		{"reconciliation-line", line, "main dl"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	decide := func(verb, says, after string) act {
		return func(ctx context.Context) error {
			return do(ctx, press(verb), see(says), fill("Reason", "they have promised it: "+after), w.judged("reconciliation-"+after), press(verb), miss(says), see("they have promised it: "+after))
		}
	}
	return do(ctx, w.to("/billing/reconciliation"), press("seats-"+mark), see("Counts as billed"),
		decide("Rebill", "customer's next period bills", "carried"),
		decide("Waive", "is never billed", "waived"),
		decide("Write off", "recorded as a loss", "written"),
		see("written off"), w.judged("reconciliation-decided"))
}

// reread waits for a text on a screen and reopens the screen regularly, because a busy machine may need
// long to show new content.
func (w walk) reread(path, text string) act {
	return func(ctx context.Context) error {
		const mostWait = 5 * time.Second // without reopening; after it the screen may have stopped polling
		there := fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, text)
		deadline := time.Now().Add(stepTimeout)
		for {
			if err := w.to(path)(ctx); err != nil {
				return err
			}
			_, err := chromedp.Run(ctx, chromedp.Poll[bool](there, chromedp.WithPollingTimeout(mostWait)))
			if err == nil || ctx.Err() != nil {
				return err
			}
			if time.Now().After(deadline) {
				says, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`))
				return fmt.Errorf("%s does not say %q, but %q: %w", path, text, says, err)
			}
		}
	}
}

// subscribeAtOldPrice creates a subscription of the customer at Stripe that ends at an instant and has a
// different price from ours.
func (w walk) subscribeAtOldPrice(customer, mark string, end time.Time) act {
	return func(ctx context.Context) error {
		return w.seed(ctx, fmt.Sprintf(`{"account":{"id":"acct_newcomer","key":%q},
			"prices":[{"id":"price_old_%[2]s","unit_amount_decimal":"3","metadata":{"meter_slug":"seats-%[2]s"}}],"customers":[{"id":"cus_%[3]s"}],
			"subscriptions":[{"id":"sub_%[3]s","customer":"cus_%[3]s","current_period_start":%d,"current_period_end":%d,"items":[{"id":"si_%[3]s","price":"price_old_%[2]s"}]}]}`,
			stripeKey, mark, customer, end.AddDate(0, -1, 0).Unix(), end.Unix()))
	}
}

// voided voids the customer's invoice at Stripe directly. Stripe's events about it are not delivered.
func (w walk) voided(invoice string) act {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.stripe+"/v1/invoices/"+invoice+"/void", http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+stripeKey)
		return answered(request, nil)
	}
}

// draft advances the clock to the end of the period, and delivers Stripe's event about the draft invoice of the
// period.
func (w walk) draft(ctx context.Context, customer string, end time.Time) (invoice string, err error) {
	if err := w.advanceClock(ctx, end.Add(time.Second)); err != nil {
		return "", fmt.Errorf("advance the clock: %w", err)
	}
	address, err := w.copied(ctx)
	if err != nil {
		return "", err
	}
	var state struct {
		Accounts []struct {
			Invoices []struct{ ID, Customer, Status string }
		}
	}
	if err := w.fake(ctx, http.MethodGet, "/_state", "", &state); err != nil {
		return "", err
	}
	for _, account := range state.Accounts {
		for _, in := range account.Invoices {
			if in.Customer == "cus_"+customer && in.Status == "draft" {
				told := fmt.Sprintf(`{"type":"invoice.created","object":%q,"url":%q}`, in.ID, address)
				return in.ID, w.tell(ctx, told)
			}
		}
	}
	return "", fmt.Errorf("%s has none", customer)
}

// advanceClock advances the clock of the API, the worker and the fake of Stripe to an instant.
func (w walk) advanceClock(ctx context.Context, to time.Time) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.clock, strings.NewReader(to.Format(time.RFC3339)))
	if err != nil {
		return err
	}
	return answered(request, nil)
}

// tell makes the fake of Stripe send an event. It repeats the event until the API answers with 2xx, as Stripe
// does.
func (w walk) tell(ctx context.Context, message string) error {
	for deadline := time.Now().Add(stepTimeout); ; {
		var answered struct{ Status int }
		if err := w.fake(ctx, http.MethodPost, "/_webhook", message, &answered); err != nil {
			return err
		}
		if answered.Status < http.StatusMultipleChoices {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the message was answered with %d", answered.Status)
		}
	}
}

// copied returns the URL to which Stripe sends events. The dashboard shows this URL on the screen of the
// provider.
func (w walk) copied(ctx context.Context) (address string, err error) {
	if err := w.to("/billing/provider")(ctx); err != nil {
		return "", err
	}
	const copies = `[...document.querySelectorAll("main .mono")].map((e) => e.innerText.trim()).find((text) => text.includes("/v1/provider-webhooks/"))`
	return chromedp.Run(ctx, chromedp.Evaluate[string](copies))
}
