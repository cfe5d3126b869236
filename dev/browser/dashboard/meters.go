package main

import "context"

// meters makes a meter, prices it, and looks at both.
func (w walk) meters(ctx context.Context) error {
	err := do(ctx,
		w.to("/meters"),
		press("Make a meter"), fill("Name", "Storage"), fill("Slug", "storage"), fill("Event type", "stored"), w.judged("meter-make"), press("Make the meter"), see("Storage"),
		see("Details"), press("Prices"), see("Set the first price"), fill("Base price", "10"), fill("Included units", "100"), fill("Overage rate", "0.05"),
		w.judged("price-set"), press("Set the price"), see("0.05"),
	)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"meters", "/meters", "tbody tr a"},
		{"meter-details", "/meters/storage/details", "main form"},
		{"meter-prices", "/meters/storage/prices", "tbody tr"},
	} {
		if err := w.look(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
