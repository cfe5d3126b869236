package main

import (
	"context"
	"fmt"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// forms checks that a form keeps its unsaved text: on a link, on the back button, and after the session
// ends.
func (w walk) forms(ctx context.Context) error {
	return do(ctx,
		w.to("/meters"), press("Create a meter"), fill("Slug", "never-made"), press("Customers"), see("are not saved"), w.judged("form-left"), press("Keep editing"), miss("are not saved"),
		back, see("are not saved"), press("Keep editing"), miss("are not saved"), holds("Slug", "never-made"),
		clearCookies, fill("Event type", "never"), press("Create the meter"), see("Your session has ended"), w.refused("/v1/meters"), w.judged("session-ended"),
		fill("Password", w.password), press("Sign in"), miss("Your session has ended"), holds("Slug", "never-made"), holds("Event type", "never"),
		press("Customers"), see("are not saved"), press("Discard"), see("Customer 01"), // another walk renames the first customer
	)
}

// back presses the browser's back button.
func back(ctx context.Context) error {
	_, err := chromedp.Run(ctx, chromedp.Evaluate[any](`history.back()`))
	return err
}

// clearCookies ends the session in the browser while the page stays open.
func clearCookies(ctx context.Context) error {
	_, err := chromedp.Call(ctx, network.ClearBrowserCookies, cdp.Empty{})
	return err
}

// holds waits until a field has a value.
func holds(label, value string) act {
	return func(ctx context.Context) error {
		script := fmt.Sprintf(`(%s)(%q, "input, textarea")?.value === %q`, labelled, label, value)
		if err := until(ctx, script); err != nil {
			return fmt.Errorf("see %q in %q: %w", value, label, err)
		}
		return nil
	}
}

// syncAnswered waits until the request for a sync has returned.
func syncAnswered(ctx context.Context) error {
	return until(ctx, `performance.getEntriesByType("resource").some(({name, responseEnd}) => name.endsWith("/v1/billing/sync") && responseEnd > 0)`)
}
