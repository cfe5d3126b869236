package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

// takeDashboard takes screens of the dashboard, as the demo tenant's owner sees
// them on a desk.
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
	return takeIn(ctx, []picture{
		{"overview", s.BaseURL + "/overview", "Needs attention", 760},
		{"usage", of + "/usage?meter=tokens&range=30", "Point at the chart", 760},
		{"bill", of + "/bill?meter=tokens", "→", 760},
	})
}

// customer is the id of one of the demo tenant's customers.
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
