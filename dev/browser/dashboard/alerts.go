package main

import (
	"context"
	"fmt"
)

// alerts tries, creates, changes, disables and deletes an alert.
func (w walk) alerts(ctx context.Context) error {
	err := do(ctx,
		w.to("/alerts"), see("No alerts yet"), press("Create an alert"), see("The last 30 days"),
		fill("Name", "Budget"), choose("Meter", "api-calls"), fill("Thresholds", "1000"),
		press("Try the alert"), see("would have fired"), see("threshold 1,000"), settled, w.judged("alert-tried"), onPhone, w.judged("alert-tried-phone"),
		press("Create the alert"), see("usage of api-calls reaches 1,000"), see("customer-00"), // it is reached already
	)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	alert, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"alerts", "/alerts", "tbody tr"},
		{"alert", alert, "tbody tr"},
		{"alert-new", "/alerts/new", "main form"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx,
		w.to(alert), fill("Thresholds", "1100"), press("Save the alert"), see("usage of api-calls reaches 1,100"),
		press("Disable"), see("does not fire until"), press("Disable"), see("disabled"), press("Enable"), see("enabled"),
		press("Delete"), see("its firings are deleted"), press("Delete"), see("No alerts yet"),
	)
}
