package main

import (
	"context"
	"fmt"
)

// quotas sets, changes and deletes quotas of a plan and of a customer, and edits the plan's features.
func (w walk) quotas(ctx context.Context) error {
	err := do(ctx,
		w.to("/meters/-/plans/pro/quotas"), see("No quotas yet"),
		press("Set a quota"), choose("Meter", "api-calls"), choose("Period", "each month"), fill("Limit", "1000"), w.judged("quota-set"), press("Set the quota"), see("each month, hard"),
		press("Change the quota of api-calls"), fill("Limit", "900"), press("Save the quota"), see("900 each month, hard"),
		press("Features"), see("Your application reads"), fill("Features as JSON", `{"sso": true, "seats": 5}`), press("Save the features"), arrive("main form button[data-disabled]"),
		w.to("/customers"), press("Customer 02"), press("Quotas"), see("plan pro"), see("750.5 used, 100 reserved"), see("seats"),
		press("Set a quota"), choose("Meter", "api-calls"), choose("Period", "in total"), choose("Mode", "soft: usage beyond the limit is allowed and marked as exceeded"), fill("Limit", "500"), press("Set the quota"), see("500 in total, soft"), see("exceeded"),
	)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	at, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"customer-quotas", at, "main dl"},
		{"plan-quotas", "/meters/-/plans/pro/quotas", "tbody tr"},
		{"plan-features", "/meters/-/plans/pro/features", "main form"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx,
		w.to(at), press("Delete the quota of api-calls in total"), see("no longer limited"), press("Delete the quota of api-calls in total"), miss("exceeded"),
		press("Replace the quota of api-calls each month"), fill("Limit", "2000"), press("Save the quota"), miss("900 each month"), see("2,000 each month, hard"),
	)
}
