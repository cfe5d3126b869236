package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// subscribers are the customers of the tenant that bills through Stripe.
var subscribers = []customer{
	{"northwind", "Northwind Traders", 20, "cus_northwind"},
	{"contoso", "Contoso Ltd.", 12, "cus_contoso"},
	{"fabrikam", "Fabrikam GmbH", 30, "cus_fabrikam"},
	{"sakura", "株式会社さくら", 9, "cus_sakura"}, // pays in yen
	{"tailspin", "Tailspin Toys", 4, ""},
}

// stripeMeters are meters that are mapped to Stripe in different ways: by the configured mapping, by lookup
// key, by a price's metadata, and by a meter's metadata. The last meter is not mapped.
var stripeMeters = []meter{
	{
		client.CreateMeter{Slug: "api-calls", EventType: apiRequest, Name: new("API calls")},
		client.SetPricing{OverageRate: number("0.02")},
	},
	{
		client.CreateMeter{Slug: "tokens", EventType: completion, Name: new("Tokens")},
		client.SetPricing{OverageRate: number("0.0000125")},
	},
	{
		client.CreateMeter{Slug: "images", EventType: image, Name: new("Images"), Aggregation: new(client.CreateMeterAggregationCount)},
		client.SetPricing{OverageRate: number("0.04")},
	},
	{
		client.CreateMeter{Slug: "completions", EventType: completion, Name: new("Completions"), Aggregation: new(client.CreateMeterAggregationCount)},
		client.SetPricing{OverageRate: number("0.001")},
	},
	{
		CreateMeter: client.CreateMeter{Slug: "requests", EventType: apiRequest, Name: new("Requests"), Aggregation: new(client.CreateMeterAggregationCount)},
	},
}

// inYen contains the plan prices of customers that pay in yen. They equal the prices at Stripe.
var inYen = map[string]client.SetPlanPricing{
	"tokens": {OverageRate: number("0.002"), Currency: new("JPY")},
	"images": {OverageRate: number("6"), Currency: new("JPY")},
}

// stripeMapping is the configured mapping from meters to prices at Stripe.
var stripeMapping = map[string]string{"api-calls": "price_calls"}

// seed returns the account at Stripe. It contains a legacy metered price with usage records, and prices with
// meters. One meter sums values, one keeps a total for each day, and one keeps the last value.
func seed(a stripetest.Account) stripetest.Seed {
	named := func(slug string) map[string]string { return map[string]string{"meter_slug": slug} }
	s := stripetest.Seed{
		Account: a,
		Meters: []stripetest.Meter{
			{ID: "mtr_tokens", EventName: "tokens"},
			{ID: "mtr_images", EventName: "images", EventTimeWindow: "day"},
			{ID: "mtr_completions", EventName: "completions", Formula: "last", Metadata: named("completions")},
		},
		Prices: []stripetest.Price{
			{ID: "price_calls", UnitAmount: "2"},
			{ID: "price_tokens", UnitAmount: "0.00125", Meter: "mtr_tokens", LookupKey: "tokens"},
			{ID: "price_tokens_jpy", UnitAmount: "0.002", Meter: "mtr_tokens", Metadata: named("tokens"), Currency: "jpy"},
			{ID: "price_images", UnitAmount: "4", Meter: "mtr_images", Metadata: named("images")},
			{ID: "price_images_jpy", UnitAmount: "6", Meter: "mtr_images", Metadata: named("images"), Currency: "jpy"},
			{ID: "price_completions", UnitAmount: "0.1", Meter: "mtr_completions"},
		},
	}
	for _, c := range subscribers {
		if c.stripeID == "" {
			continue
		}
		s.Customers = append(s.Customers, stripetest.Customer{ID: c.stripeID})
		subscription := stripetest.Subscription{ID: "sub_" + c.externalID, Customer: c.stripeID}
		for _, price := range pricesOf(c) {
			subscription.Items = append(subscription.Items, stripetest.Item{ID: "si_" + c.externalID + "_" + price, Price: "price_" + price})
		}
		s.Subscriptions = append(s.Subscriptions, subscription)
	}
	return s
}

// pricesOf returns the names of the prices in the customer's subscription.
func pricesOf(c customer) []string {
	if c.externalID == "sakura" {
		return []string{"tokens_jpy", "images_jpy"}
	}
	return []string{"calls", "tokens", "images", "completions"}
}

// stripeAccount returns the tenant's account at Stripe. A new tenant gets a new account, which has billed
// nothing yet.
func stripeAccount(c config) stripetest.Account {
	mark := fmt.Sprintf("%x", sha256.Sum256([]byte(c.StripeAdminKey)))[:8]
	return stripetest.Account{
		ID: "acct_demo_" + mark, Key: "sk_test_demo_" + mark,
		WebhookURL:    c.BaseURL + "/v1/provider-webhooks/stripe/" + c.StripeTenantID,
		WebhookSecret: c.WebhookSecret,
	}
}

