// Command demo fills two tenants with customers, meters, prices, usage and a billing provider: a webhook
// for one and Stripe for the other. Then it prints all addresses and commands to try. It uses only the
// public API and the fake of Stripe. Running it again adds only the usage since the previous run.
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
	"sort"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/expect"
)

// config is the configuration from the file that `make up` writes. Environment variables override it.
type config struct {
	BaseURL        string `json:"base_url"`
	AdminKey       string `json:"admin_key"`
	Email          string `json:"email"`
	Password       string `json:"password"`
	ReceiverURL    string `json:"webhook_receiver_url"`
	StripeTenantID string `json:"stripe_tenant_id"`
	StripeAdminKey string `json:"stripe_admin_key"`
	StripeURL      string `json:"stripe_fake_url"`
	TemporalUIURL  string `json:"temporal_ui_url"`
	WebhookSecret  string `json:"-"`
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

// configure reads the file, applies the environment variables, and checks that no field is missing.
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
	c.StripeURL = cmp.Or(getenv("STRIPE_FAKE_URL"), c.StripeURL)
	c.TemporalUIURL = cmp.Or(getenv("TEMPORAL_UI_URL"), c.TemporalUIURL)
	c.WebhookSecret = getenv("WEBHOOK_SECRET")
	if slices.Contains([]string{c.BaseURL, c.AdminKey, c.ReceiverURL, c.StripeTenantID, c.StripeAdminKey, c.StripeURL, c.WebhookSecret}, "") {
		return c, errors.New("base_url, admin_key, webhook_receiver_url, stripe_tenant_id, stripe_admin_key, stripe_fake_url and WEBHOOK_SECRET are needed")
	}
	return c, nil
}

// run fills both tenants and prints the result.
func run(ctx context.Context, c config, now time.Time, out io.Writer) error {
	all, added, err := fillWebhook(ctx, c, now)
	if err != nil {
		return fmt.Errorf("demo tenant: %w", err)
	}
	fmt.Fprintf(out, "The demo tenant has %d customers, %d meters and %d events up to the last full hour; %d of them are new.\n",
		len(customers), len(meters), all, added)
	all, added, err = fillStripe(ctx, c, now)
	if err != nil {
		return fmt.Errorf("demo tenant on Stripe: %w", err)
	}
	fmt.Fprintf(out, "The demo tenant on Stripe has %d customers, %d meters and %d events of this month; %d of them are new.\n\n",
		len(subscribers), len(stripeMeters), all, added)
	return explain(c, out)
}

// fillWebhook fills the tenant that bills through a webhook.
func fillWebhook(ctx context.Context, c config, now time.Time) (all, added int64, err error) {
	api, err := connect(c.BaseURL, c.AdminKey)
	if err != nil {
		return 0, 0, err
	}
	if err := makeMeters(ctx, api, meters); err != nil {
		return 0, 0, err
	}
	if err := makeCustomers(ctx, api, customers); err != nil {
		return 0, 0, err
	}
	url, secret := c.ReceiverURL+"/usage", c.WebhookSecret
	err = saveProvider(ctx, api, client.SaveProvider{Type: client.SaveProviderTypeWebhook, Url: &url, Secret: &secret},
		func(p *client.Provider) bool {
			return p.Url != nil && *p.Url == url && p.SecretLastFour == secret[len(secret)-4:]
		})
	if err != nil {
		return 0, 0, err
	}
	return sendUsage(ctx, api, usage(customers, now.Add(-month), now))
}

