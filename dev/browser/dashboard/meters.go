package main

import (
	"context"
	"fmt"
	"time"
)

// meters creates a meter, prices it, changes current and scheduled prices, and archives and unarchives it.
func (w walk) meters(ctx context.Context) error {
	err := do(ctx,
		w.to("/meters"),
		press("Create a meter"), press("API calls by endpoint"), see("counts events such as"),
		choose("Condition", "is one of"), fill("Values, one per line", "200"), see("the number 200"), w.judged("meter-template"), press("Remove filter 1"), see("counts events with any properties"),
		fill("Name", "Storage"), fill("Slug", "storage"), fill("Event type", "stored"), press("Try it on the latest 100 events"), see("No event of this type"),
		w.judged("meter-make"), press("Create the meter"), see("Storage"),
		see("Details"), press("Prices"), see("Set the first price"), fill("Base price", "10"), fill("Included units", "100"), fill("Overage rate", "0.05"),
		press("Preview the running bills"), see("running bills as of now"), w.judged("price-set"), press("Set the price"),
		w.changeBills("/v1/meters/storage/pricing", w.judged("price-confirmed")), see("charged now"),
	)
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	today := time.Now().UTC().Format(time.DateOnly)
	err = do(ctx,
		w.to("/meters/storage/prices"), fill("Base price", "12"), see("cost 69.50"),
		choose("Model", "Graduated tiers"), press("Add a tier"), fill("Tier 1: up to", "1000"), fill("Tier 1: unit price", "0.02"), fill("Tier 2: unit price", "0.01"), see("The units in the tier times"), see("Charge by usage"),
		press("Preview the running bills"), see("running bills as of now"), settled, w.judged("price-tiers"), press("Add a tier"), press("Remove tier 2"),
		press("Set the price"), see("scheduled"), see("tier by tier"),
		press("Withdraw"), see("The version does not take effect"), w.judged("price-withdraw"), press("Withdraw"), miss("scheduled"),
		w.to("/meters/api-calls/prices"), fill("Base price", "26"), choose("Applies", "From a day on"), set("Day", monthOf(today)), press("Set the price"),
		w.changeBills("/v1/meters/api-calls/pricing"), see("26.00"),
		w.to("/meters/api-calls/details"), press("Try it on the latest 100 events"), see("Total then"), w.judged("meter-try"),
		w.to("/meters/storage/details"), fill("Name", "Storage space"), press("Save the meter"), see("Storage space"),
		press("Archive"), see("counts no further events"), w.judged("meter-archive"), press("Archive"),
		w.changeBills("/v1/meters/storage/archive"), see("archived"),
		press("Unarchive"), see("The meter counts again"), press("Unarchive"),
		w.changeBills("/v1/meters/storage/unarchive"), see("counting"),
	)
	if err != nil {
		return fmt.Errorf("change: %w", err)
	}
	err = do(ctx,
		w.to("/meters/tokens/prices"), press("model"), see("Prices by model"),
		fill("Values of model, one per line", "small"), fill("Overage rate", "0.01"), press("Add a price"), press("Move price 2 up"),
		fill("Values of model, one per line", "large"), see("Understood as the text \"large\""), choose("Model", "Graduated tiers"), press("Add a tier"),
		fill("Tier 1: up to", "1000"), fill("Tier 1: unit price", "0.03"), fill("Tier 2: unit price", "0.02"),
		see("cost 47.50"), see("no price by dimension charges"), choose("Curve of", "model small"), settled,
		press("Preview the running bills"), see("running bills as of now"), settled, w.judged("price-dimensions"),
		press("Set the price"), w.changeBills("/v1/meters/tokens/pricing"), see("by dimension (model"),
		press("Add a price"), press("Remove price 3"),
	)
	if err != nil {
		return fmt.Errorf("price by dimension: %w", err)
	}
	for _, s := range []screen{
		{"meters", "/meters", "tbody tr a"},
		{"meter-new", "/meters/-/new", "main form"},
		{"meter-details", "/meters/storage/details", "main form"},
		{"meter-prices", "/meters/api-calls/prices", "tbody tr"},
		{"meter-dimension-prices", "/meters/tokens/prices", "tbody tr"},
		{"meter-uncounted-events", "/meters/api-calls/uncounted-events", "main :is(h2, tbody tr)"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// monthOf returns the first day of a day's month.
func monthOf(day string) string { return day[:8] + "01" }
