package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// customers opens the screens of a customer, and changes, archives and erases customers.
func (w walk) customers(ctx context.Context) error {
	if err := do(ctx, w.to("/customers"), press("Customer 00"), see("Point at the chart")); err != nil {
		return err
	}
	usage, err := w.at(ctx)
	if err != nil {
		return err
	}
	of, _, _ := strings.Cut(usage, "/usage")
	for _, s := range []screen{
		{"customers", "/customers", `tbody a[href^="/customers/"]`},
		{"found", "/customers?search=nobody+has+this", "main h2"},
		{"usage", usage, "canvas"},
		{"breakdown", "/usage", `tbody a[href^="/customers/"]`},
		{"breakdown-days", "/usage?by=customer,plan&granularity=day&limit=10", "tbody tr"},
		{"overview-customers", "/overview?by=customer", "canvas"},
		{"bill", of + "/bill", "tfoot td"},
		{"customer-invoices", of + "/invoices", "main h2"},
		{"customer-syncs", of + "/syncs", "main :is(h2, tbody a)"},
		{"customer-details", of + "/details", "main form"},
		{"customer-prices", of + "/prices", "tbody tr a"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	if err := w.ownPrice(ctx); err != nil {
		return fmt.Errorf("a price of its own: %w", err)
	}
	if err := w.unbroken(ctx, of); err != nil {
		return fmt.Errorf("a name without a space: %w", err)
	}
	err = do(ctx,
		w.to("/overview"), press("Find"), see("screen"), fill("Find", "customer-00"), see("Customer 00"), w.judged("find"), press("Customer 00"), see("Point at the chart"),
		w.to(usage), choose("Range", "Last 90 days"), choose("Windows", "By hour"), see("Show all 2"), press("Show all 2"), miss("Show all 2"), settled, w.judged("usage-hours"),
		choose("Windows", "By week"), fewRows, settled, w.judged("usage-weeks"),
		choose("Windows", "By month"), choose("Range", "Custom range"), see("Point at the chart"), press("Download CSV"), settled, w.judged("usage-months"),
		w.to(usage+usageOfHours()), w.pointing,
		w.to("/usage"), choose("Range", "Last 90 days"), press("Plan"), choose("Windows", "By month"), choose("Order", "Highest usage first"), press("Download CSV"), settled, w.judged("breakdown-months"),
		press("customer-"), see("Point at the chart"),
		w.to(of+"/bill"), press("api-calls"), see("250.5 × 0.02"), w.here("working", "main tbody td"),
		w.to(of+"/bill"), w.lastPeriod, see("Late usage"), press("api-calls"), w.here("bill-closed", "main tbody td"),
		press("Statement to print"), see("Statement of usage"), see("It is not an invoice"), w.here("statement", "main tbody td"),
		w.to(of+"/details"), fill("Name", "Contoso"), fill("At the provider", "cus_contoso"), fill("Metadata", `{"tier": 1.50}`), press("Save the customer"), see("Contoso"),
		choose("Assigned plan", "Pro"), press("Assign the plan"), see("pro from"),
		press("Archive"), see("Lists no longer show the"), press("Archive"), see("Archived"), press("Unarchive"), see("Lists show the customer again"), press("Unarchive"), miss("Archived"),
		w.to("/customers"), fill("Search customers", "customer-29"), miss("customer-28"), press("Customer 29"), press("Details"), press("Erase"), see("deleted permanently"), fill("Reason", "asked by the person"), press("Erase"), miss("deleted permanently"),
	)
	if err != nil {
		return fmt.Errorf("use a customer: %w", err)
	}
	return nil
}

// ownPrice sets a price for one customer, ends it, and withdraws a scheduled one.
func (w walk) ownPrice(ctx context.Context) error {
	const path = "/v1/customers/by-external-id/pricing/api-calls"
	return do(ctx,
		w.to("/customers"), fill("Search customers", "customer-02"), miss("customer-03"), press("Customer 02"), see("Point at the chart"),
		press("Prices"), see("Own price now"), press("api-calls"), see("No price yet"), fill("Base price", "90"),
		press("Preview the running bills"), see("running bills as of now"), press("Set the price"),
		w.changeBills(path), see("charged now"), w.here("customer-price", "tbody tr"),
		fill("Base price", "80"), choose("Applies", "From a day on"), set("Day", "2100-01-01"), press("Set the price"), see("scheduled"),
		press("Withdraw"), see("The version does not take effect"), press("Withdraw"), miss("scheduled"),
		press("End the own price"), w.changeBills(path+"/end"), see("no own price"), w.judged("customer-price-ended"),
	)
}

// unbroken gives a customer the longest name without a space, and tests the screens that show it.
func (w walk) unbroken(ctx context.Context, of string) error {
	name := strings.Repeat("W", 200)
	err := do(ctx, w.to(of+"/details"), fill("Name", name), press("Save the customer"), miss("Customer 00"))
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"customers-unbroken", "/customers", `tbody a[href^="/customers/"]`},
		{"customer-details-unbroken", of + "/details", "main form"},
		{"reconciliation-unbroken", "/billing/reconciliation", "main h2"},
		{"not-found", "/nowhere", "main h1"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx,
		w.to("/customers"), press("Find"), fill("Find", name), see("Events with the key"), w.judged("find-unbroken"), press("Close"),
		w.to(of+"/details"), fill("Name", "Customer 00"), press("Save the customer"), see("Customer 00"),
	)
}

// lastPeriod chooses the billing period before the running one.
func (w walk) lastPeriod(ctx context.Context) error {
	return on("choose of", "Billing period", "select", `(e) => {
		e.selectedIndex = 1;
		e.dispatchEvent(new Event("change", {bubbles: true}));
	}`)(ctx)
}

// here waits for an element of the current screen, then tests the screen at its URL.
func (w walk) here(name, part string) act {
	return func(ctx context.Context) error {
		if err := chromedp.Do(ctx, chromedp.WaitNotPresent("[data-loading]")); err != nil {
			return err
		}
		address, err := w.at(ctx)
		if err != nil {
			return err
		}
		return w.judgeScreen(ctx, screen{name, address, part})
	}
}

// fewRows waits until the hourly rows are replaced by weekly ones.
func fewRows(ctx context.Context) error {
	return until(ctx, `document.querySelectorAll("main tbody tr").length < 30`)
}

// usageOfHours returns the query of a chart with 10,000 hours.
func usageOfHours() string {
	to := time.Now().UTC()
	return "?by=hour&range=days&from=" + to.AddDate(0, 0, -417).Format(time.DateOnly) + "&to=" + to.Format(time.DateOnly)
}

// slowest is the maximum median time until a chart of 10,000 points shows the value under the pointer.
const slowest = 150 * time.Millisecond

// pointing moves the pointer over the chart, and prints how fast the values appear. If w.measure is set, it returns
// an error if they appear too slowly.
func (w walk) pointing(ctx context.Context) error {
	const moves = `(async () => {
		const over = document.querySelector(".u-over"), {left, top, width, height} = over.getBoundingClientRect();
		const read = () => document.querySelector("figcaption span").innerText;
		const took = [];
		for (let i = 1; i <= 40; i++) {
			const before = read(), began = performance.now();
			over.dispatchEvent(new MouseEvent("mousemove", {bubbles: true, clientX: left + width * i / 41, clientY: top + height / 2}));
			while (read() === before) await new Promise(requestAnimationFrame);
			took.push(performance.now() - began);
		}
		return {median: took.sort((a, b) => a - b)[20], points: +document.querySelector("figure [role=slider]").ariaValueMax + 1};
	})()`
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.WaitVisible(".u-over")); err != nil {
		return fmt.Errorf("draw 10,000 points: %w", err)
	}
	seen, err := chromedp.Run(ctx, chromedp.Evaluate[struct{ Median, Points float64 }](moves, chromedp.EvalAwaitPromise))
	if err != nil {
		return fmt.Errorf("point at a chart: %w", err)
	}
	took := time.Duration(seen.Median * float64(time.Millisecond))
	fmt.Printf("pointing at %.0f points: %s\n", seen.Points, took)
	if seen.Points < 10_000 || w.measure && took > slowest {
		return fmt.Errorf("pointing at %.0f points takes %s", seen.Points, took)
	}
	return w.judge(ctx, "usage-many")
}
