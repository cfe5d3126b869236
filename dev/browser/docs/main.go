// Command docs tests the page /docs of the API at URL, with the key in ODOMETER_KEY. It lists the
// operations, authorizes, and executes one. The exit status is 1 if a step fails or the browser reports an
// error. It needs Chromium or Chrome.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Hour) // like the time limit of go test for a package
	defer cancel()
	if len(os.Args) != 2 || os.Getenv("ODOMETER_KEY") == "" {
		fmt.Fprintln(os.Stderr, "usage: ODOMETER_KEY=KEY docs URL")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Getenv("ODOMETER_KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, api, key string) error {
	want, err := operations(ctx, api)
	if err != nil {
		return err
	}
	ctx, cancel := browser.Open(ctx)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("open the browser: %w", err)
	}
	heard, err := browser.Listen(ctx, api)
	if err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(api+"/docs"), chromedp.WaitVisible(".opblock")); err != nil {
		return errors.Join(fmt.Errorf("the page lists no operation: %w", err), heard.Err())
	}
	listed, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll(".opblock").length`))
	if err != nil {
		return err
	}
	if listed != want {
		return fmt.Errorf("the page lists %d operations of %d", listed, want)
	}
	if err := authorize(ctx, key); err != nil {
		return errors.Join(fmt.Errorf("authorize: %w", err), heard.Err())
	}
	if err := execute(ctx); err != nil {
		return errors.Join(fmt.Errorf("execute: %w", err), heard.Err())
	}
	return heard.Err()
}

// operations returns the number of operations in the API's document, including its messages.
func operations(ctx context.Context, api string) (n int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/openapi.json", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var document struct {
		Paths    map[string]map[string]json.RawMessage `json:"paths"`
		Webhooks map[string]map[string]json.RawMessage `json:"webhooks"`
	}
	err = json.NewDecoder(response.Body).Decode(&document)
	for _, listed := range []map[string]map[string]json.RawMessage{document.Paths, document.Webhooks} {
		for _, methods := range listed {
			n += len(methods)
		}
	}
	return n, err
}

// authorize enters the key in the first field of the authorization dialog.
func authorize(ctx context.Context, key string) error {
	return chromedp.Do(ctx,
		chromedp.Click(".btn.authorize"),
		chromedp.WaitVisible("#auth-bearer-value"),
		chromedp.SendKeys("#auth-bearer-value", key),
		chromedp.Click(".auth-container .btn.authorize"),
		chromedp.Click(".btn-done"),
	)
}

// execute executes the operation that reads the tenant.
func execute(ctx context.Context) error {
	const operation = `[id$="-get-tenant"] `
	err := chromedp.Do(ctx,
		chromedp.Click(operation+".opblock-summary-control"),
		chromedp.Click(operation+".execute"),
		chromedp.WaitVisible(operation+".live-responses-table .response-col_status"),
	)
	if err != nil {
		return err
	}
	answer, err := chromedp.Run(ctx, chromedp.Text(operation+".live-responses-table tbody .response"))
	if err == nil && !(strings.HasPrefix(answer, "200") && strings.Contains(answer, `"ten_`)) {
		err = fmt.Errorf("the page shows %q", answer)
	}
	return err
}
