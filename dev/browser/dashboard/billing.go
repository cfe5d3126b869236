package main

import (
	"context"
	"fmt"
)

// billing connects RECEIVER, syncs a customer, turns Auto-Sync on, and opens the screens of syncs, invoices
// and reconciliation.
func (w walk) billing(ctx context.Context) error {
	err := do(ctx,
		w.to("/billing/provider"), see("No provider is connected"), w.judged("provider-stripe"),
		choose("Provider", "Webhook: your own URL"), fill("URL", w.receiver),
		press("Create a secret"), see("It is shown only once"), w.judged("provider-secret"), kept, miss("It is shown only once"),
		press("Connect the webhook"), see("Disconnect"),
		w.to("/billing/auto-sync"), press("Sync automatically"), fill("Schedule", "daily"), press("Save Auto-Sync"), see("the next run"),
		w.to("/customers"), press("Customer 00"), see("Point at the chart"), press("Bill"), press("Sync now"), see("answered."), settled, w.judged("bill-synced"), press("This sync"), see("Sync of Customer 00"), see("succeeded"), see("accepted"),
	)
	if err != nil {
		return err
	}
	sync, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"overview", "/overview", "tbody tr"},
		{"syncs", "/billing/syncs", "tbody tr a"},
		{"sync", sync, "main dl"},
		{"holds", "/billing/holds", "main h2"},
		{"reconciliation", "/billing/reconciliation", "main h2"},
		{"discrepancies", "/billing/discrepancies", "tbody tr"},
		{"unrated", "/billing/unrated", "main h2, main tbody tr"},
		{"auto-sync", "/billing/auto-sync", "main form"},
		{"provider", "/billing/provider", "main dl"},
		{"states", "/billing/states", "main tbody td"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	err = do(ctx, w.to("/billing/provider"), press("Disconnect"), see("no longer billed"), press("Disconnect"), see("No provider is connected"))
	if err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}