// connect returns a client of the API that sends the key.
func connect(url, key string) (*client.ClientWithResponses, error) {
	return client.NewClientWithResponses(url, client.WithHTTPClient(&http.Client{Transport: nextMinute{}}), client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
}

// nextMinute repeats requests that exceed the rate limit, because other clients may have used up the limit
// of the current minute.
type nextMinute struct{}

// RoundTrip sends the request. If the service answers with 429, RoundTrip waits for the time in Retry-After and sends
// the request again. If that time is missing or more than a minute, RoundTrip returns the answer.
func (nextMinute) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusTooManyRequests {
			return answer, err
		}
		wait, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		if wait < 1 || wait > 60 {
			return answer, nil
		}
		answer.Body.Close()
		select {
		case <-time.After(time.Duration(wait) * time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		r = r.Clone(r.Context())
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// makeCustomers creates the customers that do not exist yet.
func makeCustomers(ctx context.Context, api *client.ClientWithResponses, list []customer) error {
	for _, c := range list {
		body := client.CreateCustomer{ExternalId: c.externalID, Name: &c.name}
		if c.stripeID != "" {
			body.BillingProviderId = &c.stripeID
		}
		answer, err := api.CreateCustomerWithResponse(ctx, nil, body)
		if err := expect.Status("create customer", answer, err, http.StatusCreated, http.StatusConflict); err != nil {
			return err
		}
	}
	return nil
}

// makeMeters creates the meters and their prices. It runs before any customer is created, so that no meter
// needs a backfill and no price changes a billing period that has begun.
func makeMeters(ctx context.Context, api *client.ClientWithResponses, list []meter) error {
	for _, m := range list {
		made, err := api.CreateMeterWithResponse(ctx, nil, m.CreateMeter)
		if err := expect.Status("create meter", made, err, http.StatusCreated, http.StatusConflict); err != nil {
			return err
		}
		pricing, err := api.GetPricingWithResponse(ctx, m.Slug)
		if err := expect.Status("read pricing", pricing, err, http.StatusOK); err != nil {
			return err
		}
		if len(pricing.JSON200.Versions) > 0 || m.price == (client.SetPricing{}) {
			continue
		}
		priced, err := api.SetPricingWithResponse(ctx, m.Slug, m.price)
		if err := expect.Status("set pricing", priced, err, http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

// saveProvider saves the provider unless an equal provider is already saved. So earlier syncs still belong to
// the current connection.
func saveProvider(ctx context.Context, api *client.ClientWithResponses, p client.SaveProvider, same func(*client.Provider) bool) error {
	found, err := api.GetBillingProviderWithResponse(ctx)
	if err := expect.Status("read provider", found, err, http.StatusOK, http.StatusConflict); err != nil {
		return err
	}
	if found.JSON200 != nil && same(found.JSON200) {
		return nil
	}
	saved, err := api.SaveBillingProviderWithResponse(ctx, p)
	return expect.Status("save provider", saved, err, http.StatusOK)
}

// sendUsage sends the events that the API does not have. It returns the number of all events and of those
// added.
func sendUsage(ctx context.Context, api *client.ClientWithResponses, events []client.Event) (all, added int64, err error) {
	there, err := countStored(ctx, api, events)
	if err != nil {
		return 0, 0, err
	}
	for batch := range slices.Chunk(events[there:], 1000) {
		answer, err := api.IngestEventsWithResponse(ctx, client.EventBatch{Events: batch})
		if err := expect.Status("send usage", answer, err, http.StatusOK); err != nil {
			return 0, 0, err
		}
		result := answer.JSON200
		if result.Rejected > 0 { // events before the first billing periods only produce warnings
			return 0, 0, fmt.Errorf("send usage: %d events were rejected: %v", result.Rejected, result.Warnings)
		}
		added += result.Accepted - result.Duplicates
	}
	return int64(len(events)), added, nil
}

// countStored returns the number of events that the API already has. Events are sent in order and in atomic
// batches, so the stored events are a prefix of all events.
func countStored(ctx context.Context, api *client.ClientWithResponses, events []client.Event) (int, error) {
	var failed error
	there := sort.Search(len(events), func(i int) bool {
		if failed != nil {
			return true
		}
		e := events[i]
		answer, err := api.ListEventsWithResponse(ctx, &client.ListEventsParams{
			Customer: &e.CustomerId, IdempotencyKey: e.IdempotencyKey, Start: e.Timestamp, End: new(e.Timestamp.Add(time.Second)),
		})
		if failed = expect.Status("look for usage", answer, err, http.StatusOK); failed != nil {
			return true
		}
		return len(answer.JSON200.Data) == 0
	})
	return there, failed
}
