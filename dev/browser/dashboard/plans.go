package main

import (
	"context"
	"fmt"
)

// plans creates a plan, prices a meter in it, and archives and unarchives it.
func (w walk) plans(ctx context.Context) error {
	err := do(ctx,
		w.to("/meters"), press("Plans"), see("Pro"),
		press("Create a plan"), fill("Name", "Growth"), fill("Slug", "growth"), w.judged("plan-make"), press("Create the plan"), see("the meter's own"),
		press("api-calls"), see("Set the first price"), fill("Base price", "100"), fill("Overage rate", "0.01"),
		press("Preview the running bills"), see("running bills as of now"), press("Set the price"), see("charged now"),
	)
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	for _, s := range []screen{
		{"plans", "/meters/-/plans", "tbody tr a"},
		{"plan-prices", "/meters/-/plans/growth/prices", "tbody tr a"},
		{"plan-price", "/meters/-/plans/growth/prices/api-calls", "tbody tr"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx,
		w.to("/meters/-/plans/growth/prices/api-calls"), fill("Base price", "90"), press("Set the price"), see("scheduled"), press("Withdraw"), see("The version does not take effect"), press("Withdraw"), miss("scheduled"),
		w.to("/meters/-/plans/growth/prices"), press("Archive"), see("cannot be assigned to more customers"), press("Archive"), see("archived"),
		press("Unarchive"), see("assigned to customers again"), press("Unarchive"), see("offered"),
	)
}