// fillStripe fills the tenant that bills through Stripe.
func fillStripe(ctx context.Context, c config, now time.Time) (all, added int64, err error) {
	api, err := connect(c.BaseURL, c.StripeAdminKey)
	if err != nil {
		return 0, 0, err
	}
	account := stripeAccount(c)
	if err := sendSeed(ctx, c.StripeURL, seed(account)); err != nil {
		return 0, 0, err
	}
	if err := makeMeters(ctx, api, stripeMeters); err != nil {
		return 0, 0, err
	}
	if err := makeYen(ctx, api); err != nil {
		return 0, 0, err
	}
	if err := makeCustomers(ctx, api, subscribers); err != nil {
		return 0, 0, err
	}
	if err := assignYen(ctx, api, "sakura"); err != nil {
		return 0, 0, err
	}
	err = saveProvider(ctx, api, client.SaveProvider{
		Type: client.SaveProviderTypeStripe, SecretKey: &account.Key, WebhookSecret: &account.WebhookSecret, Mapping: &stripeMapping,
	}, func(p *client.Provider) bool { return p.Account != nil && *p.Account == account.ID })
	if err != nil {
		return 0, 0, err
	}
	// Usage before this month has already been invoiced.
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	all, added, err = sendUsage(ctx, api, usage(subscribers, month, now))
	if err != nil || all > 0 && added == 0 { // nothing is new
		return all, added, err
	}
	return all, added, autoSync(ctx, api)
}

// yen is the slug of the plan with prices in yen.
const yen = "yen"

// makeYen creates the plan with prices in yen, unless it exists.
func makeYen(ctx context.Context, api *client.ClientWithResponses) error {
	made, err := api.CreatePlanWithResponse(ctx, nil, client.CreatePlan{Slug: yen, Name: new("Prices in yen")})
	if err := expect.Status("create plan", made, err, http.StatusCreated, http.StatusConflict); err != nil {
		return err
	}
	for meter, price := range inYen {
		pricing, err := api.GetPlanPricingWithResponse(ctx, yen, meter)
		if err := expect.Status("read plan's pricing", pricing, err, http.StatusOK); err != nil {
			return err
		}
		if len(pricing.JSON200.Versions) > 0 {
			continue
		}
		set, err := api.SetPlanPricingWithResponse(ctx, yen, meter, price)
		if err := expect.Status("set plan's pricing", set, err, http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

// assignYen assigns the plan from the start of the customer's first billing period. The period has begun,
// so the change must be confirmed.
func assignYen(ctx context.Context, api *client.ClientWithResponses, customer string) error {
	has, err := api.GetCustomerPlanWithResponse(ctx, customer, nil)
	if err := expect.Status("read customer's plan", has, err, http.StatusOK); err != nil || has.JSON200.Plan != nil {
		return err
	}
	assignment := client.AssignPlan{Plan: new(yen)}
	assigned, err := api.AssignPlanWithResponse(ctx, customer, nil, assignment)
	if err == nil && assigned.ApplicationproblemJSONDefault != nil && assigned.ApplicationproblemJSONDefault.Confirmation != nil {
		assignment.Confirm = &assigned.ApplicationproblemJSONDefault.Confirmation.Token
		assigned, err = api.AssignPlanWithResponse(ctx, customer, nil, assignment)
	}
	return expect.Status("assign the plan to the customer", assigned, err, http.StatusOK)
}

// sendSeed creates the seeded objects at the fake of Stripe.
func sendSeed(ctx context.Context, url string, s stripetest.Seed) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("seed Stripe: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/_seed", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("seed Stripe: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("seed Stripe: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("seed Stripe: status %d: %s: %w", answer.StatusCode, text, err)
	}
	return nil
}

// autoSync turns Auto-Sync on and starts a run. If Temporal is too busy to confirm the run, the schedule
// runs within the hour.
func autoSync(ctx context.Context, api *client.ClientWithResponses) error {
	found, err := api.GetAutoSyncWithResponse(ctx)
	if err := expect.Status("read Auto-Sync", found, err, http.StatusOK); err != nil {
		return err
	}
	if !found.JSON200.Enabled {
		saved, err := api.SaveAutoSyncWithResponse(ctx, client.SaveAutoSync{Enabled: true, Schedule: "hourly"})
		if err := expect.Status("save Auto-Sync", saved, err, http.StatusOK); err != nil {
			return err
		}
	}
	begun, err := api.TriggerAutoSyncWithResponse(ctx)
	return expect.Status("begin Auto-Sync", begun, err, http.StatusAccepted, http.StatusServiceUnavailable)
}
