package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

// takeDashboard takes screenshots of the dashboard as the owner of the demo tenant, in a desktop window.
func (s system) takeDashboard(ctx context.Context) error {
	customer, err := s.customer(ctx, "acme")
	if err != nil {
		return fmt.Errorf("find a customer: %w", err)
	}
	ctx, cancel := browser.Open(ctx)
	defer cancel()
	err = chromedp.Do(ctx,
		chromedp.Navigate(s.BaseURL+"/sign-in"),
		chromedp.SendKeys(`input[name="email"]`, s.Email),
		chromedp.SendKeys(`input[name="password"]`, s.Password),
		chromedp.Click(`button[type="submit"]`),
		chromedp.WaitVisible(`nav a[href="/overview"]`),
	)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	of := s.BaseURL + "/customers/" + customer
	err = takeIn(ctx, []picture{
		{"overview", s.BaseURL + "/overview", "Needs attention", 760},
		{"usage", of + "/usage?meter=tokens&range=30", "Point at the chart", 760},
		{"breakdown", s.BaseURL + "/usage?meter=tokens&by=customer,model&range=30", "Highest usage first", 760},
		{"bill", of + "/bill?meter=tokens", "→", 760},
	})
	if err != nil {
		return err
	}
	return s.takeMeterForm(ctx)
}

// takeMeterForm takes a screenshot of a meter's form with an unsaved filter and its preview. It runs last,
// because the page asks for confirmation before the browser discards the unsaved filter.
func (s system) takeMeterForm(ctx context.Context) error {
	const filter = `//*[@aria-label="Filter 1"]//input`
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(width, 1180),
		chromedp.Navigate(s.BaseURL+"/meters/tokens/details"),
		chromedp.Click(`//button[contains(., "Add a filter")]`),
		chromedp.SendKeys("("+filter+")[1]", "model"),
		chromedp.SendKeys("("+filter+")[2]", "large"),
		chromedp.Click(`//button[contains(., "Try it on")]`),
		chromedp.WaitVisible(`//dt[.="Total then"]`),
	)
	if err != nil {
		return fmt.Errorf("meter-form: %w", err)
	}
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return writePNG("meter-form", shot)
}

// customer returns the id of a customer of the demo tenant.
func (s system) customer(ctx context.Context, externalID string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.BaseURL+"/v1/customers/"+externalID, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+s.DemoKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var found struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", response.StatusCode)
	}
	return found.ID, nil
}
