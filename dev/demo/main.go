// Command demo fills a tenant with what makes a new system worth looking at:
// customers, meters, prices, a month of usage and a billing provider. Then it
// says where everything is and what to try. It is a client of the public API
// and nothing else, and running it again adds only what has come since.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/client"
)

// config is what the demo is told: the file that `make up` writes, or the
// environment, which wins.
type config struct {
	BaseURL       string `json:"base_url"`
	AdminKey      string `json:"admin_key"`
	ReceiverURL   string `json:"webhook_receiver_url"`
	TemporalUIURL string `json:"temporal_ui_url"`
	WebhookSecret string `json:"-"`
}

func main() {
	credentials := flag.String("credentials", cmp.Or(os.Getenv("CREDENTIALS"), ".dev/credentials.json"), "the file with the tenant's admin key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := configure(*credentials, os.Getenv)
	if err == nil {
		err = run(ctx, c, time.Now(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func configure(path string, getenv func(string) string) (config, error) {
	var c config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read credentials: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read credentials: %w", err)
	}
	c.BaseURL = cmp.Or(getenv("BASE_URL"), c.BaseURL)
	c.ReceiverURL = cmp.Or(getenv("WEBHOOK_RECEIVER_URL"), c.ReceiverURL)
	c.TemporalUIURL = cmp.Or(getenv("TEMPORAL_UI_URL"), c.TemporalUIURL)
	c.WebhookSecret = getenv("WEBHOOK_SECRET")
	if c.BaseURL == "" || c.AdminKey == "" || c.ReceiverURL == "" || c.WebhookSecret == "" {
		return c, errors.New("base_url, admin_key, webhook_receiver_url and WEBHOOK_SECRET are needed")
	}
	return c, nil
}

func run(ctx context.Context, c config, now time.Time, out io.Writer) error {
	api, err := client.NewClientWithResponses(c.BaseURL, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+c.AdminKey)
		return nil
	}))
	if err != nil {
		return err
	}
	if err := makeCustomers(ctx, api); err != nil {
		return err
	}
	if err := makeMeters(ctx, api); err != nil {
		return err
	}
	if err := saveProvider(ctx, api, c); err != nil {
		return err
	}
	sent, added, err := sendUsage(ctx, api, now)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The demo tenant has %d customers, %d meters and %d events up to the last full hour; %d of them are new.\n\n",
		len(customers), len(meters), sent, added)
	return explain(c, out)
}

func makeCustomers(ctx context.Context, api *client.ClientWithResponses) error {
	for _, c := range customers {
		answer, err := api.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{ExternalId: c.externalID, Name: &c.name})
		if err := check("create customer", answer, err, http.StatusCreated, http.StatusConflict); err != nil {
			return err
		}
	}
	return nil
}

// makeMeters comes before any event, so that no meter has a past to count.
func makeMeters(ctx context.Context, api *client.ClientWithResponses) error {
	for _, m := range meters {
		made, err := api.CreateMeterWithResponse(ctx, nil, m.CreateMeter)
		if err := check("create meter", made, err, http.StatusCreated, http.StatusConflict); err != nil {
			return err
		}
		pricing, err := api.GetPricingWithResponse(ctx, m.Slug)
		if err := check("read pricing", pricing, err, http.StatusOK); err != nil {
			return err
		}
		if len(pricing.JSON200.Versions) > 0 {
			continue
		}
		priced, err := api.SetPricingWithResponse(ctx, m.Slug, m.price)
		if err := check("set pricing", priced, err, http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

// saveProvider keeps a provider that is there already, so that what was synced
// stays with it.
func saveProvider(ctx context.Context, api *client.ClientWithResponses, c config) error {
	url, secret := c.ReceiverURL+"/usage", c.WebhookSecret
	found, err := api.GetBillingProviderWithResponse(ctx)
	if err := check("read provider", found, err, http.StatusOK, http.StatusConflict); err != nil {
		return err
	}
	if p := found.JSON200; p != nil && p.Url != nil && *p.Url == url && p.SecretLastFour == secret[len(secret)-4:] {
		return nil
	}
	saved, err := api.SaveBillingProviderWithResponse(ctx, client.SaveProvider{
		Type: client.SaveProviderTypeWebhook, Url: &url, Secret: &secret,
	})
	return check("save provider", saved, err, http.StatusOK)
}

// sendUsage sends the month that ends with now's last full hour. Its keys are
// the same whenever it is sent.
func sendUsage(ctx context.Context, api *client.ClientWithResponses, now time.Time) (sent, added int64, err error) {
	for batch := range slices.Chunk(usage(now), 1000) {
		answer, err := api.IngestEventsWithResponse(ctx, client.EventBatch{Events: batch})
		if err := check("send usage", answer, err, http.StatusOK); err != nil {
			return 0, 0, err
		}
		result := answer.JSON200
		if result.Rejected > 0 || len(result.Warnings) > 0 {
			return 0, 0, fmt.Errorf("send usage: %d events were rejected: %v", result.Rejected, result.Warnings)
		}
		sent += result.Accepted
		added += result.Accepted - result.Duplicates
	}
	return sent, added, nil
}

// check is an error unless the answer has one of the statuses.
func check(what string, answer interface {
	StatusCode() int
	GetBody() []byte
}, err error, statuses ...int) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !slices.Contains(statuses, answer.StatusCode()) {
		return fmt.Errorf("%s: status %d: %s", what, answer.StatusCode(), answer.GetBody())
	}
	return nil
}
