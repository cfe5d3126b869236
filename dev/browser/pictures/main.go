// Command pictures takes the screenshots in docs from the system that `make up` runs. It takes screens of
// the dashboard. Then it makes the fake of Stripe fail for one demo tenant, and takes the screens that
// operators use in the Temporal UI. It needs Chromium or Chrome.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

const (
	folder  = "docs/pictures"
	width   = 1280
	maxSize = 120 << 10
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// system contains the fields of the file that `make up` writes.
type system struct {
	BaseURL   string `json:"base_url"`
	TenantID  string `json:"stripe_tenant_id"`
	AdminKey  string `json:"stripe_admin_key"`
	StripeURL string `json:"stripe_fake_url"`
	UIURL     string `json:"temporal_ui_url"`
	DemoKey   string `json:"admin_key"`
	Email     string `json:"email"`
	Password  string `json:"password"`
}

func run(ctx context.Context) error {
	text, err := os.ReadFile(".dev/credentials.json")
	if err != nil {
		return fmt.Errorf("make up first: %w", err)
	}
	var s system
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read credentials: %w", err)
	}
	if err := s.takeDashboard(ctx); err != nil {
		return fmt.Errorf("the dashboard: %w", err)
	}
	defer s.behave(context.WithoutCancel(ctx), `{"times":0}`)
	waiting, err := s.fail(ctx)
	if err != nil {
		return fmt.Errorf("make an outage: %w", err)
	}
	ui := s.UIURL + "/namespaces/default/"
	run := ui + "workflows/" + waiting
	tenant := strings.TrimPrefix(s.TenantID, "ten_")
	failing := fmt.Sprintf("OdometerTenant=%q and OdometerOutcome in ('running','failed')", s.TenantID)
	err = take(ctx, []picture{
		{"outcomes", ui + "workflows?query=" + url.QueryEscape(failing), "sync-customer/", 540},
		{"waiting", run + "/pending-activities", "Last Failure", 680},
		{"details", run + "/user-metadata", "Current Details", 760},
		{"schedule", ui + "schedules/" + url.PathEscape("auto-sync/"+tenant), "Upcoming Runs", 860},
	})
	if err != nil {
		return err
	}
	return s.takeHeld(ctx, ui+"workflows/")
}

// takeHeld takes screenshots of a held invoice in the Temporal UI, before and after its release.
func (s system) takeHeld(ctx context.Context, workflows string) error {
	if err := s.behave(ctx, `{"times":0}`); err != nil {
		return err
	}
	defer s.hold(context.WithoutCancel(ctx), false)
	if err := s.hold(ctx, true); err != nil {
		return err
	}
	customer := fmt.Sprintf("woodgrove-%d", time.Now().Unix())
	hold, run, err := s.held(ctx, customer)
	if err != nil {
		return fmt.Errorf("hold an invoice: %w", err)
	}
	if err := take(ctx, []picture{{"held", workflows + run + "/user-metadata", "Current Details", 680}}); err != nil {
		return err
	}
	if err := s.release(ctx, customer, hold); err != nil {
		return err
	}
	return take(ctx, []picture{{"released", workflows + run + "/user-metadata", "Current Details", 680}})
}

// picture is a screenshot of a page, taken when the page shows the text.
type picture struct {
	name, url, shows string
	height           int64
}

func take(ctx context.Context, pictures []picture) error {
	ctx, cancel := browser.Open(ctx)
	defer cancel()
	return takeIn(ctx, pictures)
}

// takeIn takes screenshots in an open browser.
func takeIn(ctx context.Context, pictures []picture) error {
	for _, p := range pictures {
		err := chromedp.Do(ctx, chromedp.EmulateViewport(width, p.height), chromedp.Navigate(p.url))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		shown := fmt.Sprintf("document.body.innerText.includes(%q)", p.shows)
		if _, err := chromedp.Run(ctx, chromedp.Poll[bool](shown)); err != nil {
			return fmt.Errorf("%s does not show %q: %w", p.name, p.shows, err)
		}
		const narrow = `document.querySelector('[aria-label="Collapse saved views"]')?.click()`
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](narrow)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := chromedp.Do(ctx, chromedp.Sleep(3*time.Second)); err != nil { // for late content and frames
			return err
		}
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := writePNG(p.name, shot); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// writePNG writes a screenshot as PNG with at most 256 colours.
func writePNG(name string, shot []byte) error {
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
	}
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, paletted(full)); err != nil {
		return err
	}
	if small.Len() > maxSize {
		return fmt.Errorf("%d bytes are too many", small.Len())
	}
	path := filepath.Join(folder, name+".png")
	fmt.Printf("%s, %d KB\n", path, small.Len()>>10)
	return os.WriteFile(path, small.Bytes(), 0o644)
}

// paletted replaces each pixel by the nearest of the 256 most frequent colours.
func paletted(full image.Image) *image.Paletted {
	bounds, often := full.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			often[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return often[b] - often[a] })
	few := image.NewPaletted(bounds, colours[:min(len(colours), 256)])
	draw.Draw(few, bounds, full, bounds.Min, draw.Src)
	return few
}

// fail makes one sync fail because Stripe rejects the key. Other syncs wait because Stripe does not accept
// meter events. fail returns the path of a waiting run in the Temporal UI.
func (s system) fail(ctx context.Context) (run string, err error) {
	if err := s.settle(ctx); err != nil {
		return "", err
	}
	if err := s.use(ctx); err != nil {
		return "", err
	}
	if err := s.behave(ctx, `{"status":401,"times":1}`); err != nil {
		return "", err
	}
	if _, err := s.sync(ctx, "northwind"); err != nil {
		return "", err
	}
	if err := s.behave(ctx, `{"status":503,"times":1000000,"path":"/v1/billing/meter_events"}`); err != nil {
		return "", err
	}
	if _, err := s.sync(ctx, "fabrikam"); err != nil {
		return "", err
	}
	customer, err := s.sync(ctx, "contoso")
	if err != nil {
		return "", err
	}
	if err := s.post(ctx, s.BaseURL+"/v1/billing/auto-sync/trigger", "", nil); err != nil {
		return "", err
	}
	return s.runOf(ctx, "sync-customer/"+strings.TrimPrefix(s.TenantID, "ten_")+"/"+strings.TrimPrefix(customer, "cus_"))
}

// runOf returns the path of a workflow's last run in the Temporal UI.
func (s system) runOf(ctx context.Context, workflow string) (path string, err error) {
	id := url.PathEscape(workflow)
	described, err := s.get(ctx, s.UIURL+"/api/v1/namespaces/default/workflows/"+id)
	if err != nil {
		return "", err
	}
	var found struct {
		Info struct {
			Execution struct {
				RunID string `json:"runId"` //nolint:tagliatelle // Temporal's
			} `json:"execution"`
		} `json:"workflowExecutionInfo"` //nolint:tagliatelle // Temporal's
	}
	if err := json.Unmarshal(described, &found); err != nil {
		return "", fmt.Errorf("describe %s: %w", id, err)
	}
	return id + "/" + found.Info.Execution.RunID, nil
}

// customers are the customers with an id at Stripe.
var customers = []string{"northwind", "contoso", "fabrikam", "sakura"}

// settle ends the failures of the fake of Stripe and syncs all customers.
func (s system) settle(ctx context.Context) error {
	if err := s.behave(ctx, `{"times":0}`); err != nil {
		return err
	}
	for _, customer := range customers {
		if _, err := s.sync(ctx, customer); err != nil {
			return err
		}
	}
	return nil
}

// use sends usage of every customer.
func (s system) use(ctx context.Context) error {
	for _, customer := range customers {
		for _, kind := range []string{"api_request", "completion", "image"} {
			body := fmt.Sprintf(`{"customer_id":%q,"event_type":%q,"value":7}`, customer, kind)
			if err := s.post(ctx, s.BaseURL+"/v1/events", body, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// sync requests a sync, waits for the API's answer, and returns the customer's id.
func (s system) sync(ctx context.Context, customer string) (id string, err error) {
	var run struct {
		CustomerID string `json:"customer_id"`
	}
	err = s.post(ctx, s.BaseURL+"/v1/billing/sync", fmt.Sprintf(`{"customer_external_id":%q}`, customer), &run)
	return run.CustomerID, err
}

func (s system) behave(ctx context.Context, how string) error {
	return s.post(ctx, s.StripeURL+"/behave", how, nil)
}

func (s system) post(ctx context.Context, url, body string, into any) error {
	text, err := s.call(ctx, http.MethodPost, url, body)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (s system) get(ctx context.Context, url string) ([]byte, error) {
	return s.call(ctx, http.MethodGet, url, "")
}

func (s system) call(ctx context.Context, method, url, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(url, s.BaseURL) {
		request.Header.Set("Authorization", "Bearer "+s.AdminKey)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = errors.New(url + " answered " + answer.Status)
	}
	return text, err
}
